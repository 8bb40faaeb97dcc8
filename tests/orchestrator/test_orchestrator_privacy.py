"""Privacy at the command line: run, matches, resume, report --redact, export and import."""

import json
from pathlib import Path

import pytest
from secret_texts import KEY, SECRET, SECRETS, secret_audit

pytestmark = pytest.mark.exhaustive


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", KEY)


def test_a_run_without_texts_and_without_its_key(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
