"""The verbs pause, unpause and queue, and what the others say of a run that is paused."""

import json
import threading
from pathlib import Path

import pytest
from chaos_groups import environment
from command_line_here import run_here
from store_samples import make_plan, make_result, make_shards

from orchestrator.dispatch import local, queue
from orchestrator.dispatch.stopping import Reports
from transexplain.settings import Settings
from transexplain.store import queueing, results, runs, shards
from transexplain.store.revisions import open_database
from transexplain.types.plans import QueuePlace


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=f"sqlite:///{tmp_path / 'store.db'}")


@pytest.fixture
def run_id(env: dict[str, str]) -> str:
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"], upgrade=True) as db:
        return runs.create(db, make_plan(), make_shards())


def test_a_run_is_paused_and_goes_on(env: dict[str, str], run_id: str, tmp_path: Path) -> None:
    assert f"`transexplain unpause {run_id}`" in run_here(env, tmp_path, "pause", "latest")
    assert "was paused already" in run_here(env, tmp_path, "pause", run_id)
    assert "  paused  0/12 items" in run_here(env, tmp_path, "status", run_id)
    for verb in ("resume", "retry"):
        said = run_here(env, tmp_path, verb, run_id, code=2)
        assert f"run {run_id} is paused" in said
        assert "transexplain unpause" in said
    assert "goes on" in run_here(env, tmp_path, "unpause", run_id)
    assert "was not paused" in run_here(env, tmp_path, "unpause", run_id)
    assert "  running  0/12 items" in run_here(env, tmp_path, "status", run_id)


def test_a_run_that_is_over_is_named_with_its_state(
    env: dict[str, str], run_id: str, tmp_path: Path
) -> None:
    run_here(env, tmp_path, "pause", run_id)
    assert "cancelled" in run_here(env, tmp_path, "cancel", run_id)
    for verb in ("pause", "unpause", "queue"):
        assert f"run {run_id} is cancelled" in run_here(env, tmp_path, verb, run_id, code=2)


def test_the_place_of_a_run_is_changed_and_shown(
    env: dict[str, str], run_id: str, tmp_path: Path
) -> None:
    assert "priority 0, share 1, no cap" in run_here(env, tmp_path, "queue", run_id)
    words = ("--priority", "5", "--share", "2.5", "--most-workers", "4")
    assert "priority 5, share 2.5, at most 4 workers" in run_here(
        env, tmp_path, "queue", run_id, *words
    )
    assert "(priority 5, share 2.5, at most 4 workers)" in run_here(env, tmp_path, "status")
    shown = json.loads(run_here(env, tmp_path, "queue", run_id, "--most-workers", "0", "--json"))
    assert shown == {"run_id": run_id, "priority": 5, "share": 2.5, "most_workers": None}
    [state] = json.loads(run_here(env, tmp_path, "status", "--json"))
    assert state["place"] == {"priority": 5, "share": 2.5, "most_workers": None}
    assert state["paused"] is False


@pytest.mark.parametrize("words", [("--share", "0"), ("--share", "nan"), ("--most-workers", "-1")])
def test_a_wrong_place_is_refused(
    env: dict[str, str], run_id: str, tmp_path: Path, words: tuple[str, str]
) -> None:
    assert words[0] in run_here(env, tmp_path, "queue", run_id, *words, code=2)
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
        assert runs.progress(db, run_id).place == QueuePlace()


def test_local_work_on_a_paused_run_says_so_and_goes_on_after(
    env: dict[str, str], run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(local, "_PATIENCE", 0.1)
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
        queueing.pause(db, run_id)
        stop = threading.Event()

        def wait(reason: str) -> None:
            said.append(reason)
            stop.set()

        with pytest.raises(KeyboardInterrupt):
            local.run_here(
                db, run_id, Settings.from_environment(), report=Reports(wait=wait), stop=stop
            )
        assert f"`transexplain unpause {run_id}`" in said[0]
        assert runs.progress(db, run_id).states["queued"] == 3


@pytest.mark.exhaustive
def test_who_follows_a_paused_run_is_told(
    env: dict[str, str], run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(queue, "sweep", lambda *_: None)
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
        queueing.pause(db, run_id)

        def warn(text: str) -> None:
            warnings.append(text)
            queueing.unpause(db, run_id)
            while (claim := shards.claim(db, run_id, "w", 60)) is not None:
                results.save(db, claim, make_result(claim.shard))
            runs.finalise(db, run_id)

        settings = Settings(database_url="unused", lease_seconds=0.1)
        queue.follow(db, run_id, settings, Reports(wait=warn))
    assert "is paused" in warnings[0]
