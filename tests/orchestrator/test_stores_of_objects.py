"""Audits whose inputs, snapshots and outputs are URLs: the same numbers, and clear errors."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from command_line_here import run_here
from faulty_s3 import BUCKET, FaultyS3
from serving import JSON, acting_client
from tiny_audit import make_audit

from orchestrator.dispatch.finish import as_json
from orchestrator.serve.links import link
from transexplain.data import snapshot_pieces
from transexplain.files import remote_files
from transexplain.files.remote_files import delete, read, under, write
from transexplain.store import readers, runs, sink_files
from transexplain.store.database import Database
from transexplain.store.revisions import open_database

Call = Callable[..., tuple[int, str]]
FOLDER = f"s3://{BUCKET}/t"
SECRET = "made-up-secret-of-tests"


pytestmark = pytest.mark.exhaustive


@pytest.fixture
def stored(s3: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a specification all of whose files lie in the store, as in `tmp_path`."""
    snapshot_pieces.piece_at.cache_clear()
    monkeypatch.setenv("TRANSEXPLAIN_CACHE_DIR", str(tmp_path / "cache"))
    local = make_audit(tmp_path, items=24, evaluation={"items": 0})
    spec = json.loads(local.read_text(encoding="utf-8"))
    named = {name: f"{FOLDER}/in/{name}" for name in ("model", "texts.jsonl", "groups.json")}
    spec |= {"model": named["model"], "data": named["texts.jsonl"], "groups": named["groups.json"]}
    (tmp_path / "model" / "optimizer.pt").write_bytes(b"no")
    for path in (*tmp_path.glob("model/*"), tmp_path / "texts.jsonl", tmp_path / "groups.json"):
        write(f"{FOLDER}/in/{path.relative_to(tmp_path).as_posix()}", path)
    return write(f"{FOLDER}/in/audit.yaml", json.dumps(spec).encode()).url


def findings(text: bytes) -> dict[str, object]:
    """What a report says of its groups and predictions."""
    found = json.loads(text)
    return {name: found[name] for name in ("groups", "predictions", "classes") if name in found}


def report_in(folder: Path) -> bytes:
    (path,) = [one for one in folder.glob("*.json") if not one.name.startswith("manifest")]
    return path.read_bytes()


def test_everything_at_urls_gives_the_numbers_of_files_here(
    stored: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, printed = call("run", str(tmp_path / "audit.yaml"), "--db", "sqlite:///local.db")
    assert code == 0, printed
    monkeypatch.setenv("TRANSEXPLAIN_SNAPSHOT_DIR", f"{FOLDER}/snapshots")
    code, printed = call("run", stored, "--out", f"{FOLDER}/out", "--db", "sqlite:///remote.db")
    assert code == 0, printed
    assert f"report: {FOLDER}/out/tiny-" in printed
    written = [one.url for one in under(f"{FOLDER}/out")]
    assert len(written) == 3 and len(under(f"{FOLDER}/snapshots")) == 3
    (report,) = [one for one in written if one.endswith(".json") and "manifest" not in one]
    assert findings(read(report)) == findings(report_in(tmp_path / "audits")) != {}
    code, checks = call("verify", "--db", "sqlite:///remote.db", "--items", "3")
    assert code == 0, checks
    assert "FAIL" not in checks and f"{FOLDER}/in/texts.jsonl" in checks
    assert not list((tmp_path / "cache").rglob("*.pt"))  # nobody needs them
    for path in (tmp_path / "remote.db", *(tmp_path / "cache").rglob("*")):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def test_a_lost_piece_fails_its_shard_by_name_and_comes_back(
    stored: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", "sqlite:///remote.db")
    monkeypatch.setenv("TRANSEXPLAIN_SNAPSHOT_DIR", f"{FOLDER}/snapshots")
    put = snapshot_pieces.put_pieces

    def losing(*given: object) -> str:
        folder = put(*given)
        delete(f"{folder}/{8:012}.parquet")
        return folder

    with monkeypatch.context() as lossy:
        lossy.setattr(snapshot_pieces, "put_pieces", losing)
        code, printed = call("run", stored, "--quiet")
        assert code == 3, printed
    code, printed = call("status", "latest")
    assert "000000000008.parquet does not exist" in printed
    assert "submit the audit again" in printed
    code, printed = call("plan", stored)
    assert code == 0 and len(under(f"{FOLDER}/snapshots")) == 2  # a plan alone writes nothing
    snapshot_pieces.piece_at.cache_clear()
    assert call("run", stored, "--quiet")[0] == 0  # of the same data: what is missing is written
    assert len(under(f"{FOLDER}/snapshots")) == 3
    runs = json.loads(call("status", "--json")[1])
    (first,) = [one for one in runs if one["items_done"] < one["items_total"]]
    code, printed = call("retry", first["run_id"], "--quiet")
    assert code == 0, printed


def test_credentials_in_urls_are_refused_and_neither_shown_nor_kept(
    stored: str, call: Call, tmp_path: Path
) -> None:
    hidden = "s3://AKIA:hidden@reviews/t/in/texts.jsonl"
    signed = f"{FOLDER}/in/texts.jsonl?X-Amz-Signature=hidden"
    for words in (
        ("run", stored, "--data", hidden),
        ("run", stored, "--data", signed),
        ("run", stored, "--model", hidden),
        ("run", stored, "--lexicon", signed),
        ("run", stored, "--out", hidden),
        ("schedule", "add", "nightly", stored, "--cron", "0 3 * * *", "--set", f"data={signed}"),
    ):
        code, printed = call(*words, "--db", "sqlite:///none.db")
        assert code == 2, printed
        assert "hidden" not in printed and "AKIA" not in printed
        assert "holds no" in printed
    kept = tmp_path / "none.db"
    assert not kept.exists() or b"hidden" not in kept.read_bytes()


#: what two runs of one audit may differ in
_OF_A_RUN = {
    *("run_id", "created", "finished", "seconds", "items_per_second", "elapsed", "waited", "waits"),
    *("plan_digest", "manifest_digest"),
}


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
    make_audit(tmp_path, items=30, evaluation={"items": 4})
    env = {
        **os.environ,
        "TRANSEXPLAIN_DATABASE_URL": f"sqlite:///{tmp_path / 'store.db'}",
        "TRANSEXPLAIN_SNAPSHOT_DIR": str(tmp_path / "snapshots"),
    }

    def call(*words: str, code: int = 0) -> str:
        return run_here(env, tmp_path, *words, code=code)

    call("db", "upgrade")
    call("run", "audit.yaml", "--set", "groups.check=0")
    sink = ("--set", "sink=lake/run-{run}", "--set", "sink.keep=sink")
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
    call(
        "import",
        f"{alone}.parquet",
        "--name",
        "again",
        "--lexicon",
        "groups.json",
        "--set",
        "groups.check=0",
    )
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
        again = runs.get(db, "latest").id
        pairs = zip(
            readers.iter_attributions(db, again), readers.iter_attributions(db, alone), strict=True
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
