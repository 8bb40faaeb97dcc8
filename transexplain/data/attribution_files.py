"""Files of attributions made elsewhere: found, checked, and read shard by shard."""

import hashlib
import json
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from transexplain.data.attribution_rows import AttributionColumns, GivenAttribution, RowReader
from transexplain.data.class_names import names_of
from transexplain.data.read_frames import reading_row
from transexplain.data.shard_reader import read_rows
from transexplain.data.snapshot import snapshot_folder, snapshot_ref, unwritable, write_snapshot
from transexplain.data.source_files import Problem, RawRow, Record, printable, source_files
from transexplain.data.source_paths import expand
from transexplain.data.table_source import detected_in, format_of, open_table
from transexplain.errors import DataSourceError, ItemError
from transexplain.files.paths import AnyPath
from transexplain.types.items import Attribution, Item, ItemFailure, ItemOutcome, Unit
from transexplain.types.plans import AuditPlan, DatasetRef, DatasetSpec, Modality, Shard
from transexplain.types.targets import ClassNames
from transexplain.types.tokens import Token

_FORMATS = ("jsonl", "parquet")
_NAMED = {"label", "prediction", "class"}  #: columns that hold classes
_CLOSE = 1e-3  #: of logits that are the same, rounded
_MOST_CONTRADICTING = 0.01  #: of the rows, by their logits


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A file of attributions, ready for sharding, and what was seen in it."""

    dataset: DatasetRef
    classes: tuple[str, ...]  #: those given, else every class that the file names, sorted
    targets: tuple[str, ...]  #: `predicted` first, then sorted
    never_predicted: tuple[str, ...]  #: labels that no item is predicted as, sorted
    failed: int  #: rows that cannot be read
    unknown_labels: tuple[str, ...]  #: labels that are none of the classes given, sorted


def prepare_attributions(
    spec: DatasetSpec, requested: AttributionColumns, snapshot_dir: Path
) -> Prepared:
    """Read every row once, check it, and write the snapshot.

    Memory holds the rows of one item, and eight bytes per item.

    Raises DataSourceError: no such file or column, another format, rows of one id that do not
    follow one another, no row that can be read, or a folder that cannot be written. What is wrong
    with a row is kept as its `error_kind` and `error`.
    """
    source = AttributionSource(spec, requested)
    folder = snapshot_folder(snapshot_dir)
    try:
        path = write_snapshot(source, spec, folder, ("attributions", "second_at"))
        files = source_files(source.files())
    except OSError as error:  # the readers have turned their own into DataSourceError
        raise unwritable(folder, error) from error
    except DataSourceError as error:
        if "ids must differ" not in str(error):
            raise
        raise DataSourceError(
            f"{error}. Attributions of one item for several classes stand in neighbouring rows: "
            "sort the file by id"
        ) from error
    seen = source.seen
    seen.check_logits(spec.source)
    if not seen.targets:
        raise DataSourceError(
            f"{spec.source!r} holds no attribution: every row failed, the first because "
            f"{seen.first_fault}"
        )
    names = (
        requested.classes.classes
        if requested.classes
        else tuple(sorted(seen.classes | seen.labels))
    )
    return Prepared(
        dataset=replace(snapshot_ref(source, spec, path, files), corpus=seen.corpus.hexdigest()),
        classes=names,
        targets=tuple(sorted(seen.targets, key=lambda target: (target != "predicted", target))),
        never_predicted=tuple(sorted(seen.labels - seen.predictions)),
        failed=seen.failed,
        unknown_labels=tuple(sorted(seen.unknown_labels)),
    )


@dataclass(slots=True)
class _Seen:
    """The classes, labels, targets and failures of the rows so far."""

    classes: set[str] = field(default_factory=set)  #: predicted or explained
    predictions: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)
    unknown_labels: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    compared: int = 0  #: rows whose logits were compared with what else they say
    contradicting: int = 0  #: of those the ones that contradict themselves
    contradiction: str = ""  #: the first
    failed: int = 0
    first_fault: str = ""
    #: over ids and texts: the same for two methods on one corpus
    corpus: Any = field(default_factory=hashlib.sha256)

    def check_logits(self, source: str) -> None:
        """Raise DataSourceError where more rows contradict their logits than can be chance."""
        if self.contradicting > _MOST_CONTRADICTING * self.compared:
            raise DataSourceError(
                f"{source!r}: {self.contradicting:,} of {self.compared:,} rows contradict "
                f"themselves: {self.contradiction}. Are --classes in the order of the logits? "
                "Leave the logits out where predictions are made otherwise than by the largest"
            )

    def compare(
        self, attribution: GivenAttribution, classes: ClassNames | None
    ) -> ItemError | None:
        """Why a row's logits are in another order than the classes; None: they are not."""
        if not attribution.logits or classes is None:
            return None
        self.compared += 1
        of = dict(zip(classes.classes, attribution.logits, strict=True))
        own = (
            of.get(attribution.class_name, attribution.logit)
            if attribution.of_class
            else attribution.logit
        )
        if of[attribution.prediction] < max(attribution.logits):
            largest = max(of, key=lambda name: of[name])
            what = (
                f"the prediction is {attribution.prediction!r}, "
                f"the largest logit that of {largest!r}"
            )
        elif not math.isclose(attribution.logit, own, rel_tol=_CLOSE, abs_tol=_CLOSE):
            what = (
                f"the logit of {attribution.class_name!r} is {attribution.logit:g}, "
                f"and {own:g} in the logits"
            )
        else:
            return None
        self.contradicting += 1
        self.contradiction = self.contradiction or what
        return ItemError("contradiction", what)

    def add(self, attribution: GivenAttribution) -> None:
        """Remember the names in a row."""
        self.targets.add(attribution.target)
        self.predictions.add(attribution.prediction)
        self.classes.add(attribution.prediction)
        if attribution.of_class:
            self.classes.add(attribution.class_name)
        if attribution.label is not None:
            self.labels.add(attribution.label)


