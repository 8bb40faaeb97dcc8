"""Privacy at the command line: run, matches, resume, report --redact, export and import."""

import json
from pathlib import Path

import pytest
from secret_texts import KEY, SECRET, SECRETS, secret_audit

pytestmark = pytest.mark.exhaustive


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", KEY)


@pytest.mark.parametrize("mode", ["hashed", "none"])
def test_readers_of_a_run_without_texts(call, tmp_path: Path, mode: str) -> None:
    spec = secret_audit(tmp_path, store_text=mode, targets=["predicted"])
    code, printed = call("run", str(spec))
    assert code == 0, printed
    code, printed = call("matches", "latest")
    assert (code, f"store_text: {mode}" in printed) == (2, True), printed
    code, printed = call("verify", "latest")
    assert code == 0, printed
    for form in ("jsonl", "csv", "markdown"):
        code, printed = call("export", "latest", "--format", form, "-o", f"out-{form}")
        assert code == 0, printed
    written = [path.read_text() for path in Path().glob("out-*") if path.is_file()]
    written += [path.read_text() for path in Path("out-csv").iterdir()]
    assert len(written) > 5
    assert not any(word in text.lower() for text in written for word in SECRETS)
    Path("out-jsonl").rename("out.jsonl")
    code, printed = call("import", "out.jsonl")
    assert "text" in printed, printed


def test_resume_without_the_key_is_refused(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = secret_audit(tmp_path, store_text="hashed", targets=["predicted"])
    assert call("run", str(spec))[0] == 0
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", KEY[::-1])
    code, printed = call("resume", "latest")
    assert (code, "is not the key of this run" in printed) == (2, True), printed
    monkeypatch.delenv("TRANSEXPLAIN_TEXT_KEY")
    code, printed = call("run", str(spec))
    assert (code, "TRANSEXPLAIN_TEXT_KEY is not set" in printed) == (2, True), printed


def test_a_report_that_may_be_handed_on(call, tmp_path: Path) -> None:
    spec = secret_audit(tmp_path, targets=["predicted"])
    assert call("run", str(spec))[0] == 0
    code, printed = call("report", "latest", "--redact", "--min-count", "3", "--report-dir", "red")
    assert code == 0, printed
    pages = sorted(Path("red").iterdir())
    assert [path.suffix for path in pages] == [".html", ".json"]
    assert all("redacted" in path.name for path in pages)
    # a word that enough items have is no secret of any of them
    assert any(SECRET in path.read_text() for path in pages)
    code, printed = call("report", "latest", "--redact", "--json")
    document = json.loads(printed)
    assert (code, document["fewest"]) == (0, 10)
    assert SECRET not in printed.lower()
    assert call("report", "latest", "--min-count", "3")[0] == 2
