"""Labels of tokens by group: recall and precision where the data labels entities, else the share
of mentions with each label.
"""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pytest
from entity_samples import verdict_of
from plain_records import new_outcome

from transexplain.analysis.groups.answers import Answer
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.group_verdicts import with_measures
from transexplain.analysis.groups.outcomes import Outcome, OutcomeTotals, outcome_table
from transexplain.analysis.groups.shard_aggregate import ShardAggregate, merged_aggregates
from transexplain.types.findings import Practical
from transexplain.types.items import ItemOutcome
from transexplain.types.label_sets import NO_LABEL

TYPES = tuple(Answer(name=name, plus=(), minus=(), several=True) for name in ("PER", "LOC"))
CLASSES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
Entity = tuple[str, str | None, str]  #: group, type in the data (None: no labels), type found


def entity(label: str | None, found: str, text: int) -> ItemOutcome:
    return new_outcome(item_id=str(text), index=text, label=label, predicted=found)


def totals_of(texts: Iterable[Iterable[Entity]]) -> OutcomeTotals:
    totals = OutcomeTotals()
    for place, text in enumerate(texts):
        for group, label, found in text:
            totals.add(entity(label, found, place), {group} - {""}, answers=TYPES)
    return totals


def alone(*counts: tuple[Entity, int]) -> list[list[Entity]]:
    """Every entity in a text of its own."""
    return [[one] for one, count in counts for _ in range(count)]


def compared(
    texts: Iterable[Iterable[Entity]], whole: Collection[str] = (), **limits: float
) -> list[Outcome]:
    rows = outcome_table(
        totals_of(texts),
        TYPES,
        CLASSES,
        references_of("B", "AB"),
        Practical(**limits),
        ("PER",),
        whole,
    )
    return with_measures(rows)


def states(rows: Iterable[Outcome]) -> dict[tuple[str, str], str]:
    return {(row.prediction, m.name): m.state for row in rows for m in row.measures}


def test_recall_and_precision_by_hand() -> None:
    rows = compared(
        alone(
            (("A", "LOC", "LOC"), 41),
            (("A", "LOC", NO_LABEL), 7),
            (("A", "LOC", "PER"), 2),
            (("A", NO_LABEL, "LOC"), 3),
            (("A", "PER", "LOC"), 6),
            (("B", "LOC", "LOC"), 45),
            (("B", "LOC", NO_LABEL), 5),
        )
    )
    loc = next(row for row in rows if row.prediction == "LOC")
    assert loc.counted == "entities" and loc.own.true_positive and loc.own.precision
    assert (loc.own.true_positive.count, loc.own.true_positive.total) == (41, 50)
    assert (loc.own.precision.count, loc.own.precision.total) == (41, 50)
    assert loc.other.precision and loc.other.precision.share == 1.0
    assert [m.name for m in loc.measures] == ["true positive rate", "precision"]
    recall = loc.measures[0]
    assert recall.value == pytest.approx(41 / 50 - 45 / 50)


def sound(recognised: int, missed: int) -> list[list[Entity]]:
    return alone(
        *(((group, "PER", "PER"), recognised) for group in "AB"),
        *(((group, "PER", NO_LABEL), missed) for group in "AB"),
    )


def test_both_states_are_reachable() -> None:
    equal = compared(sound(950, 50))
    assert set(states(equal).values()) == {"inside"}
    assert verdict_of(outcomes=equal).outcome == "do not differ"
    biased = compared(
        alone(
            (("A", "PER", "PER"), 70),
            (("A", "PER", NO_LABEL), 30),
            (("B", "PER", "PER"), 97),
            (("B", "PER", NO_LABEL), 3),
        )
    )
    assert states(biased)["PER", "true positive rate"] == "outside"
    assert verdict_of(outcomes=biased).outcome == "differ"
    wrong = compared(
        alone(*(((group, "PER", "PER"), 300) for group in "AB"), (("A", NO_LABEL, "PER"), 60))
    )
    assert states(wrong) == {
        ("PER", "true positive rate"): "inside",
        ("PER", "precision"): "outside",
    }


def test_base_rates_of_labels_accuse_nobody() -> None:
    """A third of A's entities are places, a tenth of B's: every one of them is recognised."""
    rows = compared(
        alone(
            *(
                ((group, kind, kind), count)
                for group, kind, count in (
                    ("A", "LOC", 200), ("A", "PER", 400), ("B", "LOC", 60), ("B", "PER", 540),
                )
            )
        )
    )  # fmt: skip
    assert set(states(rows).values()) == {"inside"} and len(states(rows)) == 4


