"""A schedule finds every file of its specification whichever folder its clock runs in."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from everyday import only
from learned_audits import explainer_for, learned, mixed
from sqlalchemy import update
from tiny_audit import make_audit

from orchestrator.dispatch.local import run_local
from orchestrator.schedule.tick import add_schedule, tick
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schema import schedule

UNMEASURED = {"items": 0}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        database_url=f"sqlite:///{tmp_path / 'store.db'}",
        snapshot_dir=tmp_path / "snapshots",
        broker_url="redis://127.0.0.1:1/0",  # the tick needs none
    )


@pytest.fixture
def db(settings: Settings) -> Iterator[Database]:
    with open_database(settings.database_url, upgrade=True) as database:
        yield database


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with model, data and lexicon, in which the schedule is added."""
    folder = tmp_path / "written-here"
    folder.mkdir()
    make_audit(folder, items=16)
    monkeypatch.chdir(folder)
    return folder


def write_masked_model(folder: Path) -> str:
    """A masked language model of the audited model's sizes; returns its name in the folder."""
    from transformers import AutoConfig, BertForMaskedLM

    BertForMaskedLM(AutoConfig.from_pretrained(folder / "model")).save_pretrained(folder / "masked")
    return "masked"


def by_an_explainer(folder: Path) -> dict[str, Any]:
    explainer_for(folder)
    place = "trained/explainer.safetensors"
    return {
        "explain": mixed(place),
        "evaluation": {"methods": [learned(place)], "metrics": ["pruning"], "items": 2},
    }


def by_a_head(folder: Path) -> dict[str, Any]:
    head = {"name": "decoded-gradcam", "params": {"head": write_masked_model(folder)}}
    return {"method": head, "evaluation": UNMEASURED}


def with_a_head_measured(folder: Path) -> dict[str, Any]:
    head = {"name": "decoded-gradcam", "params": {"head": write_masked_model(folder)}}
    return {"evaluation": {"methods": [head], "metrics": ["pruning"], "items": 2}}


def with_lexicons(folder: Path) -> dict[str, Any]:
    (folder / "pairs.json").write_text(json.dumps([["film", "goods"]]), encoding="utf-8")
    lexicon = {"things": ["film", "x"], "wares": ["goods"]}
    (folder / "people.json").write_text(json.dumps(lexicon), encoding="utf-8")
    (folder / "others.json").write_text(json.dumps({"things": ["nice"]}), encoding="utf-8")
    groups = {"lexicon": ["people.json"], "second": "others.json", "pairs": "pairs.json"}
    return {"groups": groups, "evaluation": UNMEASURED}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "make",
    only(with_lexicons, of=[by_an_explainer, by_a_head, with_a_head_measured, with_lexicons]),
)
def test_a_clock_in_another_folder_finds_the_files(
    make: Any,
    written: Path,
    tmp_path: Path,
    db: Database,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = {"groups": "groups.json", **make(written)}
    spec = make_audit(written, items=16, **{"model": "model", "data": "texts.jsonl", **keys})
    add_schedule(db, settings, name="often", spec=spec.relative_to(written), cron="* * * * *")
    elsewhere = tmp_path / "ticked-there"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with db.begin() as connection:  # as if nobody had ticked for two minutes
        connection.execute(update(schedule).values(since=schedule.c.since - 120))
    (fired,) = tick(db, settings)
    assert fired.error is None and fired.run_id is not None
    run_local(db, fired.run_id, settings)
    state = runs.progress(db, fired.run_id)
    assert (state.state, state.items_done) == ("done", 16)
