"""The ERASER benchmark's format: documents, classes and rationales."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transexplain.data.snapshot import prepare
from transexplain.errors import DataSourceError
from transexplain.types.items import ItemFailure
from transexplain.types.plans import DatasetSpec

DOCUMENT = "a film .\nnot  one good scene\tin it ."


def passage(first: int, stop: int, text: str | None, **changes: Any) -> dict[str, Any]:
    return {"docid": "d1", "start_token": first, "end_token": stop, "text": text, **changes}


def annotation(*groups: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    named = {"annotation_id": "d1", "classification": "NEG", "evidences": list(groups)}
    return {**named, "query": "good?", "query_type": None, **changes}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs.jsonl").write_text(
        json.dumps({"docid": "d1", "document": DOCUMENT}) + "\n", encoding="utf-8"
    )
    return tmp_path


def lay(folder: Path, *rows: dict[str, Any]) -> str:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "val.jsonl").write_text(text, encoding="utf-8")
    return f"eraser:{folder}#val"


@pytest.mark.parametrize(
    ("row", "marked"),
    [
        (
            annotation(
                [passage(3, 6, "not one good"), passage(1, 2, "film")], [passage(8, 10, "it .")]
            ),
            ["film", "not  one good", "it ."],
        ),
        (annotation([passage(1, 2, "film")], [passage(1, 2, "film")]), ["film"]),  # twice
        (annotation([passage(3, 3, "")], [passage(1, 2, "film")]), ["film"]),  # without tokens
        (annotation(), []),
        (annotation(docids=["d1"]), []),
        (annotation(evidences=None, docids=["d1"]), []),
    ],
)
def test_spans_are_the_tokens_of_the_document(row, marked, folder: Path, load) -> None:
    (item,) = load(lay(folder, row))
    assert (item.id, item.label, item.content) == ("d1", "NEG", DOCUMENT)
    assert [DOCUMENT[start:end] for start, end in item.evidence.spans] == marked


def in_a_folder(folder: Path) -> None:
    (folder / "docs.jsonl").unlink()
    (folder / "docs").mkdir()
    (folder / "docs" / "d1").write_text(DOCUMENT + "\n", encoding="utf-8")


def test_a_folder_of_documents_and_packed_files(folder: Path, load) -> None:
    """Documents outside the folder are not read."""
    in_a_folder(folder)
    (folder / "secret.txt").write_text("a film")
    row = annotation([passage(1, 2, "film")])
    outside = annotation([passage(0, 1, "a", docid="../secret.txt")], annotation_id="x")
    again, bad = load(lay(folder, row, outside))
    assert (again.content, again.evidence.spans) == (DOCUMENT, ((2, 6),))
    assert isinstance(bad, ItemFailure)
    assert "../secret.txt" in bad.message
    with gzip.open(folder / "val.jsonl.gz", "wt") as stream:
        stream.write(json.dumps({**row, "annotation_id": "other"}) + "\n")
    (folder / "val.jsonl").unlink()
    (packed,) = load(f"eraser:{folder}#val")
    assert (packed.id, packed.content) == ("other", DOCUMENT)


@pytest.mark.parametrize(
    ("row", "kind", "says"),
    [
        (annotation([passage(1, 2, "plot")]), "bad-evidence", "tokens 1 to 2"),
        (annotation([passage(9, 11, "it .")]), "bad-evidence", "tokens 9"),
        (annotation([passage(6, 3, "")]), "bad-evidence", "tokens 6"),
        (annotation([passage(11, 11, "")]), "bad-evidence", "tokens 11"),
        (annotation([passage(-1, 2, "")]), "bad-evidence", "tokens -1"),
        (annotation([passage(True, 2, "film")]), "bad-evidence", "tokens True"),
        (annotation([passage(1, 2, None)]), "bad-evidence", "tokens 1 to 2"),
        (annotation(evidences="film"), "bad-evidence", "evidences"),
        (annotation(["film"]), "bad-evidence", "evidences"),
        (annotation([passage(1, 2, "film", docid="d9")]), "null", "'d9'"),
        (
            annotation([passage(1, 2, "film")], [passage(1, 2, "film", docid="d2")]),
            "malformed-row",
            "2 documents",
        ),
        (annotation(docids=["d1", "d2"]), "malformed-row", "2 documents"),
    ],
)
def test_faults_of_one_annotation_cost_that_item(row, kind, says, folder: Path, load) -> None:
    bad, good = load(lay(folder, {**row, "annotation_id": "x"}, annotation()))
    assert isinstance(bad, ItemFailure)
    assert (bad.item_id, bad.kind) == ("x", kind)
    assert says in bad.message
    assert good.content == DOCUMENT


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        ("eraser:{}", {}, "eraser:DIR#split"),
        ("eraser:{}#test", {}, "eraser:DIR#split"),
        ("eraser:{}#../val", {}, "eraser:DIR#split"),
        ("eraser:{}/none#val", {}, "folder"),
        ("eraser:{}#docs", {}, "'annotation_id'"),
        ("eraser:{}#val", {"label": "classification"}, "label"),
        ("eraser:{}/without#val", {}, r"docs\.jsonl"),
    ],
)
def test_what_cannot_be_read_is_reported(source, options, says, folder: Path, load) -> None:
    lay(folder, annotation())
    (folder / "without").mkdir()
    (folder / "without" / "val.jsonl").write_bytes((folder / "val.jsonl").read_bytes())
    with pytest.raises(DataSourceError, match=says):
        load(source.format(folder), **options)


def test_the_snapshot_follows_documents_and_their_names(folder: Path, tmp_path: Path) -> None:
    in_a_folder(folder)
    (folder / "docs" / "d2").write_text("two", encoding="utf-8")
    spec = DatasetSpec(source=lay(folder, annotation()))
    first = prepare(spec, tmp_path / "s")
    assert prepare(spec, tmp_path / "s") == first
    (folder / "docs" / "d1").rename(folder / "docs" / "d0")
    (folder / "docs" / "d2").rename(folder / "docs" / "d1")
    assert prepare(spec, tmp_path / "s").fingerprint != first.fingerprint


@pytest.mark.shared
def test_the_movie_reviews(shared_dir: Path, load) -> None:
    items = load(f"eraser:{shared_dir}/real/text/eraser_movies#val")
    assert len(items) == 200
    assert not [item for item in items if isinstance(item, ItemFailure)]
    assert {item.label for item in items} == {"POS", "NEG"}
    shares = []
    for item in items:
        ends = np.cumsum([len(token) + 1 for token in item.content.split()])
        assert item.content.replace("\n", " ").split(" ") == item.content.split()
        starts = [0, *ends[:-1]]
        spans = item.evidence.spans
        shares.append(np.mean([any(a <= at < b for a, b in spans) for at in starts]))
    assert 0.065 < np.mean(shares) < 0.09
