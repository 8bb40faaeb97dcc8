"""The verb export on a real run: what it writes is read again by import; bad requests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from report_samples import biased_run
from tiny_audit import make_audit_with_authors

from transexplain.store.revisions import open_database

URL = "sqlite:///transexplain.db"
Call = Callable[..., tuple[int, str]]


def groups_of(call: Call, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("report", run_id, "--json")[1])["groups"]
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_an_export_imported_again_has_the_same_statistics(
    call: Call, tmp_path: Path, form: str
) -> None:
    spec = make_audit_with_authors(tmp_path)
    assert call("run", str(spec))[0] == 0
    path = f"out/run.{form}"
    assert call("export", "--format", form, "-o", path) == (0, f"{form}: {path}\n")
    original = groups_of(call, "latest")
    groups = ("--lexicon", "groups.json", "--set", "groups.column=author")
    classes = ("--classes", "bad,so-so,good", "--column", "logits=predictions")
    code, printed = call("import", path, *groups, *classes)
    assert code == 0, printed
    imported = groups_of(call, "latest")
    rows = [row for row in original["rows"] if row["difference"] is not None]
    assert {row["group"] for row in rows} >= {"author/man", "author/woman"}
    for before, after in zip(original["rows"], imported["rows"], strict=True):
        for name in ("group", "target", "class_name", "mentions", "entities", "verdict"):
            assert before[name] == after[name]
        assert (before["difference"] is None) == (after["difference"] is None)
        if before["difference"] is not None:
            assert after["difference"] == pytest.approx(before["difference"], abs=1e-6)
    assert imported["outcomes"] == original["outcomes"]
    if form == "parquet":
        assert call("export", "-f", form, "-o", "again.parquet")[0] == 0, "also of an import"
        first, second = pq.read_table(path), pq.read_table("again.parquet")
        for name in ("id", "text", "offsets", "special", "target", "class", "prediction", "label"):
            assert first[name].to_pylist() == second[name].to_pylist(), name


def test_a_text_is_printed_or_written(call: Call, tmp_path: Path) -> None:
    with open_database(URL, upgrade=True) as db:
        biased_run(db)
    code, printed = call("export", "--format", "markdown")
    assert code == 0 and printed.startswith("## sample audit: models/m on x.csv\n")
    assert call("export", "latest", "-f", "markdown", "-o", "new/pr.md")[0] == 0
    assert (tmp_path / "new" / "pr.md").read_text(encoding="utf-8") == printed
    assert call("export", "latest", "-f", "model-card", "-o", "new/pr.md")[0] == 0, "replaced"
    assert (tmp_path / "new" / "pr.md").read_text(encoding="utf-8").startswith("---\ntags:")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("nobody", "--format", "markdown"), "nobody"),
        (("latest", "--format", "parqet"), "did you mean 'parquet'?"),
        (("latest", "--format", "parquet"), "name a file with -o"),
        (("latest", "--format", "csv"), "name a folder with -o"),
        (("latest", "--format", "parquet", "-o", "."), "is a folder; name a file"),
        (("latest", "--format", "markdown", "-o", "file/out.md"), "cannot write"),
        (("latest", "--format", "csv", "-o", "full"), "is not empty"),
    ],
)
def test_requests_that_are_wrong(
    call: Call, tmp_path: Path, words: tuple[str, ...], printed: str
) -> None:
    with open_database(URL, upgrade=True) as db:
        biased_run(db)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x", encoding="utf-8")
    code, reported = call("export", *words)
    assert code == 2 and printed in reported, reported
    assert "Traceback" not in reported
