"""Words that mention a group and that its lexicon lacks: other spellings, pronouns and titles.

A pronoun or title is a candidate where it is associated with a group: more frequent in the texts
that mention the group than in those that mention its reference, within label and stratum. A
spelling is one where it is an edit or an accent away from a name of one group. What a candidate
does to the answers is measured by putting its partner (`he` for `she`), or a name of the reference,
in its place, or by ablating it. Where that is more than what matters, the lexicon does not cover
what mentions the group, and the swaps of its terms alone clear nobody.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from transexplain.analysis.groups.answers import Answer, answers_of, probability
from transexplain.analysis.groups.counterfactuals import MIN_TEXTS, Observation
from transexplain.analysis.groups.group_cells import (
    ALL_OTHERS,
    Reference,
    compared_with,
    family,
)
from transexplain.analysis.groups.intervals import Estimate, Interval
from transexplain.analysis.groups.lexicon import Pair
from transexplain.analysis.groups.mention_matching import Match
from transexplain.analysis.groups.word_pieces import WordPiece, exact_key, folded_key, pieces
from transexplain.types.findings import Practical
from transexplain.types.plans import AuditPlan, CandidateWord, CheckPlan

#: English pronouns and titles, each with the one that takes its place; of several partners the
#: first stands before a word that it can belong to (see `Partners`)
PARTNERS: tuple[Pair, ...] = (
    ("he", "she"),
    ("his", "her"),
    ("him", "her"),
    ("his", "hers"),
    ("himself", "herself"),
    ("mr", "mrs"),
    ("mr", "miss"),
    ("mr", "ms"),
    ("mister", "missus"),
    ("sir", "madam"),
    ("lord", "lady"),
)
#: those without a partner, which are ablated
_ALONE = ("they", "them", "their", "theirs", "themself", "themselves")
_TITLES_ALONE = ("mx", "dr", "prof", "professor", "rev")
#: words that are titles where they begin with a capital, and go with a full stop
TITLES = frozenset(("mr", "mrs", "miss", "ms", "mister", "missus", "lord", "lady", *_TITLES_ALONE))
WORDS = frozenset((*(word for pair in PARTNERS for word in pair), *_ALONE, *_TITLES_ALONE))

MINUS = "\N{MINUS SIGN}"
LEAST = 10  #: texts that a candidate stands in
MOST = 20  #: candidates of a run, those in most texts
LEVEL = 0.05  #: of all associations of a run together
_SHORTEST = 5  #: letters of a name from which on a word that is an edit away may be its spelling
_SMALL = 0.1  #: of a word's places in small letters, from which on it is no spelling of a name


def is_candidate(piece: WordPiece, word: str) -> bool:
    """Return whether a piece of a text is this pronoun or title."""
    return piece.key == word and (word not in TITLES or 0 in piece.capitals)


class CandidateCounts:
    """The texts that planning reads, counted by what they mention and which words they have."""

    def __init__(self, plan: AuditPlan) -> None:
        terms = {group.name: group.terms for group in plan.groups if group.terms}
        self._named = {
            name for name, some in terms.items() if not all(term.islower() for term in some)
        }
        self._against = compared_with(plan.reference, terms) if answers_of(plan) else {}
        listed = {piece.key for some in terms.values() for term in some for piece in pieces(term)}
        self._words = WORDS - listed
        self._texts: Counter[tuple[frozenset[str], tuple[str, str]]] = Counter()
        self._with: Counter[tuple[frozenset[str], tuple[str, str], str]] = Counter()
        self._spellings = _Spellings(plan) if plan.privacy is None else None

    @property
    def is_needed(self) -> bool:
        """Return whether a group has a lexicon of names and another one to be compared with."""
        return any(self._against.get(name) for name in self._named)

    def add(self, text: str, stratum: tuple[str, str], matches: Sequence[Match]) -> None:
        """Count a text of this label and stratum."""
        text_pieces = pieces(text)
        groups = frozenset(match.group for match in matches)
        if groups:
            self._texts[groups, stratum] += 1
            words = {piece.key for piece in text_pieces if piece.key in self._words}
            for word in words:
                if any(is_candidate(piece, word) for piece in text_pieces):
                    self._with[groups, stratum, word] += 1
        if self._spellings is not None:
            self._spellings.add(text_pieces, matches)

    def candidates(self, sampled: float, rows: float) -> tuple[CandidateWord, ...]:
        """At most `MOST`, each to be tried in about `sampled` texts.

        `rows`: of the whole data, for each that was counted.
        """
        words = [*self._associated()]
        if self._spellings is not None:
            words += self._spellings.found(self._named)
        words = sorted(words, key=lambda word: (-word.texts, word.group, word.word))[:MOST]
        planned = []
        for word in words:
            if others := self._against.get(word.group):
                reference = next(iter(others)) if len(others) == 1 else ALL_OTHERS
                share = min(1.0, sampled / (word.texts * rows))
                planned.append(replace(word, reference=reference, share=share))
        return tuple(planned)

    def _associated(self) -> Iterator[CandidateWord]:
        tried = [
            (group, word, count)
            for group in sorted(self._named)
            if self._against.get(group)
            for word in sorted(self._words)
            if (count := self._count(group, word)) >= LEAST
        ]
        for group, word, texts in tried:
            estimate = self._association(group, word)
            if estimate is None:
                continue
            difference, error = estimate
            half = NormalDist().inv_cdf(1 - LEVEL / (2 * len(tried))) * error
            if difference > half:
                interval = round(difference - half, 4), round(difference + half, 4)
                yield CandidateWord(
                    word=word,
                    group=group,
                    reference="",
                    texts=texts,
                    association=round(difference, 4),
                    interval=interval,
                )

    def _count(self, group: str, word: str) -> int:
        return sum(n for (of, _, key), n in self._with.items() if group in of and key == word)

    def _association(self, group: str, word: str) -> tuple[float, float] | None:
        """Log-odds ratio of the word in texts of the group alone and of those compared with it.

        Over labels and strata, weighted by the inverse of Woolf's (1955) variance with Haldane's
        half; with its standard error. None where no stratum has texts of both.
        """
        tables: defaultdict[tuple[str, str], list[list[float]]]
        tables = defaultdict(lambda: [[0.0, 0.0], [0.0, 0.0]])
        others = self._against[group]
        for (of, stratum), count in self._texts.items():
            sides = (group in of, not others.isdisjoint(of))
            if sides[0] != sides[1]:
                having = self._with[of, stratum, word]
                row = tables[stratum][0 if sides[0] else 1]
                row[0] += having
                row[1] += count - having
        weights, summed = 0.0, 0.0
        for left, right in tables.values():
            if not sum(left) or not sum(right):
                continue
            a, b, c, d = (count_ + 0.5 for count_ in (*left, *right))
            weight = 1 / (1 / a + 1 / b + 1 / c + 1 / d)
            weights += weight
            summed += weight * math.log(a * d / (b * c))
        return (summed / weights, math.sqrt(1 / weights)) if weights else None


class _Spellings:
    """Words of texts that are an edit or an accent away from a name."""

    def __init__(self, plan: AuditPlan) -> None:
        #: folded name, and each way to leave out one of its letters -> names
        self._near: defaultdict[str, set[tuple[str, str, str]]] = defaultdict(set)
        for group in plan.groups:
            for term in group.terms:
                if term.islower() or len(pieces(term)) != 1:
                    continue
                key = folded_key(term)
                for near in (key, *_shorter(key)):
                    self._near[near].add((key, group.name, group.entities.get(term, term)))
        self._of: dict[str, list[tuple[str, str]]] = {}  #: word -> (group, entity) that it is near
        self._texts: Counter[str] = Counter()
        self._places: Counter[tuple[str, bool]] = Counter()  #: word, with a capital

    def add(self, text_pieces: Sequence[WordPiece], matches: Sequence[Match]) -> None:
        """Count the words of a text that are in no match."""
        words = set()
        for piece in text_pieces:
            if any(match.start <= piece.start < match.end for match in matches):
                continue
            if piece.key not in self._of:
                self._of[piece.key] = self._nearest(piece.key)
            if self._of[piece.key]:
                self._places[piece.key, 0 in piece.capitals] += 1
                words.add(piece.key)
        self._texts.update(words)

    def found(self, groups: Collection[str]) -> Iterator[CandidateWord]:
        """Those that stand in enough texts, with capitals, near one group of a family."""
        for word, count in sorted(self._texts.items()):
            small, near = self._places[word, False], self._of[word]
            if count < LEAST or small > _SMALL * (small + self._places[word, True]):
                continue
            families = Counter(family(group) for group in {group for group, _ in near})
            for group, entity in dict(reversed(near)).items():
                if group in groups and families[family(group)] == 1:
                    yield CandidateWord(
                        word=word, group=group, reference="", entity=entity, texts=count
                    )

    def _nearest(self, word: str) -> list[tuple[str, str]]:
        """(group, entity) of the names that it may spell, those with other accents alone first."""
        key = " ".join(piece.key for piece in pieces(word, folded=True))
        forms = (key, *_shorter(key))
        near = {name for form in forms for name in self._near.get(form, ())}
        same = sorted((group, entity) for name, group, entity in near if name == key)
        if same or len(key) < _SHORTEST:
            return same
        return sorted(
            (group, entity)
            for name, group, entity in near
            if len(name) >= _SHORTEST and _is_edit(name, key)
        )


def _shorter(key: str) -> set[str]:
    """All ways to leave out one letter."""
    return {key[:place] + key[place + 1 :] for place in range(len(key))}


def _is_edit(word: str, other: str) -> bool:
    """Return whether a letter more, less, or another makes `other` of `word`."""
    if len(word) > len(other):
        word, other = other, word
    if len(other) - len(word) > 1 or not word:
        return False
    place = next(
        (i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), len(word)
    )
    return other[place + 1 :] in (word[place:], word[place + 1 :])


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateEffect:
    """The effect of a candidate on one prediction, against what took its place."""

    prediction: str
    effect: float  #: mean change of the log-odds, in logits
    interval: Interval | None  #: 95 %, clustered by text; None: fewer than 5 texts
    probability: float | None  #: mean change of the prediction's probability; None: it is a number
    probability_interval: Interval | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A word that may mention a group and that its lexicon lacks."""

    word: str
    group: str
    reference: str
    entity: str  #: whose other spelling it may be; "": a pronoun or a title
    texts: int  #: in which it was swapped or ablated
    association: float | None  #: see `CandidateWord`
    association_interval: Interval | None
    effects: tuple[CandidateEffect, ...]  #: by prediction; empty: no text was tried
    line: str  #: of the group's terms in a YAML lexicon, which would include it

    def beyond(self, practical: Practical) -> bool:
        """Return whether the interval of an effect lies beyond what matters, in either unit."""
        return any(
            interval is not None and (interval[0] > limit or interval[1] < -limit)
            for effect in self.effects
            for interval, limit in (
                (effect.interval, practical.logit),
                (effect.probability_interval, practical.probability),
            )
        )


