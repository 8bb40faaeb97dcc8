"""Plans an import of attributions made elsewhere: an audit without a model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from orchestrator.plan.audit_plan import label_warning
from orchestrator.spec.audit_spec import AuditSpec, load_spec
from orchestrator.spec.planned_groups import column_warnings, group_fields
from transexplain.analysis.groups.answers import favourable_answers
from transexplain.data.attribution_files import PreparedImport as PreparedFile
from transexplain.data.attribution_files import prepare_attributions
from transexplain.data.attribution_rows import FileColumns
from transexplain.data.class_names import class_names
from transexplain.data.shard_reader import items_per_shard, make_shards, published
from transexplain.data.table_source import LABEL_DEFAULT, expand
from transexplain.errors import ConfigurationError, SpecError
from transexplain.settings import Settings
from transexplain.types.dataset_labels import BY_INDEX, label_mapping
from transexplain.types.items import Unit
from transexplain.types.plans import (
    NO_PREFERENCE,
    AuditPlan,
    DatasetSpec,
    ModelRef,
    QueuePlace,
    Shard,
    several_of,
)
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import ClassNames

_NAMED = 5
#: columns of data sets that a file of attributions has no use for
_UNREAD = ("image", "evidence", "spans")


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """A plan whose attributions are read and checked already."""

    plan: AuditPlan
    shards: Sequence[Shard]
    warnings: tuple[str, ...]
    place: QueuePlace = NO_PREFERENCE


def import_spec(
    file: str, overrides: Mapping[str, Any], settings: Sequence[str], model: str = "imported"
) -> AuditSpec:
    """The specification of an import; keys that need a model may be set, but mean nothing here.

    Columns that the statistics are split by need not be named in data.meta. Raises SpecError.
    """
    values = {**overrides, "data.source": file, "model.source": model}
    spec = load_spec(None, values, settings)
    if unread := [name for name in _UNREAD if getattr(spec.data, name) is not None]:
        raise SpecError(f"data.{unread[0]} is not read from a file of attributions")
    groups = spec.groups
    impact = groups.impact.planned().columns if groups and groups.impact else ()
    columns = (groups.slice, *groups.columns, *impact) if groups else ()
    meta = dict.fromkeys((*spec.data.meta, *(column for column in columns if column)))
    data = spec.data.model_copy(update={"meta": tuple(meta)})
    return spec.model_copy(update={"data": data})


def prepare_import(
    spec: AuditSpec,
    settings: Settings,
    *,
    columns: Mapping[str, str] | None = None,
    classes: tuple[str, ...] = (),
    method: str = "imported",
    unit: str = "logits",
) -> Imported:
    """Read the file, check every row, find classes, targets and groups.

    `columns` are those of the file by their meaning, `classes` its classes by index (default: those
    that it names). `method` is what the scores were made with, `unit` theirs.

    Raises ConfigurationError: the file, a column, the unit, a class or the lexicon is wrong.
    """
    if unit not in get_args(Unit):
        raise ConfigurationError(f"unit {unit!r}: use one of {', '.join(get_args(Unit))}")
    if len(set(classes)) < len(classes):
        raise ConfigurationError("--classes names a class twice")
    lexicons, privacy = spec.lexicon_groups(), spec.privacy_plan()
    several_of(ModelRef(source=""), spec.thresholds, spec.label_separator)  # refuses both
    if spec.labels == BY_INDEX and not classes:
        raise ConfigurationError("`labels: by-index` needs the classes in their order: --classes")
    column = (columns or {}).get("label") or spec.data.label or LABEL_DEFAULT
    called = class_names(expand(spec.data.source), column)
    labels, sink = label_mapping(spec.labels, classes, called), spec.sink.planned()
    roles = {name: value for name in ("text", "label", "id") if (value := getattr(spec.data, name))}
    read = prepare_attributions(
        DatasetSpec(**spec.data.model_dump()),
        FileColumns(
            named={**roles, **(columns or {})},
            classes=ClassNames(classes) if classes else None,
            labels=labels,
            meta=spec.data.meta,
            cluster=spec.data.cluster,
            template=spec.data.template,
        ),
        settings.snapshot_dir,
    )
    plan = AuditPlan(
        name=spec.name,
        model=ModelRef(source=spec.model.source, classes=read.classes),
        dataset=read.dataset,
        method=MethodSpec(name=method, params={"unit": unit}),
        targets=read.targets,
        labels=labels,
        shard_size=items_per_shard(spec.shard_size, read.dataset.rows),
        sink=sink,
        tolerance=spec.tolerance,
        max_attempts=spec.max_attempts,
        task="imported",
        privacy=privacy,
        **group_fields(spec.groups, spec.data, read.dataset, lexicons),
    )
    favourable_answers(plan)  # refused before a run is made
    warnings = [*_warnings(plan, read), *column_warnings(spec.groups, read.dataset)]
    if plan.groups:
        warnings += spec.data.cluster_warnings(read.dataset)
    return Imported(
        plan=replace(plan, dataset=published(plan.dataset, plan.shard_size, settings)),
        shards=make_shards(read.dataset.rows, plan.shard_size),
        warnings=tuple(warnings),
    )


def _warnings(plan: AuditPlan, read: PreparedFile) -> Iterator[str]:
    if read.failed:
        rows = "row is" if read.failed == 1 else "rows are"
        yield f"{read.failed:,} {rows} no attribution; the report says why"
    if read.never_predicted:
        shown = ", ".join(map(repr, read.never_predicted[:_NAMED]))
        yield (
            f"labels that are never predicted: {shown}. If classes are spelled otherwise there, "
            "map them with --set labels='{label: class}'"
        )
    yield from label_warning(plan, read.unknown_labels)
    unit = plan.method.params["unit"]
    if plan.groups and unit != "logits":
        yield (
            f"the scores are in {unit}, not logits: groups.practical ({plan.practical:g}) is in "
            "that unit too"
        )
