"""What a run's answers say of its groups: outcomes, swaps, the verdicts on them, and proxies."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from transexplain.bias.aggregates import ShardAggregate
from transexplain.bias.answers import MOST, Answer, answers_of
from transexplain.bias.counterfactuals import Counterfactual, counterfactual_table
from transexplain.bias.entity_totals import EntityTotals, Stratum
from transexplain.bias.families import Reference, references_of
from transexplain.bias.finding import is_whole
from transexplain.bias.group_verdicts import Evidence, Found, group_verdicts
from transexplain.bias.outcome_totals import OutcomeTotals
from transexplain.bias.outcomes import outcome_table
from transexplain.bias.regions import region_table
from transexplain.errors import ConfigurationError, TargetError
from transexplain.findings import Practical
from transexplain.plans import AuditPlan, AuditRun
from transexplain.reports.proxies import proxies_of, with_proxies
from transexplain.reports.records import Groups
from transexplain.reports.section_records import GroupMatching
from transexplain.store.database import Database


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
