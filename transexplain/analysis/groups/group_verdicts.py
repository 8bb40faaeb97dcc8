"""The verdict on each group: answers and outcomes decide, relevance explains.

Three kinds of evidence, in this order of authority: what swapping its mentions does to the answer
(`counterfactuals`; of pictures what hiding its regions does, `hidden_regions`), how answers differ
between the items that mention it and its reference (`outcomes`), and what its mentions add to the
answer (the group table). The first two are in the answer's own units and decide; relevance alone
flags no group.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from transexplain.analysis.groups.counterfactuals import Counterfactual, Kind
from transexplain.analysis.groups.group_cells import Reference
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.verdict_rules import (
    WORDS,
    adjusted,
    effect_of,
    in_stratum,
    rates,
    signed,
)
from transexplain.types.findings import Correction, GroupStatistic, Practical

GroupFinding = Literal[
    "different answers", "different outcomes", "explained differently", "equivalent", "inconclusive"
]
ALPHA = 0.05
DOUBT = 0.10  #: unadjusted p of a stratum below which it contradicts all items together
LEFT_OUT = 0.02  #: share of a group's places that the matching may leave out without a remark
ONE_ENTITY = 0.30  #: share of a group's mentions that one entity may have without a remark


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupVerdict:
    """The verdict on one group, with what it rests on."""

    group: str
    reference: str
    verdict: GroupFinding
    reasons: tuple[str, ...]  #: in the order of their weight
    answer: str  #: that decided, or that is named first
    stratum: str  #: that decided; "": all items
    p: float | None  #: adjusted, of what decided
    counterfactual: Counterfactual | None  #: of `answer`; None: nothing was changed
    outcome: Outcome | None  #: of `answer`; None: too few items
    missing: tuple[str, ...]  #: what was not tested, so that *equivalent* is not *clear*


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """How a group was found: the limits of its verdict."""

    mentions: int = 0
    left_out: int = 0  #: places that were read as ordinary words
    most: str = ""  #: the entity with the most mentions
    most_share: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The input of the verdicts."""

    counterfactuals: Sequence[Counterfactual]
    outcomes: Sequence[Outcome]
    relevance: Sequence[GroupStatistic]
    found: Mapping[str, Found]
    no_swaps: str = ""  #: why there are no counterfactuals; "": there are
    kind: Kind = "swap"  #: of those that there are, or would be
    no_rates: str = ""  #: why there are no outcomes; "": there are, or items mention too little
    is_number: bool = False  #: the only answer is a number, so that there are no rates to compare


def group_verdicts(
    evidence: Evidence,
    references: Mapping[str, Reference],
    practical: Practical,
    correction: Correction = "bh",
) -> list[GroupVerdict]:
    """One verdict per mentioned group that has a reference, in the order of `references`.

    The p-values of all swaps and outcomes of the audit, strata included, are one family.
    """
    swaps, outcomes = list(evidence.counterfactuals), list(evidence.outcomes)
    p = adjusted(
        [*(one.p for one in swaps), *(one.varies_p for one in swaps), *(o.p for o in outcomes)],
        correction,
    )
    count = len(swaps)
    by_swaps = [_TestedSwap(row, p[n], p[count + n], practical) for n, row in enumerate(swaps)]
    by_rates = [(row, p[2 * count + n]) for n, row in enumerate(outcomes)]
    mentioned = {row.group for row in swaps} | {row.group for row in outcomes}
    mentioned |= {row.group for row in evidence.relevance}
    return [
        _GroupEvidence(
            group,
            reference,
            [one for one in by_swaps if one.row.group == group],
            [one for one in by_rates if one[0].group == group],
            evidence,
            practical,
        ).verdict()
        for group, reference in references.items()
        if reference.name != group and group in mentioned
    ]


@dataclass(frozen=True, slots=True)
class _TestedSwap:
    """One comparison by swaps, with its adjusted p-values."""

    row: Counterfactual
    p: float | None
    varies_p: float | None
    practical: Practical

    @property
    def differs(self) -> bool:
        """Whether the mean effect is beyond what is practical."""
        return self.p is not None and self.p <= ALPHA

    @property
    def turns(self) -> bool:
        """Whether the effect varies between texts by more than is practical."""
        return self.varies_p is not None and self.varies_p <= ALPHA

    @property
    def doubtful(self) -> bool:
        """Whether it would be a difference if it were the only comparison."""
        return min(one for one in (self.row.p, self.row.varies_p, 1.0) if one is not None) <= DOUBT

    @property
    def size(self) -> float:
        """How large the effect is, in the practical unit."""
        return max(
            abs(self.row.effect) / (self.practical.logit or 1.0),
            abs(self.row.probability) / (self.practical.probability or 1.0),
            self.row.varies / (self.practical.logit or 1.0),
        )


