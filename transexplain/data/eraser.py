"""Reads texts with human rationales in the format of the ERASER benchmark.

DeYoung et al. 2020: a file of annotations for each split, and the documents they are about in
`docs.jsonl` or, one file each, in the folder `docs`.
"""

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transexplain.data.item_marks import BAD_EVIDENCE, spans_json
from transexplain.data.source_files import Problem, RawRow, Record, inside, printable, reading_row
from transexplain.data.table_source import open_table, spelled, text_of
from transexplain.errors import DataSourceError, ItemError
from transexplain.files.local_copies import folder_here
from transexplain.files.paths import AnyPath
from transexplain.types.plans import DatasetSpec, Modality

_SUFFIXES = (".jsonl", ".jsonl.gz")
_FIELDS = ("annotation_id", "classification", "evidences", "docids")
_NEEDED = ("annotation_id", "classification", "evidences")


class EraserSource:
    """The annotations of one split: each is one document, its class and its rationale.

    Tokens of a document are what white space parts. Documents of a `docs.jsonl` are held in
    memory, those of a folder are read one by one.
    """

    modality: Modality = "text"
    root, numbered, named, marked = "", False, True, True

    def __init__(self, spec: DatasetSpec, location: str) -> None:
        if named := spec.columns:
            raise DataSourceError(
                f"an ERASER folder defines its own fields; remove {', '.join(named)}"
            )
        name, _, split = location.rpartition("#")
        self._copy = folder_here(name or location)
        self._folder = self._copy.folder
        self._spec = spec
        self._split = self._find(split if name else "")
        self._docs = _first_file(self._folder, "docs")
        if self._docs is None and not (self._folder / "docs").is_dir():
            raise DataSourceError(
                f"{name or location} holds neither docs.jsonl(.gz) nor a folder docs"
            )

    def files(self) -> Sequence[AnyPath]:
        """The annotations and the documents."""
        if self._docs is not None:
            files = [self._split, self._docs]
        else:
            documents = (self._folder / "docs").rglob("*")
            files = [self._split, *sorted(path for path in documents if path.is_file())]
        return [self._copy.original(path) for path in files]

    def records(self) -> Generator[Record]:
        """One record per annotation."""
        listed = None if self._docs is None else self._listed(self._docs)
        with open_table(self._split, self._spec) as table:
            if missing := [name for name in _NEEDED if name not in table.columns]:
                raise DataSourceError(
                    f"{self._split} is no file of ERASER annotations: it has no {missing[0]!r}"
                )
            for index, raw in enumerate(table.rows(_FIELDS)):
                yield self._record(index, raw, listed)

    def _find(self, split: str) -> Path:
        path = _first_file(self._folder, split) if split else None
        if path is None:
            documents = {
                path.name.removesuffix(suffix)
                for suffix in _SUFFIXES
                for path in self._folder.glob(f"*{suffix}")
            }
            raise DataSourceError(
                f"{self._spec.source!r} names no split of the folder: write eraser:DIR#split with "
                f"one of {', '.join(sorted(documents - {'docs'})) or '(none is there)'}"
            )
        return path

    def _listed(self, path: Path) -> dict[str, Any]:
        """The texts of a file of documents, by id."""
        with open_table(path, self._spec) as table:
            # released files say `document`, copies of them also `text`
            return {
                row["docid"]: row["document"] if row["document"] is not None else row["text"]
                for row in table.rows(("docid", "document", "text"))
                if not isinstance(row, Problem) and isinstance(row["docid"], str)
            }

    def _record(self, index: int, raw: RawRow, listed: Mapping[str, Any] | None) -> Record:
        name, label = f"row:{index}", None
        try:
            with reading_row():
                if isinstance(raw, Problem):
                    raise ItemError(raw.kind, raw.message)
                name = spelled(raw["annotation_id"], "annotation_id") or name
                label = spelled(raw["classification"], "classification")
                passages = _passages(raw["evidences"])
                text = self._text(_document_name(raw, passages), listed)
                evidence = spans_json(_spans(text, passages), text)
        except ItemError as fault:
            error = printable(str(fault))
            return Record(name, index, label=label, error_kind=fault.kind, error=error)
        return Record(name, index, text, label, evidence=evidence)

    def _text(self, name: str, listed: Mapping[str, Any] | None) -> str:
        """The text of a document; raises ItemError where there is none."""
        if listed is not None:
            if listed.get(name) is None:
                raise ItemError("null", f"there is no document {printable(name)!r}")
            return text_of(listed[name], "document")
        try:
            data = inside(self._folder / "docs", name).read_bytes()
        except (OSError, ItemError) as error:
            raise ItemError("null", f"document {printable(name)!r}: {error}") from error
        return text_of(data, "document").removesuffix("\n")


def _first_file(folder: Path, stem: str) -> Path | None:
    paths = (folder / f"{stem}{suffix}" for suffix in _SUFFIXES)
    return next((path for path in paths if path.parent == folder and path.is_file()), None)


def _passages(evidences: Any) -> list[Mapping[str, Any]]:
    """Every passage of every group of evidence."""
    groups = [] if evidences is None else evidences
    if isinstance(groups, list) and all(isinstance(group, list) for group in groups):
        passages = [passage for group in groups for passage in group]
        if all(isinstance(passage, dict) for passage in passages):
            return passages
    raise ItemError(BAD_EVIDENCE, "`evidences` is not a list of lists of passages")


def _document_name(raw: Mapping[str, Any], passages: Iterable[Mapping[str, Any]]) -> str:
    names = {str(passage.get("docid")) for passage in passages}
    if isinstance(raw["docids"], list):
        names.update(map(str, raw["docids"]))
    if len(names) > 1:
        raise ItemError(
            "malformed-row", f"it is about {len(names)} documents; one text is explained at a time"
        )
    return names.pop() if names else str(raw["annotation_id"])


def _spans(text: str, passages: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Characters of each passage, without repetition, in reading order.

    The released annotations hold passages without a token, which mark nothing and are left out.
    """
    tokens = [match.span() for match in re.finditer(r"\S+", text)] if passages else []
    labels = set()
    for passage in passages:
        first, stop = passage.get("start_token"), passage.get("end_token")
        if type(first) is not int or type(stop) is not int or not 0 <= first <= stop <= len(tokens):
            raise ItemError(
                BAD_EVIDENCE,
                f"tokens {first} to {stop} are not within the document's {len(tokens)}",
            )
        if first == stop:
            continue
        start, end = tokens[first][0], tokens[stop - 1][1]
        quoted = passage.get("text")
        if not isinstance(quoted, str) or quoted.split() != text[start:end].split():
            raise ItemError(
                BAD_EVIDENCE, f"tokens {first} to {stop} of the document are not the passage's text"
            )
        labels.add((start, end))
    return sorted(labels)
