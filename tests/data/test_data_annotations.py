"""Marked entities from the file through the snapshot to the item."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from transexplain.data.shard_reader import annotated_groups, read_shard, value_counts
from transexplain.data.snapshot import prepare
from transexplain.errors import DataSourceError
from transexplain.types.items import Annotation, Item, ItemFailure
from transexplain.types.plans import DatasetSpec, Shard


def write(folder: Path, rows: list[dict[str, object]]) -> str:
    path = folder / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_spans_of_texts(tmp_path: Path) -> None:
    source = write(
        tmp_path,
        [
            {"text": "👩\u200d🔬 Zoë", "who": [[4, 7, "names"]], "by": "a"},
            {"text": "Ann", "who": '[[0, 3, "names", "Anna"], [0, 3, "short"]]', "by": "b"},
            {"text": "Bo", "who": None, "by": None},
            {"text": "Bo", "who": "", "by": "a"},
            {"text": "Bo", "who": [[0, 3, "late"]], "by": "c"},
        ],
    )
    spec = DatasetSpec(source=source, spans="who", meta=("by",))
    ref = prepare(spec, tmp_path / "snapshots")
    items = list(read_shard(ref, Shard(index=0, start=0, stop=5)))
    assert [one.annotations for one in items if isinstance(one, Item)] == [
        (Annotation(group="names", entity="Zoë", span=(4, 7)),),
        (
            Annotation(group="names", entity="Anna", span=(0, 3)),
            Annotation(group="short", entity="Ann", span=(0, 3)),
        ),
        (),
        (),
    ]
    assert isinstance(items[4], ItemFailure)
    assert (items[4].kind, "2 characters" in items[4].message) == ("bad-spans", True)
    assert annotated_groups(ref) == ["names", "short"]
    assert value_counts(ref, "by") == {"a": 2, "b": 1, "c": 1, None: 1}
    plain = prepare(DatasetSpec(source=source), tmp_path / "snapshots")
    assert "annotations" not in pq.read_schema(plain.snapshot).names
    assert annotated_groups(plain) == []
    assert plain.fingerprint != ref.fingerprint


def test_boxes_and_masks_of_pictures(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    mask = np.arange(64).reshape(8, 8) % 3 == 0
    Image.fromarray(mask.astype(np.uint8) * 255).save(tmp_path / "m.png")
    boxes: list[object] = [[0, 0, 0.5, 1, "cats", "Tom"], [0, 0, 1, 1, "cats"]]
    rows: list[dict[str, object]] = [
        {"file": "a.png", "who": [*boxes, ["m.png", "dogs"]]},
        {"file": "a.png", "who": [["absent.png", "dogs"]]},
        {"file": "a.png", "who": [["m.png"]]},
    ]
    spec = DatasetSpec(source=write(tmp_path, rows), image="file", spans="who")
    ref = prepare(spec, tmp_path / "snapshots")
    item, *faults = read_shard(ref, Shard(index=0, start=0, stop=3))
    assert isinstance(item, Item)
    assert item.annotations == (
        Annotation(group="cats", entity="Tom", box=(0, 0, 0.5, 1)),
        Annotation(group="cats", entity="", box=(0, 0, 1, 1)),
        Annotation(group="dogs", entity=""),
    )
    np.testing.assert_array_equal(item.annotations[2].mask, mask)
    assert annotated_groups(ref) == ["cats", "dogs"]
    for fault, says in zip(faults, ("absent.png", "path of a mask, group"), strict=True):
        assert isinstance(fault, ItemFailure)
        assert (fault.kind, says in fault.message) == ("bad-spans", True)
    Image.fromarray(~mask).save(tmp_path / "m.png")
    changed, *_ = read_shard(ref, Shard(index=0, start=0, stop=3))
    assert isinstance(changed, ItemFailure)
    assert changed.kind == "bad-spans"


@pytest.mark.parametrize("prefix", ["imagefolder", "eraser"])
def test_a_source_without_columns_refuses_them(tmp_path: Path, prefix: str) -> None:
    spec = DatasetSpec(source=f"{prefix}:{tmp_path}", spans="who")
    with pytest.raises(DataSourceError, match="spans, meta, cluster"):
        prepare(spec, tmp_path / "snapshots")


def test_a_name_with_half_of_a_letter_costs_its_row(tmp_path: Path) -> None:
    spec = DatasetSpec(
        source=write(
            tmp_path,
            [{"text": "Ann", "who": '[[0, 3, "\\ud800"]]'}, {"text": "Bo", "who": '[[0, 2, "x"]]'}],
        ),
        spans="who",
    )
    ref = prepare(spec, tmp_path / "snapshots")
    first, second = read_shard(ref, Shard(index=0, start=0, stop=2))
    assert isinstance(first, ItemFailure)
    assert first.kind == "bad-spans"
    assert "letter" in first.message
    assert isinstance(second, Item)
