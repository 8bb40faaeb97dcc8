"""A report from totals and indices equals one from all rows, to the bit."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from old_aggregates import in_rows
from report_samples import CLASSES, biased_run, explained_text, stored_run
from rewritten_parts import as_rows
from sqlalchemy import select, update
from test_reports_summary import image_run

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports.sections import failed_items
from transexplain.reports.summary import Summary, summarise
from transexplain.store import noteworthy, results
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schema import attribution, item, shard_aggregate
from transexplain.types.items import ItemFailure

pytestmark = pytest.mark.exhaustive


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database at the newest revision, of both kinds."""
    url = f"sqlite:///{tmp_path / 'reports.db'}"
    if request.param == "postgresql":
        url = str(request.getfixturevalue("postgres_url"))
    with open_database(url, upgrade=True) as database:
        yield database


def as_before(db: Database, run_id: str, only_shard: int | None = None) -> None:
    """Take from a run what versions before did not save: of one shard, or of all."""
    as_rows(db, run_id)
    kept = shard_aggregate.c.run_id == run_id
    with db.begin() as connection:
        connection.execute(update(attribution).values(size=None))
        connection.execute(update(item).values(margin=None))
        for index, payload in connection.execute(
            select(shard_aggregate.c.shard, shard_aggregate.c.payload).where(kept)
        ).all():
            if only_shard in (None, index):
                old = in_rows(ShardAggregate.from_json(payload))
                del old["seen"]
                connection.execute(
                    update(shard_aggregate)
                    .where(kept, shard_aggregate.c.shard == index)
                    .values(payload=old | {"version": 3})
                )


def mixed_run(db: Database, **changes: Any) -> str:
    """Texts of many sizes, ties among them, wrong ones with and without a known class."""
    random = np.random.default_rng(0)
    explained = []
    for number in range(60):
        words = ["good"] * int(random.integers(0, 6)) + ["bad"] * int(random.integers(0, 6))
        text = " ".join([*words, "is", f"w{number % 7}"])
        label = (*CLASSES, None, "sideways")[int(random.integers(4))]
        explained.append(explained_text(number, text, label, truncated=number % 9 == 0))
    failures = [
        ItemFailure(
            item_id=f"row-{60 + n}", index=60 + n, kind="null" if n % 3 else "odd", message="m"
        )
        for n in range(12)
    ]
    return stored_run(db, explained, failures, **changes)


def alike(one: Summary, other: Summary) -> bool:
    """Equal to the bit, but for sums of ledgers, which a database adds up in another order."""
    for name in ("average", "average_size", "mean"):
        left, right = getattr(one.conservation, name, 0), getattr(other.conservation, name, 0)
        assert left == pytest.approx(right, rel=1e-13, abs=1e-15)
    return replace(one, conservation=None) == replace(other, conservation=None)


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which walks over whole tables were made."""
    made: list[str] = []
    for name in ("iter_items", "iter_attributions"):
        original = getattr(results, name)

        def counted(*args: Any, _name: str = name, _of: Any = original, **kwargs: Any) -> Any:
            if kwargs.get("item_ids") is None:
                made.append(_name)
            return _of(*args, **kwargs)

        monkeypatch.setattr(results, name, counted)
    return made


@pytest.mark.parametrize("gallery", [0, 1, 7, 40])
@pytest.mark.parametrize("payload", ["float16", "float32"])
def test_texts(db: Database, walks: list[str], gallery: int, payload: str) -> None:
    run = mixed_run(db, payload=payload)
    found = summarise(db, run, gallery=gallery)
    assert walks == []
    assert found.gallery.scale > 0 and len(found.gallery.items) == min(gallery, 60)
    as_before(db, run)
    assert alike(summarise(db, run, gallery=gallery), found)
    assert sorted(walks) == ["iter_attributions", "iter_items"]


def test_pictures(db: Database, walks: list[str], tmp_path: Path) -> None:
    run = image_run(db, tmp_path, count=20)
    found = summarise(db, run, gallery=9)
    assert walks == []
    as_before(db, run)
    assert alike(summarise(db, run, gallery=9), found) and len(walks) == 2


def test_a_run_with_groups_that_is_not_over(db: Database, walks: list[str]) -> None:
    run = biased_run(db, leave=2)
    found = summarise(db, run)
    assert walks == [] and found.counts.pending == 10
    as_before(db, run)
    assert alike(summarise(db, run), found) and len(walks) == 2


def test_a_run_without_any_result(db: Database, walks: list[str]) -> None:
    run = mixed_run(db, leave=11)
    assert summarise(db, run).gallery.scale == 0.0 and walks == []


def test_texts_that_are_not_kept(db: Database, walks: list[str]) -> None:
    """Words are then taken from the tokens put side by side; so are their sizes."""
    explained = [explained_text(n, "good bad " * (n % 5 + 1), None) for n in range(20)]
    bare = [(replace(one, text=None), attribution) for one, attribution in explained]
    run = stored_run(db, bare)
    found = summarise(db, run, gallery=6)
    as_before(db, run)
    assert alike(summarise(db, run, gallery=6), found) and len(walks) == 2


def test_one_old_shard_has_the_run_walked(db: Database, walks: list[str]) -> None:
    run = mixed_run(db)
    found = summarise(db, run)
    as_before(db, run, only_shard=3)
    assert alike(summarise(db, run), found) and len(walks) == 2


def test_missing_sizes_have_the_run_walked_whatever_the_totals_say(
    db: Database, walks: list[str]
) -> None:
    """As after a downgrade and an upgrade, which lose the columns."""
    run = mixed_run(db)
    found = summarise(db, run)
    as_rows(db, run)
    assert alike(summarise(db, run), found) and walks == []
    with db.begin() as connection:
        connection.execute(update(attribution).where(attribution.c.item == 5).values(size=None))
    assert noteworthy.sized(db, run) == 59
    assert alike(summarise(db, run), found) and len(walks) == 2


def test_other_runs_are_not_read(db: Database) -> None:
    mixed_run(db)
    run = stored_run(db, [explained_text(0, "good", "negative"), explained_text(1, "bad", None)])
    assert noteworthy.strongest(db, run, 9) == ["row-0", "row-1"]
    assert noteworthy.wrong(db, run, 9) == ["row-0"] and noteworthy.first(db, run, 1) == ["row-0"]
    assert noteworthy.failure_examples(db, run, 5) == {}


def test_margins_and_failures(db: Database) -> None:
    run = stored_run(
        db,
        [
            explained_text(index, text, label)
            for index, (text, label) in enumerate(
                [
                    ("good", "negative"),
                    ("good good good", "negative"),
                    ("bad", "negative"),
                    ("good good", "negative"),
                    ("good", "sideways"),  # a class that the model has not
                ]
            )
        ],
        [
            ItemFailure(
                item_id=str(n), index=n + 5, kind="null" if n else "empty-text", message="m"
            )
            for n in range(9)
        ],
    )
    assert noteworthy.wrong(db, run, 9) == ["row-1", "row-3", "row-0", "row-4"]
    kinds = failed_items.failures(db, run)
    assert [(kind.kind, kind.count) for kind in kinds] == [("null", 8), ("empty-text", 1)]
    assert [one.item_id for one in kinds[0].examples] == ["1", "2", "3", "4", "5"]


def test_ledgers_above_the_tolerance_are_counted(db: Database) -> None:
    run = biased_run(db)  # every gap is 1e-7 of a magnitude of 1
    for tolerance, above in ((None, 0), (9e-8, 36), (1.1e-7, 0)):
        found = results.conservation(db, run, tolerance)
        assert found is not None and found.above == above
