"""What `doctor` found out about one model: a record, and what follows from it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from transexplain.plans import ModelRef
from transexplain.types import Ledger, Unit

if TYPE_CHECKING:
    from transexplain.engine.census import OperatorUse, Uncovered
    from transexplain.models.base import Invariance


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Medians of interleaved runs over one item, and the memory they took."""

    forward: float  #: seconds of the untouched model
    explanation: float  #: seconds of forward, backward and record
    graph_bytes: int  #: kept from the forward for the backward pass
    peak_bytes: int | None  #: largest allocation on a CUDA device; None: not measured on CPU

    @property
    def ratio(self) -> float:
        """Explanation in forwards."""
        return self.explanation / self.forward


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """One item through one model under one method."""

    model: ModelRef
    method: str
    unit: Unit  #: of the ledger
    at: str
    positions: int  #: T
    target: str  #: the predicted class, which was explained
    operators: "tuple[OperatorUse, ...]"
    uncovered: "tuple[Uncovered, ...]"
    remedies: tuple[str, ...]  #: methods that need no propagation through an operator
    ledger: Ledger | None  #: None where the model is not covered
    gap_tolerance: float | None  #: share of the sum of |terms|; None: measured only
    logit_scale: float  #: largest |logit| of the untouched model
    logits_difference: float | None  #: to the untouched model; None: the pass gave no logits
    logits_tolerance: float  #: share of the largest logit
    timing: Timing | None  #: None where the model is not covered
    invariance: "Invariance"

    @property
    def closes(self) -> bool | None:
        """Whether the gap is within its tolerance; None where it is measured only."""
        if self.ledger is None or not math.isfinite(self.ledger.gap):
            return False
        if self.gap_tolerance is None:
            return None
        return self.ledger.relative_gap <= self.gap_tolerance

    @property
    def same_logits(self) -> bool:
        """Whether the logits are the same with and without the rules."""
        difference = self.logits_difference
        return difference is not None and difference <= self.logits_tolerance * self.logit_scale

    @property
    def verdict(self) -> str:
        """One line: `covered`, or what stands against it."""
        if self.uncovered:
            names = dict.fromkeys(one.operator for one in self.uncovered)
            return f"not covered: {', '.join(names)}"
        if not self.same_logits:
            return f"logits differ from the untouched model's by {self.logits_difference:.1e}"
        if self.closes is False:
            return "ledger does not close"
        return "covered"

    @property
    def batching(self) -> str:
        """How items of this model are put into batches."""
        if not self.invariance.batch:
            return "item by item"
        if self.model.modality == "image":
            return "any items together"
        return "equal lengths" if self.invariance.padding is False else "similar lengths, padded"

    def document(self) -> Mapping[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        derived = {
            "verdict": self.verdict,
            "closes": self.closes,
            "batching": self.batching,
            "ratio": None if self.timing is None else self.timing.ratio,
        }
        plain: Mapping[str, Any] = _finite({**asdict(self), **derived})
        return plain


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
