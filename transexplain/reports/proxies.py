"""Finds words that occur with a group whose outcomes differ although swapping its mention has no
effect.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transexplain.analysis.groups.group_cells import Reference
from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.analysis.groups.outcome_totals import OutcomeTotals
from transexplain.reports.phrasing import signed
from transexplain.store import run_totals
from transexplain.store.database import Database
from transexplain.store.readers import iter_attributions
from transexplain.types.items import Attribution, PatchGrid
from transexplain.types.plans import AuditRun

_ITEMS = 1_000  #: read of either side
_FEWEST = 5  #: items that a word stands in
_SHOWN = 8
#: what a word has to add to be named in a sentence: in the unit, and as a share of the first's
_LEAST, _BESIDE = 0.005, 0.1
_APART = 0.02  #: of the shares of items that hold a word that is named in a sentence


@dataclass(frozen=True, kw_only=True, slots=True)
class Proxy:
    """One word that is more frequent, or adds more, where a group is mentioned."""

    word: str
    items: int  #: that hold it, of those that were read
    own: float  #: share of the group's items that hold it
    other: float  #: share of the reference's
    difference: float  #: of what it adds to the answer, per item of either side, in the unit


@dataclass(frozen=True, kw_only=True, slots=True)
class StratumWeight:
    """One stratum, and how much of either side lies in it."""

    stratum: str
    own: float  #: share of the group's items
    other: float  #: share of the reference's


@dataclass(frozen=True, kw_only=True, slots=True)
class Proxies:
    """By what the items of a group and of its reference differ most."""

    group: str
    reference: str
    prediction: str
    items: int  #: of the group that were read
    other_items: int
    words: tuple[Proxy, ...]  #: by what they add to the difference, the most first
    strata: tuple[StratumWeight, ...]  #: by the gap of their shares


def proxies_of(
    db: Database,
    run: AuditRun,
    verdicts: Iterable[GroupVerdict],
    references: dict[str, Reference],
    totals: OutcomeTotals,
) -> list[Proxies]:
    """One record per group whose outcomes differ, where texts were stored and explained.

    The difference of the mean relevance between two sets of items is the sum over words of what
    each adds to an item of one set more than to one of the other: that is what words are ranked
    by. Words of the lexicon are left out. It says what occurs together with a group, not why.
    """
    plan = run.plan
    if plan.model.modality != "text" or (plan.privacy and plan.privacy.store_text != "full"):
        return []
    return [
        _of_group(db, run, verdict, references[verdict.group], totals)
        for verdict in verdicts
        if verdict.outcome == "differ"
    ]


def with_proxies(verdict: GroupVerdict, candidates: Sequence[Proxies]) -> tuple[str, ...]:
    """The notes of a verdict, with the words that occur together with its group."""
    for proxies in candidates:
        least = max(_LEAST, _BESIDE * abs(proxies.words[0].difference)) if proxies.words else 0.0
        apart = [word for word in proxies.words if abs(word.own - word.other) >= _APART]
        if proxies.group == verdict.group and (
            named := [word for word in apart[:2] if abs(word.difference) >= least]
        ):
            words = ", ".join(
                f"{word.word} ({100 * word.own:.0f} % against {100 * word.other:.0f} % of items, "
                f"{signed(word.difference, 2)} logit)"
                for word in named
            )
            return (*verdict.notes, f"what differs most between their items: {words}")
    return verdict.notes


def _of_group(
    db: Database,
    run: AuditRun,
    group_verdict: GroupVerdict,
    reference: Reference,
    totals: OutcomeTotals,
) -> Proxies:
    others = set(reference.groups) - {group_verdict.group}
    mine = run_totals.items_of(db, run.id, [group_verdict.group], _ITEMS)
    theirs = run_totals.items_of(db, run.id, sorted(others), _ITEMS)
    both = set(mine) & set(theirs)
    prediction = group_verdict.rates.prediction if group_verdict.rates else ""
    sides = [
        _WordSums(db, run, [i for i in ids if i not in both], prediction) for ids in (mine, theirs)
    ]
    words = _ranked(
        sides[0],
        sides[1],
        {word for g in run.plan.groups for term in g.terms for word in term.lower().split()},
        1.0 if group_verdict.rates is None or group_verdict.rates.difference > 0 else -1.0,
    )
    return Proxies(
        group=group_verdict.group,
        reference=group_verdict.reference,
        prediction=prediction,
        items=sides[0].items,
        other_items=sides[1].items,
        words=tuple(words[:_SHOWN]),
        strata=tuple(_strata(totals, group_verdict.group, others)[:_SHOWN]),
    )


class _WordSums:
    """The sums that words add to the answer in some items."""

    def __init__(self, db: Database, run: AuditRun, ids: Sequence[str], answer: str) -> None:
        self.items = 0
        self.documents: Counter[str] = Counter()
        self.added: defaultdict[str, float] = defaultdict(float)
        target = run.plan.targets[0]
        for attribution in iter_attributions(db, run.id, item_ids=ids, target=target):
            sign = _sign(attribution, answer, len(run.plan.model.classes))
            if sign and not isinstance(attribution.features, PatchGrid):
                self.items += 1
                seen: set[str] = set()
                for word in attribution.words():
                    text = word.text.lower()
                    self.added[text] += sign * word.relevance
                    seen.add(text)
                self.documents.update(seen)


def _sign(attribution: Attribution, answer: str, classes: int) -> int:
    """1 where the answer itself is explained, -1 where it is the other of two classes, else 0."""
    if attribution.target.startswith("contrast") or attribution.class_name == answer:
        return 1
    return -1 if classes == 2 else 0


def _ranked(mine: _WordSums, theirs: _WordSums, without: set[str], sign: float) -> list[Proxy]:
    """Words that go the way of the difference of rates, those that add most to it first."""
    if not mine.items or not theirs.items:
        return []
    words = [
        Proxy(
            word=word,
            items=mine.documents[word] + theirs.documents[word],
            own=mine.documents[word] / mine.items,
            other=theirs.documents[word] / theirs.items,
            difference=mine.added[word] / mine.items - theirs.added[word] / theirs.items,
        )
        for word in sorted({*mine.documents, *theirs.documents} - without)
        if any(letter.isalnum() for letter in word)
    ]
    kept = [proxy for proxy in words if proxy.items >= _FEWEST and sign * proxy.difference > 0]
    return sorted(kept, key=lambda proxy: -sign * proxy.difference)


def _strata(totals: OutcomeTotals, group: str, others: set[str]) -> list[StratumWeight]:
    mine: Counter[str] = Counter()
    other: Counter[str] = Counter()
    for key, tally in totals:
        if key.slice and group in key.groups:
            mine[key.slice] += tally.items
        elif key.slice and others.intersection(key.groups):
            other[key.slice] += tally.items
    if not mine or not other:
        return []
    parts = [
        StratumWeight(
            stratum=name, own=mine[name] / mine.total(), other=other[name] / other.total()
        )
        for name in sorted({*mine, *other})
    ]
    return sorted(parts, key=lambda part: -abs(part.own - part.other))
