"""The verdict on each group: two questions, each with three states.

*The mention*: does changing who is mentioned change the prediction? Its measures come from swaps
(`counterfactuals`; of pictures from hiding regions, `hidden_regions`). *The outcome*: do groups get
different predictions and errors? Its measures are differences of rates (`outcomes`). Relevance
explains and decides neither.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from transexplain.analysis.groups.counterfactuals import Counterfactual, Kind
from transexplain.analysis.groups.group_cells import Reference
from transexplain.analysis.groups.measures import Comparison, MeasureName, decided, gravest
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.verdict_sentences import (
    WORDS,
    decided_effect,
    decided_rates,
    labels_say,
    mention_advice,
    open_effect,
    open_rates,
    outcome_advice,
)
from transexplain.types.findings import GroupStatistic

Mentioned = Literal["changes", "does not change", "open"]
Outcomes = Literal["differ", "do not differ", "open"]
#: how a verdict is called as a whole
VerdictState = Literal["flagged", "open", "clear"]
LEFT_OUT = 0.02  #: share of a group's places that the matching may leave out without a remark
ONE_ENTITY = 0.30  #: share of a group's mentions that one entity may have without a remark


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupVerdict:
    """The verdict on one group, with what it rests on."""

    group: str
    reference: str
    mention: Mentioned  #: whether a mention of the group changes the prediction
    outcome: Outcomes  #: whether rates of predictions and errors differ
    #: *flagged*: either question is answered by a difference; *clear*: neither, and no gap
    state: VerdictState = field(init=False, default="open")
    mention_reasons: tuple[str, ...]  #: in the order of their weight
    outcome_reasons: tuple[str, ...]
    notes: tuple[str, ...]  #: what explains a difference, and excuses none
    missing: tuple[str, ...]  #: what was not tested, so that the group is not clear
    counterfactual: Counterfactual | None  #: that decided, or is named first; None: no swaps
    rates: Outcome | None  #: the same of rates; None: too few items
    mention_advice: str = ""  #: what would settle the mention; "": it is settled
    outcome_advice: str = ""  #: what would settle the outcome

    def __post_init__(self) -> None:
        settled = self.mention == "does not change" and self.outcome == "do not differ"
        state: VerdictState = "clear" if settled and not self.missing else "open"
        if self.mention == "changes" or self.outcome == "differ":
            state = "flagged"
        object.__setattr__(self, "state", state)


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchingLimits:
    """The matching of a group: the limits of its verdict."""

    mentions: int = 0
    left_out: int = 0  #: places that were read as ordinary words
    most: str = ""  #: the entity with the most mentions
    most_share: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictEvidence:
    """The input of the verdicts, its measures decided."""

    counterfactuals: Sequence[Counterfactual]
    outcomes: Sequence[Outcome]
    relevance: Sequence[GroupStatistic]
    found: Mapping[str, MatchingLimits]
    #: group -> words of its texts that the lexicon lacks and that change predictions
    unlisted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    no_swaps: str = ""  #: why there are no counterfactuals; "": there are
    kind: Kind = "swap"  #: of those that there are, or would be
    names: Mapping[str, int] = field(default_factory=dict)  #: group -> names in its lexicon
    templates: bool = False  #: whether the texts of the counterfactuals are templates
    no_rates: str = ""  #: why there are no outcomes; "": there are, or items mention too little
    is_number: bool = False  #: the only prediction is a number, so that there are no rates


_Row = TypeVar("_Row", Counterfactual, Outcome)


def with_measures(rows: Sequence[tuple[_Row, Sequence[Comparison]]]) -> list[_Row]:
    """The rows of one question with their measures, decided together.

    Measures that need not be inside are left out unless they are outside.
    """
    measures = iter(decided([comparison for _, several in rows for comparison in several]))
    judged = [
        (row, [(comparison.needed, next(measures)) for comparison in several])
        for row, several in rows
    ]
    kept = [
        replace(row, measures=tuple(m for needed, m in several if needed or m.state == "outside"))
        for row, several in judged
    ]
    return [row for row in kept if row.measures]


def group_verdicts(
    evidence: VerdictEvidence, references: Mapping[str, Reference]
) -> list[GroupVerdict]:
    """One verdict per mentioned group that has a reference, in the order of `references`."""
    mentioned = {row.group for row in evidence.counterfactuals}
    mentioned |= {row.group for row in evidence.outcomes}
    mentioned |= {row.group for row in evidence.relevance}
    return [
        _GroupEvidence(group, reference, evidence).verdict()
        for group, reference in references.items()
        if reference.name != group and group in mentioned
    ]


class _GroupEvidence:
    """The evidence on one group."""

    def __init__(self, group: str, reference: Reference, evidence: VerdictEvidence) -> None:
        self.group, self.reference, self.evidence = group, reference, evidence
        self.swaps = _ordered(row for row in evidence.counterfactuals if row.group == group)
        self.rates = _ordered(row for row in evidence.outcomes if row.group == group)
        self.relevance = [row for row in evidence.relevance if row.group == group]
        self.found = evidence.found.get(group, MatchingLimits())
        self.words = WORDS[self.swaps[0].kind if self.swaps else evidence.kind]

    def verdict(self) -> GroupVerdict:
        """The verdict, both questions answered."""
        mention, why = self._mention()
        outcome, rates = self._outcome()
        notes = list(self._notes(mention)) if outcome == "differ" else []
        if mention != "changes" and any(row.flagged for row in self.relevance):
            notes.append("relevance differs, which by itself changes no prediction")
        return GroupVerdict(
            group=self.group,
            reference=self.reference.name,
            mention=mention,
            outcome=outcome,
            mention_reasons=tuple(why),
            outcome_reasons=tuple(rates),
            notes=tuple(notes),
            missing=tuple(self._missing()),
            counterfactual=self.swaps[0] if self.swaps else None,
            rates=self.rates[0] if self.rates else None,
            mention_advice=self._mention_advice() if mention == "open" else "",
            outcome_advice=outcome_advice(self.rates, self._names) if outcome == "open" else "",
        )

    @property
    def _names(self) -> int:
        """Those in the shorter of both lists; 0: not known."""
        names, others = self.evidence.names, set(self.reference.groups) - {self.group}
        return min(names.get(self.group, 0), sum(names.get(other, 0) for other in others))

    def _mention_advice(self) -> str:
        everywhere = next((row for row in self.rates if not row.stratum), None)
        sides = (everywhere.own, everywhere.other) if everywhere else ()
        return mention_advice(
            self.swaps,
            texts=sum(side.selected.total for side in sides),
            names=self._names,
            templates=self.evidence.templates,
        )

    def _mention(self) -> tuple[Mentioned, list[str]]:
        changing = [row for row in self.swaps if _has(row, "outside")]
        if changing:
            return "changes", [decided_effect(row) for row in changing[:2]]
        reasons = list(self._open_mention())
        if reasons:
            return "open", reasons
        everywhere = [row for row in self.swaps if not row.stratum]
        return "does not change", [decided_effect(row) for row in everywhere[:1]]

    def _open_mention(self) -> Iterator[str]:
        """Why the mention is open; nothing where every measure is inside its limit."""
        whole = any(row.whole for row in self.rates)
        if whole and not self.swaps and self.evidence.kind == "swap":
            yield "nothing was swapped: items belong to the group as a whole"
        elif not self.swaps:
            yield f"{self.words.none}: {self.evidence.no_swaps or self.words.nothing}"
        undecided = [row for row in self.swaps if not row.stratum and not _all_inside(row)]
        yield from (open_effect(row) for row in undecided[:1])
        doubtful = [row for row in self.swaps if row.stratum and _is_doubtful(row)]
        yield from (open_effect(row) for row in doubtful[:1])
        yield from self.evidence.unlisted.get(self.group, ())

    def _outcome(self) -> tuple[Outcomes, list[str]]:
        differing = [row for row in self.rates if _has(row, "outside")]
        if differing:
            return "differ", [decided_rates(row) for row in differing[:2]]
        reasons = list(self._open_outcome())
        if reasons:
            return "open", reasons
        everywhere = [row for row in self.rates if not row.stratum]
        return "do not differ", [decided_rates(row) for row in everywhere[:1]]

    def _open_outcome(self) -> Iterator[str]:
        """Why the outcome is open; nothing where every measure is inside its limit."""
        evidence = self.evidence
        if evidence.is_number:
            yield "a number has no rates to compare"
        elif not self.rates and evidence.no_rates:
            yield f"{evidence.no_rates}, so rates were not compared"
        elif not self.rates:
            mentioned = self.relevance or self.found.mentions
            who = f"its reference ({self.reference.name})" if mentioned else "this group"
            yield f"there are no items of {who}, so rates were not compared"
        undecided = [row for row in self.rates if not row.stratum and not _all_inside(row)]
        yield from (open_rates(row) for row in undecided[:1])
        doubtful = [row for row in self.rates if row.stratum and _is_doubtful(row)]
        yield from (open_rates(row) for row in doubtful[:1])

    def _notes(self, mention: Mentioned) -> Iterator[str]:
        """Yield what explains a difference of rates; it excuses none."""
        row = self.rates[0]
        measure = gravest(row.measures)
        if measure is not None and measure.name in ("rate", "impact ratio"):
            yield from labels_say(row)
        if measure is not None and not row.stratum and self._within_strata(row, measure.name):
            yield "the difference is between strata, not within them"
        if mention == "does not change":
            yield f"{self.words.deed} does not explain it"
        elif not self.swaps and not self.rates[0].whole:
            why = self.evidence.no_swaps or self.words.nothing
            yield f"whether {self.words.itself} does it is not known: {why}"

    def _within_strata(self, row: Outcome, name: MeasureName) -> bool:
        """Return whether the difference within strata is inside the limit, pooled over them.

        Strata have the weights of Mantel and Haenszel (1959), the product of both sides' items over
        their sum.
        """
        pooled = weights = 0.0
        for other in self.rates:
            measure = other.measure("rate" if name == "impact ratio" else name)
            same = other.stratum and other.prediction == row.prediction
            if same and measure is not None and measure.interval is not None:
                mine, reference = other.own.selected.total, other.other.selected.total
                weight = mine * reference / (mine + reference)
                pooled += weight * measure.value
                weights += weight
        limit = row.measure("rate" if name == "impact ratio" else name)
        return bool(weights and limit is not None and abs(pooled / weights) <= limit.high)

    def _missing(self) -> Iterator[str]:
        matching = self.found
        places = matching.mentions + matching.left_out
        if places and matching.left_out > LEFT_OUT * places:
            yield (
                f"{100 * matching.left_out / places:.0f} % of the places that may mention it were "
                "left out as ordinary words"
            )
        if matching.mentions and matching.most_share > ONE_ENTITY:
            yield f"{matching.most} is {100 * matching.most_share:.0f} % of its mentions"
        if self.relevance and all(row.verdict == "suppressed" for row in self.relevance):
            yield _not_compared(self.relevance[0])


def _ordered(rows: Iterable[_Row]) -> list[_Row]:
    """Rows with a measure outside first, of these the largest; all texts before strata."""

    def order(row: _Row) -> tuple[int, bool, float]:
        measure = gravest(row.measures)
        states = ("outside", "open", "inside")
        place = states.index(measure.state) if measure else len(states)
        # open strata come after all texts, whatever these are
        return (0 if place == 0 else 1), row.stratum != "", -(measure.size if measure else 0.0)

    return sorted(rows, key=order)


def _has(row: Counterfactual | Outcome, state: str) -> bool:
    return any(measure.state == state for measure in row.measures)


def _all_inside(row: Counterfactual | Outcome) -> bool:
    return bool(row.measures) and all(measure.state == "inside" for measure in row.measures)


def _is_doubtful(row: Counterfactual | Outcome) -> bool:
    return any(measure.doubtful for measure in row.measures)


def _not_compared(row: GroupStatistic) -> str:
    if "too few" in row.reason or not row.reason:
        return "it has too few entities for a comparison of relevance"
    return f"relevance was not compared: {row.reason}"
