"""The relevance of a group's mentions for a class: the group table, its splits and its rankings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from transexplain.analysis.groups.entity_finder import is_whole
from transexplain.analysis.groups.group_cells import Cell, cells_of
from transexplain.analysis.groups.group_controls import (
    Placebo,
    Planted,
    with_backgrounds,
    with_second,
)
from transexplain.analysis.groups.group_table import (
    EntityRanking,
    RankedEntity,
    Reversal,
    Rules,
    Split,
    TablePart,
)
from transexplain.analysis.groups.intervals import MIN_ENTITIES
from transexplain.analysis.groups.mention_ablation import Ablations, AblationStatistic
from transexplain.analysis.groups.randomised_control import (
    Measured,
    Randomised,
    RandomisedRow,
    Shown,
)
from transexplain.analysis.groups.shard_aggregate import GapTotals, ShardAggregate
from transexplain.evaluating.metrics import metric_facts
from transexplain.reports import forest
from transexplain.reports.evaluation.evaluation_tables import titled
from transexplain.reports.page import paragraphs
from transexplain.reports.phrasing import number, percent
from transexplain.reports.redaction import (
    RedactionRules,
    Redactor,
    published,
)
from transexplain.reports.sections.group_matching import matching_of, rare_groups, without_rare
from transexplain.reports.sections.measured_faithfulness import audited_label
from transexplain.reports.sections.mixed_section import compared
from transexplain.store import run_totals
from transexplain.store.database import Database
from transexplain.types.findings import Background, GroupStatistic, Quantiles, Robustness
from transexplain.types.plans import AuditPlan, AuditRun


def ablation_sentence(ablations: Ablations) -> str:
    """Return how often the prediction depended on the mention."""
    share = percent(ablations.changed / ablations.items)
    return (
        f"Taking the mention out changed the prediction of {ablations.changed:,} of "
        f"{ablations.items:,} sampled items ({share})."
    )


def part(row: RandomisedRow) -> str:
    """Return how much of a difference randomised models show, with its interval."""
    if row.ratio is None or row.ratio_interval is None:
        return "a part of it that is not known"
    low, high = (f"{100 * end:.0f}".replace("-", "\u2212") for end in row.ratio_interval)
    size = f"{100 * row.ratio:.0f}\u00a0% of it" if row.ratio > 0 else "none of it"
    return f"{size} (95\u00a0% interval {low} to {high}\u00a0%)"


def learnt(row: RandomisedRow, difference: float) -> str:
    """Return whether a difference comes from what was learnt, in a sentence; "": unknown."""
    shown = row.shown(difference)
    if shown == "unknown":
        return ""
    begun = f"A model with random weights shows {part(row)}"
    if shown == "material":
        return f"{begun}, too: it is not only learnt."
    return f"{begun}: what the model learnt makes the difference."


def randomised_sentence(rows: Sequence[GroupStatistic], randomised: Randomised) -> str:
    """The result of the randomised models, in a sentence."""
    flagged = {key_of(row): row for row in rows if row.flagged}
    names: dict[Shown, list[str]] = {"material": [], "small": [], "unknown": []}
    for control in randomised.rows:
        if (row := flagged.get(key_of(control))) is not None:
            of_kind = names[control.shown(row.difference or 0.0)]
            of_kind += [control.group] if control.group not in of_kind else []
    return paragraphs("randomised.txt.j2", r=randomised, flagged=flagged, **names)[0]


def planted_sentence(controls: tuple[Planted, ...]) -> str:
    """The differences that the run could have found, in a sentence."""
    shares = [
        f"{number(control.difference)} in {percent(control.share)} "
        f"[{percent(control.interval[0])} to {percent(control.interval[1])}]"
        for control in sorted(controls, key=lambda control: control.difference)
    ]
    wrong = sum(control.wrong for control in controls)
    turned = f" With the wrong sign: {wrong} of {sum(control.lexicons for control in controls)}."
    return (
        "Planted into randomly sampled groups, a difference would have been found: "
        f"{'; '.join(shares)} of {controls[0].lexicons} lexicons.{turned if wrong else ''}"
    )


CONTROL_RULES: Mapping[type, RedactionRules] = {
    Ablations: published(least="items"),
    AblationStatistic: published("group target class_name", least="items"),
    Randomised: published(),
    RandomisedRow: published("group target class_name"),
    Measured: published(),
    Placebo: published(),
    Planted: published(),
}


Key = tuple[str, str, str]  #: group, target, class


def key_of(row: GroupStatistic | RandomisedRow | AblationStatistic | Reversal) -> Key:
    """Return which comparison a row is about."""
    return row.group, row.target, row.class_name


def rules_of(plan: AuditPlan) -> Rules:
    """Return how a plan has its groups compared."""
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
    of_words = [group for group in plan.groups if not is_whole(plan, group.name)]
    measured = iter(rows)
    if plan.privacy is None or plan.privacy.store_text == "full":  # else no word can be matched
        measured = with_backgrounds(rows, cells, total.words, (*of_words, *plan.second))
    names = [group.name for group in plan.second]
    return list(with_second(measured, cells, cells_of(total.second), names, rules_of(plan)))


def shown_rankings(
    value: tuple[EntityRanking, ...], _groups: Any, redactor: Redactor
) -> tuple[EntityRanking, ...]:
    """Redacted: the rankings of which entities are left."""
    return tuple(ranking for ranking in redactor.within(value) if ranking.entities)


def _parts(
    value: tuple[TablePart, ...], _split: Split, redactor: Redactor
) -> tuple[TablePart, ...]:
    return tuple(part for part in redactor.within(value) if part.rows)


def _reversals(
    value: tuple[Reversal, ...], split: Split, redactor: Redactor
) -> tuple[Reversal, ...]:
    """Reversals depend on all parts of a split, so they stay only with these."""
    parts = _parts(split.parts, split, redactor)
    shown = {(*key_of(row), part.value) for part in parts for row in part.rows}
    reversals: tuple[Reversal, ...] = redactor.within(
        tuple(turn for turn in value if all((*key_of(turn), part) in shown for part in turn.parts))
    )
    return reversals


RULES: Mapping[type, RedactionRules] = {
    GroupStatistic: published("group target class_name reference reason note", least="documents"),
    Robustness: published("name unit"),
    Quantiles: published(),
    Background: published(),
    EntityRanking: published(
        "target class_name",
        omitted=lambda value, ranking, redactor: (
            value + sum(entity.documents < redactor.fewest for entity in ranking.entities)
        ),
    ),
    RankedEntity: published("groups entity", least="documents"),
    Split: published(
        parts=_parts,
        omitted=lambda value, split, redactor: (
            value + len(split.parts) - len(_parts(split.parts, split, redactor))
        ),
        reversals=_reversals,
    ),
    TablePart: published("value"),
    Reversal: published("group target class_name parts"),
}


class GroupTable(NamedTuple):
    """The comparisons for one target and class, strongest first."""

    target: str
    class_name: str
    rows: tuple[GroupStatistic, ...]
    flagged: int
    axis: forest.ForestAxis


def group_tables(rows: Sequence[GroupStatistic], practical: float) -> Iterator[GroupTable]:
    """One for each target and class; those of a target share an axis."""
    axes = {
        target: forest.axis_of(
            [(r.difference, r.difference_interval) for r in rows if r.target == target], practical
        )
        for target in dict.fromkeys(row.target for row in rows)
    }
    for target, class_name in dict.fromkeys((r.target, r.class_name) for r in rows):
        shown = [r for r in rows if (r.target, r.class_name) == (target, class_name)]
        shown.sort(key=lambda r: (r.difference is None, -(r.difference or 0.0), r.group))
        flagged = sum(row.flagged for row in shown)
        yield GroupTable(target, class_name, tuple(shown), flagged, axes[target])


RELEVANCE = "Relevance: "  #: how sentences about where answers come from begin


def unlearnt(row: GroupStatistic, randomised: Randomised | None) -> str:
    """Return how much of it models that have learnt nothing show; "" where it is unknown."""
    for control in randomised.rows if randomised else ():
        if key_of(control) == key_of(row):
            sentence = learnt(control, row.difference or 0.0)
            return f" {sentence}" if sentence else ""
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class QualityScore:
    """One metric of faithfulness over the sampled items that mention a group."""

    target: str
    metric: str
    title: str
    items: int  #: measured on
    mean: float | None  #: None: too few items


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupQuality:
    """The quality of the explanations of the items that mention a group, or of all items."""

    group: str
    items: int  #: with a ledger
    gap: float | None  #: mean |gap| / sum of |terms|; None: no ledgers, or too few items
    scores: tuple[QualityScore, ...]  #: of the metrics that the audit's sample was measured by


ALL_ITEMS = "all items"
MIN_ITEMS = MIN_ENTITIES  #: a mean over fewer says more about luck than about the explanations


def quality_by_group(db: Database, run: AuditRun, totals: GapTotals) -> tuple[GroupQuality, ...]:
    """One row per mentioned group, by name, after that of the reference or of all items.

    Nothing where there are neither ledgers nor scores. A metric of the whole sample, which no
    item has a value of, is left out.
    """
    gaps = {group: run_totals.MeanOfItems(*mean) for group, mean in totals.means().items()}
    plan = run.plan.evaluation
    scores = run_totals.mean_scores(db, run.id, audited_label(run, plan)) if plan else {}
    groups = {group for group in (*gaps, *(key[0] for key in scores)) if group != run_totals.ALL}
    if not groups:
        return ()
    reference = run.plan.reference
    base = reference if isinstance(reference, str) and reference in groups else run_totals.ALL
    metrics = plan.metrics if plan else ()
    specs = {spec.label: spec for spec in metrics if not metric_facts(spec.name).corpus}
    measures = dict.fromkeys(key[1:] for key in scores if key[2] in specs)
    places = list(specs)
    ordered = sorted(measures, key=lambda key: (key[0], places.index(key[1])))
    none = run_totals.MeanOfItems(0, 0.0)
    rows = []
    for group in (base, *sorted(groups - {base})):
        gap = gaps.get(group, none)
        means = {key: scores.get((group, *key), none) for key in ordered}
        rows.append(
            GroupQuality(
                group=group or ALL_ITEMS,
                items=gap.items,
                gap=gap.mean if gap.items >= MIN_ITEMS else None,
                scores=tuple(
                    QualityScore(
                        target=target,
                        metric=metric,
                        title=titled(specs[metric]),
                        items=mean.items,
                        mean=mean.mean if mean.items >= MIN_ITEMS else None,
                    )
                    for (target, metric), mean in means.items()
                ),
            )
        )
    return tuple(rows)


QUALITY_RULES: Mapping[type, RedactionRules] = {
    GroupQuality: published("group", least="items"),
    QualityScore: published("target metric title", least="items"),
}
