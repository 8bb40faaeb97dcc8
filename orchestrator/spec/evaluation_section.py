"""The section `evaluation`: its methods and metrics, as a checked plan."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, JsonValue

from orchestrator.spec.method_section import MethodSection
from orchestrator.spec.spec_document import SpecSection, absolute_if_exists, from_text
from transexplain.errors import ConfigurationError, EngineError
from transexplain.evaluating.metrics import METRICS, curve_of, metric_facts
from transexplain.methods import METHODS, bound, cost_of, facts_of
from transexplain.registry import load
from transexplain.reports.phrasing import counted
from transexplain.types.items import Item
from transexplain.types.plans import AuditPlan
from transexplain.types.scores import (
    DRAWS,
    ORACLE,
    PREDICTION,
    RANDOM,
    EvaluatedMethod,
    EvaluationPlan,
    MethodSpec,
    MetricSpec,
)

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel

#: what `evaluate` compares unless methods are named: the usual ones, of few passes
USUAL = (
    *("lrp", "lrp-ah-ln", "attnlrp", "gradient-x-input"),
    *("attention-last", "rollout", "gae", "transformer-attribution"),
)
#: an audit measures its own method on so many items, unless its specification says otherwise
SAMPLE = 32
#: methods of more passes for an item, and metrics that explain again, are measured on fewer items
#: where all methods or all metrics are requested
MANY_PASSES, FEW_ITEMS = 20, 100
_TYPICAL = 32  #: positions, where only the order of magnitude matters
_IN_AUDIT = {
    "text": ("activation", "pruning"),
    "image": ("positive-perturbation", "negative-perturbation"),
    "nodes": ("activation", "pruning"),
}


class EvaluatedMethodSection(MethodSection):
    """One row of every table of an evaluation."""

    name: str = Field(description="name of a method: docs/reference/methods.md")
    label: str | None = Field(default=None, description="default: the name")
    items: int | None = Field(default=None, ge=1, description="measured on so many items")
    draws: int | None = Field(
        default=None, ge=1, description="of method random; default: 20, in an audit 1"
    )

    def row(self) -> EvaluatedMethod:
        """The row as a plan has it; raises ConfigurationError for a wrong method or parameter."""
        bound(self.planned)
        return EvaluatedMethod(
            label=self.label or self.name,
            method=self.planned,
            items=self.items,
            draws=self.draws or 1,
        )


class MetricSection(SpecSection):
    """One metric, with its parameters."""

    shorthand: ClassVar[str] = "name"

    name: str = Field(description="name of a metric: docs/reference/metrics.md")
    params: dict[str, JsonValue] = Field(
        default_factory=dict, description="parameters of the metric, by name"
    )
    items: int | None = Field(default=None, ge=1, description="computed on so many items")
    label: str | None = Field(default=None, description="default: the name")

    def absolute(self) -> Self:
        """The metric with absolute paths of the files among its parameters."""
        files = metric_facts(self.name).files
        params = {
            name: _absolute(value) if name in files and isinstance(value, str) else value
            for name, value in self.params.items()
        }
        return self.model_copy(update={"params": params})

    def resolved(self) -> Self:
        """The metric with parameters as a plan has them; raises ConfigurationError."""
        planned = metric_facts(self.name).planned
        if not planned:
            return self
        params: dict[str, JsonValue] = load(planned)(self.params)
        return self.model_copy(update={"params": params})


def _absolute(file: str) -> str:
    """A file's absolute path, with the column behind it; what is no file here stays."""
    path, mark, column = file.partition("#")
    return f"{absolute_if_exists(path)}{mark}{column}"


_Row = Annotated[EvaluatedMethodSection, from_text(EvaluatedMethodSection)]
_Metric = Annotated[MetricSection, from_text(MetricSection)]


