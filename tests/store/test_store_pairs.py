"""Two runs item by item, whatever their order, in pages of any size."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from store_samples import make_result, make_shards, saved

from transexplain.errors import ConfigurationError
from transexplain.store import readers
from transexplain.store.database import Database
from transexplain.store.readers import iter_pairs


def twelve(db: Database, failing: frozenset[int] = frozenset(), *, backwards: bool = False) -> str:
    """Twelve rows in three shards; `backwards` gives them the ids of the opposite order."""

    def turned(rows: Sequence[Any]) -> Any:
        return tuple(replace(row, item_id=f"id-{11 - int(row.item_id[3:])}") for row in rows)

    results = [make_result(shard, failing=failing) for shard in make_shards()]
    if backwards:
        parts = ("outcomes", "attributions", "mentions", "failures")
        results = [
            replace(one, **{part: turned(getattr(one, part)) for part in parts}) for one in results
        ]
    return saved(db, *results)


@pytest.mark.parametrize("size", [1, 4, 128])
def test_pairs_in_pages(db: Database, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("transexplain.store.blocks.ITEMS", size)
    before, after = twelve(db, frozenset({3})), twelve(db, frozenset({7}))
    pages = list(iter_pairs(db, before, after))
    assert all(0 < len(page) <= size for page in pages)
    found = [pair for page in pages for pair in page]
    assert [one.item_id for _, one in found] == [f"id-{n}" for n in range(12) if n not in (3, 7)]
    earlier, later = found[1]
    assert earlier == later
    assert (later.text, later.logits) == ("w1 Ann", (0.1, -1.0 / 3.0))


def test_pairs_follow_ids_and_the_order_of_the_later_run(db: Database) -> None:
    before, after = twelve(db), twelve(db, backwards=True)
    (page,) = iter_pairs(db, before, after)
    assert [one.item_id for _, one in page] == [f"id-{n}" for n in range(11, -1, -1)]
    # id-11 is the last row of one run and the first of the other
    assert [one.logits[0] for one in page[0]] == pytest.approx([1.1, 0.0])
    for pair in ((before, "gone"), ("gone", before)):
        with pytest.raises(ConfigurationError, match="no run 'gone'"):
            list(iter_pairs(db, *pair))


def test_mentions_of_chosen_items(db: Database) -> None:
    run_id = twelve(db)
    everything = list(readers.iter_mentions(db, run_id))
    wanted = [one for one in everything if one.item_id in ("id-2", "id-9")]
    assert list(readers.iter_mentions(db, run_id, item_ids=["id-9", "id-2", "gone"])) == wanted
    assert list(readers.iter_mentions(db, run_id, item_ids=[])) == []
