"""What every explanation method takes and gives back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.types import Attribution, ResolvedTarget

#: (B, C) logits -> the targets of every item; a method calls it after its forward pass
Resolve = Callable[[NDArray[np.floating[Any]]], list[list[ResolvedTarget]]]


@dataclass(frozen=True, slots=True)
class BatchExplanation:
    """One batch explained."""

    logits: NDArray[np.float64]  #: (B, C)
    attributions: list[list[Attribution]]  #: per item, in the order of its targets
