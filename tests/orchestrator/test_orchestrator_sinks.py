"""Audits whose results are Parquet files: every verb reads them, nothing is lost, no text leaks."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import duckdb
import pyarrow.parquet as pq
import pytest
from command_line_here import run_here
from faulty_s3 import BUCKET, FaultyS3, faulty_s3
from secret_texts import KEY, SECRET, secret_audit
from serving import JSON, acting_client
from tiny_audit import make_audit
from verified_runs import SMALL, Run, audited, failed

from orchestrator.dispatch.finish import as_json
from orchestrator.dispatch.local import Reports, run_local
from orchestrator.plan import prepare_audit
from orchestrator.serve.links import link
from orchestrator.spec import load_spec
from transexplain.files import remote_files
from transexplain.settings import Settings
from transexplain.store import results, runs, shards, sink_files
from transexplain.store.database import Database
from transexplain.store.revisions import open_database

pytestmark = pytest.mark.exhaustive

#: what two runs of one audit may differ in
_OF_A_RUN = {
    *("run_id", "created", "finished", "seconds", "items_per_second", "elapsed", "waited", "waits"),
    *("plan_digest", "manifest_digest"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyS3]:
    with faulty_s3() as s3:
        yield s3


@pytest.fixture
def s3(server: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    monkeypatch.setattr(remote_files, "_WAITS", (0.0, 0.0))
    yield server
    server.rate, server.refusal = 0.0, ""


def settings_of(folder: Path) -> Settings:
    return Settings(
        database_url=f"sqlite:///{folder / 'store.db'}", snapshot_dir=folder / "snapshots"
    )


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Paths at which the reports of two runs differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in (one.keys() | other.keys()) - _OF_A_RUN:
            yield from differences(one.get(name), other.get(name), f"{path}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{path}.{place}")
    elif one != other:
        yield path


def served(url: str, run_id: str) -> dict[str, Any]:
    """An item as the server gives it, without what it says of the run."""
    with Database(url, read_only=True) as reading, acting_client(reading) as client:
        assert client.get(link("runs", run_id, "items"), headers=JSON).json()["items"]
        answer = client.get(link("runs", run_id, "items", "7"), headers=JSON)
        found: dict[str, Any] = json.loads(answer.text.replace(run_id, "RUN"))
        del found["run"]
        return found


def test_every_verb_reads_files_alone(tmp_path: Path) -> None:
    make_audit(tmp_path, items=30, payload="float16", evaluation={"items": 4})
    env = {
        **os.environ,
        "TRANSEXPLAIN_DATABASE_URL": f"sqlite:///{tmp_path / 'store.db'}",
        "TRANSEXPLAIN_SNAPSHOT_DIR": str(tmp_path / "snapshots"),
    }

    def call(*words: str, code: int = 0) -> str:
        return run_here(env, tmp_path, *words, code=code)

    call("db", "upgrade")
    call("run", "audit.yaml", "--set", "groups.check=0")
    sink = ("--set", "payload.sink=lake/run-{run}", "--set", "payload.keep=sink")
    call("run", "audit.yaml", "--set", "groups.check=0", *sink)
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
        alone, plain = (one.id for one in runs.list_runs(db))
        assert len(sink_files.files_of(db, alone)) == 4
        reports = [json.loads(as_json(db, one)[0]) for one in (plain, alone)]
    assert list(differences(*reports)) == []
    for name in ("jsonl", "parquet"):
        for one in (plain, alone):
            call("export", one, "--format", name, "--output", f"{one}.{name}")
    assert (tmp_path / f"{alone}.jsonl").read_text() == (tmp_path / f"{plain}.jsonl").read_text()
    assert pq.read_table(tmp_path / f"{alone}.parquet").equals(
        pq.read_table(tmp_path / f"{plain}.parquet")
    )
    assert served(env["TRANSEXPLAIN_DATABASE_URL"], alone) == served(
        env["TRANSEXPLAIN_DATABASE_URL"], plain
    )
    call("verify", alone, "--items", "3")
    call("compare", plain, alone)
    call("strategies", alone, "--class", "bad")
    files = f"lake/run-{alone}/*.parquet"
    call("import", files, "--name", "again", "--lexicon", "groups.json", "--set", "groups.check=0")
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
        again = runs.get(db, "latest").id
        pairs = zip(
            results.iter_attributions(db, again), results.iter_attributions(db, alone), strict=True
        )
        assert all(a.relevance.tolist() == b.relevance.tolist() for a, b in pairs)
        damaged = sink_files.files_of(db, alone)[1]
        remote_files.delete(damaged.url)
    sink_files._content.cache_clear()
    said = call("verify", alone, "--items", "3", code=1)
    assert f"sink: shard 1: its file {damaged.url} is not there" in said
    assert "resume" in said
    said = call("report", alone, code=3)
    assert "Do not rely on this report" in said and "its file" in said
    call("resume", alone)
    call("verify", alone, "--items", "3")


def test_two_workers_and_a_store_that_fails(tmp_path: Path, s3: FaultyS3) -> None:
    plain = audited(tmp_path / "plain", payload="float16", shard_size=2)
    s3.rate = 0.05
    where = {"form": "float16", "sink": f"s3://{BUCKET}/two/{{run}}", "keep": "sink"}
    sunk = audited(tmp_path / "sunk", payload=where, shard_size=2, processes=2, max_attempts=9)
    s3.rate = 0.0
    with open_database(plain.url) as db, open_database(sunk.url) as other:
        assert runs.get(other, sunk.id).state == "done"
        wanted, found = list(results.iter_items(db, plain.id)), results.iter_items(other, sunk.id)
        assert list(found) == wanted
        pairs = zip(
            results.iter_attributions(db, plain.id),
            results.iter_attributions(other, sunk.id),
            strict=True,
        )
        assert all(a.relevance.tobytes() == b.relevance.tobytes() for a, b in pairs)
        sink_files.tidy(other, sunk.id)
        folder = sink_files.run_folder(other, sunk.id)
        there = {one.url.rpartition("/")[2] for one in remote_files.under(str(folder))}
        committed = sink_files.files_of(other, sunk.id)
        assert there == {"_manifest", *(one.name for one in committed)}
        local = tmp_path / "copies"
        local.mkdir()
        for one in committed:
            (local / one.name).write_bytes(remote_files.read(one.url))
    read = datasets.load_dataset(
        "parquet",
        data_files=str(local / "*.parquet"),
        split="train",
        cache_dir=str(tmp_path / "cache"),
    )
    asked = duckdb.sql("SELECT id FROM read_parquet(?)", params=[str(local / "*.parquet")])
    assert sorted(read["id"]) == sorted(row[0] for row in asked.fetchall())
    assert sorted(read["id"]) == sorted(one.item_id for one in wanted for _ in range(2))


def test_credentials_that_expire_half_way(tmp_path: Path, s3: FaultyS3) -> None:
    where = {"form": "float16", "sink": f"s3://{BUCKET}/expired/{{run}}", "keep": "sink"}
    spec = load_spec(make_audit(tmp_path, **(SMALL | {"payload": where, "shard_size": 4})))
    settings = settings_of(tmp_path)
    prepared = prepare_audit(spec, settings)

    def expire(_: int) -> None:
        if any(method == "PUT" and "shard-" in path for method, path in s3.requests):
            s3.refusal = "ExpiredToken"

    s3.requests.clear()
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        run_local(db, run_id, settings, model=prepared.model, report=Reports(items=expire))
        states = runs.progress(db, run_id).states
        assert states["dead"] >= 1 and states["done"] + states["dead"] == 5
        dead = shards.list_shards(db, run_id, states=("dead",))
        for one in dead:
            assert "shard-" in (one.error or "") and "have expired" in (one.error or "")
            assert "then resume" in (one.error or "") and "made-up-secret" not in (one.error or "")
        s3.refusal = ""
        assert shards.redrive(db, run_id) == len(dead)
        run_local(db, run_id, settings, model=prepared.model)
        assert runs.get(db, run_id).state == "done"
        assert len({one.item_id for one in results.iter_items(db, run_id)}) == 20
        assert sum(one.items for one in sink_files.files_of(db, run_id)) == 20
        assert failed(Run(folder=tmp_path, url=settings.database_url, id=run_id).checks()) == []


#: works on a run, and is killed where its second shard was uploaded and is to be committed
_KILLED = """
import os, signal, sys
from pathlib import Path