class _GroupEvidence:
    """The evidence on one group."""

    def __init__(
        self,
        group: str,
        reference: Reference,
        swaps: Sequence[_TestedSwap],
        outcomes: Sequence[tuple[Outcome, float | None]],
        evidence: Evidence,
        practical: Practical,
    ) -> None:
        self.group, self.reference, self.practical = group, reference, practical
        self.swaps = sorted(swaps, key=lambda one: (one.row.stratum != "", -one.size))
        self.outcomes = sorted(
            outcomes, key=lambda one: (one[0].stratum != "", -_rate_distance(one[0]))
        )
        self.relevance = [row for row in evidence.relevance if row.group == group]
        self.found = evidence.found.get(group, Found())
        self.no_swaps, self.no_rates = evidence.no_swaps, evidence.no_rates
        self.is_number = evidence.is_number
        self.words = WORDS[self.swaps[0].row.kind if self.swaps else evidence.kind]

    def verdict(self) -> GroupVerdict:
        """The first that holds of: different answers, different outcomes, equivalent."""
        for judged in self.swaps:
            if judged.differs or judged.turns:
                return self._different_answers(judged)
        for one, p in self.outcomes:
            if p is not None and p <= ALPHA:
                return self._different_outcomes(one, p)
        open_ = list(self._undecided())
        first = self.swaps[0] if self.swaps else None
        outcome = self.outcomes[0][0] if self.outcomes else None
        if open_:
            return self._made("inconclusive", open_, first, outcome, None)
        reasons = [_equal_answers(first.row) if first else "", _equal_outcomes(outcome)]
        if any(row.flagged for row in self.relevance):
            reasons.append("relevance differs, which by itself changes no answer")
            return self._made("explained differently", reasons, first, outcome, None)
        return self._made("equivalent", reasons, first, outcome, None)

    def _different_answers(self, judged: _TestedSwap) -> GroupVerdict:
        row = judged.row
        how = effect_of(row, names=True)
        if not judged.differs:
            how = (
                f"by {row.varies:.2f} logit up or down, depending on the text (mean "
                f"{signed(row.effect)})"
            )
        reasons = [f"{self.words.moves} {row.answer}{in_stratum(row.stratum)} {how}"]
        if not judged.differs and not row.stratum:
            reasons += self._strata_of(row.answer)
        outcome = self._outcome_of(row.answer, row.stratum)
        if outcome is not None:
            reasons.append(rates(outcome))
        p = judged.p if judged.differs else judged.varies_p
        return self._made("different answers", reasons, judged, outcome, p)

    def _strata_of(self, answer: str) -> Iterator[str]:
        """The strata in which swaps change an answer, where they do not over all texts."""
        found = {
            one.row.stratum: f"{signed(one.row.effect)} logit{in_stratum(one.row.stratum)}"
            for one in self.swaps
            if one.row.answer == answer and one.row.stratum and one.differs
        }
        if found:
            yield f"by {', '.join(found[stratum] for stratum in sorted(found))}"

    def _different_outcomes(self, outcome: Outcome, p: float) -> GroupVerdict:
        reasons = [rates(outcome)]
        swap = next(
            (one for one in self.swaps if one.row.answer == outcome.answer and not one.row.stratum),
            None,
        )
        if swap is None:
            reasons.append(f"whether {self.words.itself} does it is not known: {self._no_swaps()}")
        elif swap.row.interval is None:
            reasons.append(f"{self.words.too_few} to say whether {self.words.itself} does it")
        else:
            reasons.append(f"{self.words.deed} does not explain it: {effect_of(swap.row)}")
        reasons += _labels(outcome)
        return self._made("different outcomes", reasons, swap, outcome, p)

    def _undecided(self) -> Iterator[str]:
        """Why no verdict is reached; empty where everything is within practical limits."""
        yield from islice(self._undecided_answers(), 1)
        yield from islice(self._doubtful_answers(), 1)
        yield from islice(self._undecided_outcomes(), 1)
        yield from islice(self._doubtful_outcomes(), 1)

    def _undecided_answers(self) -> Iterator[str]:
        if not self.swaps:
            yield f"{self.words.none}: {self._no_swaps()}"
        for one in self.swaps:
            if not one.row.stratum and not one.row.equal:
                yield _undecided_answer(one.row, self.practical)

    def _doubtful_answers(self) -> Iterator[str]:
        for one in self.swaps:
            if one.row.stratum and one.doubtful:
                row = one.row
                where = f"{row.answer}{in_stratum(row.stratum)}"
                yield f"{self.words.may_move} {where} {effect_of(row)}"

    def _undecided_outcomes(self) -> Iterator[str]:
        mentioned = self.relevance or self.found.mentions
        if self.is_number:
            if not mentioned:
                yield "no item mentions it"
        elif not self.outcomes and self.no_rates:
            yield f"{self.no_rates}, so rates were not compared"
        elif not self.outcomes:
            who = f"its reference ({self.reference.name})" if mentioned else "it"
            yield f"no item mentions {who}, so rates were not compared"
        for outcome, _ in self.outcomes:
            if not outcome.stratum and not outcome.equal:
                yield _undecided_outcome(outcome, self.practical)

    def _doubtful_outcomes(self) -> Iterator[str]:
        for outcome, _ in self.outcomes:
            if outcome.stratum and outcome.p is not None and outcome.p <= DOUBT:
                yield f"rates may differ{in_stratum(outcome.stratum)}: {rates(outcome)}"

    def _no_swaps(self) -> str:
        return self.no_swaps or self.words.nothing

    def _outcome_of(self, answer: str, stratum: str) -> Outcome | None:
        for wanted in ((answer, stratum), (answer, "")):
            for one, _ in self.outcomes:
                if (one.answer, one.stratum) == wanted:
                    return one
        return None

    def _made(
        self,
        verdict: GroupFinding,
        reasons: Sequence[str],
        swap: _TestedSwap | None,
        outcome: Outcome | None,
        p: float | None,
    ) -> GroupVerdict:
        answer = swap.row.answer if swap else outcome.answer if outcome else ""
        stratum = swap.row.stratum if swap else outcome.stratum if outcome else ""
        if verdict == "different outcomes" and outcome:
            answer, stratum = outcome.answer, outcome.stratum
        return GroupVerdict(
            group=self.group,
            reference=self.reference.name,
            verdict=verdict,
            reasons=tuple(one for one in reasons if one),
            answer=answer,
            stratum=stratum,
            p=p,
            counterfactual=swap.row if swap else None,
            outcome=outcome,
            missing=tuple(self._missing()),
        )

    def _missing(self) -> Iterator[str]:
        found = self.found
        places = found.mentions + found.left_out
        if places and found.left_out > LEFT_OUT * places:
            yield (
                f"{100 * found.left_out / places:.0f} % of the places that may mention it were "
                "left out as ordinary words"
            )
        if found.mentions and found.most_share > ONE_ENTITY:
            yield f"{found.most} is {100 * found.most_share:.0f} % of its mentions"
        if self.relevance and all(row.verdict == "suppressed" for row in self.relevance):
            yield _not_compared(self.relevance[0])


