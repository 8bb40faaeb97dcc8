"""The section on entity groups: verdicts, answers, relevance and controls."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.group_cells import cells_of, reference_name
from transexplain.analysis.groups.group_controls import Placebo, Planted, placebo, planted
from transexplain.analysis.groups.group_table import (
    EntityRanking,
    Split,
    rankings,
    splits,
    with_reversals,
)
from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.analysis.groups.intervals import BOOTSTRAP_FROM, MIN_ENTITIES
from transexplain.analysis.groups.matching_sheet import ALL, MatchPrecision
from transexplain.analysis.groups.mention_ablation import Ablations, ablations_of
from transexplain.analysis.groups.mention_coverage import Candidate
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.randomised_control import Randomised, randomised_control
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports.forest import axis_around
from transexplain.reports.phrasing import named
from transexplain.reports.redaction import (
    Redactor,
    empty,
    published,
    within,
)
from transexplain.reports.report_section import Section, Statement
from transexplain.reports.sections import group_answers, group_matching, group_relevance
from transexplain.reports.sections.group_answers import Proxies, verdict_statements
from transexplain.reports.sections.group_matching import (
    Dropped,
    GroupMatching,
    RareGroup,
    dropped_by_group,
    matching_of,
    rare_groups,
    without_rare,
)
from transexplain.reports.sections.group_relevance import (
    GroupQuality,
    group_tables,
    key_of,
    quality_by_group,
    relevance_statements,
    rules_of,
    shown_rankings,
    with_measures,
)
from transexplain.reports.sections.mixed_section import compared
from transexplain.store.database import Database
from transexplain.types.findings import Correction, GroupStatistic, Practical
from transexplain.types.items import EntityGroup
from transexplain.types.plans import AmbiguityPolicy, AuditRun, RecogniserPlan

_RANKED = 10  #: entities at either end


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """The entity-group table and what it was judged by."""

    rows: tuple[GroupStatistic, ...]
    reference: str
    practical: float  #: smallest difference of relevance that matters, in the unit
    correction: str  #: of p-values for the number of comparisons
    never_mentioned: tuple[str, ...]
    sources: Mapping[str, str]  #: group -> where its terms came from
    limits: Practical = field(default_factory=Practical)  #: of answers: what matters
    verdicts: tuple[GroupVerdict, ...] = ()  #: of every mentioned group but references
    outcomes: tuple[Outcome, ...] = ()  #: of answers, by group, stratum and answer
    counterfactuals: tuple[Counterfactual, ...] = ()  #: of swaps and regions, the same way
    proxies: tuple[Proxies, ...] = ()  #: of groups whose outcomes differ
    candidates: tuple[Candidate, ...] = ()  #: words that the lexicon may lack
    removals: Ablations | None = None  #: None: no mention was removed
    randomised: Randomised | None = None  #: None: no item was drawn for it
    placebo: Placebo | None = None  #: None: nothing could be compared
    planted: tuple[Planted, ...] = ()  #: by size; empty: not requested, or nothing is compared
    rankings: tuple[EntityRanking, ...] = ()  #: of entities, by target and class; only the ends
    splits: tuple[Split, ...] = ()  #: the table by predicted class, right or wrong, and slice
    dropped: tuple[Dropped, ...] = ()  #: left out as ambiguous
    rare: tuple[RareGroup, ...] = ()  #: meetings of groups that are not compared, under 2 %
    quality: tuple[GroupQuality, ...] = ()  #: the reference's first
    matching: tuple[GroupMatching, ...] = ()  #: in the order of the plan
    precision: MatchPrecision | None = None  #: of all checked matches; None: nobody checked any


def groups_of(
    db: Database, run: AuditRun, total: ShardAggregate, precisions: Sequence[MatchPrecision] = ()
) -> Groups | None:
    """The group table with its controls; None where the audit named no groups."""
    plan = run.plan
    if not plan.groups:
        return None
    rules = rules_of(plan)
    rare = rare_groups(plan, matching_of(plan, total.entities, dropped_by_group(total.dropped)))
    total = without_rare(total, rare)
    totals = total.entities
    cells = cells_of(totals)
    rows = with_measures(plan, total, cells, compared(plan, total, cells, rules))
    parts = splits(totals, rows, rules)
    control = placebo(cells, rules)
    dropped = dropped_by_group(total.dropped)
    mentioned = {row.group for row in rows} | {group.group for group in rare}
    matching = matching_of(plan, totals, dropped, precisions, total)
    groups = Groups(
        rows=tuple(with_reversals(rows, parts)),
        reference=reference_name(row.reference for row in rows),
        practical=plan.practical,
        correction=plan.correction,
        limits=plan.matters,
        never_mentioned=tuple(g.name for g in plan.groups if g.name not in mentioned),
        sources={group.name: group.source for group in plan.groups},
        removals=ablations_of(total.checked.ablations),
        randomised=randomised_control(total.checked.randomised, rules),
        placebo=control if control.comparisons else None,
        planted=planted(cells, rules, plan.planted) if plan.planted is not None else (),
        rankings=tuple(ranking.ends(_RANKED) for ranking in rankings(totals)),
        splits=parts,
        dropped=dropped,
        rare=rare,
        quality=quality_by_group(db, run, total.gaps),
        matching=matching,
        precision=next((precision for precision in precisions if precision.group == ALL), None),
    )
    too_rare = {group.group for group in rare}
    names = [group.name for group in plan.groups if group.name not in too_rare]
    answers = group_answers.group_answers(db, run, total, names, groups.rows, matching)
    return replace(groups, **answers)


def _verdicts(
    value: tuple[GroupVerdict, ...], groups: Groups, redactor: Redactor
) -> tuple[GroupVerdict, ...]:
    """Those on groups that are in the table."""
    shown = {row.group for row in groups.rows if row.documents >= redactor.fewest}
    verdicts: tuple[GroupVerdict, ...] = redactor.within(
        tuple(verdict for verdict in value if verdict.group in shown)
    )
    return verdicts


def _randomised(value: Randomised | None, groups: Groups, redactor: Redactor) -> Randomised | None:
    """Rows of comparisons that are in the table."""
    if value is None or value.items < redactor.fewest:
        return None
    known = {key_of(row) for row in groups.rows if row.documents >= redactor.fewest}
    rows = tuple(row for row in value.rows if key_of(row) in known)
    published: Randomised | None = redactor.within(replace(value, rows=rows))
    return published


def control_sentences(groups: Groups) -> list[str]:
    """The results of mention ablation, randomised models and planted differences; plain text."""
    sentences = [group_relevance.ablation_sentence(groups.removals)] if groups.removals else []
    if groups.randomised:
        sentences.append(group_relevance.randomised_sentence(groups.rows, groups.randomised))
    if groups.planted:
        sentences.append(group_relevance.planted_sentence(groups.planted))
    return sentences


_SENTENCES = 6  #: of one kind
_NEVER_NAMED = 4


def _sentences(report: Any) -> Iterator[Statement]:
    groups: Groups | None = report.groups
    if groups is None:
        if report.audited.modality == "text":
            yield Statement(
                kind="unknown",
                text="No entity groups were given, so mentions are not compared.",
            )
        return
    yield from verdict_statements(groups.verdicts, _SENTENCES)
    yield from relevance_statements(
        groups.rows,
        groups.randomised,
        unit=report.audited.unit,
        classes=report.audited.classes,
        most=_SENTENCES,
    )
    never = groups.never_mentioned
    if absent := sorted({row.reference for row in groups.rows} & set(never)):
        yield Statement(
            kind="problem",
            text=f"Nothing was compared with {named(absent)}: the reference is never mentioned.",
        )
    if len(never) > _NEVER_NAMED:
        yield Statement(
            kind="unknown",
            text=f"{len(never)} of the {len(groups.sources)} groups were never mentioned.",
        )
    elif never:
        yield Statement(kind="unknown", text=f"Never mentioned: {named(never)}.")


def group_notes(run: AuditRun) -> Iterator[str]:
    """Yield how groups are found, compared and checked, a paragraph each."""
    if not run.plan.groups:
        return
    matching, recogniser = run.plan.matching, run.plan.recogniser
    if recogniser is not None:
        yield _recognised(recogniser, run.plan.groups)
    whose = "of lexicons " if recogniser is not None else ""
    yield (
        f"Entities {whose}are found by their spelling, at word boundaries, longest match first. "
        "Names that "
        f"are ordinary words too count {_AMBIGUOUS[matching.ambiguous]}; `transexplain matches` "
        "reports how often they were left out, and samples matches for a person to check. A "
        "mention's relevance is the sum over its pieces."
    )
    if matching.columns:
        columns = "column" if len(matching.columns) == 1 else "columns"
        yield (
            f"Groups of the {columns} {' and '.join(matching.columns)} are of whole items: the "
            "relevance is the sum over an item's positions without special ones, and the item is "
            "the entity."
        )
    yield from _statistics(run)
    yield from _checks(run)


def _statistics(run: AuditRun) -> Iterator[str]:
    graphs = run.plan.model.modality == "nodes"
    parts = "substructures of one graph" if graphs else "regions of one picture"
    yield (
        "The unit of the group table is the entity, not the mention, because mentions of one name "
        "share its embedding. p: entities swap groups at random, with Welch's t as the statistic. "
        f"Intervals are 95\u00a0%: Student for a group's mean, Welch for a difference below "
        f"{BOOTSTRAP_FROM} entities on a side, from there on a Poisson bootstrap over entities. "
        f"With fewer than {MIN_ENTITIES} entities on either side nothing is computed. Where the "
        f"reference has the same entities ({parts}), each is compared with itself: "
        "p is then of sign flips."
    )
    yield (
        "Tables by predicted class, by right or wrong and by slice are families of their own: p is "
        "adjusted within each split, not with the table over all items. Words as frequent, ranks, "
        "distributions and a second lexicon do not change verdicts."
    )
    limits = run.plan.matters
    yield (
        "A verdict answers two questions about a group, each by measures that have a limit. *The "
        "mention*: does another group's name in its place change the prediction? Measures: the "
        f"mean change of a prediction's log-odds (limit ±{limits.logit:g}) and probability "
        f"(±{100 * limits.probability:g} points), the share of predictions that change, beyond "
        f"those that change within one group ({100 * limits.changed:g} points), and how much the "
        f"effect differs between texts ({limits.spread:g} logit). *The outcome*: do predictions "
        "and errors differ? Measures: differences of the rate of each prediction and, where there "
        f"are labels, of its true and false positive rates (±{100 * limits.rates:g} points); of a "
        "class that is declared favourable also the ratio of the rates "
        f"({limits.impact_ratio:g} to {1 / limits.impact_ratio:.2f})."
    )
    yield (
        "*Changes*, or *differ*: a measure lies outside its limit, and so it would in at most "
        "5\u00a0% of audits in which none does: p is adjusted for all measures of the question, "
        "over all groups, predictions and strata (Holm 1979). *Does not change*, or *do not "
        "differ*: the 90\u00a0% interval of every measure lies inside its limit. That needs no "
        "adjustment, because each of them has to (Schuirmann 1987, Berger 1982). *Open*: neither. "
        "The interval shown beside a measure is the one that decided: 90\u00a0%, or wider where "
        "the measure lies outside. Intervals of swaps are over names and texts (or clusters of "
        "them); those of rates are Wilson's at the effective number of items, Newcombe's, and "
        "Donner and Zou's. A group is *flagged* where either answer is a difference, and *clear* "
        "where neither is, nothing is open, and nothing that the verdict rests on is missing. "
        "Relevance decides neither."
    )
    yield (
        f"Relevance: *difference* where p, {_CORRECTED[run.plan.correction]}, is at most 0.05 and "
        f"the difference exceeds {run.plan.practical:g}; *equivalent* where its 90\u00a0% interval "
        f"lies within ±{run.plan.practical:g}; *inconclusive* otherwise. None of them says why: "
        "attribution is not causation."
    )


def _checks(run: AuditRun) -> Iterator[str]:
    check = run.plan.check
    if check is None:
        return
    ways = []
    if not check.whole:
        ways.append("one randomly sampled mention of each was ablated")
    if check.swap:
        ways.append("other names of its group and of its reference took its place")
    if check.regions:
        ways.append(
            "every substructure marked in a graph was hidden: its nodes removed, with the mean "
            "features of the other nodes, and with features of 0"
            if run.plan.model.modality == "nodes"
            else "every region marked in a picture was hidden: filled with the picture's mean "
            "colour, blurred, and in-painted"
        )
    if check.randomised:
        many = "a model" if check.draws == 1 else f"one of {check.draws} models"
        ways.append(
            f"{many} with a new random sample of all weights explained them for the same classes"
        )
    yield (
        "A random sample of the items that mention somebody was checked (share "
        f"{100 * check.share:.3g}\u00a0%): {'; '.join(ways)}. Shares of predictions "
        "changed by ablation are means over entities with Student's interval, or Wilson's over "
        "entities where all have the share 0 or 1. "
        "Only the predictions with other names enter "
        "the verdicts."
    )


def _recognised(recogniser: RecogniserPlan, groups: Sequence[EntityGroup]) -> str:
    """Return which groups' mentions a recogniser finds, or what else it decides."""
    recognised = [group.name for group in groups if group.source == recogniser.source_of_groups]
    missed = "What it misses is not counted, and what it takes for an entity is."
    if not recognised:
        return f"{recogniser.name} decides which ambiguous names of the lexicons count. {missed}"
    return (
        f"Mentions of {named(recognised)} were found by a named-entity recogniser, "
        f"{recogniser.name}, "
        f"and not by a lexicon. {missed} Its entities are named as the texts spell them, in lower "
        "case, unless it names them itself: two spellings of one person are two entities."
    )