@dataclass(slots=True)
class _Group:
    """Neighbouring rows of one id."""

    id: str
    good: list[GivenAttribution] = field(default_factory=list)
    bad: list[tuple[int, str, str]] = field(default_factory=list)  #: row, kind, message


class AttributionSource:
    """The rows of one file or glob as records of a snapshot; `seen` grows while they are read."""

    def __init__(self, spec: DatasetSpec, requested: AttributionColumns) -> None:
        self._spec, self._requested = spec, requested
        self._paths = expand(spec.source)
        for path in self._paths:
            if format_of(path) not in _FORMATS:
                raise DataSourceError(
                    f"{path}: attributions are read from {' and '.join(_FORMATS)} files"
                )
        self.modality: Modality = "text"
        self.root, self.numbered, self.named, self.marked = "", False, False, False
        self.detected = detected_in(self._paths, spec)
        self.seen = _Seen()

    def files(self) -> Sequence[AnyPath]:
        """The files in reading order."""
        return self._paths

    def records(self) -> Generator[Record]:
        """One record per item, and one per row that is none, in order."""
        index = 0
        for group in self._groups():
            for record in self._records(group):
                yield replace(record, index=index)
                index += 1

    def _groups(self) -> Iterator[_Group]:
        group: _Group | None = None
        row = 0
        for path in self._paths:
            with open_table(path, self._spec) as table:
                columns = self._requested.resolve(table, path)
                called = {
                    column: names_of(str(path), columns[column], table.metadata)
                    for column in _NAMED & columns.keys()
                }
                reader = RowReader(self._requested, columns, called)
                for raw in table.rows(reader.wanted):
                    name, given = _read(reader, raw, row)
                    if group is None or name != group.id:
                        if group is not None:
                            yield group
                        group = _Group(name)
                    self._put(group, given, row)
                    row += 1
                self.seen.unknown_labels |= reader.unknown_labels
        if group is not None:
            yield group

    def _put(self, group: _Group, given: GivenAttribution | ItemError, row: int) -> None:
        fault = given if isinstance(given, ItemError) else _contradiction(group.good, given)
        if fault is None and isinstance(given, GivenAttribution):
            fault = self.seen.compare(given, self._requested.classes)
        if fault is None and isinstance(given, GivenAttribution):
            group.good.append(given)
            self.seen.add(given)
        elif fault is not None:
            group.bad.append((row, fault.kind, printable(str(fault))))
            self.seen.failed += 1
            self.seen.first_fault = self.seen.first_fault or printable(str(fault))

    def _records(self, group: _Group) -> Iterator[Record]:
        name = group.id
        if group.good:
            first = group.good[0]
            self._count(name, first.text)
            yield Record(
                id=name,
                index=0,
                content=first.text,
                second_at=first.second_at,
                label=first.label,
                meta=first.meta,
                sha256=None,
                error_kind=None,
                error=None,
                attributions=_document(group.good),
                cluster=first.cluster,
                template=first.template,
            )
        for place, (row, kind, message) in enumerate(group.bad):
            own = name if not group.good and place == 0 else f"{name}#row:{row}"
            self._count(own, kind)
            yield Record(own, 0, None, None, "{}", None, kind, f"row {row}: {message}")

    def _count(self, *parts: str) -> None:
        self.seen.corpus.update(json.dumps(parts).encode())


