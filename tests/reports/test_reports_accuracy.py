"""The sentence on accuracy: a fact, unless the model agrees with labels no more than by chance."""

import random
from types import SimpleNamespace

import pytest

from transexplain.reports.sections.item_fates import SECTION, Confusion, Counts, by_chance


def confusion(*rows: tuple[int | None, ...], labels: str = "ab", omitted: int = 0) -> Confusion:
    return Confusion(
        labels=tuple(label.strip() for label in labels),
        predicted=("a", "b"),
        counts=rows,
        omitted=omitted,
    )


def kind(found: Confusion) -> tuple[str, str]:
    rows = dict(zip(found.labels, found.counts, strict=True))
    labelled = sum(sum(count or 0 for count in row) for label, row in rows.items() if label)
    correct = (rows["a"][0] or 0) + (rows["b"][1] or 0)
    counts = Counts(
        **{"total": labelled, "done": labelled, "failed": 0, "pending": 0, "dead_shards": 0},
        **{"truncated": 0, "labelled": labelled, "correct": correct},
        accuracy=correct / labelled,
    )
    report = SimpleNamespace(
        audited=SimpleNamespace(modality="text", state="done", head="classes"),
        counts=counts,
        confusion=found,
        failures=(),
    )
    *_, accuracy = SECTION.sentences(report)
    return accuracy.kind, accuracy.text


def test_chance_is_what_guesses_of_the_same_frequencies_reach() -> None:
    draw = random.Random(0)
    labels = draw.choices("ab", (70, 30), k=200_000)
    guesses = draw.choices("ab", (20, 80), k=200_000)
    pairs = list(zip(labels, guesses, strict=True))
    found = by_chance(
        confusion(*(tuple(pairs.count((label, guess)) for guess in "ab") for label in "ab"))
    )
    assert found == pytest.approx(sum(a == b for a, b in pairs) / len(pairs), abs=0.005)
    assert found == pytest.approx(0.7 * 0.2 + 0.3 * 0.8, abs=0.005)


@pytest.mark.parametrize(
    "found",
    [
        confusion((40, 10), (10, 40), omitted=3),
        confusion((40, None), (10, 40)),
        confusion((40, 10), (10, 40), labels="a "),
        confusion((0, 0), (0, 0)),
    ],
    ids=["rare classes left out", "redacted", "one label", "nothing"],
)
def test_chance_is_not_given_where_counts_are_missing(found: Confusion) -> None:
    assert by_chance(found) is None


def test_high_accuracy_is_reported_as_a_fact() -> None:
    assert kind(confusion((40, 10), (10, 40))) == (
        "fact",
        "The model agrees with the label of 80 of 100 labelled items: accuracy 0.800.",
    )


def test_swapped_and_unrelated_labels_are_a_problem() -> None:
    for rows in (((10, 40), (40, 10)), ((25, 25), (25, 25)), ((90, 0), (10, 0))):
        found, text = kind(confusion(*rows))
        assert found == "problem" and "no more often than by chance" in text
        assert "`labels` in the specification" in text


def test_few_items_flag_no_model() -> None:
    assert kind(confusion((2, 3), (3, 2)))[0] == "fact"


def test_unlabelled_items_are_no_part_of_it() -> None:
    with_others = confusion((40, 10), (10, 40), (0, 900), labels="ab ")
    assert by_chance(with_others) == by_chance(confusion((40, 10), (10, 40))) == 0.5
