"""Entities of texts by the groups that they name: what a shard counts of a labelled text."""

from collections.abc import Sequence
from typing import Any

import pytest
from plain_records import new_outcome, new_plan

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.auditing.shard_mentions import MentionCounter
from transexplain.explaining import Explained
from transexplain.types.items import EntityGroup, Item
from transexplain.types.label_sets import NO_LABEL
from transexplain.types.plans import Matching, ModelRef
from transexplain.types.token_labels import TaggedSpan

TEXT = "Ann met Bob in Rome"
ANN, BOB, ROME = (0, 3), (8, 11), (15, 19)
PLAN = new_plan(
    model=ModelRef(source="m", classes=("O", "B-PER", "B-LOC"), head="tokens"),
    groups=(EntityGroup(name="ours", terms=("Ann",)), EntityGroup(name="author/she", terms=())),
    matching=Matching(column="author"),
)


def spans(*tagged: tuple[tuple[int, int], str]) -> tuple[TaggedSpan, ...]:
    return tuple(TaggedSpan(start=a, end=b, type=kind) for (a, b), kind in tagged)


def counted(
    entities: Sequence[TaggedSpan], labels: Sequence[TaggedSpan] | None, author: str = ""
) -> set[Any]:
    """Groups, label and prediction of each entity."""
    outcome = new_outcome(text=TEXT, meta={"author": author}, predicted="")
    item, total = Item(id="i", index=0, content=TEXT), ShardAggregate()
    done = Explained(item=item, outcome=outcome, entities=tuple(entities), given=labels)
    MentionCounter(PLAN).of(done, total)
    assert all(tally.items == 1 for _, tally in total.outcomes)
    return {(of.groups, of.label, of.predicted) for of, _ in total.outcomes}


@pytest.mark.parametrize("author", ["", "she"])
def test_labels_of_the_data_say_which_entities_there_are(author: str) -> None:
    column = ("author/she",) * bool(author)
    predicted = spans((ANN, "PER"), (BOB, "PER"))
    assert counted(predicted, spans((ANN, "PER"), (ROME, "LOC")), author) == {
        ((*column, "ours"), "PER", "PER"),
        (column, "LOC", NO_LABEL),
        (column, NO_LABEL, "PER"),
    }


def test_without_labels_names_are_the_entities() -> None:
    assert counted(spans(((0, 7), "PER"), (ROME, "LOC")), None) == {(("ours",), "", "PER")}
    assert counted(spans((ROME, "LOC")), None, "she") == {(("author/she", "ours"), "", NO_LABEL)}
