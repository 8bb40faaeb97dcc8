"""Samples: golden numbers, nested, the same from a stream and from row numbers."""

from pathlib import Path

import numpy as np
import pytest

from transexplain.data.shard_reader import read_shard
from transexplain.data.snapshot import prepare, sample
from transexplain.data.source_files import Record
from transexplain.errors import DataSourceError
from transexplain.randomness import row_number, row_places
from transexplain.types.plans import DatasetSpec, Shard


def records(count: int) -> list[Record]:
    return [
        Record(
            id=f"r{i}",
            index=i,
            content=str(i),
            label=None,
            meta="{}",
            sha256=None,
            error_kind=None,
            error=None,
        )
        for i in range(count)
    ]


def test_numbers_are_those_of_the_generator() -> None:
    # the first numbers of SplitMix64 from state 0, as published
    assert [hex(row_number(row, 0)) for row in range(3)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


@pytest.mark.parametrize("seed", [0, 3, 2**63, -1])
def test_a_stream_and_row_numbers_give_the_same_sample(seed: int) -> None:
    order = np.argsort(row_places(100, seed))
    assert sorted(order) == list(range(100))
    for count in (1, 7, 100, 200):
        found = sample(iter(records(100)), count, seed)
        assert [one.id for one in found] == [f"r{row}" for row in sorted(order[:count])]
        assert [one.index for one in found] == list(range(len(found)))


def test_seeds_differ() -> None:
    assert not np.array_equal(row_places(100, 3), row_places(100, 4))


def test_a_sampled_dataset_keeps_the_rows_names(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text\n" + "".join(f"row {i}\n" for i in range(50)), encoding="utf-8")
    ref = prepare(DatasetSpec(source=str(path), sample=5, seed=2), tmp_path / "snaps")
    items = list(read_shard(ref, Shard(index=0, start=0, stop=ref.rows)))
    wanted = sorted(np.argsort(row_places(50, 2))[:5])
    assert [item.content for item in items] == [f"row {row}" for row in wanted]
    assert [item.id for item in items] == [str(row) for row in wanted]
    assert [item.index for item in items] == [0, 1, 2, 3, 4]
    whole = prepare(DatasetSpec(source=str(path)), tmp_path / "snaps")
    assert whole.rows == 50


def test_an_empty_sample_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text\na\n", encoding="utf-8")
    with pytest.raises(DataSourceError, match="sample is 0"):
        prepare(DatasetSpec(source=str(path), sample=0), tmp_path)
