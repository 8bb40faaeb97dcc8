"""From specification to plan: every check that can fail before a device is asked for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from orchestrator.spec.audit_spec import AuditSpec
from orchestrator.spec.check_sample import check_plan, shared_pieces
from orchestrator.spec.compared_groups import group_fields
from orchestrator.spec.evaluation_section import EvaluationSection, usable
from orchestrator.spec.groups_section import GroupsSection
from orchestrator.spec.method_section import approximation_of, method_warnings
from orchestrator.spec.privacy_section import private
from transexplain.data.shard_reader import labels_of, make_shards, read_shard
from transexplain.errors import ConfigurationError, EngineError, ModelLoadError
from transexplain.methods import bound
from transexplain.settings import Settings
from transexplain.types.items import Item
from transexplain.types.plans import AuditPlan, Classification, DatasetRef, Shard, Task
from transexplain.types.targets import ClassNames, label_index, short_form

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel

#: texts that the one to be tried is chosen from
_LOOKED_AT = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A plan that has passed its checks, with what they already loaded."""

    plan: AuditPlan
    shards: tuple[Shard, ...]
    model: "LoadedModel"
    warnings: tuple[str, ...]


def prepare_audit(spec: AuditSpec, settings: Settings, task: Task = "audit") -> Prepared:
    """Load the model, snapshot the data, check everything, and explain one item.

    With task `evaluation` the plan measures explanations of every item and keeps none.

    Raises:
        ConfigurationError: the model, the data, the lexicon, the method or a target is wrong.
        EngineError: the model has an operator without a rule.
    """
    spec = spec.resolved()
    bound(spec.explained_by)  # before anything is loaded
    lexicons, privacy, exact = spec.lexicon_groups(), spec.privacy_plan(), spec.exact_plan()
    dataset = spec.data.snapshot(settings)
    groups = group_fields(spec.groups, spec.data, dataset, lexicons)
    model = spec.model.load(dataset)
    spec.refuse_other_models(model)
    plan = replace(_plan(spec, model, dataset), privacy=privacy, **groups)
    shards = make_shards(dataset.rows, spec.shard_size)
    first = _first_item(plan, shards)
    warnings: list[str] = []
    if task == "audit":
        parameters = sum(one.numel() for one in model.module.parameters())
        check = check_plan(plan, spec.groups, parameters)
        plan = private(replace(plan, check=check, exact=exact))
        warnings += [*_warnings(plan, spec.groups), *shared_pieces(plan, model)]
        if plan.groups:
            warnings += spec.data.cluster_warnings(dataset)
        if first is not None:
            _try_one(plan, first, model)
    plan, more = _with_evaluation(plan, spec, task, model, first)
    return Prepared(plan=plan, shards=shards, model=model, warnings=(*warnings, *more))


def _with_evaluation(
    plan: AuditPlan, spec: AuditSpec, task: Task, model: "LoadedModel", first: Item | None
) -> tuple[AuditPlan, list[str]]:
    """The plan with what is measured about its explanations, tried on one item."""
    section = spec.evaluation
    wanted = section.of_every_item(plan) if task == "evaluation" else None
    if task == "audit":
        wanted = section.of_audit(plan)
    if wanted is None:
        return plan, []
    asked = replace(plan, evaluation=wanted, task=task)
    try:
        found, warnings = usable(asked, section, model, [] if first is None else [first])
    except (ConfigurationError, EngineError) as error:
        if task == "evaluation" or section != EvaluationSection():
            raise
        return plan, [f"whether the method is faithful is not measured: {error}"]
    return replace(asked, evaluation=found), warnings


def _plan(spec: AuditSpec, model: "LoadedModel", dataset: DatasetRef) -> AuditPlan:
    own = tuple(Classification(**c.model_dump()) for c in spec.classifications)
    names = ClassNames(model.classes, own)
    return AuditPlan(
        name=spec.name,
        model=model.ref,
        dataset=dataset,
        method=spec.explained_by,
        targets=tuple(short_form(target, names) for target in spec.targets),
        classifications=own,
        labels=spec.labels,
        long_text=spec.long_text,
        max_length=spec.max_length,
        window=spec.window,
        stride=spec.stride,
        long_text_join=spec.long_text_join,
        batch_tokens=spec.batch_tokens,
        shard_size=spec.shard_size,
        payload=spec.payload,
        tolerance=spec.tolerance,
        max_attempts=spec.max_attempts,
        approximates=approximation_of(spec.explained_by),
    )


def _warnings(plan: AuditPlan, section: GroupsSection | None) -> Iterator[str]:
    names = ClassNames(plan.model.classes, plan.classifications)
    unknown = [
        label for label in labels_of(plan.dataset) if label_index(label, names, plan.labels) is None
    ]
    if unknown:
        shown = ", ".join(repr(label) for label in unknown[:5])
        yield (
            f"{len(unknown)} labels of the dataset are no class of the model ({shown}); "
            "these items count as unlabelled. Map them with `labels: {dataset label: class}`"
        )
    yield from method_warnings(plan.method.name, grouped=bool(plan.groups))
    if plan.approximates and section and section.check and section.randomised:
        yield (
            "no model with randomised weights is asked whether it shows the same differences: an "
            "explainer reads its own model alone. An audit with method: "
            f"{plan.approximates.teacher} asks one"
        )


def _first_item(plan: AuditPlan, shards: tuple[Shard, ...]) -> Item | None:
    """A readable item of the first shard: of its first texts the longest, so that it has order."""
    rows = read_shard(plan.dataset, Shard(index=0, start=0, stop=shards[0].stop))
    readable = (entry for entry in rows if isinstance(entry, Item))
    some = list(islice(readable, _LOOKED_AT if plan.model.modality == "text" else 1))
    return max(some, key=lambda item: len(str(item.content)), default=None)


def _try_one(plan: AuditPlan, item: Item, model: "LoadedModel") -> None:
    """Explain an item, so that a model that cannot be explained fails here."""
    from transexplain.explaining import Request, explain_items

    methods = [plan.method, *([plan.exact.method] if plan.exact else [])]
    for method in methods:
        request = replace(Request.from_plan(plan), method=method)
        for done in explain_items(model, [item], request):
            if done.failure is not None and done.failure.kind == "model-error":
                raise ModelLoadError(f"the model cannot be explained: {done.failure.message}")
