"""The model's predictions where a group is mentioned, and the verdict on each group."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from transexplain.analysis.groups.answers import MOST, Answer, answers_of
from transexplain.analysis.groups.counterfactuals import (
    Counterfactual,
    Kind,
    counterfactual_table,
)
from transexplain.analysis.groups.entity_finder import is_whole
from transexplain.analysis.groups.group_cells import Reference, references_of
from transexplain.analysis.groups.group_verdicts import (
    GroupVerdict,
    MatchingLimits,
    Mentioned,
    Outcomes,
    VerdictEvidence,
    VerdictState,
    group_verdicts,
    with_measures,
)
from transexplain.analysis.groups.hidden_regions import region_table
from transexplain.analysis.groups.intervals import ItemRate
from transexplain.analysis.groups.measures import Measure
from transexplain.analysis.groups.mention_coverage import (
    Candidate,
    CandidateEffect,
    candidate_table,
    uncovered,
)
from transexplain.analysis.groups.outcomes import (
    Outcome,
    OutcomeMean,
    OutcomeSide,
    OutcomeTotals,
    outcome_table,
)
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.errors import ConfigurationError, TargetError
from transexplain.reports.phrasing import signed
from transexplain.reports.redaction import (
    RedactionRules,
    Redactor,
    by,
    empty,
    is_large,
    published,
)
from transexplain.reports.report_section import StatementKind
from transexplain.reports.sections.group_matching import GroupMatching
from transexplain.store import run_totals
from transexplain.store.database import Database
from transexplain.store.readers import iter_attributions
from transexplain.types.findings import GroupStatistic, Practical
from transexplain.types.items import Attribution, PatchGrid
from transexplain.types.plans import AT_POSITIONS, AuditPlan, AuditRun, Modality

#: how answers were changed, by what is explained
_CHANGED: Mapping[Modality, Kind] = {"text": "swap", "image": "region", "nodes": "substructure"}


def group_answers(
    db: Database,
    run: AuditRun,
    total: ShardAggregate,
    names: Sequence[str],
    rows: Sequence[GroupStatistic],
    matching: Sequence[GroupMatching],
) -> dict[str, Any]:
    """Return the rates, swaps and verdicts of the groups, as the fields of `Groups` that hold them.

    Args:
        db: the store, where words that go along with a group are looked for.
        run: the run.
        total: its aggregates, without groups that are not compared.
        names: of all groups that may be compared, mentioned or not.
        rows: of the group table.
        matching: how the groups were found.
    """
    plan = run.plan
    references = references_of(plan.reference, names)
    answers, limits = _answers(plan, total), plan.matters
    _check(total, len(answers))
    checked, kind = total.checked, _CHANGED[plan.model.modality]
    compared = answers, plan.model.classes, references, limits
    whole = [name for name in names if is_whole(plan, name)]
    outcomes = with_measures(
        outcome_table(total.outcomes, *compared, favourable=plan.favourable, whole=whole)
    )
    swaps = with_measures(  # decided together
        [
            *counterfactual_table(checked.observations, *compared, complete=plan.complete),
            *region_table(checked.regions, *compared, kind),
        ]
    )
    candidates = candidate_table(checked.candidates, plan.check, answers)
    evidence = VerdictEvidence(
        counterfactuals=swaps,
        outcomes=outcomes,
        relevance=rows,
        found={
            match.group: MatchingLimits(
                mentions=match.mentions,
                left_out=match.dropped,
                most=match.most,
                most_share=match.most_share,
            )
            for match in matching
        },
        unlisted=uncovered(candidates, references, limits),
        no_swaps="" if swaps else _why_no_swaps(plan),
        no_rates=_why_no_rates(plan, outcomes),
        kind=kind,
        names={group.name: len(group.terms) for group in plan.groups},
        templates=bool(checked.observations) and all(row.template for row in checked.observations),
        is_number=bool(answers) and all(answer.is_number for answer in answers),
    )
    verdicts = group_verdicts(evidence, references)
    proxies = proxies_of(db, run, verdicts, references, total.outcomes)
    return {
        "verdicts": tuple(replace(row, notes=with_proxies(row, proxies)) for row in verdicts),
        "outcomes": tuple(outcomes),
        "counterfactuals": tuple(swaps),
        "proxies": tuple(proxies),
        "candidates": tuple(candidates),
    }


def _answers(plan: AuditPlan, total: ShardAggregate) -> tuple[Answer, ...]:
    """The answers of the plan; where it names none, those of the classes predicted most."""
    if planned := _named(plan):
        return planned
    counts: Counter[str] = Counter()
    for (_, predicted), count in total.predictions.items():
        counts[predicted] += count
    classes = plan.model.classes
    return tuple(
        Answer(
            name=name,
            plus=(classes.index(name),),
            minus=tuple(i for i in range(len(classes)) if i != classes.index(name)),
        )
        for name, _ in counts.most_common(MOST)
        if name in classes
    )


def _check(total: ShardAggregate, answers: int) -> None:
    """Raise ConfigurationError where what was saved has other answers than the plan."""
    checked = total.checked
    saved = {len(row.log_odds) for row in (*checked.observations, *checked.candidates)}
    saved |= total.outcomes.answers
    if saved - {answers}:
        raise ConfigurationError(
            f"the run's saved aggregates have {max(saved)} answers where its plan has {answers}; "
            "restore the database from a backup, or run the audit again"
        )


def _named(plan: AuditPlan) -> tuple[Answer, ...]:
    """The answers of the plan's targets; none where one names a class that the model has not."""
    with suppress(TargetError):
        return answers_of(plan)
    return ()


