"""Counterfactual swaps: replace a mention by one of another group, and explain the text again."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from transexplain.bias.matching import Match
from transexplain.bias.mentions import mentions_of
from transexplain.bias.swaps import Swap
from transexplain.checking.again import Pair, explained_again
from transexplain.explaining import Explained, Request
from transexplain.models.base import LoadedModel
from transexplain.plans import AuditPlan, CheckPlan
from transexplain.supervision import Observer
from transexplain.types import EntityGroup, Item, ItemFailure

_TRIED = 12  #: replacements whose word pieces are counted
_BAND = 1.0  #: replacements are at most twice, or half, as frequent


@dataclass(frozen=True, slots=True)
class _Asked:
    """One mention that is swapped: its item as it was and as it will be."""

    done: Explained
    match: Match
    other: str
    entity: str
    item: Item  #: with the replacement
    place: Match  #: of the replacement


class Swaps:
    """The swaps of one shard: noted while it is explained, made when it is done.

    The replacement of a mention comes from the reference (from any other group where there is
    none, or the mention is the reference's), agrees in plural and has as many word pieces. As far
    as one can be found it is of the same family of groups (`country/high` and `country/low`), a
    proper name where the mention is one, and about as frequent in the data, in this order.
    """

    def __init__(self, plan: AuditPlan, check: CheckPlan, model: LoadedModel) -> None:
        self._plan, self._check, self._model = plan, check, model
        self._request = Request.from_plan(plan)
        self._groups = {group.name: _entities(group) for group in plan.groups}
        self._asked: list[_Asked] = []

    def consider(self, done: Explained, match: Match, random: np.random.Generator) -> None:
        """Take note of an item whose `match` can be replaced."""
        item = done.item
        if item is None or not isinstance(item.content, str):
            return
        for other, entity in self._candidates(match, random):
            asked = _asked(done, item, match, other, entity)
            if self._pieces(asked.item) == self._pieces(item):
                self._asked.append(asked)
                return

    def measure(self, observer: Observer, alone: Collection[str] = ()) -> Iterator[Swap]:
        """Explain the changed texts for the classes that were explained before, and compare."""
        again = explained_again(
            self._model,
            self._request,
            [(one.done, one.item) for one in self._asked],
            observer,
            alone,
        )
        for asked, pairs in zip(self._asked, again, strict=True):
            yield from _compared(asked, pairs)

    def _candidates(self, match: Match, random: np.random.Generator) -> list[tuple[str, str]]:
        """(group, entity) of replacements, the best first."""
        reference = self._plan.reference
        wanted = [reference] if reference and reference != match.group else list(self._groups)
        own = set(self._groups.get(match.group, ()))
        found = sorted(
            (group, entity)
            for group in wanted
            if group != match.group
            for entity in self._groups.get(group, ())
            if entity not in own and _shape(entity, match.surface) is not None
        )
        dealt = [found[place] for place in random.permutation(len(found))]
        return sorted(dealt, key=lambda one: self._unlike(match, *one))[:_TRIED]

    def _unlike(self, match: Match, group: str, entity: str) -> tuple[bool, bool, bool]:
        """In what a replacement differs from the mention, the gravest first."""
        return (
            _family(group) != _family(match.group),
            entity[:1].isupper() != match.entity[:1].isupper(),
            not self._near(entity, match.entity),
        )

    def _near(self, one: str, other: str) -> bool:
        counts = self._check.counts
        ratio = (counts.get(one, 0) + 1) / (counts.get(other, 0) + 1)
        return abs(math.log2(ratio)) <= _BAND

    def _pieces(self, item: Item) -> int:
        [encoded] = self._request.encode(self._model, [item])
        return -1 if isinstance(encoded, ItemFailure) else encoded.length


def _family(group: str) -> str:
    return group.partition("/")[0]


def _entities(group: EntityGroup) -> Mapping[str, None]:
    return dict.fromkeys(group.entities.get(term, term) for term in group.terms)


def _asked(done: Explained, item: Item, match: Match, other: str, entity: str) -> _Asked:
    word = _shape(entity, match.surface) or entity
    text = f"{item.content[: match.start]}{word}{item.content[match.end :]}"
    place = replace(match, group=other, entity=entity, surface=word, end=match.start + len(word))
    return _Asked(done, match, other, entity, replace(item, content=text), place)


def _shape(entity: str, surface: str) -> str | None:
    """`entity` in the capitals of `surface`; None where one is a plural and the other is not."""
    if entity.lower().endswith("s") != surface.lower().endswith("s"):
        return None
    if surface.isupper() and len(surface) > 1:
        return entity.upper()
    if surface[:1].isupper():
        return entity[:1].upper() + entity[1:]
    return entity.lower() if surface.islower() else entity


def _compared(asked: _Asked, pairs: Sequence[Pair]) -> Iterator[Swap]:
    for before, changed in pairs:
        old, new = mentions_of(before, [asked.match]), mentions_of(changed, [asked.place])
        if old and new:
            yield Swap(
                item_id=before.item_id,
                target=before.target,
                class_name=before.class_name,
                group=asked.match.group,
                entity=asked.match.entity,
                other=asked.other,
                replacement=asked.entity,
                change=before.logit - changed.logit,
                gap=old[0].relevance - new[0].relevance,
            )
