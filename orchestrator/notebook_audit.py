"""Audits a model by one call, also from memory, and returns the verdict and the report.

It goes the way of the command line: specification, plan, store, shards, report. A model that is in
memory only cannot be loaded by another process.
"""

import hashlib
import html
import io
import json
import math
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from tqdm import tqdm

from orchestrator.dispatch.finish import exit_code, write_reports
from orchestrator.dispatch.local import run_here
from orchestrator.dispatch.stopping import Reports
from orchestrator.plan import PreparedAudit, prepare_audit
from orchestrator.spec import AuditSpec
from orchestrator.spec.audit_spec import SECTIONS
from orchestrator.spec.groups_section import GroupsSection
from orchestrator.spec.spec_document import apply_overrides, validated
from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.analysis.groups.measures import Measure
from transexplain.data.image_files import load_image
from transexplain.data.snapshot import FROM_MEMORY, snapshot_folder
from transexplain.data.table_source import LABEL_DEFAULT, TEXT_DEFAULTS
from transexplain.errors import (
    ConfigurationError,
    DataSourceError,
    ItemError,
    SpecError,
    TransExplainError,
    WrongKindError,
)
from transexplain.files import paths
from transexplain.files.paths import AnyPath, any_path, local_path
from transexplain.interpreter import outside_inference_mode
from transexplain.registry import require
from transexplain.reports import REPORTS
from transexplain.reports.heatmap import rgb
from transexplain.reports.report_records import Summary
from transexplain.reports.report_section import StatementKind
from transexplain.reports.sql_results import keep
from transexplain.reports.summary import summarised
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.revisions import open_database
from transexplain.text.parsing import DEEPEST
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import TargetLike

if TYPE_CHECKING:
    import pandas

    from transexplain.models.loaded_model import LoadedModel
    from transexplain.store.database import Database


_DATA = (
    "a path, a DataFrame, a list of texts, of pictures, of (text, label) or (picture, label) pairs "
    "or of dictionaries, or the mapping of the section data"
)
_MOST = 4_000_000  #: values of one item or cell, in lists and mappings
#: columns of what pictures are listed in
_PICTURE, _LABEL = "picture", "label"


def groups_section(groups: Any, snapshot_dir: Path) -> Any:
    """The section groups; groups that are given as a mapping are written to a lexicon file.

    Args:
        groups: a lexicon, or several; group -> names; or the mapping of the section, whose lexicon
            may be such a mapping.
        snapshot_dir: below which files are written.

    Raises SpecError where it is none of these; ConfigurationError where a file cannot be written.
    """
    if isinstance(groups, str):
        return groups
    if isinstance(groups, Path):
        return str(groups)
    if isinstance(groups, list | tuple):
        return {"lexicon": list(groups)}
    if not isinstance(groups, Mapping) or not groups:
        raise SpecError(
            f"groups cannot be {groups!r:.80}; it is a lexicon such as 'builtin:gender', a "
            "mapping of groups to names, or the mapping of the section groups"
        )
    keys, known = {str(key) for key in groups}, set(GroupsSection.model_fields)
    if not keys <= known and not keys & {"lexicon", "column"}:
        return {"lexicon": _lexicon(groups, snapshot_dir)}
    meanings = dict(groups)
    if isinstance(meanings.get("lexicon"), Mapping):
        meanings["lexicon"] = _lexicon(meanings["lexicon"], snapshot_dir)
    return meanings


def _lexicon(groups: Mapping[Any, Any], snapshot_dir: Path) -> str:
    lists: dict[str, Any] = {}
    for name, terms in groups.items():
        if isinstance(terms, str) or not isinstance(terms, Iterable):
            raise SpecError(
                f"group {name!r:.80} cannot be {terms!r:.80}; it is a list of names. Keys of the "
                f"section groups are {', '.join(GroupsSection.model_fields)}"
            )
        # the order of a set differs between processes
        lists[str(name)] = terms if isinstance(terms, Mapping) else list(terms)
        if isinstance(terms, AbstractSet):
            lists[str(name)] = sorted(map(str, terms))
    return _kept(_json(lists, "groups"), "json", _folder(snapshot_dir))


