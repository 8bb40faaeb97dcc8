"""Many tests at once: adjusted p-values over one declared family."""

from collections.abc import Callable, Sequence
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from transexplain.errors import ConfigurationError
from transexplain.findings import Correction

CORRECTIONS: tuple[Correction, ...] = get_args(Correction)
_P = NDArray[np.float64]


def adjusted(p: Sequence[float | None], how: Correction = "bh") -> list[float | None]:
    """Adjusted p-values of one family, in its order; None, which is no test, stays None.

    `bh` (Benjamini and Hochberg 1995) and `by` (Benjamini and Yekutieli 2001, for any dependence)
    hold the expected share of false discoveries, `holm` (1979) the chance of a single one.
    Raises ConfigurationError for any other name.
    """
    if how not in CORRECTIONS:
        raise ConfigurationError(f"correction {how!r} is none of {', '.join(CORRECTIONS)}")
    tested = [index for index, one in enumerate(p) if one is not None]
    if not tested:
        return list(p)
    values = _BY_NAME[how](np.array([p[index] for index in tested], dtype=np.float64))
    found: list[float | None] = [None] * len(p)
    for index, value in zip(tested, values, strict=True):
        found[index] = float(value)
    return found


def _holm(p: _P) -> _P:
    order = np.argsort(p, kind="stable")
    stepped = p[order] * np.arange(len(p), 0, -1)
    found = np.empty_like(p)
    found[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return found


_BY_NAME: dict[str, Callable[[_P], _P]] = {
    "bh": lambda p: false_discovery_control(p, method="bh"),
    "by": lambda p: false_discovery_control(p, method="by"),
    "holm": _holm,
    "none": lambda p: p,
}
