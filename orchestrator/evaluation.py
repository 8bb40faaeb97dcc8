"""What an evaluation measures: from the specification's section to a checked plan."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.sections import EvaluatedMethodSection, EvaluationSection, MetricSection
from orchestrator.spec import AuditSpec
from transexplain.data.reader import has_evidence
from transexplain.errors import ConfigurationError, EngineError
from transexplain.evaluations import (
    RANDOM,
    EvaluatedMethod,
    EvaluationPlan,
    MethodSpec,
    MetricSpec,
)
from transexplain.methods import METHODS, bound, cost_of, facts_of
from transexplain.metrics import METRICS, curve_of, metric_facts
from transexplain.plans import AuditPlan
from transexplain.types import Item

if TYPE_CHECKING:
    from transexplain.models.base import LoadedModel

#: what `evaluate` compares unless methods are named: the usual ones, of few passes
USUAL = (
    *("lrp", "lrp-ah-ln", "attnlrp", "gradient-x-input"),
    *("attention-last", "rollout", "gae", "transformer-attribution"),
)
#: and on how many items, drawn from the data
USUAL_ITEMS = 200
#: an audit measures its own method on so many items, unless its specification says otherwise
SAMPLE = 32
#: methods of more passes for an item, and metrics that explain again, are measured on fewer items
#: where all methods or all metrics are asked for
MANY_PASSES, FEW_ITEMS = 20, 100
_IN_AUDIT = {
    "text": ("activation", "pruning"),
    "image": ("positive-perturbation", "negative-perturbation"),
    "nodes": (),
}


def with_usual_sample(spec: AuditSpec) -> AuditSpec:
    """The specification with a sample of the usual size, where it says nothing of the size."""
    if {"sample", "limit"} & spec.data.model_fields_set:
        return spec
    return spec.model_copy(update={"data": spec.data.model_copy(update={"sample": USUAL_ITEMS})})


def evaluation_of_audit(section: EvaluationSection, plan: AuditPlan) -> EvaluationPlan | None:
    """What is measured of an audit's own method; None: nothing is."""
    usual = _IN_AUDIT[plan.model.modality]
    metrics = _metrics(section, plan) if section.metrics else _named(section, usual)
    count = SAMPLE if section.items is None else section.items
    if not count or not metrics:
        return None
    own = EvaluatedMethod(label=plan.method.name, method=plan.method)
    methods = _methods(section, plan) if section.methods else (own, *_floor([own]))
    evaluable = [target for target in plan.targets if _is_evaluable(target)]
    return EvaluationPlan(
        methods=methods,
        metrics=metrics,
        targets=tuple(evaluable[:1]) or ("predicted",),
        items=count,
        seed=section.seed,
        confidence=section.confidence,
    )


def evaluation_of(section: EvaluationSection, plan: AuditPlan) -> EvaluationPlan:
    """What `evaluate` measures: every method and metric of the section, on every item."""
    return EvaluationPlan(
        methods=_methods(section, plan),
        metrics=_metrics(section, plan),
        targets=plan.targets,
        seed=section.seed,
        confidence=section.confidence,
    )


