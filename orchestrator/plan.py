"""From specification to plan: every check that can fail before a device is asked for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.checks import check_plan, shared_pieces
from orchestrator.clustering import cluster_warnings
from orchestrator.evaluation import evaluation_of, evaluation_of_audit, usable
from orchestrator.grouping import group_fields, lexicon_groups
from orchestrator.learned import approximation_of, refuse_other_models, with_explainers
from orchestrator.mixing import exact_plan
from orchestrator.privacy import privacy_plan, private
from orchestrator.sections import EvaluationSection, GroupsSection
from orchestrator.spec import AuditSpec
from transexplain.data.reader import labels_of, read_shard
from transexplain.data.shards import make_shards
from transexplain.data.snapshot import prepare
from transexplain.errors import (
    ConfigurationError,
    DataSourceError,
    EngineError,
    ModelLoadError,
)
from transexplain.methods import bound, facts_of, unit_of
from transexplain.plans import AuditPlan, Classification, DatasetRef, DatasetSpec, Shard, Task
from transexplain.settings import Settings
from transexplain.targets import ClassNames, label_index, short_form
from transexplain.types import Item

#: texts that the one to be tried is chosen from
_LOOKED_AT = 8

if TYPE_CHECKING:
    from transexplain.models.base import LoadedModel


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
    spec = with_explainers(spec)
    bound(spec.explained_by)  # told before loading
    lexicons, privacy, exact = lexicon_groups(spec), privacy_plan(spec), exact_plan(spec)
    dataset = prepare(DatasetSpec(**spec.data.model_dump()), settings.snapshot_dir)
    if not dataset.rows:
        raise DataSourceError(f"dataset {spec.data.source!r} has no rows")
    groups = group_fields(spec, dataset, lexicons)
    from transexplain.models.load import load_model

    source = absolute_model(spec.model.source)
    model = load_model(source, dtype=spec.model.dtype, device=spec.model.device)
    refuse_other_models(spec, model)
    if model.modality != dataset.modality:
        raise ModelLoadError(
            f"model {spec.model.source!r} reads {model.modality} but dataset "
            f"{spec.data.source!r} holds {dataset.modality}"
        )
    plan = replace(_plan(spec, model, dataset), privacy=privacy, **groups)
    if task == "audit":
        parameters = sum(one.numel() for one in model.module.parameters())
        check = check_plan(plan, spec.groups, parameters)
        plan = private(replace(plan, check=check, exact=exact))
    shards = make_shards(dataset.rows, spec.shard_size)
    warnings = [] if task == "evaluation" else list(_warnings(plan, spec.groups))
    if task == "audit":
        warnings += shared_pieces(plan, model)
    if plan.groups and task == "audit":
        warnings += cluster_warnings(spec.data, dataset)
    first = _first_item(plan, shards)
    if first is not None and task == "audit":
        _try_one(plan, first, model)
    plan, more = _with_evaluation(plan, spec, task, model, first)
    return Prepared(plan=plan, shards=shards, model=model, warnings=(*warnings, *more))


def _with_evaluation(
    plan: AuditPlan, spec: AuditSpec, task: Task, model: "LoadedModel", first: Item | None
) -> tuple[AuditPlan, list[str]]:
    """The plan with what is measured about its explanations, tried on one item."""
    section = spec.evaluation
    wanted = evaluation_of(section, plan) if task == "evaluation" else None
    if task == "audit":
        wanted = evaluation_of_audit(section, plan)
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


def absolute_model(source: str) -> str:
    """A local path that workers find from any folder; hub ids and the like as they are."""
    name, equals, checkpoint = source.partition("?checkpoint=")
    if equals:
        return f"{name}?checkpoint={Path(checkpoint).expanduser().absolute()}"
    path = Path(source).expanduser()
    return str(path.absolute()) if path.exists() else source


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
    facts = facts_of(plan.method.name)
    if facts.reads_target == "no":
        yield (
            f"method {plan.method.name!r} gives the same relevance whatever class is asked: what "
            "is listed for a class shows which items are in it, not what speaks for it"
        )
    elif facts.reads_target == "weakly":
        yield (
            f"method {plan.method.name!r} depends on the class that is asked in form, but hardly "
            "in practice; read its class sensitivity in the report"
        )
    if plan.groups and unit_of(plan.method.name) != "logits":
        yield (
            f"method {plan.method.name!r} measures {unit_of(plan.method.name)}, not logits: "
            "group differences are not in logits"
        )
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
