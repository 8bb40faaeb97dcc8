"""The relevance of a group's mentions for a class: the group table, its splits and its rankings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transexplain.analysis.groups.background_words import with_backgrounds
from transexplain.analysis.groups.entity_finder import is_whole
from transexplain.analysis.groups.entity_ranking import RankedEntity, Ranking
from transexplain.analysis.groups.group_cells import Cell, cells_of
from transexplain.analysis.groups.group_controls import with_second
from transexplain.analysis.groups.group_splits import Part, Reversal, Split
from transexplain.analysis.groups.group_table import Rules
from transexplain.analysis.groups.mention_ablation import AblationStatistic
from transexplain.analysis.groups.randomised_control import Randomised, RandomisedRow
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports import forest
from transexplain.reports.evaluation.evaluation_text import probability
from transexplain.reports.phrasing import class_phrase, number
from transexplain.reports.redaction import RedactionRules, Redactor, at_least, keep, kept, within
from transexplain.reports.report_section import Statement
from transexplain.reports.sections.controls import learnt
from transexplain.reports.sections.group_matching import matching_of, rare_groups, without_rare
from transexplain.reports.sections.mixed_section import compared
from transexplain.types.findings import Background, GroupStatistic, Quantiles, Robustness
from transexplain.types.plans import AuditPlan, AuditRun

Key = tuple[str, str, str]  #: group, target, class


def key_of(row: GroupStatistic | RandomisedRow | AblationStatistic | Reversal) -> Key:
    """Which comparison a row is about."""
    return row.group, row.target, row.class_name


def rules_of(plan: AuditPlan) -> Rules:
    """How a plan has its groups compared."""
    return Rules(
        reference=plan.reference,
        groups=tuple(group.name for group in plan.groups),
        practical=plan.practical,
        correction=plan.correction,
    )


def group_rows(run: AuditRun, total: ShardAggregate) -> list[GroupStatistic]:
    """The group table alone, without the controls of its section."""
    rare = rare_groups(run.plan, matching_of(run.plan, total.entities, ()))
    total = without_rare(total, rare)
    return compared(run.plan, total, cells_of(total.entities), rules_of(run.plan))


def with_measures(
    plan: AuditPlan, total: ShardAggregate, cells: list[Cell], rows: list[GroupStatistic]
) -> list[GroupStatistic]:
    """Rows with what words as frequent add, and with the second lexicon's comparison."""
    of_words = [one for one in plan.groups if not is_whole(plan, one.name)]
    found = iter(rows)
    if plan.privacy is None or plan.privacy.store_text == "full":  # else no word can be matched
        found = with_backgrounds(rows, cells, total.words, (*of_words, *plan.second))
    names = [group.name for group in plan.second]
    return list(with_second(found, cells, cells_of(total.second), names, rules_of(plan)))


def shown_rankings(
    value: tuple[Ranking, ...], _groups: Any, redactor: Redactor
) -> tuple[Ranking, ...]:
    """Redacted: the rankings of which entities are left."""
    return tuple(one for one in redactor.within(value) if one.entities)


def _omitted_entities(value: int, ranking: Ranking, redactor: Redactor) -> int:
    return value + sum(one.documents < redactor.fewest for one in ranking.entities)


def _parts(value: tuple[Part, ...], _split: Split, redactor: Redactor) -> tuple[Part, ...]:
    return tuple(part for part in redactor.within(value) if part.rows)


def _omitted_parts(value: int, split: Split, redactor: Redactor) -> int:
    return value + len(split.parts) - len(_parts(split.parts, split, redactor))


def _reversals(
    value: tuple[Reversal, ...], split: Split, redactor: Redactor
) -> tuple[Reversal, ...]:
    """Reversals depend on all parts of a split, so they stay only with these."""
    parts = _parts(split.parts, split, redactor)
    shown = {(*key_of(row), part.value) for part in parts for row in part.rows}
    found: tuple[Reversal, ...] = redactor.within(
        tuple(one for one in value if all((*key_of(one), part) in shown for part in one.parts))
    )
    return found