def test_a_label_that_hardly_any_entity_has_need_not_be_settled() -> None:
    few = alone((("A", "LOC", "LOC"), 3), (("B", "LOC", NO_LABEL), 20))
    rows = compared([*sound(950, 50), *few])
    assert {row.prediction for row in rows} == {"PER"} and verdict_of(
        outcomes=rows
    ).outcome == "do not differ"
    rows = compared([*sound(950, 50), *few, *alone((("A", "LOC", "LOC"), 20))])
    assert states(rows)["LOC", "true positive rate"] == "outside", "few, and yet beyond doubt"
    half = alone((("A", "LOC", "LOC"), 3), (("B", "LOC", NO_LABEL), 200))
    rows = compared([*sound(950, 50), *half])
    assert states(rows)["LOC", "true positive rate"] == "open", (
        "a sixth of B's entities are not few"
    )
    many = alone(*(((group, "LOC", kind), 50) for group, kind in (("A", "LOC"), ("B", NO_LABEL))))
    rows = compared([*sound(950, 50), *many])
    assert states(rows)["LOC", "true positive rate"] == "outside", "rare, and yet beyond doubt"


def test_a_label_that_one_side_alone_has_is_open() -> None:
    spurious = alone((("A", NO_LABEL, "LOC"), 100))
    rows = compared([*sound(950, 50), *spurious])
    assert states(rows)["LOC", "precision"] == "open"
    answer = verdict_of(outcomes=rows)
    assert answer.outcome == "open"
    assert "0 of 100" in answer.outcome_reasons[0] and "0 of 0" in answer.outcome_reasons[0]


def test_without_labels_mentions_are_counted_by_what_they_are_labelled() -> None:
    equal = alone(*(((group, None, "PER"), 800) for group in "AB"))
    rows = compared(equal)
    assert states(rows) == {("PER", "rate"): "inside", ("LOC", "rate"): "inside"}
    assert verdict_of(outcomes=rows).outcome == "do not differ"
    biased = alone((("A", None, "LOC"), 60), (("A", None, "PER"), 340), (("B", None, "PER"), 400))
    assert set(states(compared(biased)).values()) == {"outside"}


def test_labels_on_one_side_alone_leave_errors_open() -> None:
    rows = compared(alone((("A", "PER", "PER"), 200), (("B", None, "PER"), 200)))
    assert set(states(rows).values()) == {"open"}


def test_entities_of_one_text_are_one_cluster() -> None:
    """Twenty entities of a text are recognised or missed together: they tell as much as one."""
    random = np.random.default_rng(0)

    def texts(size: int, of: int) -> list[list[Entity]]:
        return [
            [(group, "PER", "PER" if hit else NO_LABEL)] * size
            for group in "AB"
            for hit in random.random(of) < 0.8
        ]

    [many], [single] = compared(texts(20, 40)), compared(texts(1, 40))
    wide, plain = many.measures[0].interval, single.measures[0].interval
    assert wide[1] - wide[0] == pytest.approx(plain[1] - plain[0], rel=0.25)
    in_both = [[("A", "PER", kind), ("B", "PER", kind)] for kind in ("PER", NO_LABEL) * 60]
    [row] = compared(in_both)
    assert row.measures[0].state == "inside", "what a text does to both sides cancels out"


def test_texts_beyond_the_clusters_share_them_and_merge_exactly() -> None:
    count = 10_000
    texts: list[list[Entity]] = [[("A", "PER", "PER")] for _ in range(count)]
    totals = totals_of(texts)
    assert len(list(totals)) < count
    parts = [ShardAggregate() for _ in range(3)]
    for place in range(count):
        parts[place % 3].outcomes.add(entity("PER", "PER", place), {"A"}, answers=TYPES)
    merged = merged_aggregates(part.to_json() for part in (parts[2], parts[0], parts[1]))
    assert list(merged.outcomes) == list(totals)


def test_accusations_of_sound_models_are_rare_whatever_texts_do() -> None:
    """Texts differ in how well all of their entities are recognised; groups do not."""
    random, accused = np.random.default_rng(7), 0
    for _ in range(60):
        texts: list[list[Entity]] = []
        for group in "AB":
            for share in random.beta(2.0, 0.7, 60):
                hits = random.random(6) < share
                texts.append([(group, "PER", "PER" if hit else NO_LABEL) for hit in hits])
        accused += "outside" in states(compared(texts)).values()
    assert accused <= 6


def test_types_that_are_called_as_their_only_label_are_compared_once() -> None:
    """Parts of speech have no prefix: each is a class and a type."""
    classes = ("O", "PER", "LOC")
    rows: Any = outcome_table(
        totals_of(sound(60, 40)), TYPES, classes, references_of("B", "AB"), Practical()
    )
    assert [row.prediction for row, _ in rows] == ["PER"]
