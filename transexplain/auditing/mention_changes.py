"""Swaps mentions in a sample of texts, and measures the answers to the changed texts."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.answers import answers_of
from transexplain.analysis.groups.counterfactuals import NAMES, Observation
from transexplain.analysis.groups.group_cells import compared_with
from transexplain.analysis.groups.lexicon import Partners
from transexplain.analysis.groups.mention_ablation import MentionAblation
from transexplain.analysis.groups.mention_coverage import PARTNERS, TITLES, WORDS, is_candidate
from transexplain.analysis.groups.mention_matching import Match, mentions_of
from transexplain.analysis.groups.word_pieces import WordPiece, pieces
from transexplain.explaining import Explained, Request
from transexplain.models.loaded_model import LoadedModel
from transexplain.randomness import generator, row_number
from transexplain.types.items import Attribution, EntityGroup, Item, ItemOutcome
from transexplain.types.pairs import Edit, edited, joined
from transexplain.types.plans import AuditPlan, CandidateWord, CheckPlan
from transexplain.types.targets import parse_target, resolve_target

#: entities of a group in the data from which on those that nobody mentions are left out
_ENOUGH = 5
_SWAP_SEED = 0x53776170  #: added to the seed, so that other samples do not take the same items


_Drawn = tuple[str, str, tuple[str, ...]]  #: group, entity and its terms


@dataclass(frozen=True, slots=True)
class _ChangedItem:
    """An item with another name or without a word, and whose name or word that is."""

    done: Explained
    item: Item  #: changed
    group: str
    entity: str


class _ChangedTexts:
    """Texts of one shard that were changed, and a plan's answers to them."""

    def __init__(self, plan: AuditPlan, check: CheckPlan) -> None:
        self._check, self._slice, self._answers = check, plan.slice, answers_of(plan)
        self._changed: list[_ChangedItem] = []

    @property
    def items(self) -> list[Item]:
        """The texts to be answered, in the order in which `observations` takes their ends."""
        return [changed.item for changed in self._changed]

    def _answered(
        self, done: Explained, end: Explained, group: str, entity: str, *, own: bool
    ) -> Observation:
        """Return what was answered to an item, or to a text made from it, with this entity."""
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
            log_odds=tuple(float(answer.log_odds(outcome.logits)) for answer in self._answers),
        )


