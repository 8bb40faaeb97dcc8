"""From specification to plan: every check that can fail before a device is requested."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from orchestrator.spec.audit_spec import AuditSpec, private
from orchestrator.spec.data_section import require_local_model
from orchestrator.spec.evaluation_section import EvaluationSection, usable
from orchestrator.spec.groups_section import GroupsSection
from orchestrator.spec.method_section import approximation_of, method_warnings
from orchestrator.spec.planned_groups import (
    check_plan,
    column_warnings,
    group_fields,
    lexicon_warnings,
)
from transexplain.analysis.groups.answers import favourable_answers
from transexplain.analysis.groups.entity_finder import EntityFinder
from transexplain.data.shard_reader import (
    items_per_shard,
    labels_of,
    looked_at,
    make_shards,
    published,
    read_shard,
    unread_rows,
)
from transexplain.errors import (
    ConfigurationError,
    EngineError,
    ItemError,
    ModelLoadError,
    TargetError,
)
from transexplain.methods import bound, cost_of, facts_of
from transexplain.settings import Settings
from transexplain.types.answer_spans import AnswerScheme
from transexplain.types.dataset_labels import label_index, label_mapping, label_remedy
from transexplain.types.items import Item, ItemFailure
from transexplain.types.plans import (
    AT_POSITIONS,
    GENERATED,
    NO_PREFERENCE,
    USUAL_BATCH,
    AuditPlan,
    Classification,
    DatasetRef,
    Head,
    QueuePlace,
    Shard,
    Task,
    several_of,
)
from transexplain.types.targets import ClassNames, short_form
from transexplain.types.token_labels import ANSWER, LabelScheme, class_names, named_types

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel

#: characters of a label in a message, and labels that are too many to be classes
_LABEL, _MANY = 30, 50
#: texts that the one to be tried is chosen from
_LOOKED_AT = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedAudit:
    """A plan that has passed its checks, with what they already loaded."""

    plan: AuditPlan
    shards: Sequence[Shard]
    model: "LoadedModel"
    warnings: tuple[str, ...]
    #: label of the dataset -> the class that it is read as; None: no class
    labels: Mapping[str, str | None] = field(default_factory=dict)
    place: QueuePlace = NO_PREFERENCE

    def label_summary(self) -> str:
        """The class that every label is read as, in one line; the first 20 labels."""
        some = [
            f"{_short(label)} = {name or 'no class'}"
            for label, name in islice(self.labels.items(), 20)
        ]
        more = len(self.labels) - len(some)
        return ", ".join(some) + (f" and {more:,} more" if more else "")


def _short(label: str) -> str:
    return label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…"


def prepare_audit(
    spec: AuditSpec,
    settings: Settings,
    task: Task = "audit",
    *,
    model: "LoadedModel | None" = None,
) -> PreparedAudit:
    """Load the model, snapshot the data, check everything, and explain one item.

    Where settings name a store for snapshots, the workers' pieces lie there at the end.

    With task `evaluation` the plan measures explanations of every item and keeps none. A `model`
    that is in memory already stands for the one that the specification names.

    Raises:
        ConfigurationError: the model, the data, the lexicon, the method or a target is wrong.
        EngineError: the model has an operator without a rule.
    """
    spec = spec.resolved()
    require_local_model(spec.model.source)  # before torch is imported, which is slow
    facts_of(spec.explained_by.name)
    lexicons, privacy = spec.lexicon_groups(), spec.privacy_plan()
    dataset = spec.data.planned(settings)
    groups = group_fields(spec.groups, spec.data, dataset, lexicons)
    bound(spec.explained_by)
    exact = spec.exact_plan()
    model = spec.model.load(dataset, model)
    spec.refuse_other_models(model)
    labels = _single_labels(spec, model, dataset)
    called = () if model.ref.head in _DOES else dataset.label_names
    mapping = label_mapping(spec.labels, model.classes, called)
    _check_labels(spec, model, labels, mapping)
    plan = _plan(spec, model, dataset, task)
    plan = replace(plan, labels=mapping, privacy=privacy, **groups)
    favourable_answers(plan)  # refused before anything is explained
    plan = replace(plan, favourable=_favourable(plan))
    shards = make_shards(dataset.rows, plan.shard_size)
    first, warnings = _first_item(plan, shards), list(dataset.read_as)
    if task == "audit":
        parameters = sum(tensor.numel() for tensor in model.module.parameters())
        check = check_plan(plan, spec.groups, parameters)
        plan = private(replace(plan, check=check, exact=exact))
        warnings += [*_warnings(plan, labels, spec.groups), *lexicon_warnings(plan, model)]
        if plan.groups:
            warnings += spec.data.cluster_warnings(dataset)
            warnings += column_warnings(spec.groups, dataset)
        if first is not None:
            _try_one(plan, first, model)
    plan, more = _with_evaluation(plan, spec, task, model, first)
    return PreparedAudit(
        plan=replace(plan, dataset=published(plan.dataset, plan.shard_size, settings)),
        shards=shards,
        model=model,
        warnings=(*warnings, *more),
        labels=_classes_of_labels(plan, labels),
        place=spec.queue.place,
    )


def _with_evaluation(
    plan: AuditPlan, spec: AuditSpec, task: Task, model: "LoadedModel", first: Item | None
) -> tuple[AuditPlan, list[str]]:
    """The plan with what is measured about its explanations, tried on one item."""
    section = spec.evaluation
    evaluation = section.of_every_item(plan) if task == "evaluation" else None
    if task == "audit":
        evaluation = section.of_audit(plan)
    if evaluation is None:
        return plan, []
    extended = replace(plan, evaluation=evaluation, task=task)
    try:
        measurable, warnings = usable(extended, section, model, [] if first is None else [first])
    except (ConfigurationError, EngineError) as error:
        if task == "evaluation" or section != EvaluationSection():
            raise
        return plan, [f"whether the method is faithful is not measured: {error}"]
    return replace(extended, evaluation=measurable), warnings


def _plan(
    spec: AuditSpec,
    model: "LoadedModel",
    dataset: DatasetRef,
    task: Task,
) -> AuditPlan:
    classifications = tuple(Classification(**c.model_dump()) for c in spec.classifications)
    names = class_names(model.ref, classifications)
    if model.ref.head in AT_POSITIONS:
        classifications = named_types(model.ref)
    return AuditPlan(
        name=spec.name,
        model=model.ref,
        dataset=dataset,
        method=spec.explained_by,
        targets=tuple(short_form(target, names) for target in spec.targets),
        classifications=classifications,
        long_text=spec.long_text,
        max_length=spec.max_length,
        window=spec.window,
        stride=spec.stride,
        long_text_join=spec.long_text_join,
        batch_tokens=USUAL_BATCH if spec.batch_tokens == "auto" else spec.batch_tokens,
        batch_fixed=spec.batch_tokens == USUAL_BATCH,
        shard_size=_shard_size(spec, dataset.rows, task),
        sink=spec.sink.planned(),
        tolerance=spec.tolerance,
        max_attempts=spec.max_attempts,
        approximates=approximation_of(spec.explained_by),
        several=several_of(model.ref, spec.thresholds, spec.label_separator),
    )


_FEW_PASSES = 20  #: of an item of 128 positions
_USUAL_ITEMS = 256


def _shard_size(spec: AuditSpec, rows: int, task: Task) -> int:
    """Items per shard; where every item takes many passes, the fewer to lose the better."""
    try:
        passes = sum(cost_of(spec.explained_by, 128).of(len(spec.targets)))
    except TypeError:  # of a parameter; the first explanation refuses it by name
        passes = math.inf
    slow = task == "evaluation" or passes > _FEW_PASSES
    return items_per_shard(spec.shard_size, min(rows, _USUAL_ITEMS) if slow else rows)


def _single_labels(spec: AuditSpec, model: "LoadedModel", dataset: DatasetRef) -> list[str]:
    """The different labels of the dataset, sorted, those of an item each by itself."""
    several = several_of(model.ref, spec.thresholds, spec.label_separator)
    cells, known = labels_of(dataset), (*model.classes, *spec.labels)
    if model.ref.head == "tokens":
        scheme = LabelScheme(model.classes)
        written: set[str] = set()
        for cell in cells:
            with suppress(ItemError):
                written |= {label.type for label in scheme.written(cell)}
        return sorted(written)
    if model.ref.head == "span":
        return [ANSWER] if any(map(AnswerScheme().accepted, cells)) else []
    if several is None:
        return cells
    return sorted({label for cell in cells for label in several.written(cell, known)})


#: what models do that give an item no class
_DOES: Mapping[Head, str] = {
    "tokens": "labels tokens",
    "span": "marks answers in texts",
    GENERATED: "generates its answers",
}


def _refuse_at_positions(spec: AuditSpec, head: Head) -> None:
    """Raise ConfigurationError for options of models that predict one class for an item."""
    groups = spec.groups
    fields = {
        "labels": spec.labels,
        "explain.exact": spec.explain,
        "groups.impact": groups.impact if groups else None,
        "groups.favourable": groups.favourable if groups else None,
    }
    for key, value in fields.items():
        if value:
            raise ConfigurationError(
                f"{key} is for models that answer an item, and this model {_DOES[head]}; remove it"
            )
    if head == "span" and not isinstance(spec.data.text, tuple):
        raise ConfigurationError(
            "question answering reads a question and its context: name both columns, "
            "data.text: [question, context]"
        )


def _check_labels(
    spec: AuditSpec, model: "LoadedModel", labels: Sequence[str], mapping: Mapping[str, str]
) -> None:
    """Refuse a mapping to what is no class, and the target `label` where nothing has a label."""
    names = ClassNames(model.classes)
    if model.ref.head in _DOES:
        _refuse_at_positions(spec, model.ref.head)
    several_texts = isinstance(spec.data.text, list | tuple)
    if model.ref.head == GENERATED and spec.data.template and not several_texts:
        raise ConfigurationError(
            "data.template compares one answer behind several prompts, and every prompt has an "
            "answer of its own: give the answers, data.text: [prompt, continuation], or leave "
            "data.template out, so that names are swapped"
        )
    for label, name in mapping.items():
        try:
            names.class_index(name)
        except TargetError as error:
            raise TargetError(f"labels: {label!r} is mapped to {name!r}: {error}") from None
    if not labels and "label" in spec.targets:
        raise TargetError(
            "the target `label` is the class of each item's label, and no item has one: name "
            "their column in data.label, or choose another target"
        )


def _favourable(plan: AuditPlan) -> tuple[str, ...]:
    """The names of the favourable classes, each once; raises TargetError for one that is none."""
    names = ClassNames(plan.model.classes)
    try:
        places = [names.class_index(name) for name in plan.favourable]
    except TargetError as error:
        raise TargetError(f"groups.favourable: {error}") from None
    return tuple(dict.fromkeys(plan.model.classes[place] for place in places))


def _classes_of_labels(plan: AuditPlan, labels: Sequence[str]) -> dict[str, str | None]:
    """Every label of the dataset and the class that it is read as; None: no class."""
    if plan.model.head in AT_POSITIONS:
        types = AnswerScheme().types
        if plan.model.head == "tokens":
            types = LabelScheme(plan.model.classes).types
        return {label: label if label in types else None for label in labels}
    if plan.model.head == GENERATED:
        return dict.fromkeys(labels, GENERATED)
    names = ClassNames(plan.model.classes, plan.classifications)
    indices = {label: label_index(label, names, plan.labels) for label in labels}
    return {
        label: None if index is None else names.classes[index] for label, index in indices.items()
    }


def label_warning(plan: AuditPlan, unknown: Sequence[str]) -> Iterator[str]:
    """A warning that some labels are no class of the model, with the remedy."""
    if not unknown:
        return
    shown = ", ".join(repr(_short(label)) for label in unknown[:5])
    shown += ", ..." if len(unknown) > 5 else ""
    remedy = label_remedy(unknown, plan.model.classes, plan.dataset.label_names, plan.labels)
    if len(unknown) > _MANY:
        remedy = "Is data.label the column of the labels? " + remedy
    labels, are = ("1 label", "is") if len(unknown) == 1 else (f"{len(unknown)} labels", "are")
    yield (
        f"{labels} of the dataset {are} no class of the model ({shown}); "
        f"these items count as unlabelled. {remedy}"
    )


def _warnings(
    plan: AuditPlan, labels: Sequence[str], section: GroupsSection | None
) -> Iterator[str]:
    classes = _classes_of_labels(plan, labels)
    yield from label_warning(plan, [label for label, name in classes.items() if name is None])
    names = ClassNames(plan.model.classes)
    turned = [
        f"{number} ({name})"
        for number, name in enumerate(plan.dataset.label_names)
        if (index := label_index(name, names, {})) is not None
        and index != label_index(str(number), names, plan.labels)
    ]
    if turned and plan.model.head not in _DOES:
        yield (
            f"`labels` maps {', '.join(turned)} to another class than the one of that name, by "
            "which the data call it. Leave labels out, unless the data's names are wrong"
        )
    yield from method_warnings(plan.method.name, grouped=bool(plan.groups))
    if plan.groups and plan.model.head == "classes" and len(plan.model.classes) == 1:
        [name] = plan.model.classes
        yield (
            f"the model has one output, {name}, which is audited as a number: there are no rates "
            "of answers to compare, swaps alone judge it, and probabilities are those of its "
            "sigmoid. Set groups.practical.logit to "
            "the smallest change of it that matters. If it is the logit of a decision, write "
            '"problem_type": "multi_label_classification" into its config.json, and '
            f"`targets: [class:{name}]` here"
        )
    if plan.approximates and section and section.check and section.randomised:
        yield (
            "no model with randomised weights is compared: an explainer reads its own model "
            f"alone. An audit with method: {plan.approximates.teacher} compares one"
        )


def _first_item(plan: AuditPlan, shards: Sequence[Shard]) -> Item | None:
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


#: rows up to which every one is encoded, of texts (and graphs) and of pictures; of more, so many
ALL_TEXTS, ALL_PICTURES = 5_000, 300
_BLOCKS = 20  #: runs of rows that a sample consists of, evenly over the data
_TOGETHER = 64  #: items that are encoded at once
_SHOWN = 3  #: rows of a kind that are named


@dataclass(frozen=True, slots=True)
class DataCheck:
    """The findings in the rows of the data."""

    rows: int
    read: int  #: rows in which what cannot be read was looked for
    encoded: int  #: rows that were read and encoded as the run does it
    failing: Counter[str]  #: rows by kind of failure
    examples: Mapping[str, Sequence[str]]  #: kind -> its first rows
    mentions: Mapping[str, int]  #: group -> items among those encoded

    @property
    def share_failing(self) -> float:
        """The share of the encoded rows that fails."""
        return self.failing.total() / max(1, self.rows)

    def lines(self) -> Iterator[str]:
        """For the terminal."""
        if self.encoded == self.rows:
            yield f"data: all {self.rows:,} rows were read and encoded"
        else:
            yield (
                f"data: {'all ' if self.read == self.rows else ''}{self.read:,} rows were read, "
                f"{self.encoded:,} encoded, in blocks evenly over the data"
            )
        if self.mentions:
            counts = ", ".join(f"{group} {count:,}" for group, count in self.mentions.items())
            yield f"items in a group, of {self.encoded:,}: {counts}"
        if not self.failing:
            yield "no row fails"
        for kind, count in self.failing.most_common():
            yield f"{count:,} row{'s' * (count > 1)} will fail, {kind}:"
            yield from (f"  {row}" for row in self.examples[kind])


def check_data(prepared: PreparedAudit) -> DataCheck:
    """Read and encode the rows as the run will: all of small data, blocks of large data.

    Raises DataSourceError where the snapshot is gone.
    """
    plan = prepared.plan
    failing: Counter[str] = Counter()
    examples: dict[str, list[str]] = defaultdict(list)

    def note(failure: ItemFailure) -> None:
        failing[failure.kind] += 1
        if len(rows := examples[failure.kind]) < _SHOWN:
            rows.append(f"row {failure.index} ({failure.item_id}): {failure.message}")

    unread: set[int] = set()
    for failure in unread_rows(plan.dataset):
        unread.add(failure.index)
        note(failure)
    finder = EntityFinder(plan)
    mentions: Counter[str] = Counter({group.name: 0 for group in plan.groups})
    encoded = 0
    for block in _blocks(plan):
        encoded += block.stop - block.start
        rows = [row for row in read_shard(plan.dataset, block) if row.index not in unread]
        items = [row for row in rows if isinstance(row, Item)]
        failures = [row for row in rows if isinstance(row, ItemFailure)]
        failures += _unencodable(prepared, items)
        for item in finder.in_turn(items) if plan.groups else ():
            if isinstance(item, ItemFailure):
                failures.append(item)
            else:
                matched = finder.groups_in(item.text, item.annotations, item.meta, item.second_at)
                mentions.update(matched)
        for failure in failures:
            note(failure)
    read = sum(map(len, looked_at(plan.dataset)))
    return DataCheck(plan.dataset.rows, read, encoded, failing, examples, mentions)


def _blocks(plan: AuditPlan) -> Sequence[Shard]:
    rows = plan.dataset.rows
    most = ALL_PICTURES if plan.dataset.modality == "image" else ALL_TEXTS
    if rows <= most:
        return [Shard(index=0, start=0, stop=rows)]
    size, step = most // _BLOCKS, rows / _BLOCKS
    starts = [int(step * block) for block in range(_BLOCKS)]
    return [
        Shard(index=block, start=start, stop=start + size) for block, start in enumerate(starts)
    ]


def _unencodable(prepared: PreparedAudit, items: Sequence[Item]) -> Iterator[ItemFailure]:
    """Items that the model cannot take, and pictures that cannot be read."""
    from transexplain.explaining import Request

    request = Request.from_plan(prepared.plan)
    for start in range(0, len(items), _TOGETHER):
        encoded = request.encode(prepared.model, items[start : start + _TOGETHER])
        yield from (item for item in encoded if isinstance(item, ItemFailure))
