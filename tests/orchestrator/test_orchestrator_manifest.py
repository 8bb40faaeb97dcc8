"""Audits of listed files: the numbers of a copy; a file that changes or goes costs its shards."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tiny_audit import make_audit

from orchestrator.dispatch.local import run_local
from orchestrator.plan import Prepared, prepare_audit
from orchestrator.plan.audit_plan import check_data
from orchestrator.spec import load_spec
from transexplain.provenance.verification import VerifyRequest
from transexplain.provenance.verify import input_checks
from transexplain.settings import Settings
from transexplain.store import results, runs, shard_blocks, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database


@contextmanager
def planned(folder: Path, snapshot: str) -> Iterator[tuple[Database, Settings, str, Prepared]]:
    """An audit of five files of eight rows, one shard each."""
    audit = make_audit(folder, evaluation={"items": 0})
    lines = (folder / "texts.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    for number in range(5):
        part = "".join(lines[8 * number : 8 * number + 8])
        (folder / f"part-{number}.jsonl").write_text(part, encoding="utf-8")
    changes = {"data.source": f"{folder}/part-*.jsonl", "data.snapshot": snapshot}
    settings = Settings(
        database_url=f"sqlite:///{folder / 'store.db'}", snapshot_dir=folder / "snapshots"
    )
    prepared = prepare_audit(load_spec(audit, changes), settings)
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        yield db, settings, run_id, prepared


def work(db: Database, settings: Settings, run_id: str, prepared: Prepared) -> None:
    run_local(db, run_id, settings, model=prepared.model)


def saved(db: Database, run_id: str) -> list[Any]:
    """Every item with its attributions, and the totals of every shard."""
    explained = [
        (one.item_id, one.target, one.rank, one.logit, one.relevance.tolist(), one.features)
        for one in results.iter_attributions(db, run_id)
    ]
    return [
        *results.iter_items(db, run_id),
        *explained,
        *results.iter_mentions(db, run_id),
        *results.aggregates(db, run_id),
    ]


def inputs(prepared: Prepared) -> dict[str, str]:
    """What `verify` says of each input: PASS, NOTE or FAIL, and why."""
    found = input_checks(prepared.plan, VerifyRequest())
    return {one.name: f"{one.status} {one.text}" for one in found}


@pytest.mark.exhaustive
def test_the_numbers_are_those_of_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_blocks, "BLOCK", 2)
    monkeypatch.setattr(shard_blocks, "LOW", 1)
    found = []
    for snapshot in ("copy", "manifest"):
        with planned(tmp_path, snapshot) as (db, settings, run_id, prepared):
            assert prepared.plan.dataset.manifest == (snapshot == "manifest")
            assert not check_data(prepared).failing
            work(db, settings, run_id, prepared)
            assert runs.get(db, run_id).shards["done"] == 5
            found.append(saved(db, run_id))
    assert found[0] == found[1]


@pytest.mark.exhaustive
def test_a_file_that_is_gone_half_way_costs_its_shards_until_it_is_back(tmp_path: Path) -> None:
    with planned(tmp_path, "manifest") as (db, settings, run_id, prepared):
        shutil.move(tmp_path / "part-3.jsonl", tmp_path / "kept")
        work(db, settings, run_id, prepared)
        progress = runs.progress(db, run_id)
        assert (progress.states["done"], progress.states["dead"]) == (4, 1)
        (dead,) = shards.list_shards(db, run_id, states=("dead",))
        assert "part-3.jsonl" in str(dead.error)
        assert "put it back and resume" in str(dead.error)
        shutil.move(tmp_path / "kept", tmp_path / "part-3.jsonl")
        assert shards.redrive(db, run_id) == 1
        work(db, settings, run_id, prepared)
        assert runs.progress(db, run_id).items_done == 40


@pytest.mark.exhaustive
def test_a_file_that_changed_is_refused_by_name(tmp_path: Path) -> None:
    with planned(tmp_path, "manifest") as (db, settings, run_id, prepared):
        assert inputs(prepared)["dataset snapshot"].startswith("PASS")
        changed = tmp_path / "part-0.jsonl"
        changed.write_text(changed.read_text() + '{"text": "more"}\n')
        work(db, settings, run_id, prepared)
        assert runs.progress(db, run_id).items_done == 32
        (dead,) = shards.list_shards(db, run_id, states=("dead",))
        said = "part-0.jsonl has changed since the audit was planned"
        assert said in str(dead.error)
        assert said in inputs(prepared)["dataset snapshot"]
