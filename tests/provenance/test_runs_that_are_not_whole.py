"""Results that were lost, doubled, swapped or changed: every verb notices, `resume` mends."""

import json
from pathlib import Path
from typing import Any

import pytest
from gallery import Audit, Gallery
from sqlalchemy import text
from typer.testing import CliRunner

from orchestrator.cli.command_line import app
from orchestrator.dispatch.local import run_here
from transexplain.data.shard_reader import make_shards
from transexplain.settings import Settings
from transexplain.store import runs, shard_digests
from transexplain.store.revisions import open_database

OF_1 = "WHERE run_id = :run AND shard = 1"
COPIED = (
    "shard, method, target, rank, class_name, unit, at, logit, relevance, starts, lengths, words"
)
#: what happens to a run, by statements; and the shards that are not whole then
KINDS: dict[str, tuple[tuple[str, ...], list[int]]] = {
    "items are lost": ((f"DELETE FROM item {OF_1}",), [1]),
    "attributions are lost": ((f"DELETE FROM attribution {OF_1}",), [1]),
    "attributions are doubled": (
        (
            f"INSERT INTO attribution (run_id, idx, ordinal, {COPIED}) "
            f"SELECT run_id, idx, ordinal + 50, {COPIED} FROM attribution {OF_1}",
        ),
        [1],
    ),
    "two items are swapped": (
        tuple(
            f"UPDATE item SET idx = {new} WHERE run_id = :run AND idx = {old}"
            for old, new in ((2, 999), (10, 2), (999, 10))
        ),
        [0, 1],
    ),
    "attributions are in another run": (
        (
            "DELETE FROM attribution WHERE run_id = :other AND shard = 1",
            f"UPDATE attribution SET run_id = :other {OF_1}",
        ),
        [1],
    ),
    "a number is another one": ((f"UPDATE attribution SET logit = logit + 1e-9 {OF_1}",), [1]),
    "an array is cut short": ((f"UPDATE attribution SET starts = relevance {OF_1}",), [1]),
    "an aggregate is another one": (
        (
            "UPDATE shard_aggregate SET payload = (SELECT payload FROM shard_aggregate WHERE "
            f"run_id = :run AND shard = 0) {OF_1}",
        ),
        [1],
    ),
    "a shard is lost": (('DELETE FROM shard WHERE run_id = :run AND "index" = 1',), [1]),
    "the last shard is lost": (('DELETE FROM shard WHERE run_id = :run AND "index" = 2',), [2]),
}
FIRST = ("items are lost", "attributions are doubled", "two items are swapped")


def tamper(run: Audit, other: str, kind: str) -> None:
    with open_database(run.url) as db, db.begin() as connection:
        for one in KINDS[kind][0]:
            known = {"run": run.id, "other": other}
            used = {name: value for name, value in known.items() if f":{name}" in one}
            assert connection.execute(text(one), used).rowcount >= 1


POSTGRES = pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.exhaustive])


@pytest.fixture(params=["sqlite", POSTGRES])
def two_runs(
    gallery: Gallery,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Audit, str]:
    """A run of 20 items in 3 shards, of which one failed, and another one of the same audit."""
    made = gallery["failures"].copy(tmp_path)
    (other, run_id), url = made.runs, made.url
    settings = Settings(snapshot_dir=tmp_path / "snapshots")
    if request.param == "postgresql":
        url = str(request.getfixturevalue("postgres_url"))
        with made.open() as db:
            plan = runs.get(db, run_id).plan
        with open_database(url, upgrade=True) as db:
            cut = make_shards(plan.dataset.rows, plan.shard_size)
            other, run_id = (runs.create(db, plan, cut) for _ in range(2))
            for one in (other, run_id):
                run_here(db, one, settings)
    monkeypatch.setenv("TRANSEXPLAIN_SNAPSHOT_DIR", str(tmp_path / "snapshots"))
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", url)
    monkeypatch.chdir(tmp_path)
    return Audit(tmp_path, (run_id,), url), other


def call(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    code = getattr(done.exception, "exit_code", None) or done.exit_code
    return code, f"{done.output}{done.exception or ''}"


def reported(run_id: str) -> tuple[int, dict[str, Any]]:
    code, printed = call("report", run_id, "--json")
    return code, json.loads(printed[: printed.rindex("}") + 1])


@pytest.mark.parametrize(
    "kind",
    [pytest.param(one, marks=() if one in FIRST else pytest.mark.exhaustive) for one in KINDS],
)
def test_every_verb_notices_and_resume_mends(two_runs: tuple[Audit, str], kind: str) -> None:
    run, other = two_runs
    whole = reported(run.id)
    assert whole[0] == 0 and "unreadable" not in whole[1]["sections"]
    tamper(run, other, kind)
    wanted = KINDS[kind][1]
    with open_database(run.url) as db:
        assert [one.index for one in shard_digests.damaged(db, run.id)] == wanted
    code, document = reported(run.id)
    assert code == 3
    assert document["headline"][0]["text"].startswith("Do not rely on this report")
    assert document["verdict"]["kind"] == "problem"
    assert len(document["sections"]["unreadable"]["parts"]) == len(wanted)
    code, page = call("report", run.id, "-o", "out")
    assert code == 3 and "Do not rely" in page.splitlines()[0]
    for words in (
        ("export", run.id, "--format", "jsonl", "-o", "x.jsonl"),
        ("export", run.id, "--format", "model-card"),
        ("compare", other, run.id),
    ):
        code, printed = call(*words)
        assert code == 4 and "`transexplain resume " in printed, words
    (run.folder / "policy.yaml").write_text("verdicts: {}\n")
    assert call("gate", run.id, "--policy", "policy.yaml")[0] == 1
    code, printed = call("verify", run.id, "--items", "0")
    assert code == 1 and all(f"shard {index} (rows" in printed for index in wanted)
    code, printed = call("resume", run.id, "-o", "out")
    assert code == 0, printed
    code, document = reported(run.id)
    assert code == 0 and "unreadable" not in document["sections"]
    for name in ("counts", "confusion", "classes", "groups"):
        assert document[name] == whole[1][name], name
    assert call("verify", run.id, "--items", "4")[0] == 0