def _why_no_rates(plan: AuditPlan, outcomes: Sequence[Outcome]) -> str:
    """Why a group has no rates; "": no item mentions it, or its reference."""
    if plan.model.head == "tokens":
        return "no entities of both sides are labelled in the data, or mentioned"
    return (
        "no item has an answer to compare with"
        if plan.model.head == "span" and not outcomes
        else ""
    )


def _why_no_swaps(plan: AuditPlan) -> str:
    """The reason why no mention was swapped, or no region hidden; "": some were."""
    if plan.task == "imported":
        return "the attributions were imported and the model is not available"
    if not _named(plan):
        return f"the model has more than {MOST} classes and no target names one (class:NAME)"
    if plan.model.modality != "text":
        return _why_no_regions(plan)
    if plan.model.head in AT_POSITIONS:
        answers = "entities" if plan.model.head == "tokens" else "answers"
        return f"the {answers} of a changed text are others"
    if plan.check is None:
        return "groups.check is 0"
    if not plan.check.swap:
        return "fewer than two groups have terms in a lexicon"
    return ""


def _why_no_regions(plan: AuditPlan) -> str:
    """The reason why no region of pictures, or substructure of graphs, was hidden."""
    graphs = plan.model.modality == "nodes"
    items, regions = ("graphs", "substructures") if graphs else ("pictures", "regions")
    marked = [group.name for group in plan.groups if not is_whole(plan, group.name)]
    if len(marked) < 2:
        return f"groups of whole {items} have none; data.spans names a column of marked {regions}"
    if plan.check is None:
        return f"groups.check is 0, or the first {items} have no {regions} of two groups"
    if not plan.check.regions:
        return f"the first {items} have no {regions} of two groups"
    return (
        f"no {regions} of both sides were drawn that the model sees and that leave some of the "
        f"{items}"
    )


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


_FEW = "the numbers behind it rest on too few items to be shown"


def _mention_reasons(
    value: tuple[str, ...], verdict: GroupVerdict, redactor: Redactor
) -> tuple[str, ...]:
    """Only where the swaps behind them are of enough texts."""
    row = verdict.counterfactual
    return value if row is None or redactor.within(row) is not None else (_FEW,)


def _outcome_reasons(
    value: tuple[str, ...], verdict: GroupVerdict, redactor: Redactor
) -> tuple[str, ...]:
    """Only where all the rates behind them are of enough items."""
    row = verdict.rates
    if row is None or row.measures == _shown_measures(row.measures, row, redactor):
        return value
    return (_FEW,)


#: measure -> the rate of a side that it compares
_RATE_OF = {
    "true positive rate": "true_positive",
    "false positive rate": "false_positive",
    "precision": "precision",
}


def _shown_measures(
    value: tuple[Measure, ...], row: Outcome, redactor: Redactor
) -> tuple[Measure, ...]:
    """Those of rates whose counts are not few on either side."""
    if not _compared_rates(row, redactor.fewest):
        return ()

    def is_shown(measure: Measure) -> bool:
        name = _RATE_OF.get(measure.name)
        return name is None or all(
            _rate(getattr(side, name), side, redactor) for side in (row.own, row.other)
        )

    return tuple(measure for measure in value if is_shown(measure))