def uncovered(
    candidates: Iterable[Candidate], references: Mapping[str, Reference], practical: Practical
) -> dict[str, list[str]]:
    """Group -> sentences on words that its lexicon, or its reference's, lacks and that matter."""
    sentences: defaultdict[str, list[str]] = defaultdict(list)
    for candidate in candidates:
        if not candidate.beyond(practical):
            continue
        for group, reference in references.items():
            if candidate.group == group or candidate.group in set(reference.groups):
                sentences[group].append(_sentence(candidate))
    return dict(sentences)


def _sentence(candidate: Candidate) -> str:
    widest = max(candidate.effects, key=lambda effect: abs(effect.effect))
    moved = f"{widest.effect:+.2f} logit"
    if widest.probability is not None:
        moved = f"{100 * widest.probability:+.1f} points of probability ({moved})"
    return (
        f"the lexicon of {candidate.group} lacks {candidate.word!r}, which moves "
        f"{widest.prediction} by {moved.replace('-', MINUS)} in {candidate.texts} texts; add "
        f"`{candidate.line}` to its terms"
    )


def candidate_table(
    observations: Iterable[Observation],
    check: CheckPlan | None,
    answers: Sequence[Answer],
) -> list[Candidate]:
    """One row per candidate of the plan's check, in its order.

    `observations` are the answers to texts with a candidate (`own`) and with another word, or none,
    in its place, each with the candidate as its entity.
    """
    pairs: defaultdict[tuple[str, str], dict[str, dict[bool, Observation]]]
    pairs = defaultdict(lambda: defaultdict(dict))
    for row in sorted(observations):
        pairs[row.group, row.entity][row.document][row.own] = row
    rows = []
    for word in check.candidates if check else ():
        texts = [
            (both[True], both[False])
            for both in pairs[word.group, word.word].values()
            if len(both) == 2
        ]
        rows.append(
            Candidate(
                word=word.word,
                group=word.group,
                reference=word.reference,
                entity=word.entity,
                texts=len(texts),
                association=word.association,
                association_interval=word.interval,
                effects=tuple(_effects(texts, answers)) if texts else (),
                line=_line(word),
            )
        )
    return rows


