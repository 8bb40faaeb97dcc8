"""What local work reports while it goes on: items and checks, the same from one process and two."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fresh_stores import fresh_store
from tiny_audit import make_audit

from orchestrator.dispatch import local
from orchestrator.dispatch.local import run_here, run_processes
from orchestrator.dispatch.stopping import Reports
from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.types.observer import Observer
from workers import claim_to_commit
from workers.work_meter import WorkMeter, in_hand

ITEMS = 24


class Heard:
    """Everything that was reported, in order."""

    def __init__(self) -> None:
        self.items: list[int] = []
        self.checks: list[int] = []
        self.shares: list[float] = []
        self.first: list[str] = []  #: which came first

    @property
    def report(self) -> Reports:
        """For the work to tell."""
        return Reports(items=self._item, checks=self._check)

    def _item(self, count: int) -> None:
        self.items.append(count)
        self.first.append("items")

    def _check(self, count: int, share: float) -> None:
        self.checks.append(count)
        self.shares.append(share)
        self.first.append("checks")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        database_url=f"sqlite:///{tmp_path / 'store.db'}", snapshot_dir=tmp_path / "snaps"
    )


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with fresh_store(tmp_path / "store.db") as store:
        yield store


@pytest.fixture
def prepared(tmp_path: Path, settings: Settings) -> Prepared:
    spec = make_audit(tmp_path, items=ITEMS, shard_size=8, evaluation={"items": 6})
    return prepare_audit(load_spec(spec), settings)


def begun(db: Database, prepared: Prepared) -> str:
    return runs.create(db, prepared.plan, prepared.shards)


@pytest.mark.exhaustive
def test_two_processes_report_the_items_and_checks_of_one(
    db: Database, settings: Settings, prepared: Prepared
) -> None:
    one, two = Heard(), Heard()
    run_here(db, begun(db, prepared), settings, model=prepared.model, report=one.report)
    run_processes(db, begun(db, prepared), settings, 2, threads=1, report=two.report)
    assert sum(one.items) == sum(two.items) == ITEMS
    assert sum(one.checks) == sum(two.checks) > ITEMS, "controls, sensitivity and faithfulness"
    for heard in (one, two):
        assert all(count > 0 for count in (*heard.items, *heard.checks))
        assert all(0 <= share < 1 for share in heard.shares)
        assert heard.shares[-1] > 0
    # of two processes the parent looks five times a second: it may see a whole shard at once, whose
    # items count as done when they are saved
    assert one.first[0] == "items", "checks come when the items of a shard are explained"


def test_without_checks_none_are_reported(tmp_path: Path, db: Database, settings: Settings) -> None:
    spec = make_audit(
        tmp_path,
        items=8,
        evaluation={"items": 0},
        groups={"lexicon": str(tmp_path / "groups.json"), "check": 0},
        targets=["class:good"],
    )
    prepared, heard = prepare_audit(load_spec(spec), settings), Heard()
    run_here(db, begun(db, prepared), settings, model=prepared.model, report=heard.report)
    assert sum(heard.items) == 8
    assert sum(heard.checks) == 2, "two items of a shard are explained for two classes"


@pytest.mark.exhaustive
def test_what_is_done_again_is_not_counted_twice(
    monkeypatch: pytest.MonkeyPatch, db: Database, settings: Settings, prepared: Prepared
) -> None:
    """The first shard fails when its items are explained, and is claimed once more."""
    compute, failed = claim_to_commit.compute, []

    def fails_once(*args: Any, observer: Observer, **options: Any) -> Any:
        result = compute(*args, observer=observer, **options)
        if not failed:
            failed.append(result)
            raise RuntimeError("a disk that is full")
        return result

    monkeypatch.setattr(claim_to_commit, "compute", fails_once)
    heard = Heard()
    run_here(db, begun(db, prepared), settings, model=prepared.model, report=heard.report)
    assert failed and sum(heard.items) == ITEMS


@pytest.mark.exhaustive
def test_what_a_dead_process_had_in_hand_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, db: Database, settings: Settings, prepared: Prepared
) -> None:
    """The first child ends with three items and five checks; another takes its place."""
    seen: list[Callable[[], int]] = []
    children = local._Children

    class Watched(children):  # type: ignore[misc, valid-type]
        def __enter__(self) -> Any:
            entered = super().__enter__()
            seen.append(lambda: in_hand(self.cells))
            return entered

    monkeypatch.setattr(local, "_Children", Watched)
    monkeypatch.setattr(local, "_child", dies_once)
    heard, run_id = Heard(), begun(db, prepared)
    run_processes(db, run_id, settings, 1, threads=1, report=heard.report)
    (left,) = seen
    assert sum(heard.items) == 3, "they were reported, and never saved"
    assert left() == 0
    assert sum(heard.checks) == 5, "the time was spent"


def dies_once(run_id: str, settings: Settings, threads: int, cells: Any, processes: int) -> None:
    """A child that dies in its first shard; the one that takes its place has nothing to do."""
    if sum(cells):
        return
    meter = WorkMeter(cells)
    meter.batch_started()
    for _ in range(3):
        meter.item_done()
    meter.check_started(5)
    time.sleep(0.5)  # the parent looks
    os._exit(9)
