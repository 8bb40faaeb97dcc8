"""What to measure about explanations, and on which items."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError
from transexplain.evaluations import EvaluatedMethod, EvaluationPlan, MetricSpec
from transexplain.explaining import Request
from transexplain.plans import AuditPlan
from transexplain.randomness import row_places

#: of these targets every item has exactly one class
TARGETS = ("predicted", "label", "class")


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """What to measure and how, whatever the items.

    Raises ConfigurationError where a target is not one class of every item.
    """

    request: Request  #: targets, long texts; its method is replaced by each of the plan's
    plan: EvaluationPlan
    rows: int  #: of the dataset
    _places: NDArray[np.intp] | None = field(init=False, repr=False)  #: None: all rows are measured

    def __post_init__(self) -> None:
        """Check before anything is computed."""
        for target in self.request.targets:
            if target.kind not in TARGETS:
                raise ConfigurationError(
                    f"target {target.spec!r} cannot be evaluated: the explanations of one class an "
                    f"item are compared; use one of {', '.join(TARGETS)}"
                )
        plan = self.plan
        limits = [plan.items, *(one.items for one in plan.methods)]
        limits += [one.items for one in plan.metrics]
        limited = any(limit is not None for limit in limits)
        drawn = row_places(self.rows, self.plan.seed) if limited else None
        object.__setattr__(self, "_places", drawn)

    @classmethod
    def from_plan(cls, plan: AuditPlan) -> "Evaluation":
        """The evaluation of a plan that has one; raises ConfigurationError, TargetError."""
        assert plan.evaluation is not None
        targets = replace(plan, targets=plan.evaluation.targets)
        return cls(request=Request.from_plan(targets), plan=plan.evaluation, rows=plan.dataset.rows)

    def wants(self, row: int) -> bool:
        """Whether an item is in the sample."""
        return self._is_drawn(row, self.plan.items)

    def measures(self, part: EvaluatedMethod | MetricSpec, row: int) -> bool:
        """Whether a method is measured, or a metric computed, on an item of the sample."""
        return self._is_drawn(row, part.items)

    def _is_drawn(self, row: int, count: int | None) -> bool:
        return count is None or self._places is None or bool(self._places[row] < count)