def _line(word: CandidateWord) -> str:
    if not word.entity:
        return f"- {word.word}"
    names = {"term": word.word[:1].upper() + word.word[1:], "entity": word.entity}
    return f"- {json.dumps(names, ensure_ascii=False)}"


def _effects(
    texts: Sequence[tuple[Observation, Observation]], answers: Sequence[Answer]
) -> Iterator[CandidateEffect]:
    clusters = [(pair.cluster, None if pair.cluster else pair.document) for pair, _ in texts]
    for number, answer in enumerate(answers):
        values = [(observed.log_odds[number], other.log_odds[number]) for observed, other in texts]
        effect = _mean([a - b for a, b in values], clusters)
        chances = [float(probability(a) - probability(b)) for a, b in values]
        chance = None if answer.is_number else _mean(chances, clusters)
        enough = len(texts) >= MIN_TEXTS and effect.freedom >= 1
        yield CandidateEffect(
            prediction=answer.name,
            effect=effect.difference,
            interval=effect.interval() if enough else None,
            probability=chance.difference if chance else None,
            probability_interval=chance.interval() if chance and enough else None,
        )


def _mean(values: Sequence[float], clusters: Sequence[Hashable]) -> Estimate:
    """The mean of at least one value, with its error over clusters."""
    n, mean = len(values), math.fsum(values) / len(values)
    sums: defaultdict[Hashable, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] += (value - mean) / n
    count = len(sums)
    variance = math.fsum(total * total for total in sums.values()) * count / max(count - 1, 1)
    return Estimate(difference=mean, error=math.sqrt(variance), freedom=float(count - 1))


