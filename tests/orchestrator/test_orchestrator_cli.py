"""The command line: every verb on a tiny audit, and the errors of bad requests."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from secret_texts import KEY, SECRET, SECRETS, secret_audit
from tiny_audit import make_audit

import transexplain as te

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test works in a folder of its own, with the default embedded database there."""
    monkeypatch.chdir(tmp_path)
    for name in ("DATABASE_URL", "BROKER_URL", "SNAPSHOT_DIR", "QUEUE"):
        monkeypatch.delenv(f"TRANSEXPLAIN_{name}", raising=False)


def test_run_status_report(call, tmp_path: Path) -> None:
    spec = str(make_audit(tmp_path))
    code, printed = call("run", spec)
    assert code == 0, printed
    assert "40 texts were explained; none failed" in printed
    assert re.search(r"accuracy 0\.\d{3}", printed)
    (html,) = (tmp_path / "audits").glob("tiny-*.html")
    assert html.read_text(encoding="utf-8").count("<script>") == 3, "the page's own and the charts'"
    (data,) = (tmp_path / "audits").glob("tiny-*.json")
    assert json.loads(data.read_text(encoding="utf-8"))["counts"]["done"] == 40
    code, printed = call("status", "--json")
    (state,) = json.loads(printed)
    assert (code, state["items_done"], state["state"]) == (0, 40, "done")
    assert call("report", "latest", "--report-dir", "again")[0] == 0
    assert len(list((tmp_path / "again").iterdir())) == 3, "two forms and the manifest"
    code, printed = call("report", "--json")
    assert json.loads(printed)["audited"]["name"] == "tiny"
    code, printed = call("resume")
    assert code == 0, "a finished run has nothing left to do"
    assert call("cancel", "latest") == (0, f"run {state['run_id']} was done already\n")


@pytest.mark.parametrize("place", ["closed", "closed/below", "file", "file/below"])
def test_a_report_that_could_not_be_written_is_refused_before_the_work(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "file").touch()
    access = os.access  # whoever is root may write anywhere
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path).name != "closed" and access(path, mode)
    )
    code, printed = call("run", str(make_audit(tmp_path)), "--out", place)
    assert code == 2 and place.partition("/")[0] in printed
    (state,) = json.loads(call("status", "--json")[1])
    assert state["items_done"] == 0
    assert call("resume", state["run_id"], "--out", "open")[0] == 0, "it goes on"
    assert list((tmp_path / "open").glob("tiny-*.html"))


def test_validate_checks_everything_and_runs_nothing(call, tmp_path: Path) -> None:
    code, printed = call("validate", str(make_audit(tmp_path)))
    assert code == 0 and "ok: 40 items in 5 shards" in printed
    assert "data: all 40 rows were read and encoded" in printed and "no row fails" in printed
    assert not (tmp_path / "transexplain.db").exists()


def test_explain_a_text(call, tmp_path: Path) -> None:
    make_audit(tmp_path)
    code, printed = call("explain", "a nice film", "-m", "model", "-t", "class:good")
    assert code == 0
    assert "gap" in printed
    (ledger,) = re.findall(r"^ledger in logits: (.*)$", printed, re.M)
    total = sum(float(number) for number in re.findall(r"[+-]\d\S*", ledger))
    [one] = te.explain(te.load_model(tmp_path / "model"), ["a nice film"], target="class:good")
    assert total == pytest.approx(one.logit, abs=3e-4)
    printed = printed.replace(ledger, "")
    shown = {text: float(number) for text, number in re.findall(r"(\w+) ([+-]\d\S*)", printed)}
    for word in one.words():  # three digits, whatever the size
        assert shown[word.text] == pytest.approx(word.relevance, rel=0.006)
    code, printed = call("explain", "a nice film", "-m", "model", "--json")
    (one,) = json.loads(printed)
    assert len(one["relevance"]) == len(one["features"]) == 5
    assert call("explain", "a <b>nice</b> film", "-m", "model", "-o", "x.html")[0] == 0
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "<b>nice" not in page and "&lt;" in page
    for name in ("x.png", "x.pdf"):
        code, printed = call("explain", "a film", "-m", "model", "-o", name)
        assert code == 2 and ".html" in printed


