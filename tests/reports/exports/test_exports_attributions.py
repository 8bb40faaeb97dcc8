"""Attributions as Parquet and JSON lines: the store's numbers, in little memory, whole or not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from report_samples import biased_run, explained_text, image_attribution, stored_run

from transexplain.errors import ConfigurationError
from transexplain.reports.exports.export_run import export
from transexplain.store import readers, runs
from transexplain.store.database import Database
from transexplain.types.items import ItemOutcome
from transexplain.types.plans import Matching, ModelRef

HOSTILE = 'a "quoted" | =1+1\n<b>\ud800 \0 ünïcode 日本'
WILD = {"author": HOSTILE, "label": "not the label"}


def exported(db: Database, run_id: str, path: Path) -> list[dict[str, Any]]:
    """The rows that the file holds."""
    assert export(db, run_id, path.suffix[1:], path) is None
    if path.suffix == ".parquet":
        found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return found
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_every_attribution_is_there_with_the_numbers_of_the_store(
    db: Database, tmp_path: Path, form: str
) -> None:
    run_id = biased_run(db)
    rows = exported(db, run_id, tmp_path / f"run.{form}")
    stored = list(readers.iter_attributions(db, run_id))
    items = {i.item_id: i for i in readers.iter_items(db, run_id) if isinstance(i, ItemOutcome)}
    assert len(rows) == len(stored) == 36
    for row, one in zip(rows, stored, strict=True):
        item = items[one.item_id]
        assert (row["id"], row["idx"]) == (one.item_id, item.index)
        assert row["attributions"] == one.relevance.tolist()
        assert row["offsets"] == [[token.start, token.end] for token in one.features]  # type: ignore[union-attr]
        assert row["special"] == [token.special for token in one.features]  # type: ignore[union-attr]
        assert row["predictions"] == list(item.logits)
        assert (row["label"], row["prediction"]) == (item.label, item.predicted)
        assert (row["class"], row["target"]) == (one.class_name, one.target)
        assert row["logit"] == one.logit and one.ledger is not None
        assert row["ledger_gap"] == one.ledger.gap and row["ledger_biases"] == one.ledger.biases


def test_texts_from_the_wild_keep_their_length(db: Database, tmp_path: Path) -> None:
    run_id = _wild(db)
    row, plain = exported(db, run_id, tmp_path / "run.parquet")
    assert (plain["label"], row["ledger_total"]) == (None, None)
    assert row["text"] == HOSTILE.replace("\ud800", "\ufffd")
    assert len(row["text"]) == len(HOSTILE)
    assert row["author"] == row["text"], "a column that groups are read from is one of its own"
    assert row["label"] == "positive", "metadata does not take the place of a column"
    assert json.loads(row["meta"]) == WILD
    line, _ = exported(db, run_id, tmp_path / "run.jsonl")
    assert (line["author"], line["label"], line["meta"]) == (row["author"], "positive", WILD)


def test_a_picture_is_a_grid_with_its_shape(db: Database, tmp_path: Path) -> None:
    row, *_ = exported(db, _pictures(db), tmp_path / "run.parquet")
    assert row["attributions"] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert (row["rows"], row["cols"], row["source"]) == (2, 3, "a/0.png")
    assert row["special_attributions"] == [0.5]
    assert "tokens" not in row


def test_the_file_says_which_run_it_is_of(db: Database, tmp_path: Path) -> None:
    run_id = biased_run(db)
    export(db, "latest", "parquet", tmp_path / "run.parquet")
    about = pq.read_schema(tmp_path / "run.parquet").metadata
    assert about[b"transexplain.run"].decode() == run_id
    assert about[b"transexplain.plan_digest"].decode() == runs.get(db, run_id).plan.digest
    assert json.loads(about[b"transexplain.classes"]) == ["negative", "positive"]


def test_hugging_face_opens_it(db: Database, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    export(db, biased_run(db), "parquet", tmp_path / "run.parquet")
    found = datasets.load_dataset(
        "parquet",
        data_files=str(tmp_path / "run.parquet"),
        split="train",
        cache_dir=str(tmp_path / "cache"),
    )
    assert found.num_rows == 36
    names = datasets.ClassLabel(names=["negative", "positive"])
    assert set(found.cast_column("label", names)["label"]) == {0, 1}


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv", "xlsx"])
def test_a_run_that_is_not_over_is_refused(db: Database, tmp_path: Path, form: str) -> None:
    biased_run(db, leave=1)
    with pytest.raises(ConfigurationError, match="is not over"):
        export(db, "latest", form, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize("kind", ["texts", "wild", "pictures"])
def test_lines_hold_the_rows_of_the_columns(
    db: Database, tmp_path: Path, kind: str, redact: bool
) -> None:
    run_id = MADE[kind](db)
    for form in ("parquet", "jsonl"):
        export(db, run_id, form, tmp_path / f"run.{form}", redact=redact)
    lines = (tmp_path / "run.jsonl").read_text(encoding="ascii").splitlines()
    rows = pq.read_table(tmp_path / "run.parquet").to_pylist()
    assert rows and [{**row, "meta": json.loads(row["meta"])} for row in rows] == [
        json.loads(line) for line in lines
    ]


def _wild(db: Database) -> str:
    outcome, one = explained_text(0, HOSTILE, "positive", meta=WILD, raw_label="1")
    noted = outcome, replace(one, notes=(HOSTILE, "x"), ledger=None)
    explained = [noted, explained_text(1, "good", None)]
    return stored_run(db, explained, matching=Matching(column="author"), slice="label")


def _pictures(db: Database) -> str:
    explained = []
    for index, shape in enumerate([(2, 3), (4, 1), (1, 1)]):
        one = image_attribution(
            np.arange(np.prod(shape)).reshape(shape),
            item_id=f"row-{index}",
            prefix_relevance=(0.5, -0.25)[: index + 1],
        )
        outcome = explained_text(index, "x", None, source=f"a/{index}.png")[0]
        explained.append((replace(outcome, text=None), one))
    model = ModelRef(source="m", classes=("a", "b"), digest="d" * 64, modality="image")
    return stored_run(db, explained, model=model)


MADE = {"texts": biased_run, "wild": _wild, "pictures": _pictures}
