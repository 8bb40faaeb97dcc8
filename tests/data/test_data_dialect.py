"""Encodings and delimiters of text files: given, detected, and reported."""

import gzip
from pathlib import Path

import pytest

from transexplain.data.file_formats import checked_delimiter, checked_encoding, dialect_of
from transexplain.data.snapshot import prepare
from transexplain.errors import DataSourceError
from transexplain.types.items import Item
from transexplain.types.plans import DatasetSpec

TEXTS = {
    "cp1252": "Très bon produit, livraison rapide. “Déçu” par la qualité",
    "cp1251": "Очень хороший фильм, всем советую посмотреть",
    "gb18030": "这部电影非常好看 我很喜欢",
    "utf-16": "schöne Grüße",
}


def contents(found: list) -> list[str]:
    return [item.content if isinstance(item, Item) else f"[{item.kind}]" for item in found]


@pytest.mark.parametrize("encoding", TEXTS)
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "jsonl"])
def test_an_encoding_is_detected(tmp_path: Path, load, encoding: str, suffix: str) -> None:
    text = TEXTS[encoding]
    plain = f'{{"text": "{text}"}}\n' if suffix == "jsonl" else f'text\n"{text}"\nplain\n'
    raw = (plain * (3 if suffix == "jsonl" else 1)).encode(encoding)
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(gzip.compress(raw) if suffix.endswith("gz") else raw)
    assert contents(load(path))[0] == text
    notes = prepare(DatasetSpec(source=str(path)), tmp_path / "s").read_as
    assert len(notes) == 1 and encoding in notes[0].lower() and path.name in notes[0]
    if encoding != "utf-16":
        assert ("guess" in notes[0] and text[:5] in notes[0]) or text[5:12] in notes[0]


@pytest.mark.parametrize("encoding", TEXTS)
def test_an_encoding_that_is_given_is_not_doubted(tmp_path: Path, load, encoding: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(f'text\n"{TEXTS[encoding]}"\n'.encode(encoding))
    assert contents(load(path, encoding=encoding)) == [TEXTS[encoding]]
    spec = DatasetSpec(source=str(path), encoding=encoding)
    assert prepare(spec, tmp_path / "s").read_as == ()
    if encoding != "utf-16":
        assert contents(load(path, encoding="utf-8")) == ["[invalid-utf8]"]


def test_a_few_bad_rows_do_not_make_another_encoding(tmp_path: Path, load) -> None:
    path = tmp_path / "x.csv"
    good = "".join(f"né {n}\n" for n in range(5)).encode()
    path.write_bytes(b"text\n" + good + b"caf\xe9\n")
    assert contents(load(path))[-2:] == ["né 4", "[invalid-utf8]"]


def test_bytes_that_mean_nothing_cost_their_row(tmp_path: Path, load) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"text\ncaf\xe9\n\x81\n")  # 0x81 is no character of cp1252
    assert contents(load(path, encoding="cp1252")) == ["café", "[invalid-utf8]"]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("quoted", [False, True])
def test_a_delimiter_is_detected(tmp_path: Path, load, delimiter: str, quoted: bool) -> None:
    path = tmp_path / "x.csv"
    text = f"one, two{delimiter} three" if quoted else "one, two"
    cell = f'"{text}"' if quoted else text
    path.write_text(f"text{delimiter}label\n{cell}{delimiter}good\n", encoding="utf-8")
    [item] = load(path)
    assert (item.content, item.label) == (text, "good")
    [notes] = prepare(DatasetSpec(source=str(path)), tmp_path / "s").read_as
    assert notes == f"x.csv: cells separated by {delimiter!r}"


def test_a_wrong_delimiter_is_named(tmp_path: Path, load) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text,label\na film,good\n")
    with pytest.raises(DataSourceError, match=r"data\.delimiter is ';'"):
        load(path, delimiter=";")
    path.write_text("body\na film\n")
    with pytest.raises(DataSourceError, match=r"it has 'body'$"):
        load(path)


def test_the_usual_delimiter_wins_and_one_column_needs_none(tmp_path: Path, load) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text,a;b;c;d\nbad; very,1\n", encoding="utf-8")
    assert contents(load(path)) == ["bad; very"]
    path.write_text("text\nbad; very bad\n", encoding="utf-8")
    assert contents(load(path)) == ["bad; very bad"]


def test_a_delimiter_that_is_given_is_taken(tmp_path: Path, load) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text#label,s\na,b#1\n", encoding="utf-8")
    [item] = load(path, delimiter="#", label="label,s")
    assert (item.content, item.label) == ("a,b", "1")


def test_the_detected_dialect_is_part_of_the_snapshot(tmp_path: Path) -> None:
    """A file that older software read as broken rows is read anew."""
    path = tmp_path / "x.csv"
    path.write_bytes(b"text\ncaf\xe9\n")
    broken = prepare(DatasetSpec(source=str(path), encoding="utf-8"), tmp_path / "s")
    assert prepare(DatasetSpec(source=str(path)), tmp_path / "s").snapshot != broken.snapshot


def test_a_file_that_changed_is_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text;label\na;b\n", encoding="utf-8")
    spec = DatasetSpec(source=str(path))
    assert dialect_of(path, spec, ",").delimiter == ";"
    path.write_text("text,label\na,b,\n", encoding="utf-8")
    assert dialect_of(path, spec, ",").delimiter == ","


@pytest.mark.parametrize("name", ["utf-9", "rot13", "base64", ""])
def test_unknown_encodings_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no encoding"):
        checked_encoding(name)


@pytest.mark.parametrize("text", ["", "ab", '"', "\n", "é"])
def test_invalid_delimiters_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot separate cells"):
        checked_delimiter(text)


def test_names_of_delimiters() -> None:
    named = [checked_delimiter(name) for name in ("tab", "Semicolon", "pipe", ",", "\\t")]
    assert named == ["\t", ";", "|", ",", "\t"]


def workbook(path: Path, *sheets: tuple[str, list[tuple]]) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets:
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_a_sheet_of_a_workbook_is_read(tmp_path: Path, load) -> None:
    rows = [("text", "label", None), ("good, old", 1, None), (None, 2, None), ("x", 1, "beyond")]
    path = workbook(tmp_path / "x.xlsx", ("one", rows), ("two", [("text",), ("other",)]))
    found = load(path)
    assert contents(found) == ["good, old", "[null]", "[malformed-row]"]
    assert found[0].label == "1"
    assert contents(load(path, sheet="two")) == ["other"]


def test_workbooks_that_cannot_be_read(tmp_path: Path, load) -> None:
    pytest.importorskip("openpyxl")
    path = workbook(tmp_path / "x.xlsx", ("one", [("text",), ("a",)]))
    with pytest.raises(DataSourceError, match="'two'; its sheets"):
        load(path, sheet="two")
    with pytest.raises(DataSourceError, match="name the columns"):
        load(workbook(tmp_path / "y.xlsx", ("one", [])))
    damaged = tmp_path / "z.xlsx"
    damaged.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(DataSourceError, match=r"z\.xlsx.*check the file"):
        load(damaged)