RULES: Mapping[type, RedactionRules] = {
    GroupStatistic: RedactionRules(
        stands=at_least("documents"),
        fields={
            **dict.fromkeys(("robustness", "quantiles", "background"), within),
            **kept(
                "group target class_name mentions documents entities mean entity_mean positive "
                "interval reference difference difference_interval interval_by p adjusted_p "
                "detectable verdict reason note rank"
            ),
        },
    ),
    Robustness: RedactionRules(fields=kept("name unit difference interval")),
    Quantiles: RedactionRules(fields=kept("low lower median upper high")),
    Background: RedactionRules(
        fields=kept("words entities mean interval difference difference_interval")
    ),
    Ranking: RedactionRules(
        fields={
            "entities": within,
            "omitted": _omitted_entities,
            **kept("target class_name centre spread"),
        }
    ),
    RankedEntity: RedactionRules(
        stands=at_least("documents"),
        fields=kept("groups entity mentions documents mean shrunken interval"),
    ),
    Split: RedactionRules(
        fields={"parts": _parts, "omitted": _omitted_parts, "reversals": _reversals, "by": keep}
    ),
    Part: RedactionRules(fields={"rows": within, "value": keep}),
    Reversal: RedactionRules(fields=kept("group target class_name overall parts")),
}


@dataclass(frozen=True, slots=True)
class GroupTable:
    """The comparisons for one target and class, strongest first."""

    target: str
    class_name: str
    rows: tuple[GroupStatistic, ...]
    flagged: int
    axis: forest.Axis


def group_tables(rows: Sequence[GroupStatistic], practical: float) -> Iterator[GroupTable]:
    """One for each target and class; those of a target share an axis."""
    axes = {
        target: forest.axis_of([r for r in rows if r.target == target], practical)
        for target in dict.fromkeys(row.target for row in rows)
    }
    for target, class_name in dict.fromkeys((r.target, r.class_name) for r in rows):
        found = [r for r in rows if (r.target, r.class_name) == (target, class_name)]
        found.sort(key=lambda r: (r.difference is None, -(r.difference or 0.0), r.group))
        flagged = sum(row.flagged for row in found)
        yield GroupTable(target, class_name, tuple(found), flagged, axes[target])


def row_of(
    rows: Iterable[GroupStatistic], check: AblationStatistic | RandomisedRow
) -> GroupStatistic | None:
    """The row of the group table that a control is about; None: there is none."""
    return next((one for one in rows if key_of(one) == key_of(check)), None)


def ranking_axis(ranking: Ranking) -> forest.Axis:
    """The axis of the intervals of a ranking."""
    return forest.axis_around(end for one in ranking.entities for end in one.interval)


def spread_axis(rows: Iterable[GroupStatistic]) -> forest.Axis:
    """The axis of the distributions of these groups."""
    spreads = [row.quantiles for row in rows if row.quantiles]
    return forest.axis_around(end for one in spreads for end in (one.low, one.high))


RELEVANCE = "Relevance: "  #: how sentences about where answers come from begin


def relevance_statements(
    rows: Sequence[GroupStatistic],
    randomised: Randomised | None,
    *,
    unit: str,
    classes: Sequence[str],
    most: int,
) -> Iterator[Statement]:
    """Where answers come from, at most `most` comparisons; it flags no group."""
    flagged = sorted((row for row in rows if row.flagged), key=lambda r: -abs(r.difference or 0.0))
    for row in flagged[:most]:
        what = class_phrase(row.target, row.class_name, classes)
        text = f"{_finding(row, what, unit)}{_unlearnt(row, randomised)}"
        yield Statement(kind="fact", text=text)
    if (rest := len(flagged) - most) > 0:
        more = "comparison" if rest == 1 else "comparisons"
        yield Statement(
            kind="fact", text=f"Relevance differs in {rest} more {more}; see the table."
        )


def _finding(row: GroupStatistic, what: str, unit: str) -> str:
    difference = row.difference or 0.0
    low, high = row.difference_interval or (0.0, 0.0)
    more = "more" if difference > 0 else "less"
    unit = {"logits": "logit"}.get(unit, unit)
    return (
        f"{RELEVANCE}mentions of {row.group} add {number(abs(difference))} {unit} {more} to "
        f"{what} than those of {row.reference} (95\u00a0% interval {number(low)} to "
        f"{number(high)}; adjusted {probability(row.adjusted_p)}; {row.entities:,} entities in "
        f"{row.documents:,} items)."
    )


def _unlearnt(row: GroupStatistic, randomised: Randomised | None) -> str:
    """How much of it models that have learnt nothing show; nothing where that is not known."""
    for one in randomised.rows if randomised else ():
        if key_of(one) == key_of(row):
            sentence = learnt(one, row.difference or 0.0)
            return f" {sentence}" if sentence else ""
    return ""