from orchestrator.dispatch.local import run_local
from transexplain.settings import Settings
from transexplain.store import results
from transexplain.store.revisions import open_database

url, snapshots, run_id = sys.argv[1:]
commit = results._commit

def killed(db, claim, *rest):
    if claim.shard.index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    commit(db, claim, *rest)

results._commit = killed
with open_database(url) as db:
    run_local(db, run_id, Settings(database_url=url, snapshot_dir=Path(snapshots)))
"""


def test_a_process_that_is_killed_between_upload_and_commit(tmp_path: Path, s3: FaultyS3) -> None:
    where = {"form": "float16", "sink": f"s3://{BUCKET}/killed/{{run}}", "keep": "sink"}
    settings = settings_of(tmp_path)
    prepared = prepare_audit(
        load_spec(make_audit(tmp_path, **(SMALL | {"payload": where, "shard_size": 4}))), settings
    )
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        words = (settings.database_url, str(settings.snapshot_dir), run_id)
        ended = subprocess.run([sys.executable, "-c", _KILLED, *words], check=False)
        assert ended.returncode == -signal.SIGKILL
        folder = str(sink_files.run_folder(db, run_id))
        garbage = "shard-000001-token-1.parquet"
        assert garbage in {one.url.rpartition("/")[2] for one in remote_files.under(folder)}
        assert garbage not in {one.name for one in sink_files.files_of(db, run_id)}
        run_local(db, run_id, settings, model=prepared.model)
        assert runs.get(db, run_id).state == "done"
        committed = {one.name for one in sink_files.files_of(db, run_id)}
        assert "shard-000001-token-2.parquet" in committed and len(committed) == 5
        there = {one.url.rpartition("/")[2] for one in remote_files.under(folder)}
        assert there == {"_manifest", *committed}
        assert len({one.item_id for one in results.iter_items(db, run_id)}) == 20


@pytest.mark.parametrize("store_text", ["none", "hashed", "full"])
def test_texts_that_the_store_does_not_get_no_file_gets(
    tmp_path: Path, store_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", KEY)
    where = {"sink": str(tmp_path / "lake" / "{run}")}
    spec = secret_audit(tmp_path, store_text=store_text, payload=where, evaluation={"items": 0})
    settings = settings_of(tmp_path)
    prepared = prepare_audit(load_spec(spec), settings)
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        run_local(db, run_id, settings, model=prepared.model)
    cells = [
        json.dumps(row)
        for path in sorted((tmp_path / "lake" / run_id).glob("*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]
    assert len(cells) >= 17
    leaks = [cell for cell in cells if SECRET in cell.lower()]
    assert bool(leaks) == (store_text == "full")
    texts = {json.loads(cell)["text"] is None for cell in cells}
    assert texts == {store_text != "full"}
