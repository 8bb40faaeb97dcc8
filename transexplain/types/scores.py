"""Records of an evaluation: which explanations are measured, by which metrics, and their scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import Any

from transexplain.errors import ConfigurationError

#: the rows of a table that are no method: relevance drawn at random, where people marked it, and a
#: forward pass that explains nothing
RANDOM, ORACLE, PREDICTION = "random", "oracle", "prediction"
#: of random relevance in an evaluation (Hou and Castanon 2023, section 3.1); in an audit one
DRAWS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodSpec:
    """A registered explanation method and its parameters."""

    name: str = "lrp"
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExactPlan:
    """Which items an exact method explains beside the plan's own, which is a cheap one."""

    method: MethodSpec = field(default_factory=MethodSpec)
    share: float  #: of the rows, above 0 and up to 1
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TeacherAgreement:
    """How near an explainer comes to its teacher, over items that it did not learn from."""

    items: int
    rank_correlation: float  #: Spearman's, over an item's own positions, mean over items
    relative_error: float  #: |learned - taught| / |taught|, Euclidean, median over items
    by_class: Mapping[str, float] = field(default_factory=dict)  #: rank correlation


@dataclass(frozen=True, kw_only=True, slots=True)
class Approximation:
    """Which method an explainer approximates, and how near it came when it was trained."""

    teacher: str  #: name of the method that it learned from
    mode: str  #: `separate`: beside the model as it was; `joint`: together with it
    items: int  #: held out of training, that the agreement is over; 0: it was not measured
    rank_correlation: float | None  #: Spearman's over an item's positions, mean over these items
    relative_error: float | None  #: |learned - taught| / |taught|, median over these items
    forwards: float  #: operations of an explanation, in forward passes of the model


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluatedMethod:
    """One row of every table."""

    label: str  #: unlike all others; the method's name where that is enough
    method: MethodSpec
    items: int | None = None  #: measured on so many of the evaluated items; None: on all
    draws: int = 1  #: of random relevance; scores are the mean over them

    def __post_init__(self) -> None:
        """Refuse draws of a method that draws nothing; raises ConfigurationError."""
        if self.draws < 1 or (self.draws > 1 and self.method.name != RANDOM):
            raise ConfigurationError(
                f"draws={self.draws} of {self.label}: draws are at least 1, and more than one are "
                f"for method {RANDOM!r} alone"
            )

    def drawn(self, draw: int) -> "EvaluatedMethod":
        """One draw of it: the seed is that of the method, and `draw` more."""
        if not draw:
            return self
        params = {**self.method.params, "seed": self.method.params.get("seed", 0) + draw}
        return replace(self, method=replace(self.method, params=params), draws=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricSpec:
    """A registered metric and its parameters; one table."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    items: int | None = None  #: as of a method
    label: str = ""  #: unlike all others; "": the metric's name

    def __post_init__(self) -> None:
        """A metric that stands for itself is called by its name."""
        if not self.label:
            object.__setattr__(self, "label", self.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationPlan:
    """What is measured about explanations, and on which items."""

    methods: tuple[EvaluatedMethod, ...]
    metrics: tuple[MetricSpec, ...]
    targets: tuple[str, ...] = ("predicted",)  #: each of one class for every item
    items: int | None = None  #: drawn from the dataset; None: every item
    seed: int = 0  #: of the drawing
    confidence: float = 0.0  #: items whose predicted class is not more probable are left out


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricScore:
    """What one metric says of one explanation."""

    item_id: str
    method: str  #: label
    target: str  #: as requested
    metric: str  #: label
    value: float | None  #: None: it could not be computed
    curve: tuple[float, ...] = ()  #: over the metric's axis
    reason: str = ""  #: why there is no value
    detail: Mapping[str, Any] = field(default_factory=dict)  #: JSON-able; what the whole run needs


def joined_draws(scores: Sequence[MetricScore]) -> tuple[MetricScore, ...]:
    """Scores of one item, those of one explanation's draws as one.

    Its value and curve are the means over the draws, and its detail has under `draws` the value
    of every draw, or its detail where only many items together have a value.
    """
    groups: dict[tuple[str, str, str], list[MetricScore]] = {}
    for score in scores:
        groups.setdefault((score.method, score.target, score.metric), []).append(score)
    return tuple(_of_draws(group) for group in groups.values())


def _of_draws(group: Sequence[MetricScore]) -> MetricScore:
    first = group[0]
    values = [score.value for score in group if score.value is not None]
    if len(group) == 1 or any(score.reason for score in group):
        return next((score for score in group if score.reason), first)
    if not values:
        return replace(first, detail={"draws": [dict(score.detail) for score in group]})
    curves = zip(*(score.curve for score in group), strict=True)
    return replace(
        first,
        value=fsum(values) / len(values),
        curve=tuple(fsum(points) / len(points) for points in curves),
        detail={**first.detail, "draws": values},
    )
