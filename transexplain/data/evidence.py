"""Rationales that people marked in an item, as files hold them and as a snapshot keeps them.

A snapshot holds a JSON object: `{"spans": [[start, end], ...]}` in characters of the text,
`{"boxes": [[left, top, right, bottom], ...]}` in shares of the picture, or `{"mask": path,
"sha256": ...}` with a path relative to the dataset's root. An empty list: nothing is marked.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transexplain.data.images import load_mask
from transexplain.data.paths import inside, picture_digest
from transexplain.errors import ItemError
from transexplain.parsing import refuse_depth
from transexplain.types import Evidence

KIND = "bad-evidence"


def spans_cell(cell: str, text: str) -> str:
    """The snapshot's form of a JSON list of [start, end] characters of `text`.

    Raises ItemError bad-evidence.
    """
    return spans_json(_listed(cell, "[start, end]", 2), text)


def spans_json(spans: Iterable[Any], text: str) -> str:
    """The snapshot's form of spans of `text`, each checked; raises ItemError bad-evidence."""
    kept = list(spans)
    for span in kept:
        start, end = span
        if type(start) is not int or type(end) is not int:
            raise ItemError(KIND, f"span {_shown(span)} is not two whole numbers")
        if start >= end:
            raise ItemError(KIND, f"span {_shown(span)} does not end behind its start")
        if start < 0 or end > len(text):
            raise ItemError(
                KIND, f"span {_shown(span)} lies outside the text of {len(text)} characters"
            )
    return json.dumps({"spans": kept})


def boxes_cell(cell: str) -> str:
    """The snapshot's form of a JSON list of [left, top, right, bottom], shares of the picture.

    Raises ItemError bad-evidence.
    """
    boxes = _listed(cell, "[left, top, right, bottom]", 4)
    for box in boxes:
        if not all(type(edge) in (int, float) for edge in box):
            raise ItemError(KIND, f"box {_shown(box)} is not four numbers")
        left, top, right, bottom = box
        if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
            raise ItemError(
                KIND,
                f"box {_shown(box)} is not left < right and top < bottom within 0 and 1 "
                "(shares of the picture's width and height, not pixels)",
            )
    return json.dumps({"boxes": boxes})


def mask_cell(cell: str, folder: Path, root: str) -> str:
    """The snapshot's form of the path of a mask, relative to `folder`; its bytes are hashed.

    Raises ItemError bad-evidence where there is no such file inside the folder.
    """
    try:
        path = inside(folder, cell)
        name = path.relative_to(root).as_posix()
        return json.dumps({"mask": name, "sha256": picture_digest(path, name)})
    except ItemError as fault:
        raise _of_mask(fault) from fault


def read_evidence(kept: str | None, root: Path) -> Evidence | None:
    """The rationale that a snapshot keeps, its mask read; None: nobody marked the item.

    Raises ItemError bad-evidence where a mask is missing, damaged or not the one of the plan.
    """
    if kept is None:
        return None
    found = json.loads(kept)
    if "mask" not in found:
        return Evidence(
            spans=tuple(map(tuple, found.get("spans", ()))),
            boxes=tuple(map(tuple, found.get("boxes", ()))),
        )
    name = found["mask"]
    try:
        mask = load_mask(inside(root, name), name=name, sha256=found["sha256"])
    except ItemError as fault:
        raise _of_mask(fault) from fault
    return Evidence(mask=mask)


def _of_mask(fault: ItemError) -> ItemError:
    return ItemError(KIND, f"the mask cannot be used: {fault}")


def _listed(cell: str, form: str, length: int) -> list[list[Any]]:
    try:
        refuse_depth(cell)
        found = json.loads(cell)
    except ValueError as error:
        raise ItemError(KIND, f"not a JSON list of {form}: {error}") from error
    if not isinstance(found, list):
        raise ItemError(KIND, f"a JSON {type(found).__name__}, not a list of {form}")
    for entry in found:
        if not isinstance(entry, list) or len(entry) != length:
            raise ItemError(KIND, f"{_shown(entry)} is not {form}")
    return found


def _shown(entry: Any) -> str:
    text = json.dumps(entry)
    return text if len(text) <= 80 else f"{text[:77]}..."
