"""The section on entity groups: verdicts, answers, relevance and controls."""

from collections.abc import Iterable, Mapping, Sequence
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
from transexplain.analysis.groups.matching_sheet import ALL, MatchPrecision
from transexplain.analysis.groups.mention_ablation import Ablations, ablations_of
from transexplain.analysis.groups.mention_coverage import Candidate
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.randomised_control import Randomised, randomised_control
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports.forest import axis_around
from transexplain.reports.phrasing import class_phrase
from transexplain.reports.redaction import (
    Redactor,
    empty,
    published,
    within,
)
from transexplain.reports.report_section import Section, Statement, statements
from transexplain.reports.sections import group_answers, group_matching, group_relevance
from transexplain.reports.sections.group_answers import Proxies
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
    rules_of,
    shown_rankings,
    with_measures,
)
from transexplain.reports.sections.mixed_section import compared
from transexplain.store.database import Database
from transexplain.types.findings import GroupStatistic, Practical
from transexplain.types.plans import AuditRun

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


def _sentences(report: Any) -> Iterable[Statement]:
    groups: Groups | None = report.groups
    if groups is None:
        text = "No entity groups were given, so mentions are not compared."
        of_texts = report.audited.modality == "text"
        return [Statement(kind="unknown", text=text)] if of_texts else []
    never, flagged = groups.never_mentioned, [row for row in groups.rows if row.flagged]
    by = group_answers.by_state(groups.verdicts)
    return statements(
        "groups_headline.txt.j2",
        verdicts=[(state, kind, by[state]) for state, kind in group_answers.KINDS.items()],
        verdict_sentence=group_answers.verdict_sentence,
        differing=sorted(flagged, key=lambda row: -abs(row.difference or 0.0)),
        relevance=group_relevance.RELEVANCE,
        unlearnt=lambda row: group_relevance.unlearnt(row, groups.randomised),
        audited=report.audited,
        class_phrase=class_phrase,
        absent=sorted({row.reference for row in groups.rows} & set(never)),
        never=never,
        sources=groups.sources,
        most=6,  # of one kind
    )


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
            "reference correction never_mentioned sources",
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