class EvaluationSection(SpecSection):
    """The measures of explanations: by `evaluate`, and on a sample of every audit."""

    options: ClassVar[Mapping[str, str]] = {
        name: name for name in ("methods", "metrics", "baseline")
    }

    methods: Literal["all"] | tuple[_Row, ...] = Field(
        default=(), description="default: those of few passes; in an audit its own"
    )
    metrics: Literal["all"] | tuple[_Metric, ...] = Field(
        default=(), description="default: the usual ones of what the model reads"
    )
    baseline: str | int | None = Field(
        default=None, description="what stands in the place of what is hidden"
    )
    over: Literal["tokens", "words"] | None = Field(
        default=None, description="what of a text is hidden at once"
    )
    items: int | None = Field(
        default=None,
        ge=0,
        description="how many are drawn from the data; default: 32 in an audit, where 0 is none; "
        "200 in evaluate, where 0 is all",
    )
    seed: int = Field(default=0, description="seed of this draw, and of metrics that sample")
    confidence: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="probability that the model must give its answer, else an item is not measured",
    )

    def absolute(self) -> Self:
        """The section with absolute paths of the files that its methods and metrics name."""
        return self._with_rows(methodcaller("absolute"))

    def resolved(self) -> Self:
        """The section with the absolute paths of its files, and the sha256 of their bytes."""
        return self._with_rows(methodcaller("resolved"))

    def _with_rows(self, change: Callable[[Any], Any]) -> Self:
        rows = {"methods": self.methods, "metrics": self.metrics}
        return self.model_copy(
            update={
                name: tuple(map(change, value))
                for name, value in rows.items()
                if value and value != "all"
            }
        )

    @property
    def named(self) -> tuple[MethodSpec, ...]:
        """The methods that are named one by one."""
        return () if self.methods == "all" else tuple(row.planned for row in self.methods)

    def of_audit(self, plan: AuditPlan) -> EvaluationPlan | None:
        """The evaluation of an audit's own method; None: none."""
        usual = _IN_AUDIT[plan.model.modality]
        metrics = self._metrics(plan) if self.metrics else self._usual_metrics(usual)
        count = SAMPLE if self.items is None else self.items
        if not count or not metrics:
            return None
        method = EvaluatedMethod(label=plan.method.name, method=plan.method)
        methods = self._methods(plan) if self.methods else (method, *_floor([method]))
        evaluable = (
            target
            for target in plan.targets
            if target in ("predicted", "label") or target.startswith("class:")
        )
        return EvaluationPlan(
            methods=methods,
            metrics=metrics,
            targets=(next(evaluable, "predicted"),),
            items=count,
            seed=self.seed,
            confidence=self.confidence,
        )

    def of_every_item(self, plan: AuditPlan) -> EvaluationPlan:
        """The plan of `evaluate`: every method and metric of the section, on every item."""
        return EvaluationPlan(
            methods=tuple(map(self._often, self._methods(plan))),
            metrics=self._metrics(plan),
            targets=plan.targets,
            seed=self.seed,
            confidence=self.confidence,
        )

    def _often(self, method: EvaluatedMethod) -> EvaluatedMethod:
        """Random relevance as often as the section says, else `DRAWS` times."""
        if method.method.name != RANDOM:
            return method
        rows = () if self.methods == "all" else self.methods
        draws = (row.draws for row in rows if (row.label or row.name) == method.label)
        return replace(method, draws=next(draws, None) or DRAWS)

    def _methods(self, plan: AuditPlan) -> tuple[EvaluatedMethod, ...]:
        if self.methods == "all":
            methods = list(_every_method(plan))
        elif self.methods:
            methods = [method.row() for method in self.methods]
        else:
            methods = [EvaluatedMethod(label=name, method=MethodSpec(name=name)) for name in USUAL]
        _check_labels("methods", [method.label for method in methods])
        for method in methods:
            if method.label in (ORACLE, PREDICTION):
                raise ConfigurationError(
                    f"evaluation.methods has the label {method.label!r}, which tables use for a "
                    "row of their own; give the method another `label`"
                )
        return (*methods, *_floor(methods))

    def _metrics(self, plan: AuditPlan) -> tuple[MetricSpec, ...]:
        if not self.metrics or self.metrics == "all":
            names = [name for name in METRICS if self.metrics or metric_facts(name).usual]
            return self._usual_metrics([name for name in names if not _misfit(name, plan)])
        for metric in self.metrics:
            if wrong := _misfit(metric.name, plan):
                raise ConfigurationError(f"metric {metric.name!r} {wrong}")
        metrics = tuple(self._metric(metric) for metric in self.metrics)
        _check_labels("metrics", [metric.label for metric in metrics])
        return metrics

    def _usual_metrics(self, names: Sequence[str]) -> tuple[MetricSpec, ...]:
        items = {name: FEW_ITEMS if metric_facts(name).kind == "model" else None for name in names}
        return tuple(self._metric(MetricSection(name=name, items=items[name])) for name in names)

    def _metric(self, metric: MetricSection) -> MetricSpec:
        params = dict(metric.params)
        spec = MetricSpec(
            name=metric.name, params=params, items=metric.items, label=metric.label or ""
        )
        if metric_facts(metric.name).kind == "curve":
            if self.baseline is not None:
                params.setdefault("baseline", self.baseline)
            if self.over is not None:
                params.setdefault("over", self.over)
            curve_of(spec)
        return spec


