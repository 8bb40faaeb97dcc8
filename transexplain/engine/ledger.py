"""Where every unit of the explained logit went.

Each entry is measured at its own operator while the backward pass runs; none is a remainder, so a
dropped bias, a doubled residual or a detached path shows in the gap (design, section 4).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transexplain.engine.items import per_item
from transexplain.engine.tensor_record import ItemAxis
from transexplain.types import Ledger

Entry = Literal["embeddings", "biases", "rules"]


class LedgerBook:
    """Collects the constants and the losses of one backward pass, per item and per operator."""

    def __init__(self, items: int) -> None:
        self.items = items
        self.kept = True  #: whether bookings of the current pass are wanted
        self._sites: dict[tuple[Entry, str, int], Tensor] = {}
        self._amplification: Tensor | None = None

    def start(self, *, keep: bool = True) -> None:
        """Forget the pass before: every backward pass has a ledger of its own, or none."""
        self._sites.clear()
        self.kept = keep

    def add(self, entry: Entry, kind: str, site: int, values: Tensor) -> None:
        """Book `values` (B,) in logits at operator number `site`."""
        key = (entry, kind, site)
        old = self._sites.get(key)
        self._sites[key] = values if old is None else old + values

    def amplified(self, factors: Tensor, axis: ItemAxis | None) -> None:
        """Keep the largest |factor| of every item, by which a rule amplified relevance."""
        largest = per_item(factors.detach().abs(), axis, self.items, largest=True)
        old = self._amplification
        self._amplification = largest if old is None else torch.maximum(old, largest)

    @property
    def amplification(self) -> NDArray[np.float64] | None:
        """(B,) the largest factor by which a rule amplified relevance; None: no rule can."""
        return None if self._amplification is None else self._amplification.cpu().numpy()

    def close(
        self,
        inputs: NDArray[np.float64],
        special: NDArray[np.float64],
        logits: Sequence[float] | NDArray[np.float64],
    ) -> list[Ledger]:
        """One ledger per item.

        Args:
            inputs: (B, T) relevance of the non-special positions, 0 elsewhere.
            special: (B, T') relevance of the special positions, 0 elsewhere.
            logits: (B,) what was propagated.
        """
        keys = list(self._sites)
        table = (
            torch.stack([self._sites[key] for key in keys]).cpu().numpy()
            if keys
            else np.zeros((0, self.items))
        )
        return [
            _close_item(keys, table[:, item], inputs[item], special[item], float(logits[item]))
            for item in range(self.items)
        ]


def _close_item(
    keys: list[tuple[Entry, str, int]],
    terms: NDArray[np.float64],
    inputs: NDArray[np.float64],
    special: NDArray[np.float64],
    logit: float,
) -> Ledger:
    sums: dict[Entry, dict[str, float]] = {"embeddings": {}, "biases": {}, "rules": {}}
    for (entry, kind, _), term in zip(keys, terms, strict=True):
        sums[entry][kind] = sums[entry].get(kind, 0.0) + float(term)
    entries = [float(inputs.sum()), float(special.sum())]
    entries += [sum(sums[entry].values()) for entry in ("embeddings", "biases", "rules")]
    total = sum(entries)
    magnitude = sum(float(np.abs(part).sum()) for part in (inputs, special, terms))
    return Ledger(
        inputs=entries[0],
        special=entries[1],
        embeddings=entries[2],
        biases=entries[3],
        rules=entries[4],
        total=total,
        gap=logit - total,
        magnitude=magnitude,
        biases_by_kind=sums["biases"],
        rules_by_kind=sums["rules"],
    )
