"""What people marked in items: rationales and entities, from the file to the item."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from data_files import planned, read, told, write
from PIL import Image

from transexplain.data.shard_reader import annotated_groups, value_counts
from transexplain.errors import DataSourceError
from transexplain.types.items import Annotation, ItemFailure

TEXT = "a nice film"


def marked(folder: Path, cells: Sequence[Any], form: str = "tsv", **row: str) -> Path:
    """Rows of one content, each with its marks."""
    content = row or {"text": TEXT}
    return write(folder / f"x.{form}", [{**content, "marks": cell} for cell in cells])


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder with a picture of 8 x 6 pixels and masks of it in a subfolder."""
    Image.new("RGB", (8, 6), (9, 9, 9)).save(tmp_path / "a.png")
    masks = tmp_path / "masks"
    masks.mkdir()
    pixels = np.zeros((3, 4), dtype=np.uint8)
    pixels[0, 1:3] = 1, 255
    Image.fromarray(pixels).save(masks / "grey.png")
    Image.fromarray(pixels * 200).convert("1").save(masks / "bits.png")
    Image.fromarray(np.uint16(pixels)).save(masks / "deep.png")
    indexed = Image.fromarray(pixels.clip(0, 1)).convert("P")
    indexed.putpalette([0, 0, 0, 128, 0, 0])
    indexed.save(masks / "indexed.png")
    clear = np.dstack([np.full((3, 4, 3), 255, np.uint8), pixels])
    Image.fromarray(clear, "RGBA").save(masks / "clear.png")
    Image.fromarray(pixels).save(masks / "grey.jpg")
    (masks / "broken.png").write_bytes((masks / "grey.png").read_bytes()[:50])
    return tmp_path


# ---- rationales


def test_spans_of_a_text(tmp_path: Path, load) -> None:
    """An empty cell is no evidence; an empty span marks nothing; characters count, not bytes."""
    spans = {
        "[[2, 6]]": ((2, 6),),
        "[[7, 11], [0, 1]]": ((7, 11), (0, 1)),
        "[[3, 3], [2, 6]]": ((2, 6),),
        "[[0, 0]]": (),
        "[]": (),
        " [ ] ": (),
        "": None,
        "  ": None,
    }
    path = marked(tmp_path, list(spans))
    evidence = [item.evidence for item in load(path, evidence="marks")]
    assert [one and one.spans for one in evidence] == list(spans.values())
    assert all(item.evidence is None for item in load(path))
    (item,) = load(marked(tmp_path, ["[[2, 4]]"], text="é 🙂ß"), evidence="marks")
    assert item.content[slice(*item.evidence.spans[0])] == "🙂ß"


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_lists_of_json_lines_and_parquet(form: str, tmp_path: Path, load) -> None:
    first, second = load(marked(tmp_path, [[[0, 1], [2, 6]], None], form), evidence="marks")
    assert (first.evidence.spans, second.evidence) == (((0, 1), (2, 6)), None)


def refused(bad: ItemFailure, kind: str, named: str) -> None:
    assert isinstance(bad, ItemFailure)
    assert bad.kind == kind
    assert named in bad.message
    assert len(bad.message) < 300


@pytest.mark.parametrize(
    ("cell", "named"),
    [
        *((cell, "JSON list") for cell in ("nice", "[[2, 6", "[" * 100_000)),
        *(("null", "NoneType"), ('{"start": 2}', "dict"), ("[2, 6]", "[start, end]")),
        *((f"[{span}]", span) for span in ("[2, 6, 7]", "[2, 6.5]", "[true, 6]", "[30, 30]")),
        *((f"[[0, 1], {span}]", span) for span in ("[6, 2]", "[-1, 3]", "[3, 12]")),
    ],
)
def test_bad_spans(cell: str, named: str, tmp_path: Path, load) -> None:
    bad, good = load(marked(tmp_path, [cell, "[[0, 1]]"]), evidence="marks")
    refused(bad, "bad-evidence", named)
    assert good.evidence.spans == ((0, 1),)


@pytest.mark.parametrize("name", ["grey", "deep", "indexed", "clear", "bits"])
def test_masks(name: str, pictures: Path, load) -> None:
    path = marked(pictures, [f"masks/{name}.png"], file="a.png")
    (item,) = load(path, image="file", evidence="marks")
    mask = item.evidence.mask
    assert (mask.shape, mask.dtype, item.content.size) == ((3, 4), bool, (8, 6))
    if name == "bits":
        assert mask.any() and not mask.all()
    else:
        assert mask.tolist() == [[False, True, True, False], [False] * 4, [False] * 4]


def test_boxes_and_nothing(pictures: Path, load) -> None:
    path = marked(pictures, ["[[0, 0.25, 1, 0.5], [0.1, 0, 0.2, 1]]", "[]", ""], file="a.png")
    boxes, nothing, unmarked = load(path, image="file", evidence="marks")
    assert boxes.evidence.boxes == ((0, 0.25, 1, 0.5), (0.1, 0, 0.2, 1))
    assert (nothing.evidence.boxes, nothing.evidence.mask) == ((), None)
    assert unmarked.evidence is None


