"""Ablates and swaps mentions in a sample of texts, and measures the answers to the changed
texts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.answers import answers_of
from transexplain.analysis.groups.counterfactuals import NAMES, Observation
from transexplain.analysis.groups.group_cells import references_of
from transexplain.analysis.groups.mention_ablation import MentionAblation
from transexplain.analysis.groups.mention_matching import Match, mentions_of
from transexplain.analysis.groups.swap_pairs import Partners
from transexplain.explaining import Explained, Request
from transexplain.models.loaded_model import LoadedModel
from transexplain.randomness import row_number
from transexplain.types.items import Attribution, EntityGroup, Item
from transexplain.types.pairs import Edit, edited, joined
from transexplain.types.plans import AuditPlan, CheckPlan
from transexplain.types.targets import parse_target, resolve_target

_POSSESSIVE = re.compile(r"['\u2019]s\b", re.IGNORECASE)
_CLOSING = re.compile(r"[,.;:!?)\]}%]")


@dataclass(frozen=True, slots=True)
class _AblatedItem:
    """An item with the matches of one entity, and the item without them."""

    done: Explained
    matches: tuple[Match, ...]
    item: Item


class AblationCheck:
    """The ablations of one shard: noted while it is explained, predicted when it is done."""

    def __init__(self, plan: AuditPlan, model: LoadedModel) -> None:
        self._model, self._request = model, Request.from_plan(plan)
        self._ablated: list[_AblatedItem] = []

    def consider(self, done: Explained, matches: Sequence[Match], match: Match) -> None:
        """Note an item; all matches of `match`'s entity are ablated.

        An item that has no other words is left out.
        """
        item = done.item
        if item is None or item.text is None:
            return
        own = tuple(one for one in matches if one.entity == match.entity)
        left = _without(item, own)
        if any(letter.isalnum() for letter in left.content):
            self._ablated.append(_AblatedItem(done, own, left))

    @property
    def items(self) -> list[Item]:
        """The texts without the mention, in the order in which `compared` takes their ends."""
        return [one.item for one in self._ablated]

    def compared(self, ends: Sequence[Explained]) -> Iterator[MentionAblation]:
        """The change by each ablation; `ends` are those of `items`."""
        for ablated, end in zip(self._ablated, ends, strict=True):
            if end.outcome is not None:
                yield from self._compared(ablated, end.outcome.predicted, end.outcome.logits)

    def _compared(
        self, ablated: _AblatedItem, predicted: str, logits: Sequence[float]
    ) -> Iterator[MentionAblation]:
        before = ablated.done.outcome
        for attribution in ablated.done.attributions:
            relevances: dict[str, float] = {}
            for one in mentions_of(attribution, ablated.matches):
                relevances[one.group] = relevances.get(one.group, 0.0) + one.relevance
            change = attribution.logit - self._explained(attribution, np.asarray(logits))
            for group, relevance in relevances.items():
                yield MentionAblation(
                    item_id=attribution.item_id,
                    target=attribution.target,
                    class_name=attribution.class_name,
                    group=group,
                    entity=ablated.matches[0].entity,
                    flipped=before is not None and before.predicted != predicted,
                    change=change,
                    relevance=relevance,
                )

    def _explained(self, attribution: Attribution, logits: NDArray[np.float64]) -> float:
        """The logit (or the sum of some) of what was explained, from logits (C,)."""
        if attribution.class_index is not None:
            return float(logits[attribution.class_index])
        target = parse_target(attribution.target, self._request.names)
        [resolved] = resolve_target(target, logits, self._model.classes, None)
        return float(sum(factor * logits[index] for index, factor in resolved.coefficients))


def _without(item: Item, matches: Sequence[Match]) -> Item:
    """The item, each of whose texts is what `without` leaves of it."""
    left, begin = [], 0
    for text in item.texts:
        spans = [(one.start - begin, one.end - begin) for one in matches]
        inside = [(start, end) for start, end in spans if 0 <= start < len(text)]
        left.append(without(text, inside))
        begin = item.second_at or 0
    content, second_at = joined(*left) if item.second_at is not None else (left[0], None)
    return replace(item, content=content, second_at=second_at)


def without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """`text` with the characters of `spans` taken out and the spaces around them tidied.

    A possessive goes with its name. No space is left before a closing mark, nor two in a row where
    something was taken out; the rest of the text stays as it is, but for spaces at its ends.
    """
    kept, cursor = "", 0
    for start, end in sorted(spans):
        kept = _joined(kept, text[cursor : max(cursor, start)])
        possessive = _POSSESSIVE.match(text, end)
        cursor = max(cursor, possessive.end() if possessive else end)
    return _joined(kept, text[cursor:]).strip(" ")


def _joined(left: str, right: str) -> str:
    if left[-1:] == " " and (right[:1] == " " or _CLOSING.match(right)):
        return left.rstrip(" ") + right
    return left + right


#: entities of a group in the data from which on those that nobody mentions are left out
_ENOUGH = 5
_SWAP_SEED = 0x53776170  #: added to the seed, so that other samples do not take the same items


@dataclass(frozen=True, slots=True)
class _SwappedItem:
    """An item with another name in it, and whose name that is."""

    done: Explained
    item: Item  #: with that name
    group: str
    entity: str


class SwapCheck:
    """The swaps of one shard: noted while it is explained, answered when it is done.

    A text is sampled by its row, with a chance that depends on its group. It is read with `NAMES`
    names of its own group and as many of its reference (or, where the mention is the reference's,
    of a group that is compared with it), sampled from those that the data mentions. All mentions of
    the entity in the text are replaced. A word of `groups.pairs` is replaced by its partner alone.
    Names may have any number of word pieces: what that does to the answer is measured by the names
    of one group, see `counterfactuals`.
    """

    def __init__(self, plan: AuditPlan, check: CheckPlan) -> None:
        self._check, self._answers = check, answers_of(plan)
        self._slice = plan.slice
        self._lexicons = {group.name: _Lexicon(group, check.counts) for group in plan.groups}
        references = references_of(plan.reference, self._lexicons)
        self._against = {name: set(one.groups) for name, one in references.items()}
        for name, one in references.items():
            for other in one.groups:
                self._against[other].add(name)
        self._partners = Partners(plan.pairs)
        self._swapped: list[_SwappedItem] = []
        self._own: list[Observation] = []

    def wants(self, item: Item, match: Match) -> bool:
        """Whether the item is sampled for its mention `match`.

        One that is made from a template is not: its pair shows what another name does.
        """
        if item.template:
            return False
        share = self._check.swaps.get(match.group, 0.0)
        return row_number(item.index, self._check.seed + _SWAP_SEED) < share * 2**64

    def consider(
        self, done: Explained, matches: Sequence[Match], match: Match, random: np.random.Generator
    ) -> None:
        """Note an item; all matches of `match`'s entity are replaced together."""
        item = done.item
        if item is None or item.text is None or not self._answers:
            return
        if self._consider_pair(done, item, matches, match):
            return
        own = [one for one in matches if (one.group, one.entity) == (match.group, match.entity)]
        others = sorted(self._against.get(match.group, set()) - {match.group})
        replacements = [
            found
            for groups, count in (([match.group], NAMES - 1), (others, NAMES))
            for found in self._drawn(groups, count, match, random)
        ]
        if not any(group != match.group for group, _, _ in replacements):
            return
        self._own.append(self._observed(done, done, match.group, match.entity, own=True))
        for group, entity, terms in replacements:
            changed = _edited(item, _swaps(own, terms, self._lexicons[group]))
            self._swapped.append(_SwappedItem(done, changed, group, entity))

    def _consider_pair(
        self, done: Explained, item: Item, matches: Sequence[Match], match: Match
    ) -> bool:
        """Note an item whose mention has a partner; whether it has one.

        All words of its group that have partners change together, pronouns too.
        """
        text = item.content
        partner = self._partners.partner(match.surface, text[match.end :])
        home = self._reference_with(partner, match.group) if partner is not None else None
        if home is None:
            return False
        words = [(one, self._partners.partner(one.surface, text[one.end :])) for one in matches]
        changed = _edited(
            item,
            [
                (one.start, one.end, word)
                for one, word in words
                if one.group == match.group and word is not None
            ],
        )
        self._own.append(self._observed(done, done, match.group, match.entity, own=True))
        self._swapped.append(_SwappedItem(done, changed, *home))
        return True

    def _reference_with(self, word: str, group: str) -> tuple[str, str] | None:
        """The reference group of `group` that has `word`, and the entity that it names."""
        for other in sorted(self._against.get(group, ())):
            for entity, terms in self._lexicons[other].entities.items():
                if word.lower() in {term.lower() for term in terms}:
                    return other, entity
        return None

    @property
    def items(self) -> list[Item]:
        """The texts to be answered, in the order in which `observations` takes them."""
        return [one.item for one in self._swapped]

    def observations(self, ends: Sequence[Explained]) -> Iterator[Observation]:
        """What was answered, to the texts as they came and to `items`; a failure is left out."""
        yield from self._own
        for swapped, end in zip(self._swapped, ends, strict=True):
            if end.outcome is not None:
                yield self._observed(swapped.done, end, swapped.group, swapped.entity, own=False)

    def _observed(
        self, done: Explained, end: Explained, group: str, entity: str, *, own: bool
    ) -> Observation:
        item, outcome = done.item, end.outcome
        assert item is not None and outcome is not None  # both were explained
        return Observation(
            document=item.id,
            cluster=item.cluster,
            slice=str(item.meta.get(self._slice, "")) if self._slice else "",
            group=group,
            entity=entity,
            own=own,
            positions=outcome.positions,
            predicted=outcome.predicted,
            log_odds=tuple(float(one.log_odds(outcome.logits)) for one in self._answers),
        )

    def _drawn(
        self, groups: Sequence[str], count: int, match: Match, random: np.random.Generator
    ) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """(group, entity, its terms) of up to `count` different names of these groups."""
        own = self._lexicons[match.group].entities if groups != [match.group] else {}
        taken = {match.entity}
        for _ in range(count):
            for place in random.permutation(len(groups)):
                lexicon = self._lexicons[groups[place]]
                names = [
                    name
                    for name in lexicon.usual
                    if name not in taken and name not in own and lexicon.fits(name, match.surface)
                ]
                if names:
                    name = names[int(random.integers(len(names)))]
                    taken.add(name)
                    yield groups[place], name, lexicon.entities[name]
                    break


