"""What the database adds up about a run: how many items went where, the ledgers, the groups."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from transexplain.analysis.groups.background_words import with_backgrounds
from transexplain.analysis.groups.entity_finder import is_whole
from transexplain.analysis.groups.entity_ranking import rankings
from transexplain.analysis.groups.group_cells import Cell, cells_of
from transexplain.analysis.groups.group_controls import placebo, planted, with_second
from transexplain.analysis.groups.group_splits import splits, with_reversals
from transexplain.analysis.groups.group_table import Rules
from transexplain.analysis.groups.matching_sheet import ALL, Precision
from transexplain.analysis.groups.mention_ablation import ablations_of
from transexplain.analysis.groups.merged_aggregates import merged_aggregates
from transexplain.analysis.groups.randomised_control import randomised_control
from transexplain.analysis.groups.reference_groups import reference_name
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports.group_findings import (
    dropped_by_group,
    matching_of,
    quality_by_group,
    rare_groups,
    with_answers,
)
from transexplain.reports.report_records import Conservation, Counts, Groups
from transexplain.reports.row_records import RareGroup
from transexplain.reports.sections.cheap_and_exact import compared
from transexplain.store import results, run_totals, runs
from transexplain.store.database import Database
from transexplain.types.findings import GroupStatistic
from transexplain.types.plans import AuditPlan, AuditRun

_RANKED = 10  #: entities at either end
#: largest acceptable |gap| / sum of |terms|, by number type (half precision is only measured)
TOLERANCES = {"float64": 1e-12, "float32": 5e-6}
_ENTRIES = ("inputs", "special", "embeddings", "biases", "rules")


def counts_of(db: Database, run: AuditRun) -> Counts:
    """How many items of a run were explained, failed, were cut, and predicted as labelled."""
    progress = runs.progress(db, run.id)
    correct, labelled = results.accuracy(db, run.id) or (0, 0)
    return Counts(
        total=progress.items_total,
        done=progress.items_done,
        failed=progress.items_failed,
        pending=progress.items_total - progress.items_done - progress.items_failed,
        dead_shards=progress.states.get("dead", 0),
        truncated=run_totals.truncated(db, run.id),
        labelled=labelled,
        correct=correct,
        accuracy=correct / labelled if labelled else None,
    )


def conservation_of(db: Database, run: AuditRun) -> Conservation | None:
    """How exactly the ledgers close; None where no attribution has one."""
    tolerance = TOLERANCES.get(run.plan.model.dtype)
    found = results.conservation(db, run.id, tolerance)
    if found is None:
        return None
    return Conservation(
        attributions=found.n,
        worst=found.max_relative_gap,
        mean=found.mean_relative_gap,
        worst_item=found.worst_item,
        tolerance=tolerance,
        above=found.above,
        average={entry: found.sums[entry] / found.n for entry in _ENTRIES},
        average_size={entry: found.absolute[entry] / found.n for entry in _ENTRIES},
    )


def merged(db: Database, run_id: str) -> ShardAggregate:
    """The aggregates of every saved shard together."""
    with uncollected():
        return merged_aggregates(results.aggregates(db, run_id))


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the search for cycles: totals have none, and looking through them takes as long."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def rules_of(plan: AuditPlan) -> Rules:
    """How a plan has its groups compared."""
    return Rules(
        reference=plan.reference,
        groups=tuple(group.name for group in plan.groups),
        practical=plan.practical,
        correction=plan.correction,
    )


def group_rows(run: AuditRun, total: ShardAggregate) -> list[GroupStatistic]:
    """The group table alone, without the controls that `groups_of` adds."""
    rare = rare_groups(run.plan, matching_of(run.plan, total.entities, ()))
    total = _without(total, rare)
    return compared(run.plan, total, cells_of(total.entities), rules_of(run.plan))


def groups_of(
    db: Database, run: AuditRun, total: ShardAggregate, precisions: Sequence[Precision] = ()
) -> Groups | None:
    """The group table with its controls; None where the audit named no groups."""
    plan = run.plan
    if not plan.groups:
        return None
    rules = rules_of(plan)
    rare = rare_groups(plan, matching_of(plan, total.entities, dropped_by_group(total.dropped)))
    total = _without(total, rare)
    totals = total.entities
    cells = cells_of(totals)
    rows = _with_measures(plan, total, cells, compared(plan, total, cells, rules))
    parts = splits(totals, rows, rules)
    control = placebo(cells, rules)
    dropped = dropped_by_group(total.dropped)
    mentioned = {row.group for row in rows} | {one.group for one in rare}
    matching = matching_of(plan, totals, dropped, precisions)
    left_out = {one.group for one in rare}
    names = [group.name for group in plan.groups if group.name not in left_out]
    groups = Groups(
        rows=tuple(with_reversals(rows, parts)),
        reference=reference_name(row.reference for row in rows),
        practical=plan.practical,
        correction=plan.correction,
        limits=plan.matters,
        never_mentioned=tuple(g.name for g in plan.groups if g.name not in mentioned),
        sources={group.name: group.source for group in plan.groups},
        removals=ablations_of(total.checked.removals),
        randomised=randomised_control(total.checked.randomised, rules),
        placebo=control if control.comparisons else None,
        planted=planted(cells, rules, plan.planted) if plan.planted is not None else (),
        rankings=tuple(one.ends(_RANKED) for one in rankings(totals)),
        splits=parts,
        dropped=dropped,
        rare=rare,
        quality=quality_by_group(db, run, total.gaps),
        matching=matching,
        precision=next((one for one in precisions if one.group == ALL), None),
    )
    return with_answers(groups, db, run, total, names)


def _without(total: ShardAggregate, rare: Sequence[RareGroup]) -> ShardAggregate:
    """The aggregate without groups that are not compared; nothing else of it changes."""
    if not rare:
        return total
    names = {one.group for one in rare}
    checked, drawn = total.checked, total.checked.randomised
    draws = [one.without(names) for one in drawn.draws]
    drawn = replace(drawn, real=drawn.real.without(names), draws=draws)
    kept = [one for one in checked.observations if one.group not in names]
    regions = [one for one in checked.regions if one.group not in names]
    checked = replace(checked, observations=kept, regions=regions, randomised=drawn)
    return replace(total, entities=total.entities.without(names), checked=checked)


def _with_measures(
    plan: AuditPlan, total: ShardAggregate, cells: list[Cell], rows: list[GroupStatistic]
) -> list[GroupStatistic]:
    """Rows with what words as frequent add, and with the second lexicon's comparison."""
    of_words = [one for one in plan.groups if not is_whole(plan, one.name)]
    found = iter(rows)
    if plan.privacy is None or plan.privacy.store_text == "full":  # else no word can be matched
        found = with_backgrounds(rows, cells, total.words, (*of_words, *plan.second))
    names = [group.name for group in plan.second]
    return list(with_second(found, cells, cells_of(total.second), names, rules_of(plan)))