def _read(reader: RowReader, raw: RawRow, row: int) -> tuple[str, GivenAttribution | ItemError]:
    """The id of a row, and its attribution or why it has none."""
    name = f"row:{row}"
    if isinstance(raw, Problem):
        return name, ItemError(raw.kind, raw.message)
    try:
        with reading_row():
            name = reader.id_of(raw, row)
            return name, reader.read(raw)
    except ItemError as fault:
        return name, fault


def _contradiction(before: Sequence[GivenAttribution], given: GivenAttribution) -> ItemError | None:
    """The reason why a row is not of the same item as those before it."""
    names = "text second_at tokens prediction label logits meta cluster template"
    for name in names.split() if before else ():
        if getattr(before[0], name) != getattr(given, name):
            return ItemError("contradiction", f"{name} differs from an earlier row of the same id")
    for earlier in before:
        if (earlier.target, earlier.class_name) == (given.target, given.class_name):
            return ItemError(
                "contradiction",
                f"target {given.target!r} of class {given.class_name!r} is there twice",
            )
    return None


def _document(rows: Sequence[GivenAttribution]) -> str:
    """An item's rows without its text, label and metadata; see `attribution_shards`."""
    first = rows[0]
    document: Mapping[str, Any] = {
        "predicted": first.prediction,
        "logits": first.logits,
        "tokens": [[t.text, t.start, t.end, t.special, t.word] for t in first.tokens],
        "explained": [
            {
                "target": row.target,
                "class_name": row.class_name,
                "of_class": row.of_class,
                "logit": row.logit,
                "scores": row.scores,
                "notes": row.notes,
            }
            for row in rows
        ],
    }
    return json.dumps(document, separators=(",", ":"))


#: the input layer of relevance that was measured elsewhere
MADE_ELSEWHERE = "imported"


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenItem:
    """An item with the attributions that another program gave it."""

    item: Item
    outcome: ItemOutcome
    attributions: tuple[Attribution, ...]


def read_attributions(plan: AuditPlan, shard: Shard) -> Iterator[GivenItem | ItemFailure]:
    """The items of one shard in order, with a failure in the place of each bad row.

    Raises DataSourceError, before the first item, as `shard_reader.read_shard`.
    """
    for row in read_rows(plan.dataset, shard):
        try:
            with reading_row():
                if row["error_kind"] is not None:
                    raise ItemError(row["error_kind"], row["error"])
                given = _item(plan, row)
        except ItemError as fault:
            yield ItemFailure(
                item_id=row["id"], index=row["index"], kind=fault.kind, message=str(fault)
            )
        else:
            yield given


def _item(plan: AuditPlan, row: dict[str, Any]) -> GivenItem:
    document = json.loads(row["attributions"])
    tokens = tuple(
        Token(text=text, start=start, end=end, special=special, word=word)
        for text, start, end, special, word in document["tokens"]
    )
    content = Item(
        id=row["id"],
        index=row["index"],
        content=row["content"],
        second_at=row["second_at"],
        label=row["label"],
        meta=json.loads(row["meta"]),
        cluster=row.get("cluster") or "",
        template=row.get("template") or "",
    )
    return GivenItem(
        item=content,
        outcome=ItemOutcome(
            item_id=content.id,
            index=content.index,
            label=content.label,
            predicted=document["predicted"],
            logits=tuple(document["logits"]),
            truncated=False,
            positions=len(tokens),
            text=content.content,
            second_at=content.second_at,
            meta=content.meta,
        ),
        attributions=tuple(_attributions(plan, content, tokens, document["explained"])),
    )


def _attributions(
    plan: AuditPlan, item: Item, tokens: Sequence[Token], rows: list[dict[str, Any]]
) -> Iterator[Attribution]:
    unit: Unit = plan.method.params["unit"]
    for rank, row in _ranked(rows):
        name = row["class_name"]
        yield Attribution(
            item_id=item.id,
            method=plan.method.name,
            target=row["target"],
            rank=rank,
            class_index=plan.model.classes.index(name) if row["of_class"] else None,
            class_name=name,
            logit=row["logit"],
            relevance=np.array(row["scores"], dtype=np.float64),
            unit=unit,
            at=MADE_ELSEWHERE,
            features=tokens,
            ledger=None,
            text=item.content,
            second_at=item.second_at,
            notes=tuple(row["notes"]),
        )


def _ranked(rows: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each with its place among those of one target (`top:2` has two)."""
    seen: dict[str, int] = {}
    for row in rows:
        seen[row["target"]] = seen.get(row["target"], -1) + 1
        yield seen[row["target"]], row
