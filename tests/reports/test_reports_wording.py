"""Numbers and names in sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.reports.phrasing import class_phrase, named, number, power, signed, things


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.234, "+1.234"), (-0.5, "\N{MINUS SIGN}0.500"), (0.0, "0.000"), (-0.0001, "0.000")],
)
def test_signed_numbers(value: float, text: str) -> None:
    assert signed(value) == text


@given(st.floats(-1e6, 1e6))
def test_signed_numbers_read_back(value: float) -> None:
    assert float(signed(value).replace("\N{MINUS SIGN}", "-")) == pytest.approx(value, abs=5.1e-4)


def test_numbers_of_sentences_keep_tiny_ones_apart_from_zero() -> None:
    assert number(0.008) == "0.008"
    assert number(-1.0) == "\N{MINUS SIGN}1.00"
    assert number(0.0) == "0.00"


def test_powers_of_ten() -> None:
    assert power(4.2e-7) == "4.2\u00a0\u00d7\u00a010⁻⁷"
    assert power(5e-6) == "5\u00a0\u00d7\u00a010⁻⁶"
    assert power(-5e-6) == "\N{MINUS SIGN}5\u00a0\u00d7\u00a010⁻⁶"
    assert power(0.0) == "0"


def test_contrasts_are_spoken_even_with_hyphens_in_names() -> None:
    classes = ("a", "a-b", "b-c", "c")
    assert class_phrase("contrast:a-b", "a-b-c", classes) == "a over b-c"
    assert class_phrase("contrast:positive-negative", "p-n", ("p", "n")) == "p over n"
    assert class_phrase("contrast:p-n", "strange", ("p", "n")) == "strange"
    assert class_phrase("predicted", "p-n", ("p", "n")) == "p-n"


def test_lists_of_names_end() -> None:
    assert named([]) == ""
    assert named(["a"]) == "a"
    assert named(["a", "b", "c"]) == "a, b and c"
    assert named([str(n) for n in range(100)]).endswith("11 and 88 more")


def test_items_are_called_what_they_are() -> None:
    assert things("text", 1) == "1 text"
    assert things("image", 2000) == "2,000 pictures"
    assert things("nodes", 0) == "0 graphs"
