"""Which class of a model a label of a dataset is, however it is spelled."""

from typing import Any

import pytest

from transexplain.errors import TargetError
from transexplain.types.dataset_labels import label_index, label_mapping
from transexplain.types.targets import ClassNames

NAMES = ClassNames(("hate", "not-hate", "spam"))


@pytest.mark.parametrize(
    ("label", "mapping", "expected"),
    [
        ("spam", {}, 2),
        ("SPAM", {}, 2),
        (" spam", {}, 2),
        ("good", {"good": "not-hate"}, 1),
        ("Good", {"good": "not-hate"}, 1),
        ("0", {"0": "spam"}, 2),
        ("0.00", {"0": "spam"}, 2),
        ("-0.0", {"0": "spam"}, 2),
        ("5e0", {"5.0": "spam"}, 2),
        ("0.50", {"0.5": "spam"}, 2),
        ("1180591620717411303424.0", {"1180591620717411303424": "spam"}, 2),
        ("1180591620717411303425", {"1180591620717411303424": "spam"}, None),
        ("true", {"True": "spam", "False": "hate"}, 2),
        ("007", {"7": "spam"}, None),  # a code
        ("1_0", {"10": "spam"}, None),
        ("1", {"0": "spam"}, None),  # the dataset's numbers are its own
        ("1", {}, None),  # three stars are not the model's third class
        (" 1 ", {}, None),
        ("1.0", {}, None),
        ("-1", {}, None),
        ("nan", {}, None),
        ("9" * 5000, {}, None),
        ("hate", {"0": "spam"}, 0),
        ("what", {}, None),
        (None, {}, None),
        ("1.0", {"1": "spam", "1.0": "hate"}, 0),
        ("1.00", {"1": "spam", "1.0": "hate"}, None),  # of two readings
        ("0", {"0": "index:1"}, 1),
        ("0", {"0": "1"}, 1),
    ],
)
def test_labels(label: str | None, mapping: dict[str, str], expected: int | None) -> None:
    assert label_index(label, NAMES, mapping) == expected


def test_a_label_that_is_a_class_exactly_is_that_class() -> None:
    versions = ClassNames(("1", "1.0", "2.0"))
    read = [label_index(one, versions, {"2": "1"}) for one in ("1", "1.0", "2.0", "2", "1.00")]
    assert read == [0, 1, 2, 0, None]


def test_numbers_name_classes_that_are_called_so() -> None:
    stars = ClassNames(("1", "2", "3"))
    assert [label_index(one, stars, {}) for one in "0123"] == [None, 0, 1, 2]
    nameless = ClassNames(("LABEL_0", "LABEL_1"))
    assert [label_index(one, nameless, {}) for one in "012"] == [0, 1, None]


def test_by_index_is_written_out() -> None:
    assert label_mapping("by-index", ("bad", "good")) == {"0": "bad", "1": "good"}
    assert label_mapping({"5": "good"}, ("bad", "good")) == {"5": "good"}
    assert label_mapping({5: 1, 1.0: 0}, ("bad", "good")) == {"5": "1", "1.0": "0"}
    assert label_mapping("by-index", ("0", "1")) == {"0": "0", "1": "1"}
    with pytest.raises(TargetError, match="1 2, 2"):
        label_mapping("by-index", ("1", "2", "3"))


CALLED = ("positive", "negative")  # as the data calls 0 and 1


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        ({}, ("negative", "positive"), {"0": "positive", "1": "negative"}),
        ({}, ("Negative", "Positive"), {"0": "Positive", "1": "Negative"}),
        ({}, ("bad", "good"), {}),
        ({"positive": "good"}, ("bad", "good"), {"positive": "good", "0": "good"}),
        ({1: "good"}, ("bad", "good"), {"1": "good"}),
        ({1.0: "neutral"}, ("positive", "neutral"), {"1.0": "neutral", "0": "positive"}),
        ("by-index", ("bad", "good"), {"0": "bad", "1": "good"}),
        ("by-index", ("positive", "negative"), {"0": "positive", "1": "negative"}),
    ],
)
def test_names_that_the_data_give_to_numbers_are_read(
    labels: Any, classes: tuple[str, ...], expected: dict[str, str]
) -> None:
    assert label_mapping(labels, classes, CALLED) == expected


def test_indices_that_contradict_the_names_of_the_data_are_refused() -> None:
    for classes in (("negative", "positive"), ("bad", "positive")):
        with pytest.raises(TargetError, match="positive, 1 negative"):
            label_mapping("by-index", classes, CALLED)
