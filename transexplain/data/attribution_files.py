"""Files of attributions made elsewhere: found, checked, and read shard by shard."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from transexplain.data.attribution_rows import AttributionReader, FileColumns, GivenAttribution
from transexplain.data.class_names import names_of
from transexplain.data.shard_reader import item_of, read_rows
from transexplain.data.snapshot import snapshot_folder, snapshot_ref, unwritable, write_snapshot
from transexplain.data.source_files import (
    NO_FACTS,
    Problem,
    RawRow,
    Record,
    printable,
    reading_row,
    source_files,
)
from transexplain.data.table_source import detected_in, expand, format_of, open_table
from transexplain.errors import DataSourceError, ItemError
from transexplain.files.paths import AnyPath
from transexplain.types.items import Attribution, Item, ItemFailure, ItemOutcome
from transexplain.types.plans import AuditPlan, DatasetRef, DatasetSpec, Modality, Shard
from transexplain.types.tokens import Token

_FORMATS = ("jsonl", "parquet")
_NAMED = {"label", "prediction", "class"}  #: columns that hold classes
_CLOSE = 1e-3  #: of logits that are the same, rounded
_MOST_CONTRADICTING = 0.01  #: of the rows, by their logits


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedImport:
    """A file of attributions, ready for sharding, and what was seen in it."""

    dataset: DatasetRef
    classes: tuple[str, ...]  #: those given, else every class that the file names, sorted
    targets: tuple[str, ...]  #: `predicted` first, then sorted
    never_predicted: tuple[str, ...]  #: labels that no item is predicted as, sorted
    failed: int  #: rows that cannot be read
    unknown_labels: tuple[str, ...]  #: labels that are none of the classes given, sorted


def prepare_attributions(
    spec: DatasetSpec, requested: FileColumns, snapshot_dir: Path
) -> PreparedImport:
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
    source.check()
    return PreparedImport(
        dataset=replace(
            snapshot_ref(source, spec, path, files, NO_FACTS), corpus=source.corpus.hexdigest()
        ),
        classes=requested.classes.classes
        if requested.classes
        else tuple(sorted(source.classes | source.predictions | source.labels)),
        targets=tuple(sorted(source.targets, key=lambda target: (target != "predicted", target))),
        never_predicted=tuple(sorted(source.labels - source.predictions)),
        failed=source.failed,
        unknown_labels=tuple(sorted(source.unknown_labels)),
    )


class AttributionSource:
    """The rows of one file or glob as records of a snapshot; what is in them is noted on the way.

    The names that are noted are those of rows that can be read.
    """

    modality: Modality = "text"
    root, numbered, named, marked = "", False, False, False

    def __init__(self, spec: DatasetSpec, requested: FileColumns) -> None:
        self._spec, self._requested = spec, requested
        self._paths = expand(spec.source)
        for path in self._paths:
            if format_of(path) not in _FORMATS:
                raise DataSourceError(
                    f"{path}: attributions are read from {' and '.join(_FORMATS)} files"
                )
        self.detected = detected_in(self._paths, spec)
        self.classes, self.predictions = set[str](), set[str]()  #: explained, and predicted
        self.labels, self.unknown_labels, self.targets = set[str](), set[str](), set[str]()
        self.corpus = hashlib.sha256()  #: of ids and texts: two methods on one corpus share it
        self.failed = 0
        self._first_fault = ""
        #: rows whose logits were compared with what else they say, and those that contradict it
        self._compared = self._contradicting = 0
        self._contradiction = ""  #: the first

    def files(self) -> Sequence[AnyPath]:
        """The files in reading order."""
        return self._paths

    def check(self) -> None:
        """Raise DataSourceError where too many rows contradict their logits, or all failed."""
        if self._contradicting > _MOST_CONTRADICTING * self._compared:
            raise DataSourceError(
                f"{self._spec.source!r}: {self._contradicting:,} of {self._compared:,} rows "
                f"contradict themselves: {self._contradiction}. Are --classes in the order of the "
                "logits? Leave the logits out where predictions are made otherwise than by the "
                "largest"
            )
        if not self.targets:
            raise DataSourceError(
                f"{self._spec.source!r} holds no attribution: every row failed, the first because "
                f"{self._first_fault}"
            )

    def records(self) -> Generator[Record]:
        """One record per item, and one per row that is none, in order."""
        index = 0
        for name, rows in groupby(self._rows(), key=lambda row: row[1]):
            for record in self._records(name, rows):
                yield replace(record, index=index)
                index += 1

    def _rows(self) -> Iterator[tuple[int, str, GivenAttribution | ItemError]]:
        """The number and id of each row, and its attribution or why it has none."""
        row = 0
        for path in self._paths:
            with open_table(path, self._spec) as table:
                columns = self._requested.resolve(table, path)
                called = {
                    column: names_of(str(path), columns[column], table.metadata)
                    for column in _NAMED & columns.keys()
                }
                reader = AttributionReader(self._requested, columns, called)
                for raw in table.rows(reader.wanted):
                    yield row, *_read(reader, raw, row)
                    row += 1
                self.unknown_labels |= reader.unknown_labels

    def _records(
        self, name: str, rows: Iterable[tuple[int, str, GivenAttribution | ItemError]]
    ) -> Iterator[Record]:
        """The item that neighbouring rows of one id make, and those of them that are none."""
        good: list[GivenAttribution] = []
        bad: list[tuple[int, ItemError]] = []
        for number, _, row in rows:
            try:
                if isinstance(row, ItemError):
                    raise row
                _check_same_item(good, row)
                self._check_logits(row)
            except ItemError as fault:
                bad.append((number, fault))
            else:
                good.append(row)
                self._note(row)
        if good:
            first = good[0]
            self.corpus.update(json.dumps((name, first.text)).encode())
            yield Record(
                id=name,
                index=0,
                content=first.text,
                label=first.label,
                meta=first.meta,
                attributions=_document(good),
                cluster=first.cluster,
                template=first.template,
                second_at=first.second_at,
            )
        for number, reason in bad:
            self.failed += 1
            self._first_fault = self._first_fault or printable(str(reason))
            item = name if not good and number == bad[0][0] else f"{name}#row:{number}"
            self.corpus.update(json.dumps((item, reason.kind)).encode())
            error = f"row {number}: {printable(str(reason))}"
            yield Record(item, 0, error_kind=reason.kind, error=error)

    def _note(self, row: GivenAttribution) -> None:
        self.targets.add(row.target)
        self.predictions.add(row.prediction)
        if row.of_class:
            self.classes.add(row.class_name)
        if row.label is not None:
            self.labels.add(row.label)

    def _check_logits(self, row: GivenAttribution) -> None:
        """Raise ItemError where a row's logits are in another order than the classes."""
        if not row.logits or self._requested.classes is None:
            return
        self._compared += 1
        of = dict(zip(self._requested.classes.classes, row.logits, strict=True))
        logit = of.get(row.class_name, row.logit) if row.of_class else row.logit
        if of[row.prediction] < max(row.logits):
            largest = max(of, key=lambda name: of[name])
            what = f"the prediction is {row.prediction!r}, the largest logit that of {largest!r}"
        elif not math.isclose(row.logit, logit, rel_tol=_CLOSE, abs_tol=_CLOSE):
            what = f"the logit of {row.class_name!r} is {row.logit:g}, and {logit:g} in the logits"
        else:
            return
        self._contradicting += 1
        self._contradiction = self._contradiction or what
        raise ItemError("contradiction", what)


