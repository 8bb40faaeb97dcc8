"""Rows that do not hold what this program writes there."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from transexplain.errors import DamagedRowError


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what Python says of `what` into a DamagedRowError: the row is damaged, or not ours."""
    try:
        yield
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError, zlib.error) as error:
        raise DamagedRowError(
            f"the database holds {what} that cannot be read: {error}; restore it from a backup"
        ) from None