def data_section(data: Any, snapshot_dir: Path, columns: Mapping[str, Any]) -> Any:
    """The section data; items in memory are written to a file, a table with the columns it uses.

    Args:
        data: a path; a DataFrame, or what has `to_pandas`; an iterable of texts, of pictures (PIL
            images, arrays (H, W, 3) or Path objects), of (text or picture, label) pairs or of
            dictionaries; or the mapping of the section, with such a `source`.
        snapshot_dir: below which files are written, in `from-memory`.
        columns: names of columns by what they hold, as keys of the section.

    Raises DataSourceError where it is none of these; ConfigurationError where a file cannot be
    written.
    """
    if isinstance(data, str):
        return {"source": data}
    if isinstance(data, Path):
        return {"source": str(data)}
    if isinstance(data, Mapping):
        if "source" not in data:
            raise SpecError("data is a mapping without `source`, which names the items")
        if data.get("image") and not isinstance(data["source"], str | Path):
            raise DataSourceError(
                "paths of pictures stand in a file beside them: write the table to a csv file in "
                "their folder and give its path, or give imagefolder:DIR"
            )
        columns = {**data, **columns}
        return {**data, **data_section(data["source"], snapshot_dir, columns)}
    return _items(data, _folder(snapshot_dir), columns)


def _items(data: Any, folder: Path, columns: Mapping[str, Any]) -> dict[str, Any]:
    # `datasets` keeps the names of classes apart from its columns
    schema = getattr(getattr(data, "features", data), "arrow_schema", getattr(data, "schema", None))
    if hasattr(data, "to_pandas"):  # datasets, polars, Arrow
        with _about("data.to_pandas()"):
            data = data.to_pandas()
    if hasattr(data, "columns") and hasattr(data, "to_parquet"):
        content = _parquet(_used(data, columns), getattr(schema, "metadata", None))
        return {"source": _kept(content, "parquet", folder)}
    if _is_picture(data):
        raise DataSourceError("data is one picture; give a list of pictures, or explain it")
    if not isinstance(data, Iterable):
        raise DataSourceError(f"data cannot be {_shown(data)}; give {_DATA}")
    rows = _numbered(data)
    first = next(rows, None)
    if first is None:
        raise DataSourceError("data is an empty list; give at least one item")
    rows = chain([first], rows)
    if _is_picture(_content(first[1])):
        lines = _lines(rows, lambda row, place: _as_listed(row, place, folder))
        return {"source": _kept(lines, "jsonl", folder), "image": _PICTURE}
    return {"source": _kept(_lines(rows, _as_row), "jsonl", folder)}


