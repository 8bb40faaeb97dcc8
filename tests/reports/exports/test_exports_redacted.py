"""Redacted exports: no content of items, no number of few items, or a clear refusal."""

import csv
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow.parquet as pq
import pytest
from gallery import Gallery
from report_samples import ANNS, BOBS, CLASSES, GROUPS, explained_text, stored_run
from test_exports_trackers import Logged, fake_mlflow, fake_wandb
from typer.testing import CliRunner

from orchestrator.cli.command_line import app
from transexplain.errors import ConfigurationError
from transexplain.extras.filings import annex_iv
from transexplain.reports.exports import EXPORTS, FILES, TRACKERS
from transexplain.reports.exports.export_run import export
from transexplain.reports.summary import summarise
from transexplain.store import readers
from transexplain.store.database import Database
from transexplain.types.items import ItemFailure
from transexplain.types.plans import ImpactPlan, Matching

SECRET = "zyxhaldane"
#: 24 items mention Anns, 9 Bobs, three nobody; ids, texts and metadata hold the secret
FEW = 10


def secret_run(db: Database) -> str:
    explained = []
    for number in range(36):
        name = ANNS[number % 6] if number < 24 else BOBS[number % 6] if number < 33 else "Nobody"
        text = f"{name} was {'good' if number % 3 else 'bad'} {SECRET}{number}"
        meta = {"author": f"{SECRET} author", "part": f"{SECRET} part", "sex": "fm"[number % 2]}
        named = {"item_id": f"{SECRET}-{number}", "meta": meta}
        explained.append(explained_text(number, text, CLASSES[number % 3 > 0], **named))
    failure = ItemFailure(item_id=f"{SECRET}-f", index=36, kind="null", message=f"{SECRET} is null")
    matching, impact = Matching(column="author"), ImpactPlan(favourable=("positive",), sex="sex")
    return stored_run(db, explained, [failure], groups=GROUPS, matching=matching, impact=impact)


def everything(folder: Path) -> Mapping[str, str]:
    """Every file, as text: of Parquet the rows and the metadata."""
    found = {}
    for path in (one for one in folder.rglob("*") if one.is_file()):
        if path.suffix == ".parquet":
            about = pq.read_schema(path).metadata
            found[path.name] = repr(pq.read_table(path).to_pylist()) + repr(about)
        elif path.suffix == ".xlsx":
            book = openpyxl.load_workbook(path)
            found[path.name] = repr([list(sheet.iter_rows(values_only=True)) for sheet in book])
        else:
            found[path.name] = path.read_text(encoding="utf-8")
    return found


@pytest.mark.parametrize("form", [f for f in EXPORTS if f not in ("schema", *TRACKERS)])
def test_no_export_reveals_a_secret(db: Database, tmp_path: Path, form: str) -> None:
    run_id, folder = secret_run(db), tmp_path / "out"
    place = folder / ("run" if form == "csv" else f"run.{form}")
    reported = FILES if form in FILES else ()
    export(db, run_id, form, folder / f"whole.{form}")
    before = "".join(everything(folder).values())
    assert SECRET in before or not reported, "the search finds it where it is"
    export(db, run_id, form, place, redact=True)
    files = everything(folder / "run") if form == "csv" else {form: everything(folder)[place.name]}
    assert files
    assert SECRET not in "".join(files.values()).lower()


