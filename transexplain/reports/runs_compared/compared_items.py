"""Reads two runs side by side: what they predict, and how similar their explanations are."""

import heapq
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.paired_runs import PairedTotals
from transexplain.rank_correlation import rank_similarity
from transexplain.reports.runs_compared.compared_answers import (
    AnswerTotals,
    FoundTotals,
)
from transexplain.reports.runs_compared.compared_plans import refuse, stored_texts
from transexplain.reports.runs_compared.compared_rates import RateTotals
from transexplain.reports.runs_compared.comparison_records import ChangedItem, Disparity, LeastAlike
from transexplain.store import results
from transexplain.store.database import Database
from transexplain.store.readers import ItemPair, iter_pairs
from transexplain.types.items import Attribution, ItemOutcome, Mention, PatchGrid
from transexplain.types.pairs import in_a_line
from transexplain.types.plans import AuditRun
from transexplain.types.token_labels import explained_characters
from transexplain.types.tokens import Token

#: positions in common below which ranks say nothing: two are either alike or opposite
FEWEST_POSITIONS = 3

_Place = tuple[int, int, str]


def agreement(before: Attribution, after: Attribution) -> float | None:
    """Spearman's correlation of relevance over the positions that are the same in both.

    Of texts those are tokens with the same characters at the same place, special tokens left out;
    of pictures the patches of equal grids. None: fewer than `FEWEST_POSITIONS` of them.
    """
    if isinstance(before.features, PatchGrid) or isinstance(after.features, PatchGrid):
        if before.features != after.features:
            return None
        old, new = before.relevance, after.relevance
    else:
        old, new = _common(before, before.features, after, after.features)
    return rank_similarity(old, new) if old.size >= FEWEST_POSITIONS else None


