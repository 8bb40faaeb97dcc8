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


def test_spans_are_the_tokens_of_the_document(folder: Path, load) -> None:
    groups = [[passage(3, 6, "not one good"), passage(1, 2, "film")], [passage(8, 10, "it .")]]
    (item,) = load(lay(folder, annotation(*groups)))
    assert (item.id, item.label, item.content) == ("d1", "NEG", DOCUMENT)
    assert item.evidence.spans == ((2, 6), (9, 22), (32, 36))
    marked = [item.content[start:end] for start, end in item.evidence.spans]
    assert marked == ["film", "not  one good", "it ."]


def test_a_passage_marked_twice_counts_once(folder: Path, load) -> None:
    (item,) = load(lay(folder, annotation([passage(1, 2, "film")], [passage(1, 2, "film")])))
    assert item.evidence.spans == ((2, 6),)


def test_a_passage_without_tokens_costs_itself_alone(folder: Path, load) -> None:
    (item,) = load(lay(folder, annotation([passage(3, 3, "")], [passage(1, 2, "film")])))
    assert item.evidence.spans == ((2, 6),)


def test_a_folder_of_documents_and_packed_files(folder: Path, load) -> None:
    row = annotation([passage(1, 2, "film")])
    source = lay(folder, row)
    expected = load(source)
    (folder / "docs.jsonl").unlink()
    (folder / "docs").mkdir()
    (folder / "docs" / "d1").write_text(DOCUMENT + "\n", encoding="utf-8")
    (again,) = load(source)
    assert (again.content, again.evidence.spans) == (DOCUMENT, ((2, 6),))
    assert again.content == expected[0].content
    with gzip.open(folder / "val.jsonl.gz", "wt") as stream:
        stream.write(json.dumps({**row, "annotation_id": "other"}) + "\n")
    (folder / "val.jsonl").unlink()
    (packed,) = load(source)
    assert (packed.id, packed.content) == ("other", DOCUMENT)


def test_an_annotation_without_passages(folder: Path, load) -> None:
    rows = [
        annotation(),
        annotation(annotation_id="q", docids=["d1"]),
        annotation(annotation_id="r", evidences=None, docids=["d1"]),
    ]
    items = load(lay(folder, *rows))
    assert [item.content for item in items] == [DOCUMENT] * 3
    assert [item.evidence.spans for item in items] == [()] * 3


@pytest.mark.parametrize(
    ("row", "kind", "says"),
    [
        (annotation([passage(1, 2, "plot")]), "bad-evidence", "are not the passage's text"),
        (annotation([passage(9, 11, "it .")]), "bad-evidence", "within"),
        (annotation([passage(6, 3, "")]), "bad-evidence", "tokens 6"),
        (annotation([passage(11, 11, "")]), "bad-evidence", "tokens 11"),
        (annotation([passage(-1, 2, "")]), "bad-evidence", "tokens -1"),
        (annotation([passage(True, 2, "film")]), "bad-evidence", "tokens True"),
        (annotation([passage(1, 2, None)]), "bad-evidence", "the passage's text"),
        (annotation(evidences="film"), "bad-evidence", "list of lists"),
        (annotation(["film"]), "bad-evidence", "lists of passages"),
        (annotation([passage(1, 2, "film", docid="d9")]), "null", "no document 'd9'"),
        (
            annotation([passage(1, 2, "film")], [passage(1, 2, "film", docid="d2")]),
            "malformed-row",
            "about 2 documents",
        ),
        (annotation(docids=["d1", "d2"]), "malformed-row", "about 2 documents"),
    ],
)
def test_faults_of_one_annotation_cost_that_item(row, kind, says, folder: Path, load) -> None:
    bad, good = load(lay(folder, {**row, "annotation_id": "x"}, annotation()))
    assert isinstance(bad, ItemFailure)
    assert (bad.item_id, bad.kind) == ("x", kind)
    assert says in bad.message
    assert good.content == DOCUMENT


def test_documents_stay_in_their_folder(folder: Path, load) -> None:
    (folder / "docs.jsonl").rename(folder / "secret.txt")
    (folder / "docs").mkdir()
    (bad,) = load(lay(folder, annotation([passage(0, 1, "a", docid="../secret.txt")])))
    assert isinstance(bad, ItemFailure)
    assert "outside the dataset" in bad.message


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        ("eraser:{}", {}, "eraser:DIR#split"),
        ("eraser:{}#test", {}, "folder: write eraser:DIR#split"),
        ("eraser:{}#../val", {}, "names no split"),
        ("eraser:{}/none#val", {}, "folder"),
        ("eraser:{}#docs", {}, "'annotation_id'"),
        ("eraser:{}#val", {"label": "classification"}, "label, id, evidence"),
    ],
)
def test_what_cannot_be_read_is_reported(source, options, says, folder: Path, load) -> None:
    lay(folder, annotation())
    with pytest.raises(DataSourceError, match=says):
        load(source.format(folder), **options)


def test_without_documents(folder: Path, load) -> None:
    (folder / "docs.jsonl").unlink()
    with pytest.raises(DataSourceError, match=r"neither docs.jsonl\(.gz\) nor"):
        load(lay(folder, annotation()))


def test_the_snapshot_follows_documents_and_their_names(folder: Path, tmp_path: Path) -> None:
    (folder / "docs.jsonl").unlink()
    (folder / "docs").mkdir()
    (folder / "docs" / "d1").write_text("one", encoding="utf-8")
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
