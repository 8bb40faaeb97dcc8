"""JSON lines: one object a line, whatever the other lines are."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.errors import DataSourceError
from transexplain.types.items import Item


def contents(items) -> list[str]:
    return [item.content if isinstance(item, Item) else f"[{item.kind}]" for item in items]


def write(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"\n".join(lines))
    return path


@given(texts=st.lists(st.text(st.characters(codec="utf-8")), min_size=1), ascii_only=st.booleans())
def test_jsonl_gives_back_every_text(texts, ascii_only, tmp_path_factory, load):
    path = tmp_path_factory.mktemp("jsonl") / "x.jsonl"
    rows = [json.dumps({"text": text}, ensure_ascii=ascii_only) for text in texts]
    write(path, *(row.encode() for row in rows))
    assert contents(load(path)) == [text if text.strip() else "[empty-text]" for text in texts]


def test_each_kind_of_bad_line_costs_itself(tmp_path, load):
    path = write(
        tmp_path / "x.jsonl",
        b"\xef\xbb\xbf" + b'{"text": "first", "label": 1}',
        b'{"text": "cut',
        b"[1, 2]",
        b'{"text": "caf\xe9"}',
        b'{"text": null}',
        b'{"other": 1}',
        b'{"text": "\\ud800"}',
        b'{"text": ["a"]}',
        b"",
        b'{"text": ' + b"[" * 50_000 + b"}",
        b'{"n": ' + b"9" * 5000 + b"}",
        b'{"text": " \\u00a0 "}',
        b'{"text": "last", "label": true}\r',
        b"",
        b"  ",
    )
    items = load(path)
    assert contents(items) == [
        "first",
        "[malformed-row]",
        "[malformed-row]",
        "[invalid-utf8]",
        "[null]",
        "[null]",
        "[invalid-utf8]",
        "[malformed-row]",
        "[malformed-row]",
        "[malformed-row]",
        "[malformed-row]",
        "[empty-text]",
        "last",
    ]
    assert (items[0].label, items[-1].label) == ("1", "true")


@pytest.mark.parametrize(
    ("value", "label"),
    [(1, "1"), (1.0, "1"), (0.5, "0.5"), ("", None), (None, None), ("1.0", "1.0"), ([1], "[1]")],
)
def test_how_labels_are_spelled(value, label, tmp_path, load):
    path = write(tmp_path / "x.jsonl", json.dumps({"text": "a", "label": value}).encode())
    assert load(path)[0].label == label


def test_a_column_in_a_later_line_is_known(tmp_path, load):
    path = write(tmp_path / "x.jsonl", b'{"text": "a"}', b'{"text": "b", "label": "p", "k": "v"}')
    items = load(path, label="label", meta=("k",))
    assert [item.label for item in items] == [None, "p"]
    assert [item.meta for item in items] == [{}, {"k": "v"}]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([b'{"phrase": "a"}'], "it has 'phrase'"),
        ([b"<html>", b"<body>"], "JSON object"),
        ([b""], "JSON object"),
    ],
)
def test_unusable_files_are_reported(lines, says, tmp_path, load):
    with pytest.raises(DataSourceError, match=says):
        load(write(tmp_path / "x.jsonl", *lines))


@pytest.mark.parametrize("depth", [100, 900, 980, 5000])
def test_a_line_that_is_nested_too_deeply_costs_itself(tmp_path, load, depth):
    nested = b"[" * depth + b"]" * depth
    path = write(
        tmp_path / "x.jsonl",
        b'{"text": "first", "m": 1}',
        b'{"text": "deep", "m": ' + nested + b"}",
        b'{"text": ' + b'{"a":' * depth + b"1" + b"}" * depth + b"}",
        b'{"text": "' + b"[" * depth + b'", "m": 1}',
    )
    found = contents(load(path, meta=("m",)))
    assert found == ["first", "[malformed-row]", "[malformed-row]", "[" * depth]
