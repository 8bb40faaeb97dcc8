"""Documents of others: what is read, and what is refused before anything is built of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.text import parsing
from transexplain.text.parsing import (
    DEEPEST,
    UnreadableError,
    read_json,
    read_text,
    read_yaml,
    refuse_depth,
    refuse_unstorable,
)


def laughs(merge: bool = False) -> str:
    """Nine levels, each of nine times the one before: 3.5e9 entries in 600 bytes."""
    lines = ["a: &a {x: 1}" if merge else "a: &a [x, x, x]"]
    for above, name in zip("abcdefghi", "bcdefghij", strict=True):
        times = ", ".join([f"*{above}"] * 9)
        lines.append(
            f"{name}: &{name} {{<<: [{times}]}}" if merge else f"{name}: &{name} [{times}]"
        )
    return "\n".join(lines)


#: why a document is refused -> such documents
HOSTILE = {
    "more than 64": [
        *("[" * 100_000, "{a: " * 100_000, "- " * 100_000, "[" * 65 + "]" * 65),
        "\n".join("  " * depth + "a:" for depth in range(400)),
    ],
    "aliases make": [laughs(), laughs(merge=True), f"a: &a {'x' * 1000}\nb: [{'*a, ' * 200}]"],
    "contains itself": ["&a [*a]", "&a {b: {c: *a}}", "a: &a {<<: *a}"],
    "undefined alias": ["a: *b"],
    "characters": [
        *(f"a: {'9' * 100_000}", f"a: 0x{'f' * 100_000}", f"a: 1{':59' * 60_000}"),
        *("a\0b", "a: \ud800", "x" * 1_000_001),
    ],
    "beyond 64 bits": [f"a: 1{'_0' * 150}", "a: 9223372036854775808"],
    "no int": ["a: !!int x", "a: !!int ''"],
    "no float": ["a: !!float x"],
    "no bool": ["a: !!bool maybe"],
    "read here": [
        *("a: !!timestamp x", "a: !!binary '\u00fc'", "a: !!set {b}", "a: !!omap [b: 1]"),
        *("a: !!python/object/apply:os.system [id]", "a: !!python/name:os.system", "a: !mine x"),
    ],
    "expected a": ["a: !!map x", "a: !!seq x", "a: !!str [x]", "<<: 3"],
    "cannot be a name": ["? [a]\n: 1", "? {a: b}\n: 1"],
    "given twice": ["a: 1\na: 2", "1: 1\ntrue: 2"],
    "another document": ["a: 1\n---\nb: 2"],
    "start any token": ["\t"],
    "end": ["a: ["],
}


@pytest.mark.parametrize("reason", HOSTILE)
def test_hostile_documents_are_refused(reason: str) -> None:
    for text in HOSTILE[reason]:
        with pytest.raises(UnreadableError, match=reason):
            read_yaml(text)


def test_plain_documents_are_read() -> None:
    text = """
        when: 2020-01-01
        never: 2020-13-45
        equals: =
        0: zero
        null: nothing
        numbers: [1, -2, 0x1F, 1.5, 9223372036854775807, 1:30, 1e3, 08]
        base: &base {a: 1, b: 2}
        over: &over {<<: *base, b: 3}
        more: {<<: [*over, *base], c: 4}
    """
    assert read_yaml(text) == {
        "when": "2020-01-01",
        "never": "2020-13-45",
        "equals": "=",
        0: "zero",
        None: "nothing",
        "numbers": [1, -2, 31, 1.5, 2**63 - 1, 90, "1e3", "08"],
        "base": {"a": 1, "b": 2},
        "over": {"a": 1, "b": 3},
        "more": {"a": 1, "b": 3, "c": 4},
    }
    assert read_yaml("[" * DEEPEST + "]" * DEEPEST)
    assert read_yaml("") is None


def test_escapes_of_both_halves_of_a_letter_are_joined() -> None:
    assert read_yaml('["\\uD83D\\uDE00", \U0001f600]') == ["\U0001f600"] * 2
    assert read_json('["\\uD83D\\uDE00"]') == ["\U0001f600"]


@given(st.text(st.sampled_from("ab01 \n\t:-[]{},&*!<>?|#%@\"'=~.\\_")) | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read_yaml(text)
    except UnreadableError:
        return
    assert plain(found)


def plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(plain, value)) and all(map(plain, value.values()))
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (str, bool, int, float)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("[" * 100_000, "nested"),
        ('{"a":' * 100_000, "nested"),
        ('"' + "\\" * 100_001, "delimiter|Unterminated|escape"),
        ("9" * 100_000, "number of 100,000"),
        ("-" + "9" * 5000, "number of 5,001"),
        ("{", "property name"),
        ("", "Expecting value"),
        (" " * 16_000_001, "more than 16,000,000"),
    ],
)
def test_json_that_is_refused(text: str, printed: str) -> None:
    with pytest.raises(UnreadableError, match=printed):
        read_json(text)


def test_brackets_in_texts_are_no_depth() -> None:
    for text in ("[" * 500, '[\\"{' * 100, 'a"[b\\' * 90):
        refuse_depth(json.dumps([text, {"a": text}]))
    refuse_depth("[" * DEEPEST)
    refuse_depth("[]" * 1000)
    with pytest.raises(UnreadableError):
        refuse_depth("[" * (DEEPEST + 1))


@given(
    st.recursive(
        st.text() | st.integers(),
        lambda inner: st.just([]) | st.lists(inner, min_size=1, max_size=2),
    )
)
def test_json_is_read_as_it_was_written(value: Any) -> None:
    assert read_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "what"),
    [
        *((text, r"-?(inf|nan)") for text in ("a: .inf", "a: [1, -.inf]", "a: {b: [.nan]}")),
        ("a: 1.0e+999", "inf"),
        *((text, "NUL") for text in ('a: "x\\0y"', 'a: ["\\ud800"]', '{a: {"k\\0": 1}}')),
    ],
)
def test_what_no_json_or_path_can_hold_is_named_with_its_place(text: str, what: str) -> None:
    with pytest.raises(UnreadableError, match=rf"^a.*{what}"):
        refuse_unstorable(read_yaml(text))


def test_files_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "LARGEST", 10)
    (tmp_path / "a").write_text("x" * 10)
    assert read_text(tmp_path / "a") == "x" * 10
    (tmp_path / "a").write_text("x" * 11)
    with pytest.raises(UnreadableError, match="more than 10"):
        read_text(tmp_path / "a")