def _numbered(data: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """The items with their numbers; what their iterator raises names the item that it is at."""
    place, end = 0, object()
    with _about("data"):
        items = iter(data)
    while True:
        with _about(f"item {place} of data"):
            item = next(items, end)
        if item is end:
            return
        yield place, item
        place += 1


def _lines(rows: Iterable[tuple[int, Any]], row_of: Callable[[Any, int], Any]) -> str:
    parts = []
    for place, row in rows:
        with _about(f"item {place} of data"):
            parts.append(_json(row_of(row, place), f"item {place} of data") + "\n")
    return "".join(parts)


@contextmanager
def _about(what: str) -> Iterator[None]:
    """A block that runs a caller's own code, whose errors name what it was about."""
    try:
        yield
    except TransExplainError:
        raise
    except Exception as error:
        raise DataSourceError(f"{what}: {type(error).__name__}: {error}") from error


def _shown(value: Any) -> str:
    """The beginning of a value and its type, for a message."""
    try:
        return f"{value!r:.80} ({type(value).__name__})"
    except Exception:  # noqa: BLE001 - of somebody's own class, or nested too deeply
        return f"a {type(value).__name__}"


def _content(item: Any) -> Any:
    """An item without its label."""
    return item[0] if isinstance(item, tuple | list) and len(item) == 2 else item


def _is_picture(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim in (2, 3) and value.dtype.kind in "buif"
    return isinstance(value, Image.Image | Path)


def _as_listed(entry: Any, place: int, folder: Path) -> dict[str, Any]:
    """A row with the name of a picture's file, which lies in `folder` or is put there."""
    picture = _content(entry)
    if not _is_picture(picture):
        raise DataSourceError(
            f"item {place} of data cannot be {_shown(entry)}: the first item is "
            "a picture, so all are (a path as a Path object), with or without a label each"
        )
    try:
        if isinstance(picture, Path):
            shown = load_image(picture)
        else:
            shown = Image.fromarray(np.rint(rgb(picture)).astype(np.uint8))
    except (ItemError, ConfigurationError) as error:
        raise DataSourceError(f"item {place} of data: {error}") from None
    buffer = io.BytesIO()
    shown.save(buffer, "PNG")
    row = {_PICTURE: Path(_kept(buffer.getvalue(), "png", folder)).name}
    return row if picture is entry else {**row, _LABEL: entry[1]}


def _as_row(row: Any, place: int) -> dict[str, Any]:
    if row is None or isinstance(row, str):
        return {"text": row}
    if isinstance(row, Mapping):
        return {str(key): value for key, value in row.items()}
    if isinstance(row, tuple | list) and len(row) == 2 and isinstance(row[0], str):
        return {"text": row[0], "label": row[1]}
    raise DataSourceError(
        f"item {place} of data cannot be {_shown(row)}; a list holds texts, "
        "pictures, (text, label) or (picture, label) pairs, or dictionaries"
    )


def _used(frame: Any, columns: Mapping[str, Any]) -> Any:
    """The columns of a DataFrame that an audit reads; all, where none holds the items."""
    content = {columns.get("image"), *_several(columns.get("text") or TEXT_DEFAULTS)}
    others = {name for key in _OF_ITEMS for name in _several(columns.get(key))}
    others.add(columns.get("label") or LABEL_DEFAULT)
    if not any(str(name) in content for name in frame.columns):
        return frame
    return frame[[name for name in frame.columns if str(name) in content | others]]


def _several(names: Any) -> Sequence[Any]:
    return (names,) if isinstance(names, str) else tuple(names or ())


#: keys of the section data that name further columns
_OF_ITEMS = ("id", "meta", "evidence", "spans", "cluster", "template")


def _parquet(frame: Any, metadata: Mapping[bytes, bytes] | None) -> bytes:
    """The columns of a DataFrame as the bytes of a Parquet file, with metadata of its schema."""
    named = frame.rename(columns=str)
    twice = named.columns[named.columns.duplicated()]
    if len(twice):
        raise DataSourceError(f"the DataFrame has two columns {twice[0]!r}: rename one of them")
    named = named.astype(
        {column: object for column in named if str(named[column].dtype) == "category"}
    )
    for name, column in named.items():
        for place, value in enumerate(column if column.dtype == object else ()):
            _refuse_endless(value, f"row {place} of column {name!r}")
    try:
        table = pa.Table.from_pandas(named, preserve_index=False).replace_schema_metadata(metadata)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
    except Exception as error:
        reason = _culprit(named) + "; ".join(str(part) for part in error.args)
        raise DataSourceError(
            f"the DataFrame cannot be written as a table: {reason}. Give the columns that the "
            "audit needs, each of one type"
        ) from error
    return bytes(sink.getvalue())


def _culprit(frame: Any) -> str:
    """The first cell that no column can hold, for a message; "" where each by itself can be."""
    for name, column in frame.items():
        for place, value in enumerate(column):
            try:
                pa.array([value], from_pandas=True)
            except Exception:  # noqa: BLE001 - the caller reports it
                return f"row {place} of column {name!r} holds {_shown(value)}: "
    return ""


def _refuse_endless(value: Any, where: str) -> None:
    """Raise DataSourceError for lists and mappings that hold themselves, or stand for too many."""
    waiting, seen = [(value, 0)], 0
    while waiting:
        inner, depth = waiting.pop()
        seen += 1
        if depth > DEEPEST or seen > _MOST:
            raise DataSourceError(
                f"{where} is nested more than {DEEPEST} deep, or has more than {_MOST:,} values; "
                "use texts, numbers and short lists"
            )
        if isinstance(inner, np.ndarray) and inner.dtype == object:
            inner = inner.tolist()
        if isinstance(inner, Mapping):
            waiting += [(value, depth + 1) for value in inner.values()]
        elif isinstance(inner, list | tuple | AbstractSet):
            waiting += [(value, depth + 1) for value in inner]


def _json(value: Any, where: str) -> str:
    _refuse_endless(value, where)

    def plain(other: Any) -> Any:
        if type(other).__name__ in ("NAType", "NaTType"):  # of pandas
            return None
        if isinstance(other, Decimal | date):
            return str(other)
        if hasattr(other, "item"):  # a number of numpy
            return other.item()
        raise DataSourceError(
            f"{_shown(other)} cannot be written to a file of data; use texts, numbers and lists"
        )

    try:
        return json.dumps(value, ensure_ascii=True, default=plain)
    except (ValueError, RecursionError) as error:
        raise DataSourceError(f"{where} cannot be written to a file: {error}") from error


def _folder(snapshot_dir: Path) -> Path:
    return snapshot_folder(snapshot_dir) / FROM_MEMORY


def _kept(content: str | bytes, suffix: str, folder: Path) -> str:
    """The path of a file with this content, which names it: the same data are one file."""
    data = content.encode() if isinstance(content, str) else content
    path = folder / f"{hashlib.sha256(data).hexdigest()[:16]}.{suffix}"
    if not path.is_file():
        write_whole(path, data)
    return str(path)


def write_whole(path: AnyPath, content: bytes) -> None:
    """Write a file, whole or not at all; raises ConfigurationError, ObjectStoreError."""
    try:
        paths.write_whole(path, content)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error


@outside_inference_mode
def audit(  # noqa: PLR0913 - keys of a specification
    model: Any,
    data: Any,
    *,
    groups: str | Mapping[str, Any] | Sequence[str] | None = None,
    targets: TargetLike | Sequence[TargetLike] = "predicted",
    labels: Mapping[Any, Any] | str | None = None,
    method: str | MethodSpec | Mapping[str, Any] = "lrp",
    text: str | None = None,
    label: str | None = None,
    sample: int | None = None,
    limit: int | None = None,
    name: str = "audit",
    database: str | Path | None = None,
    progress: bool = True,
    **keys: Any,
) -> "AuditResult":
    """Audit a classifier over a dataset in this process, as `transexplain run` does.

    Args:
        model: a directory, hub id or timm name; what `load_model` gave; a pipeline; or
            `(transformers model, its tokenizer or image processor)`. Or the mapping of the
            section model, such as `{"source": ..., "device": "cuda:0"}`.
        data: a file (csv, tsv, jsonl, parquet, xlsx) or `imagefolder:DIR`; a DataFrame; a list of
            texts, of pictures (PIL images, arrays or Path objects), of (text, label) or (picture,
            label) pairs, or of dictionaries. Or the mapping of the section data, whose `source` is
            any of these. What is in memory is written below `TRANSEXPLAIN_SNAPSHOT_DIR`, of a
            table the columns that the audit reads; `transexplain db delete-run` deletes it.
        groups: whose treatment is compared: a lexicon such as `builtin:gender` or a file, or
            several; group -> names, such as `{"gender/female": ["Anna", "she"], ...}`; or the
            mapping of the section groups, whose `lexicon` may be such a mapping.
        targets: what is explained, see `explain`.
        labels: label of the data -> class, or `by-index`; default: labels are names of classes.
        method: name, name with parameters as a MethodSpec, or the mapping of the section method.
        text: column of the texts; default: `text`, else `sentence`.
        label: column of the labels; default: `label`, where there is one.
        sample: number of items, sampled at random.
        limit: only the first items.
        name: of the audit and of its report files.
        database: URL, or path of an SQLite file; default: `TRANSEXPLAIN_DATABASE_URL`, else
            `transexplain.db` here, where the command line finds the run, too.
        progress: whether a bar is shown.
        keys: any other key of a specification, such as `evaluation={"items": 0}`.

    What should be known beforehand, such as labels that are no classes, is a Python warning.

    A model that is in memory only is audited here, whole. What another process would have to load
    it for is not possible: `transexplain resume` after an interruption, workers, schedules, and
    `transexplain verify` unless `--model` names a directory that it was saved to.

    Raises ConfigurationError: model, data, groups, target or a key is wrong. KeyboardInterrupt: the
    run stays in the store, and the error says whether and how it goes on.
    """
    settings = _settings(database)
    loaded = _model(model)
    if isinstance(method, MethodSpec):
        method = {"name": method.name, "params": dict(method.params)}
    columns = {key: value for key, value in (("text", text), ("label", label)) if value}
    document: dict[str, Any] = {
        "name": name,
        "model": model if loaded is None else {"source": loaded.ref.source},
        "data": data_section(data, settings.snapshot_dir, columns),
        "targets": targets,
        "method": method,
    }
    if isinstance(document["model"], Path):
        document["model"] = str(model)
    if groups is not None:
        document["groups"] = groups_section(groups, settings.snapshot_dir)
    if labels is not None:
        document["labels"] = labels
    options = {"text": text, "label": label, "sample": sample, "limit": limit}
    data_keys = {f"data.{key}": value for key, value in options.items()}
    apply_overrides(document, data_keys, (), SECTIONS)
    spec = validated(AuditSpec, {**document, **keys}, "the audit of these arguments", SECTIONS)
    prepared = prepare_audit(spec, settings, model=loaded)
    for warning in prepared.warnings:
        warnings.warn(warning, stacklevel=3)
    return _run(prepared, settings, progress=progress, in_memory=loaded is not None)


_TOO_MANY = "more items failed than the tolerance allows; see summary.failures"


def _run(
    prepared: PreparedAudit, settings: Settings, *, progress: bool, in_memory: bool
) -> "AuditResult":
    # a long batch must not end the caller's process, and a new process would run its script again
    settings = replace(
        settings, item_deadline=math.inf, host_processes=settings.host_processes or 0
    )
    with _store(settings.database_url) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards, place=prepared.place)
        rows, name = prepared.plan.dataset.rows, prepared.plan.name
        bar = tqdm(total=rows, desc=name, unit="item", disable=not progress)
        try:
            with bar, _interruptible() as stop:
                run_here(
                    db,
                    run_id,
                    settings,
                    model=prepared.model,
                    report=Reports(items=bar.update, wait=bar.write),
                    stop=stop,
                )
        except KeyboardInterrupt as stopped:
            again = (
                "its model is in memory only, so no other process can go on with it"
                if in_memory
                else f"`transexplain resume {run_id}` goes on with it"
            )
            stopped.add_note(f"run {run_id} is not finished; {again}")
            raise
        summary, total = summarised(db, run_id)
        if not summary.whole:
            warnings.warn(summary.headline[0].text, stacklevel=4)
        elif exit_code(db, run_id):
            warnings.warn(_TOO_MANY, stacklevel=4)
        keep(db, summary, total)
    return AuditResult(
        run_id=run_id,
        summary=summary,
        warnings=prepared.warnings,
        in_memory=in_memory,
        database=settings.database_url,
    )


#: column of `AuditResult.groups` -> what it holds of a verdict
_COLUMNS = (
    *("group", "reference", "state", "mention", "outcome", "mention_reason", "outcome_reason"),
    *("prediction", "probability", "probability_low", "probability_high"),
    *("changed_across", "changed_within", "rate_prediction", "items", "rate", "reference_rate"),
    *("difference", "difference_low", "difference_high", "not_tested"),
)


class Verdict(str):
    """The verdict as a text, and what kind it is of.

    `flagged`: a mention changes predictions or outcomes differ; `clear`: neither, for any group;
    `problem`: something keeps the numbers from being trusted; `unknown`: the data are not enough;
    `fact`: nothing was compared.
    """

    __slots__ = ("kind",)
    kind: StatementKind

    def __new__(cls, text: str, kind: StatementKind) -> Self:
        """`text` with its kind."""
        verdict = super().__new__(cls, text)
        verdict.kind = kind
        return verdict


@dataclass(frozen=True, kw_only=True, slots=True, repr=False, eq=False)
class AuditResult:
    """The findings of an audit."""

    run_id: str
    summary: Summary  #: everything that the report says
    warnings: tuple[str, ...]  #: what should be known before the findings are read
    in_memory: bool  #: the model was in memory only
    database: str = field(repr=False)  #: URL of the store that holds the run

    @property
    def verdict(self) -> "Verdict":
        """The whole in one sentence or two; `verdict.kind` is for programs."""
        verdict = self.summary.verdict
        return Verdict(verdict.text, verdict.kind) if verdict else Verdict("", "unknown")

    @property
    def groups(self) -> "pandas.DataFrame":
        """One row per group that was compared, or could not be for want of mentions.

        `mention`: whether changing who is mentioned *changes* the prediction, *does not change* it,
        or is *open*; `outcome`: whether rates of predictions and errors *differ*, *do not differ*,
        or are *open*. `state`: flagged, open, clear, or never mentioned. `probability` is how far
        the probability of `prediction` moves where names of the group take the place of names of
        the reference; `changed_across` the share of predictions that this changes, and
        `changed_within` the share that other names of the same group change. `items` mention the
        group; `rate` of them, and `reference_rate` of those of the reference, are predicted to be
        `rate_prediction`. The ends `_low` and `_high` are those of the interval that decided.
        `not_tested`: what keeps a group from being clear. What was not measured is NaN or None.

        Raises ConfigurationError where pandas is not installed.
        """
        require("pandas", "notebook")
        import pandas

        groups = self.summary.groups
        rows = [_row(verdict) for verdict in groups.verdicts] if groups else []
        judged = {row["group"] for row in rows}
        never = [name for name in groups.never_mentioned if name not in judged] if groups else []
        rows += [{"group": name, "state": "never mentioned"} for name in never]
        return pandas.DataFrame(rows, columns=list(_COLUMNS))

    def report(self, path: str | AnyPath = "audits") -> AnyPath:
        """Write the report; returns where the page is.

        Args:
            path: a file that ends in `.html` or `.json`; or a folder, for both and the manifest,
                as the command line writes them. Either may be a URL.

        Raises ConfigurationError where it cannot be written.
        """
        place = any_path(path)
        form = place.suffix.removeprefix(".")
        if form not in REPORTS:
            with _store(self.database) as db:
                _, paths = write_reports(db, self.run_id, place)
            return next(path for path in paths if path.suffix == ".html")
        write_whole(place, REPORTS.load(form)(self.summary).encode())
        return place

    def __repr__(self) -> str:
        counts = self.summary.counts
        return (
            f"<AuditResult {self.summary.audited.name} run {self.run_id}: {counts.done:,} of "
            f"{counts.total:,} items; see .verdict, .groups, .report(path)>"
        )

    def _repr_html_(self) -> str:
        """The verdict, the findings and the groups, for a notebook."""
        counts = self.summary.counts
        findings = "".join(
            f"<li>{html.escape(finding.text)}</li>" for finding in self.summary.headline
        )
        listed = "".join(f"<li>{html.escape(warning)}</li>" for warning in self.warnings)
        table = _table(self.summary.groups.verdicts) if self.summary.groups else ""
        before = f"<p>Before you read it:</p><ul>{listed}</ul>" if listed else ""
        return (
            f"<div><p><strong>{html.escape(self.verdict)}</strong></p>{table}"
            f"<details><summary>Findings</summary><ul>{findings}</ul></details>{before}"
            f"<p>{html.escape(self.summary.audited.name)}, run {html.escape(self.run_id)}: "
            f"{counts.done:,} of {counts.total:,} items explained. "
            "<code>.report(path)</code> writes the whole report.</p></div>"
        )


def _row(verdict: GroupVerdict) -> dict[str, Any]:
    row: dict[str, Any] = {
        "group": verdict.group,
        "reference": verdict.reference,
        "state": verdict.state,
        "mention": verdict.mention,
        "outcome": verdict.outcome,
        "mention_reason": "; ".join(verdict.mention_reasons),
        "outcome_reason": "; ".join((*verdict.outcome_reasons, *verdict.notes)),
        "not_tested": "; ".join(verdict.missing),
    }
    if (swap := verdict.counterfactual) is not None:
        row["prediction"], row["probability"] = swap.prediction, swap.probability
        row["changed_across"], row["changed_within"] = swap.changed_across, swap.changed_within
        row |= _ends("probability", swap.measure("probability"))
    if (rates := verdict.rates) is not None:
        row["rate_prediction"], row["difference"] = rates.prediction, rates.difference
        row["items"] = rates.own.selected.total
        row["rate"], row["reference_rate"] = rates.own.selected.share, rates.other.selected.share
        row |= _ends("difference", rates.measure("rate"))
    return row


def _ends(name: str, measure: Measure | None) -> dict[str, float | None]:
    """The interval that decided on a measure."""
    low, high = (measure and measure.interval) or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _table(verdicts: Iterable[GroupVerdict]) -> str:
    """Groups, verdicts and their reasons as an HTML table."""

    def line(tag: str, *cells: str) -> str:
        written = "".join(
            f'<{tag} style="text-align:left">{html.escape(c)}</{tag[:2]}>' for c in cells
        )
        return f"<tr>{written}</tr>"

    rows = "".join(
        line(
            "td",
            *(verdict.group, verdict.reference),
            *(verdict.mention, "; ".join(verdict.mention_reasons)),
            *(verdict.outcome, "; ".join((*verdict.outcome_reasons, *verdict.notes))),
        )
        for verdict in verdicts
    )
    heads = line(
        'th scope="col"', "group", "compared with", "the mention", "why", "outcomes", "why"
    )
    return f"<table><thead>{heads}</thead><tbody>{rows}</tbody></table>" if rows else ""


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets while the block runs; the next Ctrl-C interrupts as always."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _settings(database: str | Path | None) -> Settings:
    settings = Settings.from_environment()
    if database is None:
        return settings
    WrongKindError.check("audit", database, str | Path, "a URL or a path as database")
    url = str(database) if "://" in str(database) else f"sqlite:///{local_path(database)}"
    return replace(settings, database_url=url)


def _store(url: str) -> "Database":
    return open_database(url, upgrade=url.startswith("sqlite"))


def _model(model: Any) -> "LoadedModel | None":
    """The model, if it is in memory; None where it is a path or id."""
    if isinstance(model, str | Path | Mapping):
        return None
    from transexplain.models.load import load_model

    return load_model(*model) if isinstance(model, tuple) and model else load_model(model)