def _common(
    before: Attribution, old: Sequence[Token], after: Attribution, new: Sequence[Token]
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    if old == new:
        plain = np.array([not token.special for token in new], dtype=bool)
        return before.relevance[plain], after.relevance[plain]
    left, right = _places(old), _places(new)
    common = [place for place in right if place in left]
    return (
        before.relevance[[left[place] for place in common]],
        after.relevance[[right[place] for place in common]],
    )


def _places(tokens: Sequence[Token]) -> Mapping[_Place, int]:
    return {
        (token.start, token.end, token.text): position
        for position, token in enumerate(tokens)
        if not token.special
    }


def of_positions(before: Attribution, after: Attribution) -> Iterator[Disparity]:
    """What differs in what the positions of one item are, and in what was measured there."""
    if before.features != after.features:
        what = "grid of patches" if isinstance(after.features, PatchGrid) else "tokens"
        yield Disparity(
            what=f"{what} of item {after.item_id}",
            before=_positions(before, after),
            after=_positions(after, before),
        )
    if before.at != after.at:
        yield Disparity(what="input layer", before=before.at, after=after.at)
    if before.unit != after.unit:
        yield Disparity(what="unit", before=before.unit, after=after.unit)


def _positions(one: Attribution, other: Attribution) -> str:
    if isinstance(one.features, PatchGrid):
        return f"{one.features.rows} x {one.features.cols}"
    theirs: Sequence[Token] = other.features if not isinstance(other.features, PatchGrid) else ()
    for place, token in enumerate(one.features):
        if place >= len(theirs) or theirs[place] != token:
            return f"{len(one.features)} tokens, number {place + 1} {token.text!r}"
    return f"{len(one.features)} tokens"


SHOWN = 50  #: items predicted differently that are listed
LEAST = 5  #: items of a class that are listed because their explanations agree least
_TEXT = 240  # characters of an item's text that are shown

Part = TypeVar("Part", Attribution, Mention)
Kept = TypeVar("Kept", ChangedItem, LeastAlike)
ClassKey = tuple[str, str]  #: target as requested, explained class


def _numbers() -> "array[float]":
    return array("d")


@dataclass(slots=True)
class ClassPairs:
    """The items that both runs explained for one target and class; 8 bytes an item and number."""

    before: "array[float]" = field(default_factory=_numbers)  #: logits
    after: "array[float]" = field(default_factory=_numbers)
    agreement: "array[float]" = field(default_factory=_numbers)
    without_agreement: int = 0
    _least: list[tuple[float, int, LeastAlike]] = field(default_factory=list)

    def add(self, before: Attribution, after: Attribution, text: str | None) -> None:
        """Count one item."""
        self.before.append(before.logit)
        self.after.append(after.logit)
        value = agreement(before, after)
        if value is None:
            self.without_agreement += 1
            return
        self.agreement.append(value)
        one = LeastAlike(item_id=after.item_id, agreement=value, text=text)
        _keep(self._least, (-value, -len(self.before), one), LEAST)

    @property
    def least_alike(self) -> tuple[LeastAlike, ...]:
        """The items whose explanations agree least, the worst first; none that agree fully."""
        ranked = sorted(self._least, key=lambda entry: entry[:2], reverse=True)
        return tuple(one for _, _, one in ranked if one.agreement < 1.0)


@dataclass(slots=True)
class Walk:
    """The findings of a walk over the common items of two runs."""

    ids: tuple[str, str]  #: of the runs
    classes: tuple[tuple[str, ...], tuple[str, ...]]  #: of either model, by index
    same_data: bool  #: every item of the same id is the same
    same_texts: bool  #: what is stored of a text is the same where the text is
    common: int = 0
    other_content: int = 0
    unknown_content: int = 0
    other_class: int = 0
    changed: Counter[tuple[str, str]] = field(default_factory=Counter)  #: before, after
    rates: RateTotals = field(default_factory=RateTotals)
    right: Counter[tuple[bool, bool]] = field(default_factory=Counter)  #: before, after
    pairs: dict[ClassKey, ClassPairs] = field(default_factory=dict)
    mentions: PairedTotals = field(default_factory=PairedTotals)
    disparities: dict[str, Disparity] = field(default_factory=dict)  #: the first of each kind
    #: of models that answer at positions, which are explained for `predicted`; None: others
    found: FoundTotals | None = None
    answers: AnswerTotals | None = None  #: of models that generate their answers; None: others
    units: set[str] = field(default_factory=set)
    _shown: list[tuple[float, int, ChangedItem]] = field(default_factory=list)

    @classmethod
    def of(cls, before: AuditRun, after: AuditRun) -> "Walk":
        """Over nothing yet."""
        old, new = before.plan, after.plan
        return cls(
            ids=(before.id, after.id),
            classes=(old.model.classes, new.model.classes),
            same_data=old.dataset.content == new.dataset.content,
            same_texts=stored_texts(old) == stored_texts(new),
            found=FoundTotals.of(old, new),
            answers=AnswerTotals.of(old, new),
        )

    @property
    def shown(self) -> tuple[ChangedItem, ...]:
        """Items predicted differently, the widest margin first."""
        ranked = sorted(self._shown, key=lambda entry: entry[:2], reverse=True)
        return tuple(one for _, _, one in ranked)

    def takes(
        self, pair: ItemPair, before: Sequence[Attribution], after: Sequence[Attribution]
    ) -> bool:
        """Whether both sides of a pair are one item; counts the pairs where they are not."""
        texts = self._contents(pair, before, after)
        if self.answers is not None:
            if self.same_data:  # other words are those of another answer
                return True
            if all(one.texts for one in pair):
                texts = pair[0].texts[:1], pair[1].texts[:1]
        if self.same_texts and all(texts):
            same = texts[0] == texts[1]
            self.other_content += not same
            return same
        self.unknown_content += not self.same_data
        return self.same_data

    def _contents(
        self, pair: ItemPair, before: Sequence[Attribution], after: Sequence[Attribution]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What is stored of the content of either side; empty where nothing is."""
        texts = pair[0].texts, pair[1].texts
        if self.same_texts and not all(texts):
            return _stored_words(before), _stored_words(after)
        return texts

    def _same_answer(
        self, pair: ItemPair, before: Sequence[Attribution], after: Sequence[Attribution]
    ) -> bool | None:
        """Whether a model that generates says the same in both runs; None: that is not stored."""
        texts = self._contents(pair, before, after)
        return texts[0] == texts[1] if self.same_texts and all(texts) else None

    def add_item(
        self,
        pair: ItemPair,
        before: Sequence[Attribution],
        after: Sequence[Attribution],
        groups: Collection[str] = (),
    ) -> bool:
        """Count the predictions of one item: its class, what is found in it, or its answer.

        `groups` are those that it names. False: its explanations are of two answers.
        """
        self.common += 1
        old, new = pair
        moved = self.found is not None and self.found.add(before, after)
        same: bool | None = True
        if self.answers is not None:
            same = self._same_answer(pair, before, after)
            self.answers.add(pair, same, groups)
            moved = same is False
        self._count_labels(pair)
        self.rates.add(groups, old.predicted, new.predicted)
        if old.predicted != new.predicted or moved:
            self._count_change(pair)
        return same is True

    def _count_labels(self, pair: ItemPair) -> None:
        old, new = pair
        if old.label is not None and old.label == new.label:
            self.right[old.predicted == old.label, new.predicted == new.label] += 1

    def _count_change(self, pair: ItemPair) -> None:
        old, new = pair
        was, now, text = old.predicted, new.predicted, _beginning(new)
        if was == now:
            now += _ELSEWHERE if self.answers is None else _OTHERWISE
        self.changed[was, now] += 1
        margin = None if self.answers is not None else self._margin(pair)
        if self.answers is not None and old.texts and new.texts:
            was, now = (_cut(one.texts[-1]) or name for one, name in ((old, was), (new, now)))
            text = _cut(new.texts[0])
        item = ChangedItem(
            item_id=new.item_id,
            label=new.label,
            before=was,
            after=now,
            margin=margin,
            text=text,
        )
        _keep(self._shown, (margin or 0.0, -self.common, item), SHOWN)

    def _margin(self, pair: ItemPair) -> float | None:
        names, logits = self.classes[1], pair[1].logits
        predicted = [one.predicted for one in pair]
        if self.classes[0] != names or not logits or not {*predicted} <= {*names}:
            return None
        old, new = map(names.index, predicted)
        return logits[new] - logits[old]

    def add_explanations(
        self, before: Sequence[Attribution], after: Sequence[Attribution], text: str | None
    ) -> None:
        """Count the explanations of one item."""
        old = _counted(before)
        new = _counted(after)
        both = [key for key in new if key in old]
        self.other_class += len(new) - len(both)
        for key in both:
            for disparity in of_positions(old[key], new[key]):
                kind = disparity.what.partition(" of item ")[0]
                self.disparities.setdefault(kind, disparity)
            self.units.add(new[key].unit)
            self.pairs.setdefault(key[:2], ClassPairs()).add(old[key], new[key], text)


def _counted(found: Sequence[Attribution]) -> dict[tuple[str, str, object], Attribution]:
    """Explanations by target, class, and the characters that are found, or else their number."""
    numbers: Counter[tuple[str, str]] = Counter()
    keyed: dict[tuple[str, str, object], Attribution] = {}
    for one in found:
        number = numbers[one.target, one.class_name]
        place = explained_characters(one.notes)
        keyed[one.target, one.class_name, number if place is None else place] = one
        numbers[one.target, one.class_name] += 1
    return keyed


_ELSEWHERE = " (other characters)"
_OTHERWISE = " (other words)"


def walk_pairs(db: Database, found: Walk, known: Sequence[Disparity] = (), *, force: bool) -> Walk:
    """Walk over the items that both runs explained, a page of either at a time; gives `found`.

    Raises ConfigurationError, unless `force`, as soon as a page shows that positions are not the
    same, or where there are `known` disparities; the message lists what the first page shows, too.
    """
    for page in iter_pairs(db, *found.ids):
        _page(db, page, found)
        if not force:
            refuse([*known, *found.disparities.values()])
    if not force:
        refuse(known)
    return found


def _page(db: Database, page: Sequence[ItemPair], found: Walk) -> None:
    names = [after.item_id for _, after in page]
    before, after = (
        _by_item(results.iter_attributions(db, one, item_ids=names)) for one in found.ids
    )
    mentioned = [_by_item(results.iter_mentions(db, one, item_ids=names)) for one in found.ids]
    for pair in page:
        name = pair[1].item_id
        if not found.takes(pair, before.get(name, ()), after.get(name, ())):
            continue
        sides = before.get(name, ()), after.get(name, ())
        old, new = (side.get(name, ()) for side in mentioned)
        if not found.add_item(pair, *sides, {one.group for one in new}):
            found.mentions.unpaired += len(old) + len(new)
            continue
        found.add_explanations(*sides, _beginning(pair[1]))
        if old or new:
            found.mentions.add(old, new)


def _stored_words(attributions: Sequence[Attribution]) -> tuple[str, ...]:
    """What is stored of the words of a text, in their order; empty where nothing is."""
    tokens = attributions[0].features if attributions else ()
    if isinstance(tokens, PatchGrid):
        return ()
    return tuple(token.text for token in tokens if token.text and not token.special)


def _by_item(parts: Iterable[Part]) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = {}
    for one in parts:
        found.setdefault(one.item_id, []).append(one)
    return found


def _beginning(one: ItemOutcome) -> str | None:
    return None if one.text is None else _cut(in_a_line(one.text, one.second_at))


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def _keep(heap: list[tuple[float, int, Kept]], entry: tuple[float, int, Kept], places: int) -> None:
    """Keep the largest entries; their first two parts decide, for these are never both equal."""
    if len(heap) < places:
        heapq.heappush(heap, entry)
    else:
        heapq.heappushpop(heap, entry)