def _read(
    reader: AttributionReader, raw: RawRow, row: int
) -> tuple[str, GivenAttribution | ItemError]:
    name = f"row:{row}"
    try:
        with reading_row():
            if isinstance(raw, Problem):
                raise ItemError(raw.kind, raw.message)
            name = reader.id_of(raw, row)
            return name, reader.read(raw)
    except ItemError as fault:
        return name, fault


def _check_same_item(before: Sequence[GivenAttribution], row: GivenAttribution) -> None:
    """Raise ItemError where a row is not of the same item as those before it, or explains again."""
    names = "text second_at tokens prediction label logits meta cluster template"
    for name in names.split() if before else ():
        if getattr(before[0], name) != getattr(row, name):
            raise ItemError("contradiction", f"{name} differs from an earlier row of the same id")
    if (row.target, row.class_name) in [(earlier.target, earlier.class_name) for earlier in before]:
        raise ItemError(
            "contradiction",
            f"target {row.target!r} of class {row.class_name!r} is there twice",
        )


_EXPLAINED = ("target", "class_name", "of_class", "logit", "scores", "notes")


def _document(rows: Sequence[GivenAttribution]) -> str:
    """An item's rows without its text, label and metadata, as `_given` reads them."""
    first = rows[0]
    document: Mapping[str, Any] = {
        "predicted": first.prediction,
        "logits": first.logits,
        "tokens": [[t.text, t.start, t.end, t.special, t.word] for t in first.tokens],
        "explained": [{name: getattr(row, name) for name in _EXPLAINED} for row in rows],
    }
    return json.dumps(document, separators=(",", ":"))


#: the input layer of relevance that was measured elsewhere
MADE_ELSEWHERE = "imported"
#: an item with the attributions that another program gave it
GivenItem = tuple[Item, ItemOutcome, tuple[Attribution, ...]]


def read_attributions(plan: AuditPlan, shard: Shard) -> Iterator[GivenItem | ItemFailure]:
    """The items of one shard in order, with a failure in the place of each bad row.

    Raises DataSourceError, before the first item, as `shard_reader.read_shard`.
    """
    for row in read_rows(plan.dataset, shard):
        try:
            with reading_row():
                item = item_of(plan.dataset, row, Path())
                outcome = (
                    item
                    if isinstance(item, ItemFailure)
                    else _given(plan, item, json.loads(row["attributions"]))
                )
        except ItemError as fault:
            yield ItemFailure(
                item_id=row["id"], index=row["index"], kind=fault.kind, message=str(fault)
            )
        else:
            yield outcome


def _given(plan: AuditPlan, item: Item, document: Mapping[str, Any]) -> GivenItem:
    tokens = tuple(
        Token(text=text, start=start, end=end, special=special, word=word)
        for text, start, end, special, word in document["tokens"]
    )
    outcome = ItemOutcome(
        item_id=item.id,
        index=item.index,
        label=item.label,
        predicted=document["predicted"],
        logits=tuple(document["logits"]),
        truncated=False,
        positions=len(tokens),
        text=item.content,
        second_at=item.second_at,
        meta=item.meta,
    )
    attributions: list[Attribution] = []
    ranks = Counter[str]()  # a target such as `top:2` has several rows
    for explained in document["explained"]:
        target, name = explained["target"], explained["class_name"]
        attributions.append(
            Attribution(
                item_id=item.id,
                method=plan.method.name,
                target=target,
                rank=ranks[target],
                class_index=plan.model.classes.index(name) if explained["of_class"] else None,
                class_name=name,
                logit=explained["logit"],
                relevance=np.array(explained["scores"], dtype=np.float64),
                unit=plan.method.params["unit"],
                at=MADE_ELSEWHERE,
                features=tokens,
                ledger=None,
                text=item.content,
                second_at=item.second_at,
                notes=tuple(explained["notes"]),
            )
        )
        ranks[target] += 1
    return item, outcome, tuple(attributions)
