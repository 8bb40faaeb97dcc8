"""Reads human annotations of an item: rationales, and the entities that it mentions."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from transexplain.data.image_files import load_mask
from transexplain.data.source_files import inside, picture_digest, printable
from transexplain.errors import ItemError
from transexplain.files.paths import AnyPath
from transexplain.text.parsing import refuse_depth
from transexplain.types.items import Annotation, Evidence

BAD_EVIDENCE = "bad-evidence"


def spans_cell(cell: str, text: str) -> str:
    """The snapshot's form of a JSON list of [start, end] characters of `text`.

    Raises ItemError bad-evidence.
    """
    return spans_json(_listed(cell, "[start, end]", 2), text)


def spans_json(spans: Iterable[Any], text: str) -> str:
    """The snapshot's form of spans of `text`, each checked; raises ItemError bad-evidence.

    An empty span marks nothing and is left out.
    """
    kept = []
    for span in spans:
        _check_span(span, span, text, BAD_EVIDENCE, shortest=0)
        if span[0] < span[1]:
            kept.append(span)
    return json.dumps({"spans": kept})


def boxes_cell(cell: str) -> str:
    """The snapshot's form of a JSON list of [left, top, right, bottom], shares of the picture.

    Raises ItemError bad-evidence.
    """
    boxes = _listed(cell, "[left, top, right, bottom]", 4)
    for box in boxes:
        _check_box(box, box, BAD_EVIDENCE)
    return json.dumps({"boxes": boxes})


def _check_span(span: Sequence[Any], entry: Any, text: str, kind: str, *, shortest: int) -> None:
    start, end = span
    whole = type(start) is int and type(end) is int
    if not (whole and 0 <= start <= end - shortest and end <= len(text)):
        order = "start < end" if shortest else "start <= end"
        raise ItemError(
            kind,
            f"{_shown(entry)} is not {order} within the text's {len(text)} characters (not bytes)",
        )


def _check_box(box: Sequence[Any], entry: Any, kind: str) -> None:
    numbers = all(type(edge) in (int, float) for edge in box)
    if not (numbers and 0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1):
        raise ItemError(
            kind,
            f"{_shown(entry)} is not left < right and top < bottom within 0 and 1 (shares of the "
            "picture's width and height, not pixels)",
        )


def mask_cell(cell: str, folder: AnyPath, root: str) -> str:
    """The snapshot's form of the path of a mask, relative to `folder`; its bytes are hashed.

    Raises ItemError bad-evidence where there is no such file inside the folder.
    """
    try:
        path = inside(folder, cell)
        name = path.relative_to(root).as_posix()
        return json.dumps({"mask": name, "sha256": picture_digest(path, name)})
    except ItemError as fault:
        raise _of_mask(fault) from fault


def read_rationale(kept: str | None, root: AnyPath) -> Evidence | None:
    """The rationale that a snapshot keeps, its mask read; None: nobody marked the item.

    Raises ItemError bad-evidence where a mask is missing, damaged or not the one of the plan.
    """
    if kept is None:
        return None
    marks = json.loads(kept)
    if "mask" not in marks:
        return Evidence(
            spans=tuple(map(tuple, marks.get("spans", ()))),
            boxes=tuple(map(tuple, marks.get("boxes", ()))),
        )
    name = marks["mask"]
    try:
        mask = load_mask(inside(root, name), name=name, sha256=marks["sha256"])
    except ItemError as fault:
        raise _of_mask(fault) from fault
    return Evidence(mask=mask)


def _of_mask(fault: ItemError) -> ItemError:
    return ItemError(BAD_EVIDENCE, f"the mask cannot be used: {fault}")


def _listed(cell: str, form: str, length: int) -> list[list[Any]]:
    spans = _json_list(cell, form, BAD_EVIDENCE)
    for entry in spans:
        if not isinstance(entry, list) or len(entry) != length:
            raise ItemError(BAD_EVIDENCE, f"{_shown(entry)} is not {form}")
    return spans


def _json_list(cell: str, form: str, kind: str) -> list[Any]:
    try:
        refuse_depth(cell)
        parsed = json.loads(cell)
    except ValueError as error:
        raise ItemError(kind, f"not a JSON list of {form}: {error}") from error
    if not isinstance(parsed, list):
        raise ItemError(kind, f"a JSON {type(parsed).__name__}, not a list of {form}")
    return parsed


BAD_SPANS = "bad-spans"


def annotations_cell(
    cell: str, text: str | None, *, folder: AnyPath | None = None, root: str = ""
) -> str:
    """The snapshot's form of a cell; of a picture where `text` is None.

    Paths of masks are relative to `folder`, and kept relative to `root`.

    Raises ItemError bad-spans naming the entry.
    """
    entries = _json_list(cell, "entities", BAD_SPANS)
    checked = []
    for entry in entries:
        masked = text is None and isinstance(entry, list) and entry and isinstance(entry[0], str)
        checked.append(_masked(entry, folder, root) if masked else _checked(entry, text))
    return json.dumps(checked, ensure_ascii=False)


def nodes_cell(entries: Sequence[Any], nodes: int) -> str:
    """The snapshot's form of the substructures of a graph of T `nodes`.

    Each entry is [group, nodes] or [group, nodes, entity]; nodes are counted from 0.

    Raises ItemError bad-spans naming the entry.
    """
    checked = []
    for entry in entries:
        if not isinstance(entry, list | tuple) or len(entry) not in (2, 3):
            raise ItemError(BAD_SPANS, f"{_shown(entry)} is not [group, nodes, entity]")
        group, members, entity = (*entry, "")[:3]
        _check_names(list(entry), [group, *entry[2:]])
        whole = isinstance(members, list | tuple) and all(type(member) is int for member in members)
        if not whole or not members or not 0 <= min(members) <= max(members) < nodes:
            raise ItemError(
                BAD_SPANS,
                f"{_shown(entry)}: its nodes are not a list of whole numbers from 0 to {nodes - 1}",
            )
        checked.append([sorted(set(members)), group, entity])
    return json.dumps(checked, ensure_ascii=False)


def read_annotations(kept: str | None, root: AnyPath | None = None) -> tuple[Annotation, ...]:
    """The entities that a snapshot keeps of an item, masks below `root` read.

    Raises ItemError bad-spans where a mask is missing, damaged or not the one of the plan.
    """
    marks = []
    for *edges, group, entity in json.loads(kept) if kept else ():
        if isinstance(edges[0], list):
            marks.append(Annotation(group=group, entity=entity, nodes=tuple(edges[0])))
        elif len(edges) == 2:
            marks.append(Annotation(group=group, entity=entity, span=(edges[0], edges[1])))
        elif len(edges) == 4:
            left, top, right, bottom = edges
            marks.append(Annotation(group=group, entity=entity, box=(left, top, right, bottom)))
        else:
            try:
                mark = read_rationale(json.dumps(edges[0]), root or Path())
            except ItemError as fault:
                raise ItemError(BAD_SPANS, str(fault)) from fault
            mask = mark.mask if mark else None
            marks.append(Annotation(group=group, entity=entity, mask=mask))
    return tuple(marks)


def groups_in(kept: str | None) -> set[str]:
    """The groups of the entities that a snapshot keeps of an item."""
    return {entry[-2] for entry in (json.loads(kept) if kept else ())}


def _masked(entry: list[Any], folder: AnyPath | None, root: str) -> list[Any]:
    if folder is None or len(entry) not in (2, 3):
        raise ItemError(BAD_SPANS, f"{_shown(entry)} is not [path of a mask, group, entity]")
    _check_names(entry, entry[1:])
    try:
        kept = json.loads(mask_cell(entry[0], folder, root))
    except ItemError as fault:
        raise ItemError(BAD_SPANS, str(fault)) from fault
    return [kept, entry[1], entry[2] if len(entry) == 3 else ""]


def _checked(entry: Any, text: str | None) -> list[Any]:
    edges = 4 if text is None else 2
    form = "[left, top, right, bottom" if text is None else "[start, end"
    if not isinstance(entry, list) or len(entry) not in (edges + 1, edges + 2):
        raise ItemError(
            BAD_SPANS, f"{_shown(entry)} is not {form}, group] or {form}, group, entity]"
        )
    _check_names(entry, entry[edges:])
    if text is None:
        _check_box(entry[:4], entry, BAD_SPANS)
        usual = ""
    else:
        _check_span(entry[:2], entry, text, BAD_SPANS, shortest=1)
        usual = " ".join(text[entry[0] : entry[1]].split())
        if not usual:
            raise ItemError(BAD_SPANS, f"{_shown(entry)} holds white space only")
    return entry if len(entry) == edges + 2 else [*entry, usual]


def _check_names(entry: list[Any], names: list[Any]) -> None:
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ItemError(
                BAD_SPANS, f"{_shown(entry)}: group and entity are texts, and not empty"
            )
        if printable(name) != name:
            raise ItemError(
                BAD_SPANS, f"{_shown(entry)}: a name holds half of a letter; write UTF-8"
            )


def _shown(entry: Any) -> str:
    text = printable(json.dumps(entry, ensure_ascii=False, default=str))
    return text if len(text) <= 80 else f"{text[:77]}..."