@pytest.mark.parametrize(("name", "fake"), [("mlflow", fake_mlflow), ("wandb", fake_wandb)])
def test_trackers_are_given_no_secret(
    db: Database, monkeypatch: pytest.MonkeyPatch, name: str, fake: Any
) -> None:
    run_id, reported = secret_run(db), Logged()
    monkeypatch.setitem(sys.modules, name, fake(reported))
    export(db, run_id, name, None)
    assert SECRET in "".join(reported.files.values())
    export(db, run_id, name, None, redact=True)
    printed = json.dumps([reported.files, reported.params])
    assert SECRET not in printed
    assert json.loads(reported.files["report.json"])["fewest"] == FEW
    assert {"summary.md", "model-card.md", "report.json"} < set(reported.files)
    assert not any("predictions" in one or "mentions" in one for one in reported.files)


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_rows_keep_their_numbers_and_nothing_else(db: Database, tmp_path: Path, form: str) -> None:
    run_id, path = secret_run(db), tmp_path / f"run.{form}"
    export(db, run_id, form, path, redact=True)
    if form == "parquet":
        rows = pq.read_table(path).to_pylist()
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    attributions = list(readers.iter_attributions(db, run_id))
    assert len(rows) == len(attributions) == 36
    for row, one in zip(rows, attributions, strict=True):
        assert row["attributions"] == one.relevance.tolist()
        assert row["tokens"] == [str(place) for place in range(one.relevance.size)]
        assert (row["id"], row["logit"]) == (str(row["idx"]), one.logit)
        assert row["text"] is row["offsets"] is row["author"] is None
        assert row["meta"] in ("{}", {})


def test_tables_show_only_values_that_enough_items_share(db: Database, tmp_path: Path) -> None:
    run_id = secret_run(db)
    export(db, run_id, "csv", tmp_path / "all")
    export(db, run_id, "csv", tmp_path / "few", redact=True, min_count=4)

    def rows(folder: str, name: str) -> list[dict[str, str]]:
        with (tmp_path / folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    shown = {path.stem for path in (tmp_path / "few").iterdir()}
    assert not shown & {"predictions", "failures", "mentions", "metrics"}
    assert {"groups", "entities", "words"} <= shown
    for name in ("groups", "entities", "words"):
        wanted = [one for one in rows("all", name) if int(one["documents"]) >= 4]
        assert rows("few", name) == wanted
        assert name == "groups" or len(wanted) < len(rows("all", name))


def test_texts_say_that_they_are_redacted_and_count_no_hidden_cell(db: Database) -> None:
    run_id = secret_run(db)
    for form in ("markdown", "model-card", "annex-iv"):
        plain, text = (export(db, run_id, form, None, redact=redact) for redact in (False, True))
        assert plain is not None and "Redacted" not in plain
        assert text is not None and f"fewer than {FEW} items" in text
        assert "()" not in text, "no kind of failure is frequent"
        assert "bobs" in plain and "| bobs |" not in text
    found = summarise(db, run_id)
    counts = tuple((None, count) for _, count in found.confusion.counts)
    hidden = replace(found, confusion=replace(found.confusion, counts=counts), fewest=FEW)
    for label, (_, count) in zip(found.confusion.labels, counts, strict=True):
        assert f"{label}: {count} items" in annex_iv.render(hidden)


def refused(
    db: Database, run_id: str, form: str, folder: Path, printed: str, **requested: Any
) -> None:
    with pytest.raises(ConfigurationError, match=printed):
        export(db, run_id, form, folder / "out", **requested)
    assert not (folder / "out").exists()


def test_redactions_without_a_meaning_are_refused(
    db: Database, gallery: Gallery, tmp_path: Path
) -> None:
    run_id = secret_run(db)
    refused(db, run_id, "schema", tmp_path, "nothing of the data", redact=True)
    refused(db, run_id, "csv", tmp_path, "hides nobody", redact=True, min_count=1)
    refused(db, run_id, "csv", tmp_path, "give both", min_count=5)
    for form in ("parquet", "jsonl"):
        refused(db, run_id, form, tmp_path, "is of one item", redact=True, min_count=5)
    with gallery["evaluation"].open() as scored:
        refused(scored, "latest", "csv", tmp_path, "a row per item", redact=True)


def test_from_the_command_line(db: Database, tmp_path: Path) -> None:
    run_id, url = secret_run(db), f"sqlite:///{db.path}"
    command = ["export", run_id, "--format", "markdown", "--db", url]
    printed = CliRunner().invoke(app, [*command, "--redact", "--min-count", "3"])
    assert printed.exit_code == 0, printed.output
    assert "fewer than 3 items" in printed.output and SECRET not in printed.output
    assert CliRunner().invoke(app, [*command, "--min-count", "3"]).exit_code != 0