def test_explain_a_picture(call, tmp_path: Path, vit_dir: Path) -> None:
    Image.effect_noise((40, 30), 80).convert("RGB").save(tmp_path / "noise.png")
    model = str(vit_dir)
    assert call("explain", "noise.png", "-m", model, "-t", "top:2", "-o", "heat.png")[0] == 0
    assert (tmp_path / "heat-0.png").exists()
    assert (tmp_path / "heat-1.png").exists()
    alone = ("--alpha", "0", "--solid", "-o", "colours.png")
    assert call("explain", "noise.png", "-m", model, *alone)[0] == 0
    Image.new("RGB", (40, 30), "black").save(tmp_path / "black.png")
    [one] = te.explain(te.load_model(vit_dir), Image.open(tmp_path / "noise.png"))
    colours = te.render.overlay(one, tmp_path / "black.png", alpha=0, solid=True)
    with Image.open(tmp_path / "colours.png") as drawn:
        assert drawn.size == colours.size
        assert np.abs(np.asarray(drawn, float) - np.asarray(colours, float)).max() <= 1
    code, printed = call("explain", "noise.png", "-m", model)
    assert code == 0 and "no colours here: --output FILE.png draws it" in printed
    (tmp_path / "text.png").write_text("no picture")
    for item in ("a nice film", "text.png"):
        code, printed = call("explain", item, "-m", model)
        assert code == 2 and item in printed


@pytest.mark.exhaustive
def test_bad_items_fail_alone(call, tmp_path: Path) -> None:
    """Each kind of bad item is an error row; the others finish; exit code 3 says so."""
    spec = str(make_audit(tmp_path))
    rows: list[bytes] = [
        b'{"text": "a nice film"}',
        b'{"text": ""}',
        b'{"text": null}',
        b'{"text": "caf\xe9"}',
        b'{"text": "half',
        b'{"text": "' + b"good " * 20_000 + b'"}',
        '{"text": "<script>alert(1)</script> & “quotes”"}'.encode(),
    ]
    (tmp_path / "odd.jsonl").write_bytes(b"\n".join(rows) + b"\n")
    code, printed = call("run", spec, "--data", "odd.jsonl", "--name", "odd")
    assert code == 3, printed
    assert "3 of 7 texts were explained; 4 failed" in printed
    (data,) = (tmp_path / "audits").glob("odd-*.json")
    document = json.loads(data.read_text(encoding="utf-8"))
    kinds = {kind["kind"] for kind in document["failures"]}
    assert kinds == {"empty-text", "null", "invalid-utf8", "malformed-row"}
    assert document["counts"]["truncated"] >= 1
    (page,) = (tmp_path / "audits").glob("odd-*.html")
    html = page.read_text(encoding="utf-8")
    assert html.count("<script>") == 3, "the page's own and the charts', none of the texts"
    assert "&lt;" in html
    assert call("run", spec, "--data", "odd.jsonl", "--set", "tolerance=0.6")[0] == 0
    code, printed = call("run", spec, "--data", "odd.jsonl", "--set", "long_text=error")
    assert "too-long" in printed


@pytest.mark.exhaustive
def test_a_torchvision_of_another_torch_is_named(
    tmp_path: Path, bert_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torchvision").mkdir()
    broken = 'raise RuntimeError("operator torchvision::nms does not exist")'  # torch's words
    (tmp_path / "torchvision" / "__init__.py").write_text(broken)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))
    command = ["-m", "orchestrator.cli", "explain", "a film", "--model", str(bert_dir)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1].startswith("error: torchvision was built for another torch")