class _Lexicon:
    """The names of one group, with the form of what they replace (capitals, plural)."""

    def __init__(self, group: EntityGroup, counts: Mapping[str, int]) -> None:
        found: dict[str, list[str]] = {}
        for term in group.terms:
            found.setdefault(group.entities.get(term, term), []).append(term)
        self.entities = {name: tuple(terms) for name, terms in found.items()}
        mentioned = [name for name in self.entities if counts.get(name)]
        self.usual = sorted(mentioned if len(mentioned) >= _ENOUGH else self.entities)
        terms = {term.lower() for term in group.terms}
        # plurals matter to `Germans`, whose singular is a term; not to `James`
        self._inflected = {term for term in terms if f"{term}s" in terms or term[:-1] in terms}

    def fits(self, name: str, surface: str) -> bool:
        """Whether a term of an entity agrees with `surface` in number."""
        return any(self.agrees(term, surface) for term in self.entities[name])

    def agrees(self, term: str, surface: str) -> bool:
        """Whether term and `surface` have the same number; names of people always agree."""
        if term.lower() not in self._inflected:
            return True
        return term.lower().endswith("s") == surface.lower().endswith("s")


def _edited(item: Item, edits: Iterable[Edit]) -> Item:
    content, second_at = edited(item.content, item.second_at, edits)
    return replace(item, content=content, second_at=second_at)


def _swaps(matches: Sequence[Match], terms: Sequence[str], lexicon: _Lexicon) -> Iterator[Edit]:
    """Edits that replace every match by a term, in the capitals of the match."""
    for match in matches:
        term = next((one for one in terms if lexicon.agrees(one, match.surface)), terms[0])
        yield match.start, match.end, _with_case_of(match.surface, term)


def _with_case_of(surface: str, term: str) -> str:
    if surface.isupper() and len(surface) > 1:
        return term.upper()
    if surface[:1].isupper():
        return term[:1].upper() + term[1:]
    return term.lower() if surface.islower() and not surface.isdigit() else term
