"""Human rationales: from a column of the file, through the snapshot, to the item."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from transexplain.data.shard_reader import read_shard
from transexplain.data.snapshot import prepare
from transexplain.errors import DataSourceError
from transexplain.types.items import ItemFailure
from transexplain.types.plans import DatasetSpec, Shard


def write(folder: Path, cells: list[str], *, content: str = "text", value: str = "a nice film"):
    path = folder / "x.tsv"
    rows = [f"{value}\t{cell}" for cell in cells]
    path.write_text("\n".join([f"{content}\tmarks", *rows, ""]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("cell", "spans"),
    [
        ("[[2, 6]]", ((2, 6),)),
        ("[[7, 11], [0, 1]]", ((7, 11), (0, 1))),
        ("[]", ()),
        (" [ ] ", ()),
    ],
)
def test_spans(cell: str, spans: object, tmp_path: Path, load) -> None:
    (item,) = load(write(tmp_path, [cell]), evidence="marks")
    assert item.evidence.spans == spans
    assert (item.evidence.boxes, item.evidence.mask) == ((), None)
    assert item.content == "a nice film"


def test_an_empty_cell_is_no_evidence(tmp_path: Path, load) -> None:
    items = load(write(tmp_path, ["", "  ", "[]"]), evidence="marks")
    assert [item.evidence is None for item in items] == [True, True, False]
    assert all(item.evidence is None for item in load(tmp_path / "x.tsv"))


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("nice", "JSON list"),
        ("[[2, 6", "JSON list"),
        ("[" * 100_000, "JSON list"),
        ("null", "JSON NoneType"),
        ('{"start": 2}', "JSON dict"),
        ("[2, 6]", "[start, end]"),
        ("[[2, 6, 7]]", "[2, 6, 7]"),
        ("[[2, 6.5]]", "span [2, 6.5]"),
        ("[[true, 6]]", "span [true, 6]"),
        ("[[0, 1], [6, 2]]", "2] ends before"),
        ("[[30, 30]]", "30] lies outside"),
        ("[[-1, 3]]", "3] lies outside"),
        ("[[3, 12]]", "12] lies outside"),
    ],
)
def test_bad_spans(cell: str, says: str, tmp_path: Path, load) -> None:
    bad, good = load(write(tmp_path, [cell, "[[0, 1]]"]), evidence="marks")
    assert isinstance(bad, ItemFailure)
    assert bad.kind == "bad-evidence"
    assert says in bad.message
    assert len(bad.message) < 300
    assert good.evidence.spans == ((0, 1),)


def test_an_empty_span_costs_itself_alone(tmp_path: Path, load) -> None:
    some, none = load(write(tmp_path, ["[[3, 3], [2, 6]]", "[[0, 0]]"]), evidence="marks")
    assert some.evidence.spans == ((2, 6),)
    assert none.evidence.spans == ()  # annotated, and nothing is marked


def test_lists_of_json_lines_and_parquet(tmp_path: Path, load) -> None:
    rows = [{"text": "a film", "marks": [[0, 1], [2, 6]]}, {"text": "x", "marks": None}]
    lines = tmp_path / "x.jsonl"
    lines.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    import pyarrow as pa

    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    for path in (lines, tmp_path / "x.parquet"):
        first, second = load(path, evidence="marks")
        assert first.evidence.spans == ((0, 1), (2, 6))
        assert second.evidence is None


def test_characters_are_counted_not_bytes(tmp_path: Path, load) -> None:
    path = write(tmp_path, ["[[2, 4]]"], value="é 🙂ß")
    (item,) = load(path, evidence="marks")
    assert item.content[slice(*item.evidence.spans[0])] == "🙂ß"


def test_the_column_must_be_there(tmp_path: Path, load) -> None:
    with pytest.raises(DataSourceError, match="no column 'rationale'"):
        load(write(tmp_path, ["[]"]), evidence="rationale")
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    with pytest.raises(DataSourceError, match="evidence, spans, meta"):
        load(f"imagefolder:{tmp_path}", evidence="marks")


def test_a_snapshot_without_evidence_has_no_such_column(tmp_path: Path) -> None:
    path = write(tmp_path, ["[[2, 6]]"])
    plain = prepare(DatasetSpec(source=str(path)), tmp_path / "a")
    marked = prepare(DatasetSpec(source=str(path), evidence="marks"), tmp_path / "a")
    assert "evidence" not in pq.read_schema(plain.snapshot).names
    assert pq.read_schema(marked.snapshot).names[-1] == "evidence"
    assert plain.fingerprint != marked.fingerprint


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


@pytest.mark.parametrize("name", ["grey", "deep", "indexed", "clear"])
def test_masks(name: str, pictures: Path, load) -> None:
    path = write(pictures, [f"masks/{name}.png"], content="file", value="a.png")
    (item,) = load(path, image="file", evidence="marks")
    expected = [[False, True, True, False], [False] * 4, [False] * 4]
    assert item.evidence.mask.tolist() == expected
    assert item.evidence.mask.dtype == bool
    assert item.content.size == (8, 6)


def test_a_mask_of_single_bits(pictures: Path, load) -> None:
    path = write(pictures, ["masks/bits.png"], content="file", value="a.png")
    (item,) = load(path, image="file", evidence="marks")
    assert item.evidence.mask.shape == (3, 4)
    assert item.evidence.mask.any()
    assert not item.evidence.mask.all()


def test_boxes_and_nothing(pictures: Path, load) -> None:
    cells = ["[[0, 0.25, 1, 0.5], [0.1, 0, 0.2, 1]]", "[]", ""]
    path = write(pictures, cells, content="file", value="a.png")
    boxes, nothing, unmarked = load(path, image="file", evidence="marks")
    assert boxes.evidence.boxes == ((0, 0.25, 1, 0.5), (0.1, 0, 0.2, 1))
    assert (nothing.evidence.boxes, nothing.evidence.mask) == ((), None)
    assert unmarked.evidence is None


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("[[0, 0, 1", "JSON list"),
        ("[[0, 0, 1]]", "[0, 0, 1]"),
        ("[[0, 0, 640, 480]]", "height, not pixels"),
        ("[[0.5, 0, 0.5, 1]]", "left < right"),
        ("[[0, 0.5, 1, 0.1]]", "left < right"),
        ("[[-0.1, 0, 1, 1]]", "box [-0.1, 0"),
        ("[[0, 0, NaN, 1]]", "[0, 0, NaN"),
        ('[[0, 0, "1", 1]]', "four numbers"),
        ("masks/none.png", "picture file 'masks/none.png'"),
        ("../a.png", "'../a.png' leads outside"),
        ("masks/broken.png", "masks/broken.png is damaged"),
        ("masks/grey.jpg", "used: masks/grey.jpg"),
        ("x.tsv", "used: x.tsv"),
    ],
)
def test_bad_marks_of_pictures(cell: str, says: str, pictures: Path, load) -> None:
    path = write(pictures, [cell, "[]"], content="file", value="a.png")
    bad, good = load(path, image="file", evidence="marks")
    assert isinstance(bad, ItemFailure)
    assert bad.kind == "bad-evidence"
    assert says in bad.message
    assert good.evidence is not None


def test_a_mask_that_changed_since_the_plan(pictures: Path, tmp_path: Path) -> None:
    path = write(pictures, ["masks/grey.png"], content="file", value="a.png")
    spec = DatasetSpec(source=str(path), image="file", evidence="marks")
    ref = prepare(spec, tmp_path / "s")
    Image.new("L", (4, 3), 255).save(pictures / "masks" / "grey.png")
    (bad,) = read_shard(ref, Shard(index=0, start=0, stop=1))
    assert isinstance(bad, ItemFailure)
    assert bad.kind == "bad-evidence"
    assert "audit was planned" in bad.message
    assert prepare(spec, tmp_path / "s").fingerprint != ref.fingerprint


def test_a_bad_picture_is_reported_before_its_mask(pictures: Path, load) -> None:
    path = write(pictures, ["masks/none.png"], content="file", value="b.png")
    (bad,) = load(path, image="file", evidence="marks")
    assert bad.kind == "missing-image"
