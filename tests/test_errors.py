"""Messages of errors: of a length that a person reads, and nothing that a terminal obeys."""

import pytest

from transexplain.errors import DataSourceError, ItemError, SpecError


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    message = str(DataSourceError("x.csv has the columns " + "c" * 9_000 + "; rename one"))
    assert 2_000 <= len(message) < 2_100
    assert message.startswith("x.csv has the columns ccc")
    assert "[... 7,034 characters" in message
    assert message.endswith("; rename one")


@pytest.mark.parametrize(
    ("obeyed", "shown"),
    [("\x1b[2J", r"\x1b[2J"), ("a\rb", r"a\rb"), ("\u202e", r"\u202e"), ("\ud800", r"\ud800")],
)
def test_control_characters_are_escaped(obeyed: str, shown: str) -> None:
    assert str(SpecError(f"key {obeyed}")) == f"key {shown}"


def test_escapes_count_as_they_are_shown() -> None:
    assert len(str(SpecError("\x1b" * 5_000))) < 2_100


def test_other_texts_stay_as_they_are() -> None:
    text = "line 1\n\tä - \N{GRINNING FACE} اسم"
    error = ItemError("null", text)
    assert str(error) == text
    assert error.kind == "null"
    assert str(SpecError()) == ""
