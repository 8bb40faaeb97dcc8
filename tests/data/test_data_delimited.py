"""CSV, TSV and JSON lines: a bad row costs itself alone; dialects are given, detected, reported."""

import csv
import gzip
import json
from pathlib import Path

import pytest
from data_files import planned, told
from hypothesis import given
from hypothesis import strategies as st

from transexplain.data import file_formats
from transexplain.data.file_formats import checked_delimiter, checked_encoding, dialect_of
from transexplain.errors import DataSourceError
from transexplain.types.items import Item
from transexplain.types.plans import DatasetSpec

ODD = st.text(
    st.one_of(st.sampled_from("\",'\\\0\r\u2028\x0b\x85\ufeff =é😀"), st.characters(codec="utf-8"))
)
MARK, LONG, BAD = b"\xef\xbb\xbf", "word " * 60_000, "[malformed-row]"
TEXTS = {
    "cp1252": "Très bon produit, livraison rapide. “Déçu” par la qualité",
    "cp1251": "Очень хороший фильм, всем советую посмотреть",
    "gb18030": "这部电影非常好看 我很喜欢",
    "utf-16": "schöne Grüße",
}


@pytest.fixture
def write(tmp_path: Path):
    def _write(name: str, data: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return _write


def expected(texts: list[str]) -> list[str]:
    return [text if text.strip() else "[empty-text]" for text in texts]


@given(texts=st.lists(ODD.map(lambda t: t.replace("\t", "").replace("\n", "")), min_size=1))
def test_tsv_gives_back_every_text(texts, tmp_path_factory, load):
    path = tmp_path_factory.mktemp("tsv") / "x.tsv"
    lines = ["text\tlabel", *(f"{text}\t{row}" for row, text in enumerate(texts))]
    path.write_bytes("\n".join(lines).encode() + b"\n")
    items = load(path)
    assert told(items) == expected(texts)
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
    assert told(load(path, quoting="rfc4180")) == expected(texts)


@given(texts=st.lists(st.text(st.characters(codec="utf-8")), min_size=1), ascii_only=st.booleans())
def test_jsonl_gives_back_every_text(texts, ascii_only, tmp_path_factory, load):
    path = tmp_path_factory.mktemp("jsonl") / "x.jsonl"
    rows = [json.dumps({"text": text}, ensure_ascii=ascii_only) for text in texts]
    path.write_bytes("\n".join(rows).encode())
    assert told(load(path)) == expected(texts)


#: lines of JSON, and what each is
LINES = {
    MARK + b'{"text": "first"}': "first",
    b'{"text": "cut': BAD,
    b"[1, 2]": BAD,
    b'{"text": "caf\xe9"}': "[invalid-utf8]",
    b'{"text": null}': "[null]",
    b'{"other": 1}': "[null]",
    b'{"text": "\\ud800"}': "[invalid-utf8]",
    b'{"text": ["a"]}': BAD,
    b"": BAD,
    b'{"text": ' + b"[" * 50_000 + b"}": BAD,
    b'{"n": ' + b"9" * 5000 + b"}": BAD,
    b'{"text": " \\u00a0 "}': "[empty-text]",
    b'{"text": "a", "label": 0, "label": 1}': BAD,
    b'{"text": "last"}\r': "last",
}
#: a file, its bytes, and the content of each item, the kind of each failure
FILES = [
    ("x.tsv.gz", b'text\n"never closed\nplain "2\n', ['"never closed', 'plain "2']),
    ("x.csv", b"text,label\na,1\n\nb,2\n\n\n", ["a", BAD, "b"]),
    ("x.csv", b"text,label\na,1\nb\nc,1,2\nd,4", ["a", BAD, BAD, "d"]),
    ("x.tsv", b"text\tlabel\na\t1\nb\nc\t1\t2\nd\t4", ["a", BAD, BAD, "d"]),
    *(
        (
            name,
            sep.join([b"text", b"label\ncaf\xe9", b"1\ncaf\xc3\xa9", b"2\na", b"\xff\nb", b"3"]),
            ["[invalid-utf8]", "café", "[invalid-utf8]", "b"],
        )
        for name, sep in (("x.csv", b","), ("x.tsv", b"\t"))
    ),
    (
        "x.csv",
        b'text,label\n"never,1\nsecond,2\n"third, quoted",3\nfourth,4\n',
        [BAD, "second", "third, quoted", "fourth"],
    ),
    (
        "x.csv",
        b'text,label\n"a"b,1\nc,2\n"d,3\ne "quoted",4\nf,5\n',
        [BAD, "c", BAD, 'e "quoted"', "f"],
    ),
    (
        "x.csv",
        f'text,label\n{LONG},1\n"{LONG}",2\na\0b,3\n\0,4\n'.encode(),
        [LONG, LONG, "a\0b", "\0"],
    ),
    ("x.tsv", f"text\tlabel\n{LONG}\t1\na\0b\t3\n\0\t4\n".encode(), [LONG, "a\0b", "\0"]),
    ("x.jsonl", b"\n".join([*LINES, b"", b"  "]), list(LINES.values())),
    # a mark at the start, line ends of Windows, blank lines at the end
    ("x.csv.gz", MARK + b"text,label\r\none,p\r\ntwo,\r\n\r\n\r\n", ["one", "two"]),
    ("x.tsv", MARK + b"text\tlabel\r\none\tp\r\ntwo\t\r\n\r\n\r\n", ["one", "two"]),
    # a few bad rows do not make another encoding, nor signs another delimiter
    ("x.csv", b"text\n" + "né\n".encode() * 5 + b"caf\xe9\n", ["né"] * 5 + ["[invalid-utf8]"]),
    ("x.csv", b"text,a;b;c;d\nbad; very,1\n", ["bad; very"]),
    ("x.csv", b"text\nbad; very bad\n", ["bad; very bad"]),
]


@pytest.mark.parametrize(("name", "data", "outcome"), FILES)
def test_a_bad_row_costs_itself_alone(name, data, outcome, write, load) -> None:
    items = load(write(name, data))
    assert told(items) == outcome
    assert [item.index for item in items] == list(range(len(outcome)))


def test_rows_beyond_the_limit_are_malformed(write, load, monkeypatch):
    monkeypatch.setattr(file_formats, "MAX_ROW", 100)
    long = b"x" * 250
    body = b"text,label\n" + long + b",1\nok,2\n" + b'"' + b"y" * 60 + b"\n" + b"y" * 60 + b'",3\n'
    assert told(load(write("x.csv", body + b"end,4\n" + long))) == [
        BAD,
        "ok",
        BAD,
        "y" * 60 + '"',  # what follows a row that was given up is read on its own
        "end",
        BAD,
    ]
    assert told(load(write("x.tsv", b"text\n" + long + b"\nok\n"))) == [BAD, "ok"]


def test_the_limit_of_the_csv_module_is_never_lowered(write, load):
    before = csv.field_size_limit(2**31 - 1)
    try:
        load(write("x.csv", b"text\na\n"))
        assert csv.field_size_limit() == 2**31 - 1
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize(
    ("name", "data", "options", "named"),
    [
        ("x.csv", b"", {}, r"x\.csv"),
        ("x.csv", b"\n\n", {}, r"x\.csv"),
        ("x.csv", MARK, {}, r"x\.csv"),
        ("x.csv", "text,label\na,1".encode("utf-16")[:-1], {}, r"data\.encoding"),
        ("x.csv", b"text,label\ra,1\rb,2\r", {}, "LF or CRLF"),
        ("x.csv", b"text,text\na,b\n", {}, "'text'"),
        ("x.csv", b"phrase,label\na,1\n", {}, "'phrase', 'label'"),
        ("x.csv", b"text,label\n", {}, r"x\.csv"),
        ("x.csv", b"text,label\na film,good\n", {"delimiter": ";"}, r"data\.delimiter is ';'"),
        ("x.csv", b"body\na film\n", {}, r"it has 'body'$"),
        (
            "x.csv.gz",
            gzip.compress(b"".join(b"%d\n" % n for n in range(9999)), mtime=0)[:-500],
            {},
            r"x\.csv\.gz",
        ),
        ("x.csv.gz", b"text\nnot zipped\n", {}, r"x\.csv\.gz"),
        ("x.jsonl", b'{"phrase": "a"}', {}, "'phrase'"),
        ("x.jsonl", b"<html>\n<body>", {}, r"x\.jsonl"),
        ("x.jsonl", b"", {}, r"x\.jsonl"),
    ],
)
def test_unusable_files_are_reported(name, data, options, named, tmp_path, load):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataSourceError, match=named):
        load(tmp_path / name, **options)


