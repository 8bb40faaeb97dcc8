"""Explaining again what was explained: the same classes, of another text or by another model."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from transexplain.explaining import Explained, Request, explain_items
from transexplain.models.base import LoadedModel
from transexplain.supervision import Observer
from transexplain.targets import parse_target
from transexplain.types import Attribution, Item

#: an attribution as it was, and the one of the same class now
Pair = tuple[Attribution, Attribution]


def explained_again(
    model: LoadedModel,
    request: Request,
    asked: Sequence[tuple[Explained, Item]],
    observer: Observer,
    alone: Collection[str] = (),
) -> list[list[Pair]]:
    """For every item that was explained and the one now in its place, its attributions in pairs.

    The classes are those that were explained before, whatever is predicted now. A failure has no
    pairs. Raises as `explain_items`.
    """
    by_targets: dict[tuple[str, ...], list[int]] = {}
    for number, (done, _) in enumerate(asked):
        asked_of = tuple(dict.fromkeys(map(_same_class, done.attributions)))
        by_targets.setdefault(asked_of, []).append(number)
    found: list[list[Pair]] = [[] for _ in asked]
    for specs, numbers in by_targets.items():
        targets = tuple(parse_target(spec, request.names) for spec in specs)
        items = [asked[number][1] for number in numbers]
        ends = explain_items(
            model, items, replace(request, targets=targets), observer=observer, alone=alone
        )
        for number, end in zip(numbers, ends, strict=True):
            found[number] = _pairs(asked[number][0], end)
    return found


def _pairs(done: Explained, end: Explained) -> list[Pair]:
    after = {(one.target, one.class_name): one for one in end.attributions}
    wanted = ((one, (_same_class(one), one.class_name)) for one in done.attributions)
    return [(one, after[key]) for one, key in wanted if key in after]


def _same_class(attribution: Attribution) -> str:
    """The target that explains the same class of whatever item."""
    if attribution.class_index is None:
        return attribution.target
    return f"class:{attribution.class_name}"


def in_the_place_of(done: Explained, pairs: Sequence[Pair]) -> Explained:
    """The item as it ended, explained the other way, for the targets that were asked."""
    named = tuple(replace(after, target=before.target, rank=before.rank) for before, after in pairs)
    return replace(done, attributions=named)
