"""What people marked: spans, boxes and masks in cells, and folders of ERASER.

An input that begins with `=== ` is a folder of files; another one is a line with the kind of cell,
a line with the text, and the cell.
"""

import json
import shutil
from pathlib import Path

from fuzz.guard import promise
from fuzz.mutate import split_files
from fuzz.ways.tables import check_records
from transexplain.data.eraser import EraserSource
from transexplain.data.item_marks import (
    annotations_cell,
    boxes_cell,
    groups_in,
    read_annotations,
    read_rationale,
    spans_cell,
)
from transexplain.types.plans import DatasetSpec

_FOLDER = Path("folder")


def target(data: bytes) -> None:
    """Marked places lie inside the text or the picture, and the snapshot's form can be read."""
    if data.startswith(b"=== "):
        _folder(data)
        return
    kind, _, rest = data.partition(b"\n")
    text, _, cell = rest.partition(b"\n")
    _cell(kind, text.decode("utf-8", "replace"), cell.decode("utf-8", "replace"))


def _folder(data: bytes) -> None:
    shutil.rmtree(_FOLDER, ignore_errors=True)
    (_FOLDER / "docs").mkdir(parents=True)
    for name, body in split_files(data).items():
        place = _FOLDER / "docs" if name.startswith("doc:") else _FOLDER
        shown = "".join(one for one in name.removeprefix("doc:") if one.isalnum() or one in "._-")
        if shown.strip(".") and shown != "docs":
            (place / shown[:80]).write_bytes(body)
    spec = DatasetSpec(source=f"eraser:{_FOLDER}#train")
    source = EraserSource(spec, f"{_FOLDER}#train")
    records = list(source.records())
    check_records(records)
    for record in records:
        if record.content is not None:
            _check_spans(record.evidence, record.content)
    promise(all(path.is_file() for path in source.files()), "it names a file that is not there")


def _cell(kind: bytes, text: str, cell: str) -> None:
    here = Path.cwd()
    if kind == b"spans":
        _check_spans(spans_cell(cell, text), text)
    elif kind == b"boxes":
        found = read_rationale(boxes_cell(cell), here)
        promise(found is not None, "no evidence of boxes")
    else:
        whole = None if kind == b"picture" else text
        kept = annotations_cell(cell, whole, folder=here, root=str(here))
        kept.encode()  # a snapshot holds UTF-8
        marked = read_annotations(kept, here)
        promise(len(marked) == len(json.loads(cell)), "an entity is lost")
        promise({one.group for one in marked} == groups_in(kept), "a group is lost")
        for one in marked if whole is not None else ():
            start, end = one.span or (0, 0)
            promise(0 <= start < end <= len(text), "an entity outside the text")


def _check_spans(kept: str | None, text: str) -> None:
    found = read_rationale(kept, Path.cwd())
    for start, end in found.spans if found else ():
        promise(0 <= start < end <= len(text), "a span outside the text")