def test_ids_labels_and_meta(write, load):
    path = write(
        "x.csv", b"key,sentence,y,city\na,one,p,Oslo\nb,two,,\n,three,p,Rome\nc, ,q,Bonn\n"
    )
    items = load(path, id="key", label="y", meta=("city", "y"))
    assert [getattr(item, "id", None) or item.item_id for item in items] == ["a", "b", "row:2", "c"]
    assert [item.meta for item in items[:2]] == [{"city": "Oslo", "y": "p"}, {}]
    assert told(items) == ["one", "two", "[null]", "[empty-text]"]


@pytest.mark.parametrize(
    ("value", "label"),
    [
        *((1, "1"), (1.0, "1"), (0.5, "0.5"), ("", None), (None, None), ("1.0", "1.0")),
        *(([1], "[1]"), (True, "true"), (2**64 + 1, str(2**64 + 1)), (-(2**70), str(-(2**70)))),
    ],
)
def test_how_labels_are_spelled(value, label, write, load):
    path = write("x.jsonl", json.dumps({"text": "a", "label": value}).encode())
    assert load(path)[0].label == label


def test_a_column_in_a_later_line_is_known(write, load):
    path = write("x.jsonl", b'{"text": "a"}\n{"text": "b", "label": "p", "k": "v"}')
    items = load(path, label="label", meta=("k",))
    assert [(item.label, item.meta) for item in items] == [(None, {}), ("p", {"k": "v"})]


