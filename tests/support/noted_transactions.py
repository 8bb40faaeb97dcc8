"""Notes the transactions that begin, for tests that count them."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, event


@contextmanager
def noted_transactions(of: Engine | type[Engine] = Engine) -> Iterator[list[Connection]]:
    """The connections on which one begins in here: of an engine, or of all."""
    found: list[Connection] = []

    def note(connection: Connection) -> None:
        found.append(connection)

    event.listen(of, "begin", note)
    try:
        yield found
    finally:
        event.remove(of, "begin", note)
