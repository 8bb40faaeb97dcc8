"""What a metric reads and gives: an explanation of an item, its score, and explaining again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from transexplain.types.items import Attribution, Item, PatchGrid, own_positions

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel

Array = NDArray[np.float64]
Masks = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Case:
    """One explanation of one item, to be measured."""

    item: Item
    attribution: Attribution
    logits: Array  #: (C,) of the whole item
    seconds: float  #: explaining took, its share of its batch
    label: int | None = None  #: class index of the item's label; None: it has none

    @property
    def own(self) -> Masks:
        """(T,) which positions are the item's own: no special token."""
        features = self.attribution.features
        if isinstance(features, PatchGrid):
            return np.ones(self.attribution.relevance.size, dtype=bool)
        return own_positions(features)

    @property
    def relevance(self) -> Array:
        """(P,) relevance of its own positions, row by row where it is a picture."""
        flat = np.asarray(self.attribution.relevance, dtype=np.float64).reshape(-1)
        return flat[self.own]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """The score of one case."""

    value: float | None  #: None: it cannot be computed, `reason` says why
    curve: tuple[float, ...] = ()  #: over the metric's axis
    reason: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)  #: JSON-able, for corpus metrics


def unmeasured(reason: str) -> Scored:
    """A case that the metric has no value for."""
    return Scored(value=None, reason=reason)


class Bench(Protocol):
    """Where a metric of kind `model` explains again: one method on one model."""

    @property
    def model(self) -> "LoadedModel":
        """The model that is audited."""

    def again(
        self,
        cases: Sequence[Case],
        *,
        classes: Sequence[int] | None = None,
        items: Sequence[Item] | None = None,
        model: "LoadedModel | None" = None,
    ) -> list[Attribution | str]:
        """Explain the cases' items again by the same method.

        Args:
            cases: what is explained again.
            classes: of each, the index of the class that is explained; default: as before.
            items: explained in their place, one for each case.
            model: explained in the place of the audited one; of the same classes.

        Returns:
            For each case its attribution, or why there is none.
        """
