"""Attributions in pairs: as they were, and those of the same classes now."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from transexplain.explaining import Explained, Request
from transexplain.explaining.explain_again import explain_again, same_class
from transexplain.models.base import LoadedModel
from transexplain.supervision import Observer
from transexplain.types import Attribution, Item

#: an attribution as it was, and the one of the same class now
AttributionPair = tuple[Attribution, Attribution]


def explained_pairs(
    model: LoadedModel,
    request: Request,
    sampled: Sequence[tuple[Explained, Item]],
    observer: Observer,
    alone: Collection[str] = (),
) -> list[list[AttributionPair]]:
    """For every item that was explained and the one now in its place, its attributions in pairs.

    The classes are those that were explained before, whatever is predicted now. A failure has no
    pairs. Raises as `explain_items`.
    """
    wanted = [
        (item, tuple(dict.fromkeys(map(same_class, done.attributions)))) for done, item in sampled
    ]
    ends = explain_again(model, request, wanted, observer=observer, alone=alone)
    return [_pairs(done, end) for (done, _), end in zip(sampled, ends, strict=True)]


def _pairs(done: Explained, end: Explained) -> list[AttributionPair]:
    after = {(one.target, one.class_name): one for one in end.attributions}
    keys = ((one, (same_class(one), one.class_name)) for one in done.attributions)
    return [(one, after[key]) for one, key in keys if key in after]


def in_the_place_of(done: Explained, pairs: Sequence[AttributionPair]) -> Explained:
    """The item as it ended, with the other explanations under the targets of the plan."""
    named = tuple(replace(after, target=before.target, rank=before.rank) for before, after in pairs)
    return replace(done, attributions=named)
