"""Audits that mix, run to the end: every kind of target, texts and pictures, stopped."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tiny_audit import make_audit

from orchestrator.dispatch.local import run_local
from orchestrator.dispatch.stopping import Reports
from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.analysis.groups.mixed_audits import Mixed
from transexplain.reports.report_formats import render_html
from transexplain.reports.summary import summarise
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.revisions import open_database

pytestmark = pytest.mark.exhaustive

Call = Callable[..., tuple[int, str]]
MIXED = {"method": "gradient-x-input", "exact_sample": 0.5}
QUICK = {"explain": MIXED, "evaluation": {"items": 0}}


def document() -> dict[str, Any]:
    (found,) = Path("audits").glob("tiny-*.json")
    read: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    return read


@pytest.mark.parametrize(
    "keys",
    [
        {"targets": "all"},
        {"targets": ["predicted", "top:2"], "long_text": "window", "window": 6, "stride": 2},
        {"store_text": "hashed"},
    ],
    ids=["all classes", "windows", "hashed texts"],
)
def test_runs_of_every_kind(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any]
) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", "0" * 64)
    spec = make_audit(tmp_path, **QUICK, **keys)
    code, printed = call("run", str(spec))
    assert code == 0, printed
    mixed = document()["mixed"]
    assert mixed["failed"] == 0 and 5 < mixed["items"] < 35
    by_target: dict[str, int] = {}
    for row in mixed["classes"]:
        by_target[row["target"]] = by_target.get(row["target"], 0) + row["items"]
        assert abs(row["cheap"]) > 0 and abs(row["exact"]) > 0
    every = {"all": 3, "predicted": 1, "top:2": 2}
    for target, count in by_target.items():
        assert count == every.get(target, 1) * mixed["items"]
    code, printed = call("verify", "latest")
    assert code == 0, printed


def test_pictures_have_agreement_and_no_groups(call: Call, tmp_path: Path, vit_dir: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for index in range(12):
        Image.effect_noise((40, 30), 20 + 10 * index).convert("RGB").save(folder / f"{index}.png")
    spec = {"name": "tiny", "model": str(vit_dir), "data": f"imagefolder:{folder}", **QUICK}
    Path("audit.yaml").write_text(json.dumps(spec), encoding="utf-8")
    code, printed = call("run", "audit.yaml")
    assert code == 0, printed
    mixed = document()["mixed"]
    assert mixed["groups"] == [] and 0 < mixed["items"] < 12
    assert sum(row["items"] for row in mixed["classes"]) == mixed["items"]
    (page,) = Path("audits").glob("tiny-*.html")
    shown = page.read_text(encoding="utf-8")
    assert 'id="mixed"' in shown and "Not corrected" not in shown


def mixed_of_run(spec: Path, url: str, snapshots: Path, stop_after: int = 0) -> Mixed:
    """The record of a run that was stopped after so many items and taken up again."""
    settings = Settings(database_url=url, snapshot_dir=snapshots)
    prepared = prepare_audit(load_spec(spec), settings)
    with open_database(url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        if stop_after:
            stop, seen = threading.Event(), []

            def count(items: int) -> None:
                seen.append(items)
                if sum(seen) >= stop_after:
                    stop.set()

            with pytest.raises(KeyboardInterrupt):
                run_local(
                    db,
                    run_id,
                    settings,
                    model=prepared.model,
                    report=Reports(items=count),
                    stop=stop,
                )
        run_local(db, run_id, settings, model=prepared.model)
        summary = summarise(db, run_id)
        assert summary.mixed is not None and summary.counts.pending == 0
        render_html(summary)
        return summary.mixed


def test_a_stopped_run_goes_on_to_the_same_record(tmp_path: Path) -> None:
    spec = make_audit(tmp_path, **QUICK)
    whole = mixed_of_run(spec, f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "s")
    stopped = mixed_of_run(spec, f"sqlite:///{tmp_path / 'b.db'}", tmp_path / "s", stop_after=12)
    assert stopped == whole


@pytest.mark.postgres
def test_postgresql_says_the_same(tmp_path: Path, postgres_url: str) -> None:
    spec = make_audit(tmp_path, **QUICK)
    here = mixed_of_run(spec, f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "s")
    assert mixed_of_run(spec, postgres_url, tmp_path / "s") == here