def other_spellings(
    plan: AuditPlan, surfaces: Mapping[tuple[str, str], int]
) -> dict[str, dict[str, int]]:
    """Entity -> spelling -> mentions, of entities that texts write with other accents as well.

    `surfaces` are mentions by entity and how they are written; capitals alone make no spelling.
    """
    if plan.matching.match == "exact" or plan.privacy is not None:
        return {}
    terms = {exact_key(term) for group in plan.groups for term in group.terms}
    by: defaultdict[str, defaultdict[str, Counter[str]]]
    by = defaultdict(lambda: defaultdict(Counter))
    for (entity, surface), count in sorted(surfaces.items()):
        by[entity][exact_key(surface)][surface] += count
    plain = {folded_key(term) for term in terms}
    return {
        entity: {written.most_common(1)[0][0]: written.total() for written in some.values()}
        for entity, some in by.items()
        if any(key not in terms and folded_key(key) in plain for key in some)
    }


def spelling_table(
    counts: Mapping[tuple[str, str, str], int], group: str, entities: int, spellings: int
) -> dict[str, dict[str, int]]:
    """Entity -> spelling -> mentions of a group; of those with most mentions so many of each."""
    by: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (of, entity, surface), count in sorted(counts.items()):
        if of == group:
            by[entity][surface] += count
    often = sorted(by.items(), key=lambda pair: (-pair[1].total(), pair[0]))[:entities]
    return {entity: dict(some.most_common(spellings)) for entity, some in often}