@pytest.mark.parametrize(
    ("cell", "named"),
    [
        ("[[0, 0, 1", "JSON list"),
        *((f"[{box}]", box) for box in ("[0, 0, 1]", "[0, 0, 640, 480]", "[0.5, 0, 0.5, 1]")),
        *((f"[{box}]", box) for box in ("[0, 0.5, 1, 0.1]", "[-0.1, 0, 1, 1]", "[0, 0, NaN, 1]")),
        ('[[0, 0, "1", 1]]', '[0, 0, "1", 1]'),
        *((name, name) for name in ("masks/none.png", "../a.png", "masks/broken.png")),
        *((name, name) for name in ("masks/grey.jpg", "x.tsv")),
    ],
)
def test_bad_marks_of_pictures(cell: str, named: str, pictures: Path, load) -> None:
    path = marked(pictures, [cell, "[]"], file="a.png")
    bad, good = load(path, image="file", evidence="marks")
    refused(bad, "bad-evidence", named)
    assert good.evidence is not None


def test_a_mask_that_changed_and_a_bad_picture(pictures: Path, load) -> None:
    path = marked(pictures, ["masks/grey.png"], file="a.png")
    ref = planned(path, pictures, image="file", evidence="marks")
    Image.new("L", (4, 3), 255).save(pictures / "masks" / "grey.png")
    assert told(read(ref)) == ["[bad-evidence]"]
    again = planned(path, pictures, image="file", evidence="marks")
    assert again.fingerprint != ref.fingerprint
    path = marked(pictures, ["masks/none.png"], file="b.png")
    assert told(load(path, image="file", evidence="marks")) == ["[missing-image]"]


# ---- entities


def test_spans_of_entities(tmp_path: Path) -> None:
    rows = [
        {"text": "👩\u200d🔬 Zoë", "who": [[4, 7, "names"]], "by": "a"},
        {"text": "Ann", "who": '[[0, 3, "names", "Anna"], [0, 3, "short"]]', "by": "b"},
        {"text": "Bo", "who": None, "by": None},
        {"text": "Bo", "who": "", "by": "a"},
        {"text": "Bo", "who": [[0, 3, "late"]], "by": "c"},
        {"text": "Ann", "who": '[[0, 3, "\\ud800"]]', "by": "c"},
    ]
    source = write(tmp_path / "x.jsonl", rows)
    ref = planned(source, tmp_path, spans="who", meta=("by",))
    *items, late, half = read(ref)
    assert [item.annotations for item in items] == [
        (Annotation(group="names", entity="Zoë", span=(4, 7)),),
        (
            Annotation(group="names", entity="Anna", span=(0, 3)),
            Annotation(group="short", entity="Ann", span=(0, 3)),
        ),
        (),
        (),
    ]
    refused(late, "bad-spans", "2 characters")
    refused(half, "bad-spans", "letter")
    assert annotated_groups(ref) == ["names", "short"]
    assert value_counts(ref, "by") == {"a": 2, "b": 1, "c": 2, None: 1}
    assert annotated_groups(planned(source, tmp_path)) == []


def test_boxes_and_masks_of_entities(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    mask = np.arange(64).reshape(8, 8) % 3 == 0
    Image.fromarray(mask.astype(np.uint8) * 255).save(tmp_path / "m.png")
    boxes: list[object] = [[0, 0, 0.5, 1, "cats", "Tom"], [0, 0, 1, 1, "cats"]]
    cells = [[*boxes, ["m.png", "dogs"]], [["absent.png", "dogs"]], [["m.png"]]]
    path = marked(tmp_path, list(map(json.dumps, cells)), "jsonl", file="a.png")
    ref = planned(path, tmp_path, image="file", spans="marks")
    item, absent, short = read(ref)
    assert item.annotations == (
        Annotation(group="cats", entity="Tom", box=(0, 0, 0.5, 1)),
        Annotation(group="cats", entity="", box=(0, 0, 1, 1)),
        Annotation(group="dogs", entity=""),
    )
    np.testing.assert_array_equal(item.annotations[2].mask, mask)
    assert annotated_groups(ref) == ["cats", "dogs"]
    refused(absent, "bad-spans", "absent.png")
    refused(short, "bad-spans", "m.png")
    Image.fromarray(~mask).save(tmp_path / "m.png")
    assert told(read(ref))[0] == "[bad-spans]"


# ---- both


@pytest.mark.parametrize("option", ["evidence", "spans"])
def test_a_snapshot_has_a_column_for_marks_where_they_are_read(option: str, tmp_path: Path) -> None:
    cell = "[[2, 6]]" if option == "evidence" else '[[2, 6, "x"]]'
    path = marked(tmp_path, [cell])
    column = {"evidence": "evidence", "spans": "annotations"}[option]
    plain, both = planned(path, tmp_path), planned(path, tmp_path, **{option: "marks"})
    assert column not in pq.read_schema(plain.snapshot).names
    assert pq.read_schema(both.snapshot).names[-1] == column
    assert plain.fingerprint != both.fingerprint
    with pytest.raises(DataSourceError, match="'rationale'"):
        planned(path, tmp_path, **{option: "rationale"})
    for source in ("imagefolder", "eraser"):
        with pytest.raises(DataSourceError, match=option):
            planned(f"{source}:{tmp_path}", tmp_path, **{option: "marks"})