@pytest.mark.parametrize("depth", [100, 900, 980, 5000])
def test_a_line_that_is_nested_too_deeply_costs_itself(write, load, depth):
    lines = [
        b'{"text": "first", "m": 1}',
        b'{"text": "deep", "m": ' + b"[" * depth + b"]" * depth + b"}",
        b'{"text": ' + b'{"a":' * depth + b"1" + b"}" * depth + b"}",
        b'{"text": "' + b"[" * depth + b'", "m": 1}',
    ]
    found = told(load(write("x.jsonl", b"\n".join(lines)), meta=("m",)))
    assert found == ["first", BAD, BAD, "[" * depth]


def test_all_members_of_a_gzip_are_read(tmp_path, load) -> None:
    lines = [json.dumps({"text": str(number)}).encode() + b"\n" for number in range(3)]
    (tmp_path / "x.jsonl.gz").write_bytes(b"".join(map(gzip.compress, lines)))
    assert told(load(tmp_path / "x.jsonl.gz")) == ["0", "1", "2"]


# ---- encodings and delimiters: given, detected, and reported


@pytest.mark.parametrize("encoding", TEXTS)
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "jsonl"])
def test_an_encoding_is_detected(tmp_path: Path, write, load, encoding: str, suffix: str) -> None:
    text = TEXTS[encoding]
    plain = f'{{"text": "{text}"}}\n' * 3 if suffix == "jsonl" else f'text\n"{text}"\nplain\n'
    path = write(f"x.{suffix}", plain.encode(encoding))
    assert told(load(path))[0] == text
    (note,) = planned(path, tmp_path).read_as
    assert encoding in note.lower() and path.name in note
    assert encoding == "utf-16" or text[:5] in note or text[5:12] in note


@pytest.mark.parametrize("encoding", TEXTS)
def test_an_encoding_that_is_given_is_not_doubted(tmp_path, write, load, encoding: str) -> None:
    path = write("x.csv", f'text\n"{TEXTS[encoding]}"\n'.encode(encoding))
    assert told(load(path, encoding=encoding)) == [TEXTS[encoding]]
    assert planned(path, tmp_path, encoding=encoding).read_as == ()
    if encoding != "utf-16":
        assert told(load(path, encoding="utf-8")) == ["[invalid-utf8]"]


def test_options_are_taken_as_they_are_given(write, load) -> None:
    path = write("x.csv", b"text\ncaf\xe9\n\x81\n")  # 0x81 is no character of cp1252
    assert told(load(path, encoding="cp1252")) == ["café", "[invalid-utf8]"]
    path = write("x.csv", b'text,label\n"a,1\nb",2\n')
    assert told(load(path, quoting="none")) == ['"a', 'b"']
    [item] = load(write("x.csv", b"text#label,s\na,b#1\n"), delimiter="#", label="label,s")
    assert (item.content, item.label) == ("a,b", "1")


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("quoted", [False, True])
def test_a_delimiter_is_detected(tmp_path, write, load, delimiter: str, quoted: bool) -> None:
    text = f"one, two{delimiter} three" if quoted else "one, two"
    cell = f'"{text}"' if quoted else text
    path = write("x.csv", f"text{delimiter}label\n{cell}{delimiter}good\n".encode())
    [item] = load(path)
    assert (item.content, item.label) == (text, "good")
    [note] = planned(path, tmp_path).read_as
    assert note.startswith("x.csv") and note.endswith(repr(delimiter))


def test_the_detected_dialect_is_part_of_the_snapshot(tmp_path: Path, write) -> None:
    """A file that older software read as broken rows is read anew."""
    path = write("x.csv", b"text\ncaf\xe9\n")
    broken = planned(path, tmp_path, encoding="utf-8")
    assert planned(path, tmp_path).snapshot != broken.snapshot


def test_a_file_that_changed_is_looked_at_again(write) -> None:
    path = write("x.csv", b"text;label\na;b\n")
    spec = DatasetSpec(source=str(path))
    assert dialect_of(path, spec, ",").delimiter == ";"
    write("x.csv", b"text,label\na,b,\n")
    assert dialect_of(path, spec, ",").delimiter == ","


@pytest.mark.parametrize(
    ("check", "text"),
    [
        *((checked_encoding, name) for name in ("utf-9", "rot13", "base64", "")),
        *((checked_delimiter, text) for text in ("", "ab", '"', "\n", "é")),
    ],
)
def test_unknown_encodings_and_delimiters_are_refused(check, text: str) -> None:
    with pytest.raises(ValueError):
        check(text)


def test_names_of_delimiters() -> None:
    named = [checked_delimiter(name) for name in ("tab", "Semicolon", "pipe", ",", "\\t")]
    assert named == ["\t", ";", "|", ",", "\t"]
