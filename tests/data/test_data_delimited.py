"""CSV and TSV: quoting is explicit, and a bad row costs itself and nothing else."""

import csv
import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.data import file_formats
from transexplain.errors import DataSourceError
from transexplain.types.items import Item, ItemFailure

ODD = st.text(
    st.one_of(st.sampled_from("\",'\\\0\r\u2028\x0b\x85\ufeff =é😀"), st.characters(codec="utf-8"))
)


def contents(items) -> list[str]:
    """Texts, and kinds of failure in brackets."""
    return [item.content if isinstance(item, Item) else f"[{item.kind}]" for item in items]


def expected(texts: list[str]) -> list[str]:
    return [text if text.strip() else "[empty-text]" for text in texts]


@pytest.fixture
def write(tmp_path: Path):
    def _write(name: str, data: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return _write


@given(texts=st.lists(ODD.map(lambda t: t.replace("\t", "").replace("\n", "")), min_size=1))
def test_tsv_gives_back_every_text(texts, tmp_path_factory, load):
    path = tmp_path_factory.mktemp("tsv") / "x.tsv"
    lines_ = ["text\tlabel", *(f"{text}\t{row}" for row, text in enumerate(texts))]
    path.write_bytes("\n".join(lines_).encode() + b"\n")
    items = load(path)
    assert contents(items) == expected(texts)
    assert [i.label for i in items if isinstance(i, Item)] == [
        str(row) for row, text in enumerate(texts) if text.strip()
    ]


@given(
    texts=st.lists(st.one_of(ODD, ODD.map(lambda t: f"{t}\n\t{t}")), min_size=1),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    end=st.sampled_from(["\n", "\r\n"]),
    name=st.sampled_from(["x.csv", "x.tsv"]),
)
def test_quoted_files_give_back_every_text(texts, quoting, end, name, tmp_path_factory, load):
    path = tmp_path_factory.mktemp("csv") / name
    delimiter = "," if name == "x.csv" else "\t"
    with path.open("w", encoding="utf-8", newline="") as stream:
        if any("\r" in text for text in texts):  # older writers leave a lone CR without quotes
            quoting = csv.QUOTE_ALL
        writer = csv.writer(stream, delimiter=delimiter, quoting=quoting, lineterminator=end)
        writer.writerow(["label", "text"])
        writer.writerows(["a", text] for text in texts)
    assert contents(load(path, quoting="rfc4180")) == expected(texts)


def test_tsv_reads_stray_quotes_as_characters(write, load):
    rows = [f'{n}\t"never closed {n}' if n % 3 else f'{n}\tplain "{n}' for n in range(100)]
    items = load(write("x.tsv.gz", ("label\ttext\n" + "\n".join(rows)).encode()))
    assert contents(items) == [row.partition("\t")[2] for row in rows]


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.csv.gz"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_mark_line_ends_and_blank_lines_at_the_end(name, end, write, load):
    sep = b"," if "csv" in name else b"\t"
    data = b"\xef\xbb\xbf" + end.join([b"text" + sep + b"label", b"one" + sep + b"p", b"two" + sep])
    items = load(write(name, data + end * 4))
    assert contents(items) == ["one", "two"]
    assert [item.label for item in items] == ["p", None]


def test_a_blank_line_before_others_is_a_row(write, load):
    path = write("x.csv", b"text,label\na,1\n\nb,2\n\n\n")
    assert contents(load(path)) == ["a", "[malformed-row]", "b"]


@pytest.mark.parametrize(("name", "quoting"), [("x.tsv", "auto"), ("x.csv", "auto")])
def test_wrong_number_of_cells_costs_its_row(name, quoting, write, load):
    sep = "," if name == "x.csv" else "\t"
    rows = ["text,label", "a,1", "b", "c,1,2", "d,4"]
    items = load(write(name, "\n".join(rows).replace(",", sep).encode()), quoting=quoting)
    assert contents(items) == ["a", "[malformed-row]", "[malformed-row]", "d"]
    assert "header names 2" in items[1].message
    assert [item.index for item in items] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_an_invalid_byte_costs_its_row(name, write, load):
    sep = b"," if name == "x.csv" else b"\t"
    rows = [b"text,label", b"caf\xe9,1", "café,2".encode(), b"a,\xff", b"b,3"]
    items = load(write(name, b"\n".join(rows).replace(b",", sep)))
    assert contents(items) == ["[invalid-utf8]", "café", "[invalid-utf8]", "b"]
    assert "'text'" in items[0].message
    assert "'label'" in items[2].message


def test_a_quote_that_never_closes_costs_its_line_only(write, load):
    path = write("x.csv", b'text,label\n"never,1\nsecond,2\n"third, quoted",3\nfourth,4\n')
    items = load(path)
    assert contents(items) == ["[malformed-row]", "second", "third, quoted", "fourth"]
    assert "quoting: none" in items[0].message


def test_a_quote_that_closes_in_the_wrong_place_costs_its_line_only(write, load):
    path = write("x.csv", b'text,label\n"a"b,1\nc,2\n"d,3\ne "quoted",4\nf,5\n')
    assert contents(load(path)) == [
        "[malformed-row]",
        "c",
        "[malformed-row]",
        'e "quoted"',
        "f",
    ]


def test_csv_without_quoting(write, load):
    path = write("x.csv", b'text,label\n"a,1\nb",2\n')
    assert contents(load(path, quoting="none")) == ['"a', 'b"']


@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_very_long_cells_and_nul_bytes(name, write, load):
    sep = "," if name == "x.csv" else "\t"
    long = "word " * 60_000
    quoted = '"' + long + '"' if name == "x.csv" else long
    data = f"text{sep}label\n{long}{sep}1\n{quoted}{sep}2\na\0b{sep}3\n\0{sep}4\n"
    assert contents(load(write(name, data.encode()))) == [long, long, "a\0b", "\0"]


def test_rows_beyond_the_limit_are_malformed(write, load, monkeypatch):
    monkeypatch.setattr(file_formats, "MAX_ROW", 100)
    long = b"x" * 250
    body = b"text,label\n" + long + b",1\nok,2\n" + b'"' + b"y" * 60 + b"\n" + b"y" * 60 + b'",3\n'
    assert contents(load(write("x.csv", body + b"end,4\n" + long))) == [
        "[malformed-row]",
        "ok",
        "[malformed-row]",
        "y" * 60 + '"',  # what follows a row that was given up is read on its own
        "end",
        "[malformed-row]",
    ]
    assert contents(load(write("x.tsv", b"text\n" + long + b"\nok\n"))) == ["[malformed-row]", "ok"]


def test_the_limit_of_the_csv_module_is_never_lowered(write, load):
    before = csv.field_size_limit(2**31 - 1)
    try:
        load(write("x.csv", b"text\na\n"))
        assert csv.field_size_limit() == 2**31 - 1
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        ("text,label\na,1".encode("utf-16")[:-1], "data.encoding"),
        (b"text,label\ra,1\rb,2\r", "LF or CRLF"),
        (b"text,text\na,b\n", "more than once"),
        (b"phrase,label\na,1\n", "'phrase', 'label'"),
        (b"text,label\n", "holds no rows"),
    ],
)
def test_unusable_files_are_reported(data, says, write, load):
    with pytest.raises(DataSourceError, match=says):
        load(write("x.csv", data))


def test_a_cut_off_gzip_is_reported(write, load):
    path = write("x.csv.gz", b"text\n" + b"".join(b"%d\n" % n for n in range(9999)))
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(DataSourceError, match=r"x\.csv\.gz.*download complete"):
        load(path)
    path.write_bytes(b"text\nnot zipped\n")
    with pytest.raises(DataSourceError, match=r"x\.csv\.gz"):
        load(path)


def test_ids_labels_and_meta(write, load):
    path = write(
        "x.csv", b"key,sentence,y,city\na,one,p,Oslo\nb,two,,\n,three,p,Rome\nc, ,q,Bonn\n"
    )
    items = load(path, id="key", label="y", meta=("city", "y"))
    assert [getattr(item, "id", None) or item.item_id for item in items] == ["a", "b", "row:2", "c"]
    assert items[0].meta == {"city": "Oslo", "y": "p"}
    assert items[1].meta == {}
    assert isinstance(items[2], ItemFailure)
    assert (items[2].kind, items[3].kind) == ("null", "empty-text")