def _rate(value: ItemRate | None, _side: OutcomeSide, redactor: Redactor) -> ItemRate | None:
    rate: ItemRate | None = redactor.within(value)
    fewest = redactor.fewest
    return rate if rate is not None and is_large(rate.count, rate.total, fewest) else None


def _compared_rates(outcome: Outcome, fewest: int) -> bool:
    """Return whether both rates that are compared are of enough items, counted or not."""
    rates = (outcome.own.selected, outcome.other.selected)
    return all(rate.total >= fewest and is_large(rate.count, rate.total, fewest) for rate in rates)


RULES: Mapping[type, RedactionRules] = {
    Practical: published(),
    GroupVerdict: published(
        "group reference",
        mention_reasons=_mention_reasons,
        outcome_reasons=_outcome_reasons,
        mention_advice=empty(""),
        outcome_advice=empty(""),
        notes=empty(()),
        missing=by(lambda gaps: ("what was not tested is left out",) if gaps else ()),
    ),
    Counterfactual: published(
        "group reference prediction stratum",
        least="documents",
        examples=empty(()),
    ),
    Candidate: published("word group reference entity line", least="texts"),
    CandidateEffect: published("prediction"),
    Outcome: published(
        "group reference prediction stratum",
        stands=_compared_rates,
        measures=_shown_measures,
    ),
    Measure: published(precision=empty(None)),
    OutcomeSide: published(
        calibration=lambda value, side, redactor: (
            value if _rate(side.labelled, side, redactor) else None
        ),
        labelled=_rate,
        error=_rate,
        true_positive=_rate,
        false_positive=_rate,
        precision=_rate,
    ),
    ItemRate: published(),
    OutcomeMean: published(),
}


#: state of a verdict -> how its sentence is marked, the gravest first
KINDS: dict[VerdictState, StatementKind] = {
    "flagged": "flagged",
    "open": "unknown",
    "clear": "clear",
}


def hidden_parts(rows: Sequence[Counterfactual]) -> str:
    """Return what they are hidden parts of, `regions` or `substructures`; "": they are of swaps."""
    return next((f"{row.kind}s" for row in rows if row.kind != "swap"), "")


def verdict_sentence(verdict: GroupVerdict) -> str:
    """The verdict on one group with all its reasons, for lists and exports."""
    rates = [reason.removeprefix("rates may differ: ") for reason in verdict.outcome_reasons]
    what = "belonging to it" if is_of_whole(verdict) else "the mention"
    questions = (
        (f"{what} {MENTION[verdict.mention]}", verdict.mention_reasons),
        (f"outcomes {OUTCOME[verdict.outcome]}", (*rates, *verdict.notes)),
    )
    texts = [f"{answer}: {'; '.join(reasons)}" for answer, reasons in questions]
    texts += [f"not tested: {'; '.join(verdict.missing)}"] if verdict.missing else []
    said = ". ".join(text[:1].upper() + text[1:] for text in texts)
    return f"{verdict.group} against {verdict.reference}. {said}."


def is_of_whole(verdict: GroupVerdict) -> bool:
    """Return whether items belong to the group as a whole, so that nothing can be swapped."""
    return verdict.rates is not None and verdict.rates.whole


#: state of a question -> how a sentence ends
MENTION: Mapping[Mentioned, str] = {
    "changes": "changes the prediction",
    "does not change": "does not change the prediction",
    "open": "may change the prediction, or not",
}
OUTCOME: Mapping[Outcomes, str] = {
    "differ": "differ",
    "do not differ": "do not differ",
    "open": "may differ, or not",
}


def by_state(verdicts: Sequence[GroupVerdict]) -> dict[VerdictState, list[GroupVerdict]]:
    """State -> groups, those with the largest measure first."""

    def size(verdict: GroupVerdict) -> float:
        rows = (verdict.counterfactual, verdict.rates)
        sizes = (measure.size for row in rows if row is not None for measure in row.measures)
        return -max(sizes, default=0.0)

    return {
        state: sorted((row for row in verdicts if row.state == state), key=size) for state in KINDS
    }
