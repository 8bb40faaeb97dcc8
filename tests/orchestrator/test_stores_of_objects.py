"""Audits whose inputs, snapshots and outputs are URLs: the same numbers, and clear errors."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from faulty_s3 import BUCKET, FaultyS3
from tiny_audit import make_audit

from transexplain.data import shard_reader
from transexplain.files.remote_files import delete, read, under, write

Call = Callable[..., tuple[int, str]]
FOLDER = f"s3://{BUCKET}/t"
SECRET = "made-up-secret-of-tests"


pytestmark = pytest.mark.exhaustive


@pytest.fixture
def stored(s3: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a specification all of whose files lie in the store, as in `tmp_path`."""
    shard_reader.piece_at.cache_clear()
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
    """What a report says of its groups, predictions and classes."""
    document = json.loads(text)
    return {name: document.get(name) for name in ("groups", "predictions", "classes")}


def test_everything_at_urls_gives_the_numbers_of_files_here(
    stored: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, printed = call("run", str(tmp_path / "audit.yaml"), "--db", "sqlite:///local.db")
    assert code == 0, printed
    monkeypatch.setenv("TRANSEXPLAIN_SNAPSHOT_DIR", f"{FOLDER}/snapshots")
    sink = ("--set", f"sink={FOLDER}/lake/{{run}}", "--set", "sink.keep=sink")
    remote = ("--out", f"{FOLDER}/out", "--db", "sqlite:///remote.db")
    code, printed = call("run", stored, *sink, *remote)
    assert code == 0, printed
    assert f"report: {FOLDER}/out/tiny-" in printed
    written = [one.url for one in under(f"{FOLDER}/out")]
    assert len(written) == 3 and len(under(f"{FOLDER}/snapshots")) == 3
    (report,) = [url for url in written if url.endswith(".json") and "manifest" not in url]
    (local,) = (tmp_path / "audits").glob("[!m]*.json")
    assert findings(read(report)) == findings(local.read_bytes())
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
    put = shard_reader.put_pieces

    def losing(*given: object) -> str:
        folder = put(*given)
        delete(f"{folder}/{8:012}.parquet")
        return folder

    with monkeypatch.context() as lossy:
        lossy.setattr(shard_reader, "put_pieces", losing)
        code, printed = call("run", stored, "--quiet")
        assert code == 3, printed
    code, printed = call("status", "latest")
    assert "000000000008.parquet does not exist" in printed
    assert "submit the audit again" in printed
    code, printed = call("plan", stored)
    assert code == 0 and len(under(f"{FOLDER}/snapshots")) == 2  # a plan alone writes nothing
    shard_reader.piece_at.cache_clear()
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
        ("run", stored, "--model", hidden),
        ("run", stored, "--out", hidden),
        ("schedule", "add", "nightly", stored, "--cron", "0 3 * * *", "--set", f"data={signed}"),
    ):
        code, printed = call(*words, "--db", "sqlite:///none.db")
        assert code == 2, printed
        assert "hidden" not in printed and "AKIA" not in printed
        assert "holds no" in printed
    kept = tmp_path / "none.db"
    assert not kept.exists() or b"hidden" not in kept.read_bytes()
