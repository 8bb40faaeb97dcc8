"""Target specifications: every form, hyphens in names, and what is refused."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transexplain.errors import TargetError
from transexplain.types.items import Target
from transexplain.types.plans import Classification
from transexplain.types.targets import ClassNames, parse_target, resolve_target, short_form

CLASSES = ("hate", "not-hate", "spam")
LOGITS = np.array([0.5, 2.0, 1.0])


def names(*own: Classification) -> ClassNames:
    return ClassNames(CLASSES, own)


def resolved(spec, label: int | None = None, own: tuple[Classification, ...] = ()):
    target = parse_target(spec, names(*own))
    return resolve_target(target, LOGITS, CLASSES, label)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("predicted", [(1, "not-hate", ((1, 1.0),))]),
        ("all", [(i, name, ((i, 1.0),)) for i, name in enumerate(CLASSES)]),
        ("top:2", [(1, "not-hate", ((1, 1.0),)), (2, "spam", ((2, 1.0),))]),
        ("class:not-hate", [(1, "not-hate", ((1, 1.0),))]),
        ("class:2", [(2, "spam", ((2, 1.0),))]),
        ({"class": "spam"}, [(2, "spam", ((2, 1.0),))]),
        ("contrast:not-hate-hate", [(None, "not-hate-hate", ((1, 1.0), (0, -1.0)))]),
        ({"contrast": ["hate", "not-hate"]}, [(None, "hate-not-hate", ((0, 1.0), (1, -1.0)))]),
        ("contrast:0-2", [(None, "hate-spam", ((0, 1.0), (2, -1.0)))]),
        ("index:2", [(2, "spam", ((2, 1.0),))]),
        ({"index": 2}, [(2, "spam", ((2, 1.0),))]),
    ],
)
def test_forms(spec, expected) -> None:
    found = [(r.class_index, r.class_name, r.coefficients) for r in resolved(spec)]
    assert found == expected
    assert [r.rank for r in resolved(spec)] == list(range(len(expected)))


@pytest.mark.parametrize(
    "spec",
    [
        *("spam", 2, np.int64(2), "2", "class:2", "index:2", "class:index:2"),
        *({"class": 2}, {"index": "2"}),
    ],
)
def test_a_class_alone_is_short_for_the_target_of_its_name(spec: Any) -> None:
    found = parse_target(spec, names())
    assert (found.spec, found.kind) == ("class:spam", "class")
    assert short_form(spec, names()) == "class:spam"
    assert parse_target("class:spam", names()) == found, "the stored spec reads back"


def test_words_win_over_classes_of_that_name() -> None:
    known = ClassNames(("all", "label", "a:b"), [Classification(name="a", classes=("label",))])
    assert parse_target("all", known).kind == "all"
    assert parse_target("class:all", known).plus == (0,)
    assert parse_target("a", known).kind == "group"
    assert parse_target("a:b", known).spec == "class:a:b"


STARS = ClassNames(("1", "2", "3"), [Classification(name="low", classes=("1", "2"))])


@pytest.mark.parametrize(
    ("spec", "plus", "minus", "name"),
    [
        *(
            (spec, (1,), (), "2")
            for spec in ("class:2", "2", 2, np.int64(2), {"class": 2}, '{"class": "2"}', "index:1")
        ),
        ("class:index:0", (0,), (), "1"),
        ("contrast:2-3", (1,), (2,), "2-3"),
        ("contrast:index:0-index:2", (0,), (2,), "1-3"),
        ({"contrast": [3, 1]}, (2,), (0,), "3-1"),
        ("low", (0, 1), (), "low"),
        ("contrast:low-3", (0, 1), (2,), "low-3"),
    ],
)
def test_classes_named_by_digits_are_named_by_them(
    spec: Any, plus: tuple[int, ...], minus: tuple[int, ...], name: str
) -> None:
    found = parse_target(spec, STARS)
    assert (found.plus, found.minus, found.name) == (plus, minus, name)
    again = parse_target(short_form(spec, STARS), STARS)
    assert (again.plus, again.minus, again.name) == (plus, minus, name), "as a plan keeps it"


def test_an_exact_name_wins_over_every_other_reading() -> None:
    known = ClassNames(("a", "0", "index:0"))
    assert parse_target("0", known).plus == (1,)
    assert parse_target("index:0", known).plus == (2,)
    assert parse_target("index:1", known).plus == (1,)
    assert parse_target("class:1", ClassNames(("1", "0"))).plus == (0,)
    for spec in ("class:0", 0, "0", "contrast:0-1", "index:3", {"class": "0"}):
        with pytest.raises(TargetError):
            parse_target(spec, STARS)


def test_label_needs_a_label() -> None:
    assert resolved("label", label=2)[0].class_name == "spam"
    with pytest.raises(TargetError, match="label"):
        resolved("label")


def test_classification_sums_logits_and_stands_in_contrasts() -> None:
    own = (Classification(name="bad-content", classes=("hate", "spam")),)
    for spec in ("bad-content", "classification:bad-content"):
        (one,) = resolved(spec, own=own)
        assert one.coefficients == ((0, 1.0), (2, 1.0))
        assert one.class_name == "bad-content"
    (one,) = resolved("contrast:bad-content-not-hate", own=own)
    assert one.coefficients == ((0, 1.0), (2, 1.0), (1, -1.0))


@pytest.mark.parametrize(
    ("spec", "short"),
    [
        ("predicted", "predicted"),
        ({"contrast": ["a", "c"]}, "contrast:a-c"),
        ('{"contrast": ["a", "c"]}', "contrast:a-c"),
        ({"contrast": ["a-b", "c"]}, '{"contrast": ["a-b", "c"]}'),
        ({"class": "b-c"}, "class:b-c"),
        ({"top": 2}, "top:2"),
        ({"predicted": None}, "predicted"),
        ({"classification": "mine"}, "classification:mine"),
    ],
)
def test_the_short_form_means_the_same(spec: Any, short: str) -> None:
    own = (Classification(name="mine", classes=("a", "c")),)
    assert short_form(spec, ClassNames(("a", "b-c", "a-b", "c"), own)) == short


def test_two_readings_are_an_error_and_the_mapping_form_works() -> None:
    ambiguous = ClassNames(("a", "b-c", "a-b", "c"))
    with pytest.raises(TargetError, match="'a' against 'b-c'"):
        parse_target("contrast:a-b-c", ambiguous)
    target = parse_target({"contrast": ["a-b", "c"]}, ambiguous)
    assert (target.plus, target.minus) == ((2,), (3,))
    again = parse_target(target.spec, ambiguous)
    assert again == target, "the stored spec reads back"
    assert json.loads(target.spec) == {"contrast": ["a-b", "c"]}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        *(
            (spec, repr(spec.split(":")[-1]))
            for spec in ("class:positive", "class:7", "class:spma")
        ),
        *((spec, repr(str(spec))) for spec in ("predict", "zebra", 7, -1)),
        ("HATE", "you mean 'hate'"),
        ("clas:spam", "you mean 'class:spam'"),
        ("contrast:spam-hat", "you mean 'contrast:spam-hate'"),
        ("contras:spam-hate", "you mean 'contrast:spam-hate'"),
        ("contrast:hate-positive", "two known classes"),
        ({"contrast": ["hate"]}, "two known classes"),
        ("contrast:hate-hate", "both sides"),
        *((spec, "between 1") for spec in ("top:0", "top:many")),
        *((spec, rf"\({type(spec).__name__}\)") for spec in (True, None, 1.0, [1])),
        ("{bad", "not valid JSON"),
        ({"class": "a", "top": 1}, "exactly one key"),
    ],
)
def test_refusals_name_the_thing(spec, words: str) -> None:
    with pytest.raises(TargetError, match=words):
        parse_target(spec, names())


def test_classification_must_not_hide_a_class() -> None:
    with pytest.raises(TargetError, match="rename"):
        names(Classification(name="spam", classes=("hate",)))
    with pytest.raises(TargetError, match="unknown class"):
        names(Classification(name="own", classes=("positive",)))


@given(
    st.lists(st.text("ab-", min_size=1, max_size=5), min_size=2, max_size=6, unique=True), st.data()
)
def test_short_contrasts_are_read_right_or_refused(classes: list[str], data: st.DataObject) -> None:
    left, right = data.draw(st.lists(st.sampled_from(classes), min_size=2, max_size=2, unique=True))
    known = ClassNames(classes)
    try:
        target: Target | None = parse_target(f"contrast:{left}-{right}", known)
    except TargetError as error:
        assert "can be read as" in str(error)
        return
    assert (classes[target.plus[0]], classes[target.minus[0]]) == (left, right)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8))
def test_top_is_sorted_and_stable(logits: list[float]) -> None:
    classes = [str(i) for i in range(len(logits))]
    target = Target(spec="top", kind="top", k=len(logits))
    order = [r.class_index for r in resolve_target(target, np.array(logits), classes, None)]
    assert order == sorted(range(len(logits)), key=lambda i: (-logits[i], i))


@pytest.mark.parametrize(
    "target",
    [
        *("[" * 3000, "{" * 3000, '{"contrast": ' + "[" * 3000),
        *('{"contrast": 5}', '{"contrast": null}', '{"contrast": {"a": "b"}}', {"contrast": 5}),
        *('{"class": {"a": 1}}', {"top": []}, '{"top": ' + "9" * 399 + "}"),
        *("top:" + "9" * 5000, "class:" + "9" * 5000),
    ],
)
def test_targets_that_are_none_are_named(target: Any) -> None:
    with pytest.raises(TargetError):
        parse_target(target, ClassNames(("bad", "good")))