_AMBIGUOUS: dict[AmbiguityPolicy, str] = {
    "cue": "where a capital, a title or a neighbouring word shows that they are names",
    "always": "wherever they stand",
    "never": "nowhere",
    "recogniser": "where they lie within an entity that the recogniser found",
}
_CORRECTED: dict[Correction, str] = {
    "bh": "adjusted over the whole table by Benjamini and Hochberg",
    "by": "adjusted over the whole table by Benjamini and Yekutieli",
    "holm": "adjusted over the whole table by Holm",
    "none": "not adjusted for the number of comparisons",
}


def _drawing(report: Any) -> Mapping[str, Any]:
    groups: Groups | None = report.groups
    rows = groups.rows if groups else ()
    by_key = {key_of(row): row for row in rows}
    return {
        "tables": tuple(group_tables(rows, groups.practical)) if groups else (),
        "spread_axis": lambda rows: axis_around(
            end for row in rows if row.quantiles for end in (row.quantiles.low, row.quantiles.high)
        ),
        "ranking_axis": lambda ranking: axis_around(
            end for entity in ranking.entities for end in entity.interval
        ),
        "row_of": lambda check: by_key.get(key_of(check)),
        "controls": group_relevance,
    }


SECTION = Section(
    template="groups.html.j2",
    links=(("groups", "Groups"),),
    redaction={
        # a group that is left out of the table is not among those that nobody mentions
        Groups: published(
            "reference practical correction never_mentioned sources",
            inside=(
                "rows limits outcomes counterfactuals candidates removals placebo planted splits "
                "dropped rare quality matching precision"
            ),
            verdicts=_verdicts,
            proxies=empty(()),
            randomised=_randomised,
            rankings=shown_rankings,
        ),
        **group_relevance.RULES,
        **group_answers.RULES,
        **group_relevance.CONTROL_RULES,
        **group_matching.RULES,
        **group_relevance.QUALITY_RULES,
    },
    of_summary={"groups": within},
    present=lambda report: report.groups is not None,
    sentences=_sentences,
    drawing=_drawing,
)