def usable(
    plan: AuditPlan, section: EvaluationSection, model: "LoadedModel", items: Sequence[Item]
) -> tuple[EvaluationPlan, list[str]]:
    """The plan's evaluation without the methods that are not defined here, and why they are not.

    Every method explains one item, and the curves are asked about it. A method that was named is
    not left out: what is wrong with it is raised.
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
    from transexplain.evaluating import Evaluation, evaluate_items
    from transexplain.explaining.items import Silent

    metrics = tuple(one for one in evaluation.metrics if metric_facts(one.name).kind == "curve")
    first = replace(evaluation, metrics=metrics, confidence=0.0, items=None)
    asked = Evaluation.from_plan(replace(plan, evaluation=first))
    for item in items[:1]:
        for _ in evaluate_items(model, [replace(item, index=0)], asked, observer=Silent()):
            pass


def _is_evaluable(target: str) -> bool:
    return target in ("predicted", "label") or target.startswith("class:")


def _methods(section: EvaluationSection, plan: AuditPlan) -> tuple[EvaluatedMethod, ...]:
    if section.methods == "all" or not section.methods:
        found = list(_every_method(plan) if section.methods else _usual_methods())
    else:
        found = [_method(one) for one in section.methods]
    _check_labels("methods", [one.label for one in found])
    return (*found, *_floor(found))


def _check_labels(key: str, labels: Sequence[str]) -> None:
    twice = {label for label in labels if labels.count(label) > 1}
    if twice:
        raise ConfigurationError(
            f"evaluation.{key} has {', '.join(sorted(twice))} more than once; give each a `label`"
        )


def _floor(methods: Sequence[EvaluatedMethod]) -> list[EvaluatedMethod]:
    """The random row that every table has."""
    if any(one.label == RANDOM for one in methods):
        return []
    return [EvaluatedMethod(label=RANDOM, method=MethodSpec(name=RANDOM))]


def _method(section: EvaluatedMethodSection) -> EvaluatedMethod:
    spec = MethodSpec(name=section.name, params=section.params)
    bound(spec)
    return EvaluatedMethod(label=section.label or section.name, method=spec, items=section.items)


def _usual_methods() -> Iterator[EvaluatedMethod]:
    for name in USUAL:
        yield EvaluatedMethod(label=name, method=MethodSpec(name=name))


def _every_method(plan: AuditPlan) -> Iterator[EvaluatedMethod]:
    for name in METHODS:
        if plan.model.modality not in facts_of(name).modalities:
            continue
        spec = MethodSpec(name=name)
        items = FEW_ITEMS if _passes(spec) > MANY_PASSES else None
        yield EvaluatedMethod(label=name, method=spec, items=items)


def _passes(spec: MethodSpec) -> float:
    try:
        return sum(cost_of(spec, 32).of(1))
    except ConfigurationError:  # a file beside the model is needed: `usable` says which
        return 0.0


def _metrics(section: EvaluationSection, plan: AuditPlan) -> tuple[MetricSpec, ...]:
    if not section.metrics or section.metrics == "all":
        return _named(section, [name for name in METRICS if not _misfit(name, plan)])
    for one in section.metrics:
        if wrong := _misfit(one.name, plan):
            raise ConfigurationError(f"metric {one.name!r} {wrong}")
    found = tuple(_metric(section, one) for one in section.metrics)
    _check_labels("metrics", [one.label for one in found])
    return found


def _misfit(metric: str, plan: AuditPlan) -> str:
    """Why a metric cannot be computed on any item; "": it can."""
    facts = metric_facts(metric)
    if plan.model.modality not in facts.modalities:
        return f"is for {' and '.join(facts.modalities)}, not for {plan.model.modality}"
    if facts.needs_evidence and not has_evidence(plan.dataset):
        return (
            "needs items on which people marked the evidence, and this dataset has none; name its "
            "column with data.evidence"
        )
    return ""


def _named(section: EvaluationSection, names: Sequence[str]) -> tuple[MetricSpec, ...]:
    return tuple(
        _metric(section, MetricSection(name=name, items=_usual_items(name))) for name in names
    )


def _usual_items(metric: str) -> int | None:
    return FEW_ITEMS if metric_facts(metric).kind == "model" else None


def _metric(section: EvaluationSection, metric: MetricSection) -> MetricSpec:
    params = dict(metric.params)
    spec = MetricSpec(name=metric.name, params=params, items=metric.items, label=metric.label or "")
    if metric_facts(metric.name).kind == "curve":
        if section.baseline is not None:
            params.setdefault("baseline", section.baseline)
        if section.over is not None:
            params.setdefault("over", section.over)
        curve_of(spec)
    return spec