class SwapCheck(_ChangedTexts):
    """The swaps of one shard: noted while it is explained, answered when it is done.

    A text is sampled by its row, with a chance that depends on its group. It is read with `NAMES`
    names of its own group and as many of its reference (or, where the mention is the reference's,
    of a group that is compared with it), sampled from those that the data mentions, spelled
    as there. All mentions of
    the entity in the text are replaced. A word of `groups.pairs` is replaced by its partner.
    Names may have any number of word pieces: what that does to the answer is measured by the names
    of one group, see `counterfactuals`.

    Where a text has a pronoun or another word of `groups.pairs` and names, all words of the
    group change together, names too; a text in which some of them cannot is counted in `unpaired`
    and left out, since half a swap shows half an effect.
    """

    def __init__(self, plan: AuditPlan, check: CheckPlan) -> None:
        super().__init__(plan, check)
        self._lexicons = {group.name: _GroupNames(group, check.counts) for group in plan.groups}
        self._against = compared_with(plan.reference, self._lexicons)
        self._partners = Partners(plan.pairs, folded=plan.matching.match == "folded")
        self._own: list[Observation] = []
        self.unpaired: Counter[str] = Counter()  #: see `ControlResults`

    def wants(self, item: Item, match: Match) -> bool:
        """Return whether the item is sampled for its mention `match`.

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
        words = [other for other in matches if other.group == match.group]
        partners = {word: self._partner(word, item.content) for word in words}
        named = {self._lexicons[match.group].is_name(word.entity) for word in words}
        pronoun = any(word.surface.lower() in WORDS for word in words)
        if any(partners.values()) or (pronoun and len(named) > 1):
            self._consider_together(done, item, partners, match, random)
            return
        same = [word for word in words if word.entity == match.entity]
        others = sorted(self._against.get(match.group, set()) - {match.group})
        replacements = [
            drawn
            for groups, count in (([match.group], NAMES - 1), (others, NAMES))
            for drawn in self._drawn(groups, count, match, random)
        ]
        if not any(group != match.group for group, _, _ in replacements):
            return
        self._own.append(self._answered(done, done, match.group, match.entity, own=True))
        for group, entity, terms in replacements:
            changed = edited_item(item, _swaps(same, terms, self._lexicons[group]))
            self._changed.append(_ChangedItem(done, changed, group, entity))

    def _partner(self, match: Match, text: str) -> str | None:
        """The word that takes its place, where a group that it is compared with has it."""
        partner = self._partners.partner(match.surface, text[match.end :])
        return partner if partner is None or self._homes([partner], match.group) else None

    def _homes(self, words: Iterable[str], group: str) -> list[str]:
        """The groups compared with `group` that have all these words."""
        small = {word.lower() for word in words}
        others = sorted(self._against.get(group, ()))
        return [other for other in others if small <= self._lexicons[other].terms]

    def _consider_together(
        self,
        done: Explained,
        item: Item,
        partners: Mapping[Match, str | None],
        match: Match,
        random: np.random.Generator,
    ) -> None:
        """Note an item in which words of the mention's group have partners, or would need them.

        `partners` are of all words of the group in its text. Those that have one take it, and
        names that have none are replaced by names of the group that has the partners.
        """
        group, lexicon = match.group, self._lexicons[match.group]
        names: dict[str, list[Match]] = {}  #: without a partner
        for place, word in partners.items():
            if word is None:
                names.setdefault(place.entity, []).append(place)
        homes = self._homes(filter(None, partners.values()), group)
        paired = all(lexicon.is_name(name) for name in names) and any(partners.values())
        if not homes or not paired:
            self.unpaired[group] += 1
            return
        edits = [
            (place.start, place.end, word) for place, word in partners.items() if word is not None
        ]
        if not names:
            word = partners[match] or ""
            home = self._lexicons[homes[0]].named(word)
            swapped = [_ChangedItem(done, edited_item(item, edits), homes[0], home)]
        else:
            ways: tuple[tuple[list[str], list[Edit], int], ...] = (
                ([group], [], NAMES - 1),
                (homes[:1], edits, NAMES),
            )
            swapped = [
                _ChangedItem(done, self._renamed(item, names.values(), drawn, of), *drawn[0][:2])
                for groups, of, count in ways
                for drawn in self._sets(groups, count, names, random)
            ]
        if not any(swap.group != group for swap in swapped):
            self.unpaired[group] += 1
            return
        entity = next(iter(names), match.entity)
        self._own.append(self._answered(done, done, group, entity, own=True))
        self._changed += swapped

    def _sets(
        self,
        groups: Sequence[str],
        count: int,
        names: Mapping[str, Sequence[Match]],
        random: np.random.Generator,
    ) -> Iterator[list[_Drawn]]:
        """Up to `count` sets of replacements, each with one for each of `names`."""
        size, match = len(names), next(iter(names.values()))[0]
        drawn = [
            replacement
            for replacement in self._drawn(groups, count * size, match, random, set(names))
            if self._lexicons[replacement[0]].is_name(replacement[1])
        ]
        for start in range(0, len(drawn) - size + 1, size):
            yield drawn[start : start + size]

    def _renamed(
        self,
        item: Item,
        names: Iterable[Sequence[Match]],
        drawn: Sequence[_Drawn],
        edits: Sequence[Edit],
    ) -> Item:
        """The item with these edits, and with what was drawn in the places of each name."""
        changed = list(edits)
        for places, (group, _, terms) in zip(names, drawn, strict=True):
            changed += _swaps(places, terms, self._lexicons[group])
        return edited_item(item, changed)

    def replacement(self, group: str, surface: str, random: np.random.Generator) -> str | None:
        """A name of a group that `group` is compared with; None: none fits `surface`."""
        match = Match(group=group, entity="", surface=surface, start=0, end=len(surface))
        others = sorted(self._against.get(group, set()) - {group})
        for other, _, terms in self._drawn(others, 1, match, random):
            return next(new for _, _, new in _swaps([match], terms, self._lexicons[other]))
        return None

    def observations(self, ends: Iterator[Explained]) -> Iterator[Observation]:
        """Yield the answers to the texts as they came and to `items`, without failures.

        Of `ends` as many are taken as there are `items`.
        """
        yield from self._own
        for swapped, end in zip(self._changed, ends, strict=False):
            if end.outcome is not None:
                yield self._answered(swapped.done, end, swapped.group, swapped.entity, own=False)

    def _drawn(
        self,
        groups: Sequence[str],
        count: int,
        match: Match,
        random: np.random.Generator,
        others: Collection[str] = (),
    ) -> Iterator[_Drawn]:
        """(group, entity, its terms) of up to `count` different names, none of the text's `others`.

        A name is replaced by a name, where the lexicon has words of small letters, too.
        """
        shared = self._lexicons[match.group].entities if groups != [match.group] else {}
        is_name = not match.surface.islower()
        taken = {match.entity, *others}
        for _ in range(count):
            for place in random.permutation(len(groups)):
                lexicon = self._lexicons[groups[place]]
                names = [
                    name
                    for name in lexicon.usual
                    if name not in taken
                    and name not in shared
                    and any(lexicon.agrees(of, match.surface) for of in lexicon.entities[name])
                ]
                if is_name:
                    names = [name for name in names if lexicon.is_name(name)] or names
                if names:
                    name = names[int(random.integers(len(names)))]
                    taken.add(name)
                    yield groups[place], name, self._spelled(name, lexicon.entities[name], random)
                    break

    def _spelled(
        self, name: str, terms: tuple[str, ...], random: np.random.Generator
    ) -> tuple[str, ...]:
        """Its terms, or one spelling as often as texts have it, where they have other accents."""
        known = self._check.spellings.get(name)
        if not known:
            return terms
        shares = np.array([*known.values()], dtype=np.float64)
        return ([*known][int(random.choice(len(shares), p=shares / shares.sum()))],)


class _GroupNames:
    """The names of one group, with the form of what they replace (capitals, plural)."""

    def __init__(self, group: EntityGroup, counts: Mapping[str, int]) -> None:
        by_entity: dict[str, list[str]] = {}
        for term in group.terms:
            by_entity.setdefault(group.entities.get(term, term), []).append(term)
        self.entities = {name: tuple(terms) for name, terms in by_entity.items()}
        mentioned = [name for name in self.entities if counts.get(name)]
        self.usual = sorted(mentioned if len(mentioned) >= _ENOUGH else self.entities)
        self.terms = terms = {term.lower() for term in group.terms}
        # plurals matter to `Germans`, whose singular is a term; not to `James`
        self._inflected = {term for term in terms if f"{term}s" in terms or term[:-1] in terms}

    def is_name(self, entity: str) -> bool:
        """Return whether it is neither a word in small letters nor a pronoun or title."""
        terms = self.entities.get(entity, ())
        return not any(term.islower() or term.lower() in WORDS for term in terms)

    def named(self, word: str) -> str:
        """The entity that a word of the lexicon names."""
        small = word.lower()
        return next(name for name, some in self.entities.items() if small in map(str.lower, some))

    def agrees(self, term: str, surface: str) -> bool:
        """Return whether term and `surface` have the same number; names of people always agree."""
        if term.lower() not in self._inflected:
            return True
        return term.lower().endswith("s") == surface.lower().endswith("s")


def edited_item(item: Item, edits: Iterable[Edit]) -> Item:
    """The item with its text, or those of its pair, edited."""
    content, second_at = edited(item.content, item.second_at, edits)
    return replace(item, content=content, second_at=second_at)


def _swaps(matches: Sequence[Match], terms: Sequence[str], lexicon: _GroupNames) -> Iterator[Edit]:
    """Edits that replace every match by a term, in the capitals of the match."""
    for match in matches:
        term = next((form for form in terms if lexicon.agrees(form, match.surface)), terms[0])
        yield match.start, match.end, _with_case_of(match.surface, term)


def _with_case_of(surface: str, term: str) -> str:
    if surface.isupper() and len(surface) > 1:
        return term.upper()
    if surface[:1].isupper():
        return term[:1].upper() + term[1:]
    return term.lower() if surface.islower() and not surface.isdigit() else term


_POSSESSIVE = re.compile(r"['\u2019]s\b", re.IGNORECASE)
_CLOSING = re.compile(r"[,.;:!?)\]}%]")


class AblationCheck:
    """The ablations of one shard: noted while it is explained, predicted when it is done."""

    def __init__(self, plan: AuditPlan, model: LoadedModel) -> None:
        self._model, self._request = model, Request.from_plan(plan)
        #: items with the matches of one entity, and without them
        self._ablated: list[tuple[Explained, tuple[Match, ...], Item]] = []

    def consider(self, done: Explained, matches: Sequence[Match], match: Match) -> None:
        """Note an item; all matches of `match`'s entity are ablated.

        An item that has no other words is left out.
        """
        item = done.item
        if item is None or item.text is None:
            return
        same = tuple(other for other in matches if other.entity == match.entity)
        left = item_without(item, same)
        if any(letter.isalnum() for letter in left.content):
            self._ablated.append((done, same, left))

    @property
    def items(self) -> list[Item]:
        """The texts without the mention, in the order in which `compared` takes their ends."""
        return [left for _, _, left in self._ablated]

    def compared(self, ends: Iterator[Explained]) -> Iterator[MentionAblation]:
        """The change by each ablation; `ends` begin with those of `items`."""
        for (done, matches, _), end in zip(self._ablated, ends, strict=False):
            if end.outcome is not None:
                yield from self._compared(done, matches, end.outcome)

    def _compared(
        self, done: Explained, matches: Sequence[Match], without: ItemOutcome
    ) -> Iterator[MentionAblation]:
        before = done.outcome
        for attribution in done.attributions:
            relevances: dict[str, float] = {}
            for mention in mentions_of(attribution, matches):
                relevances[mention.group] = relevances.get(mention.group, 0.0) + mention.relevance
            change = attribution.logit - self._explained(attribution, np.asarray(without.logits))
            for group, relevance in relevances.items():
                yield MentionAblation(
                    item_id=attribution.item_id,
                    target=attribution.target,
                    class_name=attribution.class_name,
                    group=group,
                    entity=matches[0].entity,
                    flipped=before is not None and before.predicted != without.predicted,
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


def item_without(item: Item, matches: Sequence[Match]) -> Item:
    """The item, each of whose texts is what `without` leaves of it."""
    left, begin = [], 0
    for text in item.texts:
        spans = [(match.start - begin, match.end - begin) for match in matches]
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


_SEED = 0x43616E64  #: added to the seed, so that other samples do not take the same items


class CandidateCheck(_ChangedTexts):
    """The candidates of one shard: noted while it is explained, answered when it is done.

    A pronoun or title is tried in texts that mention its group, a spelling in all texts that have
    it; each by itself, at all its places in a text.
    """

    def __init__(self, plan: AuditPlan, check: CheckPlan) -> None:
        super().__init__(plan, check)
        self._swaps = SwapCheck(plan, check)
        self._partners = Partners(PARTNERS)

    def consider(self, done: Explained, matches: Sequence[Match]) -> None:
        """Note an item for each candidate that it is sampled for."""
        item = done.item
        if item is None or item.text is None or done.outcome is None:
            return
        groups = {match.group for match in matches}
        read = pieces(item.text)
        keys = {piece.key for piece in read}
        for number, candidate in enumerate(self._check.candidates):
            if candidate.word not in keys or not (candidate.entity or candidate.group in groups):
                continue
            seed = self._check.seed + _SEED + number
            if row_number(item.index, seed) >= candidate.share * 2**64:
                continue
            changed = self._without_candidate(item, candidate, read)
            if changed is not None and any(letter.isalnum() for letter in changed.content):
                self._changed.append(_ChangedItem(done, changed, candidate.group, candidate.word))

    def _without_candidate(
        self, item: Item, candidate: CandidateWord, read: Sequence[WordPiece]
    ) -> Item | None:
        """The item with other words in the candidate's places, or without it; None: it has none."""
        text, word = item.content, candidate.word
        if candidate.entity:
            places = [piece for piece in read if piece.key == word and 0 in piece.capitals]
            random = generator("candidate", self._check.seed, item.id)
            surface = text[places[0].start : places[0].end] if places else ""
            name = self._swaps.replacement(candidate.group, surface, random)
            edits = [(place.start, place.end, name) for place in places if name is not None]
            return edited_item(item, edits) if edits else None
        places = [piece for piece in read if is_candidate(piece, word)]
        spans = [
            (place, self._partners.partner(text[place.start : place.end], text[place.end :]))
            for place in places
        ]
        if not spans:
            return None
        edits = [
            (place.start, place.end, partner) for place, partner in spans if partner is not None
        ]
        if edits:
            return edited_item(item, edits)
        stop = word in TITLES
        return item_without(item, [_match(place, text, stop) for place in places])

    def observations(self, ends: Iterator[Explained]) -> Iterator[Observation]:
        """As `SwapCheck.observations`."""
        for tried, end in zip(self._changed, ends, strict=False):
            if end.outcome is not None:
                for own, of in ((True, tried.done), (False, end)):
                    yield self._answered(tried.done, of, tried.group, tried.entity, own=own)


def _match(piece: WordPiece, text: str, stop: bool) -> Match:
    """The place of a piece, with the full stop of a title."""
    end = piece.end + (stop and text[piece.end : piece.end + 1] == ".")
    return Match(group="", entity="", surface="", start=piece.start, end=end)
