"""Warnings about clusters and templates, and their use in an import."""

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attribution_rows import write_rows

from orchestrator.spec.data_section import DataSection
from transexplain.data import item_clusters
from transexplain.data.snapshot import prepare
from transexplain.types.plans import DatasetSpec

Call = Callable[..., tuple[int, str]]
NAMES = {group: [f"{group}{letter}" for letter in "abcdefgh"] for group in ("Ru", "To")}


def cluster_warnings(
    folder: Path, rows: list[tuple[str, ...]], *names: str, **keys: Any
) -> list[str]:
    path = folder / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("text", *names), *rows])
    section = DataSection(source=str(path), **keys)
    ref = prepare(DatasetSpec(**section.model_dump()), folder)
    return list(section.cluster_warnings(ref))


def test_different_texts_give_no_warning(tmp_path: Path) -> None:
    assert cluster_warnings(tmp_path, [("one text",), ("another",), ("and more",)]) == []


def test_near_duplicates_in_texts_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("one text",), ("One text!",), ("another",), ("and more",), ("too",)]
    (found,) = cluster_warnings(tmp_path, rows)
    assert found.startswith("2 items are near-duplicates of others: 1 cluster, which")
    assert cluster_warnings(tmp_path, rows, duplicates="off") == []
    (found,) = cluster_warnings(tmp_path, rows[:3])
    assert found.startswith("2 of 3 texts nearly repeat one text")
    assert "data.template" in found
    monkeypatch.setattr(item_clusters, "MOST", 2)
    found = cluster_warnings(tmp_path, rows[1:])[-1]
    assert found.startswith("near-duplicates were not looked for: the data have 4 rows")


def test_one_cluster_and_single_templates_are_reported(tmp_path: Path) -> None:
    (found,) = cluster_warnings(tmp_path, [("one", "x"), ("two", "x")], "who", cluster="who")
    assert found.startswith("all rows are one cluster by data.cluster ('who')")
    rows = [("one", "x"), ("two", "x"), ("three", "y"), ("four", "z"), ("five", "")]
    (found,) = cluster_warnings(tmp_path, rows, "form", template="form")
    assert found == "2 of 3 templates have one row only, which no pair is made of"


def attributions(folder: Path) -> str:
    """Every name in ten texts; those of Ru add one more."""
    draw, rows = random.Random(6), list[dict[str, Any]]()
    for number in range(160):
        group = ("Ru", "To")[number % 2]
        words = [draw.choice(NAMES[group]), "wrote", *(f"w{draw.random()}" for _ in range(6))]
        scores = [draw.gauss(1.0 if group == "Ru" else 0.0, 0.2), *[0.1] * 7]
        row = {"id": str(number), "text": " ".join(words), "tokens": words, "scores": scores}
        rows.append({**row, "prediction": "yes", "all": "x", "some": f"c{number % 40}"})
    return write_rows(folder / "rows.jsonl", rows)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("column", "verdict"), [("all", "suppressed"), ("some", "difference")])
def test_an_import_counts_clusters(call: Call, tmp_path: Path, column: str, verdict: str) -> None:
    (tmp_path / "names.json").write_text(json.dumps(NAMES), encoding="utf-8")
    path = attributions(tmp_path)
    requested = ("--lexicon", "names.json", "--reference", "To", "--set", f"data.cluster={column}")
    code, printed = call("import", path, *requested)
    assert code == 0, printed
    assert ("all rows are one cluster" in printed) == (column == "all")
    code, printed = call("report", "latest", "--json")
    assert code == 0, printed
    (row,) = (row for row in json.loads(printed)["groups"]["rows"] if row["group"] == "Ru")
    assert row["verdict"] == verdict
    assert ("one cluster" in row["reason"]) == (column == "all")
    if column == "some":
        assert row["robustness"][-1]["name"] == "over mentions, by entity and cluster"
