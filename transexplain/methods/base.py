"""What every explanation method takes and gives back.

    explain(model, batch, resolve, *, method, ...) -> BatchExplanation

`model` is any loaded model, `batch` holds B items, `resolve` is called with the logits of the
forward pass and gives the targets of every item, `method` is the name in the registry, and the
other keywords are the method's parameters. Results do not depend on what else is in the batch.
"""

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