def usable(
    plan: AuditPlan, section: EvaluationSection, model: "LoadedModel", items: Sequence[Item]
) -> tuple[EvaluationPlan, list[str]]:
    """The evaluation without methods that are not defined here, and why they are not.

    Every method explains one item, and the curves are computed on it. A method that is named in the
    specification is not left out: what is wrong with it is raised.
    """
    evaluation = plan.evaluation
    assert evaluation is not None
    named = section.methods not in ("all", ())
    kept, warnings = [], []
    for method in evaluation.methods:
        try:
            _try(plan, replace(evaluation, methods=(method,)), model, items)
        except (ConfigurationError, EngineError) as error:
            if named or method.label == RANDOM:
                raise
            warnings.append(f"{method.label} is left out: {error}")
        else:
            kept.append(method)
    return replace(evaluation, methods=tuple(kept)), warnings


def _try(
    plan: AuditPlan, evaluation: EvaluationPlan, model: "LoadedModel", items: Sequence[Item]
) -> None:
    from transexplain.evaluating.evaluate_items import evaluate_items
    from transexplain.evaluating.evaluation_bench import Evaluation
    from transexplain.explaining.item_loop import Silent

    metrics = tuple(
        metric for metric in evaluation.metrics if metric_facts(metric.name).kind == "curve"
    )
    first = replace(evaluation, metrics=metrics, confidence=0.0, items=None)
    request = Evaluation.from_plan(replace(plan, evaluation=first))
    for item in items[:1]:
        for _ in evaluate_items(model, [replace(item, index=0)], request, observer=Silent()):
            pass


def _check_labels(key: str, labels: Sequence[str]) -> None:
    twice = {label for label in labels if labels.count(label) > 1}
    if twice:
        raise ConfigurationError(
            f"evaluation.{key} has {', '.join(sorted(twice))} more than once; give each a `label`"
        )


def _floor(methods: Sequence[EvaluatedMethod]) -> list[EvaluatedMethod]:
    """The random row that every table has."""
    if any(method.label == RANDOM for method in methods):
        return []
    return [EvaluatedMethod(label=RANDOM, method=MethodSpec(name=RANDOM))]


def _every_method(plan: AuditPlan) -> Iterator[EvaluatedMethod]:
    for name in METHODS:
        if plan.model.modality not in facts_of(name).modalities:
            continue
        spec = MethodSpec(name=name)
        items = FEW_ITEMS if _passes(spec) > MANY_PASSES else None
        yield EvaluatedMethod(label=name, method=spec, items=items)


def _passes(spec: MethodSpec) -> float:
    try:
        return sum(cost_of(spec, _TYPICAL).of(1))
    except ConfigurationError:  # a file besides the model is needed: `usable` names it
        return 0.0


def _misfit(metric: str, plan: AuditPlan) -> str:
    """The reason why a metric cannot be computed on any item; "": it can."""
    from transexplain.data.shard_reader import has_rationales

    facts = metric_facts(metric)
    if plan.model.modality not in facts.modalities:
        return f"is for {' and '.join(facts.modalities)}, not for {plan.model.modality}"
    if facts.needs_evidence and not has_rationales(plan.dataset):
        return (
            "needs items with human rationales, and this dataset has none; name its "
            "column with data.evidence"
        )
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationEstimate:
    """The cost of an evaluation."""

    items: int
    methods: int
    metrics: int
    passes: float  #: forwards and backwards, in all; metrics that explain again not counted

    def subject_text(self) -> str:
        """The subject of the measures, for the terminal."""
        by = f"{counted(self.methods, 'method')} and {counted(self.metrics, 'metric')}"
        return f"{by} on {counted(self.items, 'item')}"

    def summary_text(self) -> str:
        """A line for the terminal: what is measured, and what it costs."""
        return f"{self.subject_text()}: about {self.passes:,.0f} passes through the model"


def evaluation_estimate(plan: AuditPlan) -> EvaluationEstimate | None:
    """Count what methods declare and curves take; None where nothing is evaluated."""
    if (evaluation := plan.evaluation) is None:
        return None
    items = min(plan.dataset.rows, evaluation.items or plan.dataset.rows)
    passes = 0.0
    for method in evaluation.methods:
        mine = min(items, method.items or items) * method.draws
        passes += mine * sum(cost_of(method.method, _TYPICAL).of(1))
        for metric in evaluation.metrics:
            if metric_facts(metric.name).kind == "curve":
                few = min(mine, (metric.items or mine) * method.draws)
                passes += few * len(curve_of(metric).shares)
    return EvaluationEstimate(
        items=items,
        methods=len(evaluation.methods),
        metrics=len(evaluation.metrics),
        passes=passes * len(evaluation.targets),
    )