def _not_compared(row: GroupStatistic) -> str:
    if "too few" in row.reason or not row.reason:
        return "it has too few entities for a comparison of relevance"
    return f"relevance was not compared: {row.reason}"


def _rate_distance(outcome: Outcome) -> float:
    """The distance of the rates: their ratio on a log scale, without weights."""
    one, other = outcome.own.selected.share, outcome.other.selected.share
    if one == other:
        return 0.0
    return abs(math.log(one / other)) if min(one, other) > 0.0 else math.inf


def _labels(outcome: Outcome) -> Iterator[str]:
    """Whether the labels differ as well."""
    own, other = outcome.own.labelled, outcome.other.labelled
    if outcome.counted == "answers":
        return  # all that are counted have an answer
    if own is not None and other is not None:
        yield (
            f"the labels say so of {100 * own.share:.1f} % and {100 * other.share:.1f} % of the "
            f"labelled {outcome.counted}"
        )


def _equal_answers(row: Counterfactual) -> str:
    return f"{WORDS[row.kind].moves} {row.answer} within practical limits, {effect_of(row)}"


def _equal_outcomes(outcome: Outcome | None) -> str:
    return f"rates are within practical limits: {rates(outcome)}" if outcome else ""


def _undecided_answer(row: Counterfactual, practical: Practical) -> str:
    words = WORDS[row.kind]
    if row.interval is None and row.clusters == 1 < row.documents:
        return f"the {row.documents:,} {words.items} that were changed are one cluster: no interval"
    if row.interval is None:
        return (
            f"{words.too_few} ({row.documents} {words.items} in {row.clusters} clusters, "
            f"{row.entities} and {row.other_entities} {words.named})"
        )
    low, high = row.names_interval or row.interval
    # an effect of these names, if not of their group
    apart = low > practical.logit or high < -practical.logit
    text = f"{words.moves} {row.answer} {effect_of(row, names=apart)}"
    if row.needed is not None:
        what = words.items if row.needed_of == "texts" else f"{words.named} of each group"
        return f"{text}; about {row.needed:,} {what} would settle it"
    if row.varies > practical.logit:
        return f"{text}; the effect differs between {words.items} by {row.varies:.2f} logit"
    return f"{text}: beyond chance, or not, but not beyond what is practical"


def _undecided_outcome(outcome: Outcome, practical: Practical) -> str:
    text = rates(outcome)
    needed = _items_needed(outcome, practical)
    what = outcome.counted
    return f"{text}; about {needed:,} {what} that mention it would settle it" if needed else text


def _items_needed(outcome: Outcome, practical: Practical) -> int | None:
    """Items at which the ratio's interval would be half as wide as the practical range."""
    if outcome.ratio_interval is None or practical.impact_ratio in (0.0, 1.0):
        return None
    low, high = outcome.ratio_interval
    if low <= 0.0 or math.isinf(high):
        return None
    wanted = -math.log(practical.impact_ratio)
    times = ((math.log(high) - math.log(low)) / wanted) ** 2
    items = outcome.own.selected.total
    return math.ceil(items * times) if times > 1 else None