def test_validate_names_the_rows_that_will_fail(call, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes("text;label\ncafé good;1\n;1\nbad\n".encode("cp1252"))
    options = ["--data", str(tmp_path / "rows.csv"), "--set", "data.label=label"]
    code, printed = call("validate", str(make_audit(tmp_path)), *options)
    assert code == 3 and "not ok: 3 items" in printed
    assert "read as cp1252" in printed and "cells separated by ';'" in printed
    assert "1 row will fail, empty-text:\n  row 1 (1): column 'text' is empty or blank" in printed
    assert "1 semicolon-separated cells where the header names 2" in printed
    assert "a run would end with exit code 3" in printed
    code, printed = call("validate", str(make_audit(tmp_path)), *options, "--set", "tolerance=0.7")
    assert code == 0 and "ok: 3 items" in printed


@pytest.mark.exhaustive
def test_options_of_run_stand_for_keys(call, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("body,stars\na good film,good\nbad,bad\n", encoding="utf-8")
    model = make_audit(tmp_path).parent / "model"
    words = ["--model", str(model), "--data", str(tmp_path / "rows.csv"), "--text", "body"]
    words += ["--label", "stars", "--limit", "1", "--device", "cpu", "--out", "there", "--json"]
    code, printed = call("run", *words, "--set", "evaluation.items=0")
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    kinds = ["run", "progress", "progress", "end"]
    assert code == 0 and [line["event"] for line in lines] == kinds
    assert lines[0]["items"] == lines[1]["done"] == 1 and lines[-1]["exit_code"] == 0
    assert (lines[1]["checks"], lines[2]["checks"]) == (0, 1), "the text again, for two classes"
    assert all((tmp_path / path).is_file() for path in lines[-1]["files"])
    assert lines[-1]["files"][0].startswith("there/") and lines[-1]["findings"]
    code, printed = call("run", *words[:-1], "--quiet", "--set", "evaluation.items=0")
    assert code == 0 and "run" not in printed
    (tmp_path / "rows.csv").write_text("body,stars\na film,1\n,0\n")
    lame = ["2" if word == "1" else word for word in words[:-1]]
    code, printed = call("run", *lame, "--quiet", "--set", "evaluation.items=0")
    assert code == 3 and "1 of 2 texts were explained; 1 failed" in printed
    assert "beyond the tolerance; there/" in printed
    code, printed = call("run", *words, "--quiet")
    assert code == 2 and "give one" in printed


@pytest.mark.exhaustive
def test_a_run_without_texts_and_without_its_key(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", KEY)
    spec = str(secret_audit(tmp_path, store_text="hashed", targets=["predicted"]))
    code, printed = call("run", spec)
    assert code == 0, printed
    code, printed = call("matches", "latest")
    assert (code, "store_text: hashed" in printed) == (2, True), printed
    code, printed = call("verify", "latest")
    assert code == 0, printed
    for form in ("jsonl", "csv", "markdown"):
        code, printed = call("export", "latest", "--format", form, "-o", f"out-{form}")
        assert code == 0, printed
    written = [path.read_text() for path in Path().rglob("out-*/*")]
    written += [path.read_text() for path in Path().glob("out-*") if path.is_file()]
    assert len(written) > 5
    assert not any(word in text.lower() for text in written for word in SECRETS)
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", KEY[::-1])
    code, printed = call("resume", "latest")
    assert (code, "key of this run" in printed) == (2, True), printed
    monkeypatch.delenv("TRANSEXPLAIN_TEXT_KEY")
    code, printed = call("run", spec)
    assert (code, "TRANSEXPLAIN_TEXT_KEY" in printed) == (2, True), printed


@pytest.mark.exhaustive
def test_a_report_that_may_be_handed_on(call, tmp_path: Path) -> None:
    assert call("run", str(secret_audit(tmp_path, targets=["predicted"])))[0] == 0
    code, printed = call("report", "latest", "--redact", "--min-count", "3", "--report-dir", "red")
    assert code == 0, printed
    pages = sorted(Path("red").iterdir())
    assert [path.suffix for path in pages] == [".html", ".json"]
    assert all("redacted" in path.name for path in pages)
    # a word that enough items have is no secret of any of them
    assert any(SECRET in path.read_text() for path in pages)
    code, printed = call("report", "latest", "--redact", "--json")
    assert (code, json.loads(printed)["fewest"]) == (0, 10)
    assert SECRET not in printed.lower()
    assert call("report", "latest", "--min-count", "3")[0] == 2
