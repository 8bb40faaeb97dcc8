"""Which parameters of a test the everyday tests have; `.ci/run` has the others too."""

from collections.abc import Iterable
from typing import Any

import pytest


def only(*everyday: Any, of: Iterable[Any]) -> list[Any]:
    """Every parameter in `of`, in its order; those not named here are marked exhaustive."""
    found = list(of)
    missing = [one for one in everyday if one not in found]
    assert not missing, f"no such parameter: {missing}"
    return [one if one in everyday else _exhaustive(one) for one in found]


def _exhaustive(one: Any) -> Any:
    values = one if isinstance(one, tuple) else (one,)
    return pytest.param(*values, marks=pytest.mark.exhaustive)
