"""What a run says of its groups besides their table: how they were found, how good explanations
are, and what was answered.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from transexplain.analysis.groups.answers import MOST, Answer, answers_of
from transexplain.analysis.groups.class_totals import GapTotals
from transexplain.analysis.groups.counterfactuals import Counterfactual, counterfactual_table
from transexplain.analysis.groups.entity_finder import LEAST_SHARE, crossed_family, is_whole
from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.analysis.groups.group_verdicts import Evidence, Found, group_verdicts
from transexplain.analysis.groups.hidden_regions import region_table
from transexplain.analysis.groups.intervals import MIN_ENTITIES
from transexplain.analysis.groups.matching_sheet import Precision
from transexplain.analysis.groups.outcomes import OutcomeTotals, outcome_table
from transexplain.analysis.groups.reference_groups import Reference, family, references_of
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.errors import ConfigurationError, TargetError
from transexplain.evaluating.metrics import metric_facts
from transexplain.reports.evaluation.evaluation_tables import titled
from transexplain.reports.proxies import proxies_of, with_proxies
from transexplain.reports.report_records import GroupMatching, Groups
from transexplain.reports.row_records import Dropped, GroupQuality, QualityScore, RareGroup
from transexplain.reports.sections.measured_faithfulness import audited_label
from transexplain.store import run_totals
from transexplain.store.database import Database
from transexplain.types.findings import Practical
from transexplain.types.plans import AuditPlan, AuditRun


def matching_of(
    plan: AuditPlan,
    totals: EntityTotals,
    dropped: Iterable[Dropped],
    precisions: Sequence[Precision] = (),
) -> tuple[GroupMatching, ...]:
    """One row per group of the plan, then per group that only the data has; each by the plan.

    An item that was explained for several classes of one target counts once.

    Args:
        plan: of the run.
        totals: mentions of every entity.
        dropped: places left out as ordinary words, by group.
        precisions: from a sheet that a person filled.
    """
    mentions, items = _counted(plan, totals)
    checked = {one.group: one for one in precisions}
    terms = {group.name: len(set(group.terms)) for group in plan.groups}
    left = {one.group: one.count for one in dropped}
    return tuple(
        GroupMatching(
            group=name,
            terms=terms.get(name, 0),
            entities=len(mentions[name]),
            mentions=mentions[name].total(),
            items=items[name],
            dropped=left.get(name, 0),
            left_out=left.get(name, 0) / max(1, left.get(name, 0) + mentions[name].total()),
            precision=checked.get(name),
            **_most(mentions[name]),
        )
        for name in dict.fromkeys((*terms, *mentions))
    )


def rare_groups(plan: AuditPlan, rows: Iterable[GroupMatching]) -> tuple[RareGroup, ...]:
    """Meetings of groups with fewer than `LEAST_SHARE` of their family's mentions, but with some.

    They are decided on the totals of a whole run, so no cut into shards changes them.
    """
    families = set(map(crossed_family, plan.intersections))
    rows = [row for row in rows if family(row.group) in families]
    of = Counter[str]()
    for row in rows:
        of[family(row.group)] += row.mentions
    shares = ((row, row.mentions / max(1, of[family(row.group)])) for row in rows)
    return tuple(
        RareGroup(group=row.group, mentions=row.mentions, items=row.items, share=share)
        for row, share in shares
        if 0.0 < share < LEAST_SHARE
    )


def _counted(
    plan: AuditPlan, totals: EntityTotals
) -> tuple[defaultdict[str, Counter[str]], Counter[str]]:
    """Group -> entity -> mentions, and group -> items, by the first target that any item has."""
    mentions: defaultdict[str, Counter[str]] = defaultdict(Counter)
    items: Counter[str] = Counter()
    seen = {stratum.target for stratum in totals.strata}
    target = next((one for one in plan.targets if one in seen), None)
    strata = [stratum for stratum in totals.strata if stratum.target == target]
    times = _explanations(target or "", len(plan.model.classes))
    for row in totals.rows(strata):
        mentions[row.group][row.entity] = round(row.mentions / times)
    for group, count in totals.documents(strata).items():
        items[group] = round(count / times)
    return mentions, items


def _explanations(target: str, classes: int) -> int:
    """How many classes of one item a target explains."""
    kind, _, argument = target.partition(":")
    if kind == "top":
        return min(int(argument), classes) if classes else int(argument)
    return max(classes, 1) if kind == "all" else 1


def _most(mentions: Counter[str]) -> dict[str, Any]:
    if not mentions:
        return {"most": "", "most_share": 0.0}
    entity, count = min(mentions.items(), key=lambda entry: (-entry[1], entry[0]))
    return {"most": entity, "most_share": count / mentions.total()}


ALL_ITEMS = "all items"
MIN_ITEMS = MIN_ENTITIES  #: a mean over fewer says more about luck than about the explanations
_SHOWN = 5  #: entities of a group that were left out


def quality_by_group(
    db: Database, run: AuditRun, totals: GapTotals | None = None
) -> tuple[GroupQuality, ...]:
    """One row per mentioned group, by name, after that of the reference or of all items.

    Nothing where there are neither ledgers nor scores. A metric of the whole sample, which no
    item has a value of, is left out. Gaps are those of `totals`; without any, all rows are read.
    """
    if totals is None:
        gaps = run_totals.mean_gaps(db, run.id)
    else:
        gaps = {group: run_totals.MeanOfItems(*mean) for group, mean in totals.means().items()}
    plan = run.plan.evaluation
    scores = run_totals.mean_scores(db, run.id, audited_label(run, plan)) if plan else {}
    groups = {group for group in (*gaps, *(key[0] for key in scores)) if group != run_totals.ALL}
    if not groups:
        return ()
    asked = run.plan.reference
    base = asked if isinstance(asked, str) and asked in groups else run_totals.ALL
    order = (base, *sorted(groups - {base}))
    return tuple(_quality(group, run, gaps, scores) for group in order)


def dropped_by_group(counts: Mapping[tuple[str, str], int]) -> tuple[Dropped, ...]:
    """What was left out as ambiguous, by group; `counts` are of (group, entity)."""
    groups: dict[str, Counter[str]] = {}
    for (group, entity), count in sorted(counts.items()):
        groups.setdefault(group, Counter())[entity] += count
    return tuple(
        Dropped(group=group, count=of.total(), entities=tuple(of.most_common(_SHOWN)))
        for group, of in groups.items()
    )


def _quality(
    group: str,
    run: AuditRun,
    gaps: Mapping[str, run_totals.MeanOfItems],
    scores: Mapping[tuple[str, str, str], run_totals.MeanOfItems],
) -> GroupQuality:
    plan = run.plan.evaluation
    gap = gaps.get(group, run_totals.MeanOfItems(0, 0.0))
    asked = dict.fromkeys(key[1:] for key in scores)
    specs = {spec.label: spec for spec in plan.metrics} if plan else {}
    measured = (
        (target, specs[metric], scores.get((group, target, metric), run_totals.MeanOfItems(0, 0.0)))
        for target, metric in sorted(asked, key=lambda key: (key[0], list(specs).index(key[1])))
        if not metric_facts(specs[metric].name).corpus
    )
    return GroupQuality(
        group=group or ALL_ITEMS,
        items=gap.items,
        gap=gap.mean if gap.items >= MIN_ITEMS else None,
        scores=tuple(
            QualityScore(
                target=target,
                metric=spec.label,
                title=titled(spec),
                items=found.items,
                mean=found.mean if found.items >= MIN_ITEMS else None,
            )
            for target, spec, found in measured
        ),
    )


def with_answers(
    groups: Groups, db: Database, run: AuditRun, total: ShardAggregate, names: Sequence[str]
) -> Groups:
    """`groups`, which has the group table and how groups were found, with all about answers.

    Args:
        groups: of the run.
        db: the store, where words that go along with a group are looked for.
        run: the run.
        total: its aggregates, without groups that are not compared.
        names: of all groups that may be compared, mentioned or not.
    """
    plan = run.plan
    references = references_of(plan.reference, names)
    answers, limits = _answers(plan, total), plan.matters
    _check(total, len(answers))
    counted = total.outcomes if total.outcomes else _older_outcomes(total)
    outcomes = outcome_table(counted, answers, plan.model.classes, references, limits)
    swaps = _counterfactuals(total, answers, references, limits)
    evidence = Evidence(
        counterfactuals=swaps,
        outcomes=outcomes,
        relevance=groups.rows,
        found={one.group: _found(one) for one in groups.matching},
        no_swaps="" if swaps else _why_no_swaps(plan, total),
        kind="region" if plan.model.modality == "image" else "swap",
    )
    verdicts = group_verdicts(evidence, references, limits, plan.correction)
    proxies = proxies_of(db, run, verdicts, references, counted)
    return replace(
        groups,
        verdicts=tuple(replace(one, reasons=with_proxies(one, proxies)) for one in verdicts),
        outcomes=tuple(outcomes),
        counterfactuals=tuple(swaps),
        proxies=tuple(proxies),
    )


def _answers(plan: AuditPlan, total: ShardAggregate) -> tuple[Answer, ...]:
    """The answers of the plan; where it names none, those of the classes predicted most."""
    if found := _named(plan):
        return found
    counts: Counter[str] = Counter()
    for (_, predicted), count in total.predictions.items():
        counts[predicted] += count
    classes = plan.model.classes
    usual = [name for name, _ in counts.most_common(MOST) if name in classes]
    places = [classes.index(name) for name in usual]
    every = range(len(classes))
    return tuple(
        Answer(name=name, plus=(place,), minus=tuple(one for one in every if one != place))
        for name, place in zip(usual, places, strict=True)
    )


def _check(total: ShardAggregate, answers: int) -> None:
    """Raise ConfigurationError where what was saved has other answers than the plan."""
    saved = {len(one.log_odds) for one in total.checked.observations}
    saved |= {len(tally.probabilities) for _, tally in total.outcomes or () if tally.measured}
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


def _found(one: GroupMatching) -> Found:
    return Found(
        mentions=one.mentions, left_out=one.dropped, most=one.most, most_share=one.most_share
    )


def _counterfactuals(
    total: ShardAggregate,
    answers: Sequence[Answer],
    references: Mapping[str, Reference],
    limits: Practical,
) -> list[Counterfactual]:
    """Of swapped mentions and of hidden regions."""
    checked = total.checked
    return [
        *counterfactual_table(checked.observations, answers, references, limits),
        *region_table(checked.regions, answers, references, limits),
    ]


def _why_no_swaps(plan: AuditPlan, total: ShardAggregate) -> str:
    """What kept mentions from being swapped, or regions hidden; "": there were none."""
    if plan.task == "imported":
        return "the attributions were imported and the model is not at hand"
    if plan.model.modality == "nodes":
        return "names are swapped in texts, and regions hidden in pictures"
    if not _named(plan):
        return f"the model has more than {MOST} classes and no target names one (class:NAME)"
    if plan.model.modality == "image":
        return _why_no_regions(plan)
    if plan.check is None:
        return "groups.check is 0"
    if not plan.check.swap:
        return "fewer than two groups have terms in a lexicon"
    if total.outcomes is None:
        return "the run was made by a version that did not measure answers; run it again"
    return ""


def _why_no_regions(plan: AuditPlan) -> str:
    """What kept regions of pictures from being hidden."""
    marked = [one.name for one in plan.groups if not is_whole(plan, one.name)]
    if len(marked) < 2:
        return "groups of whole pictures have none; data.spans names a column of marked regions"
    if plan.check is None:
        return "groups.check is 0, or the first pictures have no regions of two groups"
    if not plan.check.regions:
        return (
            "the first pictures have no regions of two groups, or the version of the run hid none"
        )
    return (
        "no region of both sides was drawn that the model sees and that leaves some of the picture"
    )


def _older_outcomes(total: ShardAggregate) -> OutcomeTotals:
    """From what versions before 5 kept: items by group, label and prediction."""
    found: dict[str, Counter[tuple[str | None, str]]] = {}
    for stratum in _once(total.entities):
        for group, count in total.entities.documents([stratum]).items():
            found.setdefault(group, Counter())[stratum.label or None, stratum.predicted] += count
    return OutcomeTotals.of_groups(found, total.predictions)


def _once(totals: EntityTotals) -> list[Stratum]:
    """The strata of one explanation per item: of its predicted class, or of the one contrast."""
    strata = totals.strata
    first = [one for one in strata if one.target == strata[0].target]
    predicted = [one for one in first if one.class_name == one.predicted]
    name = first[0].class_name if first else ""
    return predicted or [one for one in first if one.class_name == name]
