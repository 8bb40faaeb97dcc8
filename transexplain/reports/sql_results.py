"""Writes the content of a run's report into the tables that people query by SQL.

The process that closes a run calls `close`, a worker `close_apart`, and a report of a finished run
`keep` with the totals that it has anyway. None of them fails: the rows can be made again at any
time.
"""

import logging
import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.entity_totals import EntityRow
from transexplain.analysis.groups.group_cells import by_class
from transexplain.analysis.groups.group_table import RankedEntity, rankings
from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.analysis.groups.intervals import Rate
from transexplain.analysis.groups.measures import gravest
from transexplain.analysis.groups.outcomes import Mean, Outcome, Side
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports.exports.run_facts import Measured, measures
from transexplain.reports.report_records import Summary
from transexplain.reports.run_metrics import run_metrics
from transexplain.reports.sections.class_views import ClassView, WordRow
from transexplain.reports.sections.group_matching import without_rare
from transexplain.reports.summary import summarised
from transexplain.store import result_rows, runs, shard_messages
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.types.findings import GroupStatistic

Row = dict[str, Any]
#: entities of a target and class that have rows, besides those that the report lists
ENTITIES = 1_000


def sql_rows(summary: Summary, total: ShardAggregate) -> dict[str, list[Row]]:
    """Name of a result table -> its rows, without run and ordinal.

    `summary` is not redacted; `total` are the totals that it was made from. A number that is not
    finite is None, as in the report's JSON.
    """
    groups = summary.groups
    tables: dict[str, Iterator[Row]] = {
        "run_result": iter((_run(summary),)),
        "group_verdict": map(_verdict, groups.verdicts if groups else ()),
        "group_measure": map(_measure, measures(groups)),
        "group_result": _groups(summary),
        "counterfactual_result": map(_swap, groups.counterfactuals if groups else ()),
        "outcome_result": map(_outcome, groups.outcomes if groups else ()),
        "entity_result": _entities(summary, total),
        "class_word": (row for view in summary.classes for row in _words(view)),
        "run_metric": (
            asdict(metric) for metric in run_metrics(summary) if math.isfinite(metric.value)
        ),
    }
    return {name: [_finite(row) for row in rows] for name, rows in tables.items()}


def _finite(row: Row) -> Row:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


def _run(summary: Summary) -> Row:
    audited, groups, verdict = summary.audited, summary.groups, summary.verdict
    limits = groups.limits if groups else None
    return {
        "task": audited.task,
        "model": audited.model,
        "model_digest": audited.model_digest,
        "modality": audited.modality,
        "dtype": audited.dtype,
        "dataset": audited.dataset,
        "dataset_fingerprint": audited.fingerprint,
        "method": audited.method,
        "unit": audited.unit,
        "plan_digest": audited.plan_digest,
        "reference": groups.reference if groups else None,
        "correction": groups.correction if groups else None,
        "practical_relevance": groups.practical if groups else None,
        "practical_logit": limits.logit if limits else None,
        "practical_probability": limits.probability if limits else None,
        "practical_changed": limits.changed if limits else None,
        "practical_spread": limits.spread if limits else None,
        "practical_rates": limits.rates if limits else None,
        "practical_impact_ratio": limits.impact_ratio if limits else None,
        "verdict_kind": verdict.kind if verdict else "unknown",
        "verdict": verdict.text if verdict else "",
        "version": audited.version,
    }


def _interval(name: str, ends: tuple[float, float] | None) -> Row:
    low, high = ends or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _verdict(verdict: GroupVerdict) -> Row:
    swap, rates = verdict.counterfactual, verdict.rates
    moved = swap.measure("probability") if swap else None
    rate, other = (rates.own.selected, rates.other.selected) if rates else (None, None)
    return {
        "group_name": verdict.group,
        "reference": verdict.reference,
        "state": verdict.state,
        "mention": verdict.mention,
        "outcome": verdict.outcome,
        "mention_reasons": "; ".join(verdict.mention_reasons),
        "outcome_reasons": "; ".join(verdict.outcome_reasons),
        "mention_advice": verdict.mention_advice,
        "outcome_advice": verdict.outcome_advice,
        "notes": "; ".join(verdict.notes),
        "missing": "; ".join(verdict.missing),
        **_decided("mention", swap),
        "probability": swap.probability if swap else None,
        **_interval("probability", moved.interval if moved else None),
        "changed_across": swap.changed_across if swap else None,
        "changed_within": swap.changed_within if swap else None,
        "documents": swap.documents if swap else None,
        **_decided("outcome", rates),
        "rate": rate.share if rate else None,
        "reference_rate": other.share if other else None,
        "items": rate.total if rate else None,
        "reference_items": other.total if other else None,
    }


def _decided(question: str, row: Counterfactual | Outcome | None) -> Row:
    """Return what decided a question, or is named first."""
    measure = gravest(row.measures) if row else None
    return {
        f"{question}_prediction": row.prediction if row else None,
        f"{question}_stratum": row.stratum if row else None,
        f"{question}_measure": measure.name if measure else None,
        f"{question}_value": measure.value if measure else None,
        **_interval(f"{question}_value", measure.interval if measure else None),
    }


def _measure(measured: Measured) -> Row:
    question, row, measure = measured
    return {
        "group_name": row.group,
        "reference": row.reference,
        "question": question,
        "prediction": row.prediction,
        "stratum": row.stratum,
        "measure": measure.name,
        "value": measure.value,
        **_interval("value", measure.interval),
        "interval_level": measure.level,
        "limit_low": measure.low,
        "limit_high": measure.high,
        "state": measure.state,
        "p": measure.p,
    }


def _groups(summary: Summary) -> Iterator[Row]:
    """The table over all items, then those of the splits."""
    groups = summary.groups
    if groups is None:
        return
    verdicts: Mapping[str, str] = {verdict.group: verdict.state for verdict in groups.verdicts}
    for row in groups.rows:
        yield _group(row, ("", ""), verdicts)
    for split in groups.splits:
        for part in split.parts:
            for row in part.rows:
                yield _group(row, (split.by, part.value), verdicts)


def _group(row: GroupStatistic, part: tuple[str, str], verdicts: Mapping[str, str]) -> Row:
    spread, words = row.quantiles, row.background
    return {
        "target": row.target,
        "class_name": row.class_name,
        "split_by": part[0],
        "split_value": part[1],
        "group_name": row.group,
        "reference": row.reference,
        "documents": row.documents,
        "mentions": row.mentions,
        "entities": row.entities,
        "mean": row.mean,
        "positive_share": row.positive,
        "entity_mean": row.entity_mean,
        **_interval("entity_mean", row.interval),
        "difference": row.difference,
        **_interval("difference", row.difference_interval),
        "interval_by": row.interval_by,
        "p": row.p,
        "adjusted_p": row.adjusted_p,
        "detectable": row.detectable,
        "verdict": row.verdict,
        "suppressed": row.verdict == "suppressed",
        "reason": row.reason,
        "note": row.note,
        "overall_verdict": verdicts.get(row.group),
        "item_rank": row.rank,
        "mention_q05": spread.low if spread else None,
        "mention_q25": spread.lower if spread else None,
        "mention_q50": spread.median if spread else None,
        "mention_q75": spread.upper if spread else None,
        "mention_q95": spread.high if spread else None,
        "background_words": words.words if words else None,
        "background_mean": words.mean if words else None,
        "background_difference": words.difference if words else None,
        **_interval("background_difference", words.difference_interval if words else None),
    }


def _swap(counterfactual: Counterfactual) -> Row:
    return {
        "kind": counterfactual.kind,
        "group_name": counterfactual.group,
        "reference": counterfactual.reference,
        "prediction": counterfactual.prediction,
        "stratum": counterfactual.stratum,
        "documents": counterfactual.documents,
        "clusters": counterfactual.clusters,
        "entities": counterfactual.entities,
        "reference_entities": counterfactual.other_entities,
        "effect": counterfactual.effect,
        "probability": counterfactual.probability,
        "changed_across": counterfactual.changed_across,
        "changed_within": counterfactual.changed_within,
        "shift": counterfactual.shift,
        "noise": counterfactual.noise,
        "per_position": counterfactual.per_position,
    }


def _outcome(outcome: Outcome) -> Row:
    return {
        "group_name": outcome.group,
        "reference": outcome.reference,
        "prediction": outcome.prediction,
        "stratum": outcome.stratum,
        "favourable": outcome.favourable,
        "whole": outcome.whole,
        "rate_difference": outcome.difference,
        "impact_ratio": outcome.impact_ratio,
        **_side("", outcome.own),
        **_side("reference_", outcome.other),
    }


def _side(prefix: str, side: Side) -> Row:
    columns: Row = {
        "items": side.selected.total,
        "selected": side.selected.count,
        "rate": side.selected.share,
        **_interval("rate", side.selected.interval),
        **_mean("mean_probability", side.probability),
        **_rate("label_rate", side.labelled),
        **_rate("error_rate", side.error),
        **_rate("true_positive_rate", side.true_positive),
        **_rate("false_positive_rate", side.false_positive),
        "calibration": side.calibration,
    }
    return {f"{prefix}{name}": value for name, value in columns.items()}


def _mean(name: str, mean: Mean | None) -> Row:
    return {
        name: mean.value if mean else None,
        **_interval(name, mean.interval if mean else None),
    }


def _rate(name: str, rate: Rate | None) -> Row:
    return {
        name: rate.share if rate else None,
        **_interval(name, rate.interval if rate else None),
        f"{name}_items": rate.total if rate else None,
    }


def _entities(summary: Summary, total: ShardAggregate) -> Iterator[Row]:
    """Those of the most mentions, and all that the report lists, by target, class and group."""
    if summary.groups is None:
        return
    reported = {
        (ranking.target, ranking.class_name): {entity.entity for entity in ranking.entities}
        for ranking in summary.groups.rankings
    }
    totals = without_rare(total, summary.groups.rare).entities
    ranked = {
        (ranking.target, ranking.class_name): {
            entity.entity: (place, entity) for place, entity in enumerate(ranking.entities, 1)
        }
        for ranking in rankings(totals)
    }
    for key, strata in by_class(totals).items():
        rows, listed = totals.rows(strata), reported.get(key, set())
        usual = {id(row) for row in _most_mentioned(rows)}
        for row in rows:
            if id(row) in usual or row.entity in listed:
                place = ranked.get(key, {}).get(row.entity)
                yield _entity(key, row, place, reported=row.entity in listed)


def _most_mentioned(rows: Sequence[EntityRow]) -> list[EntityRow]:
    return sorted(rows, key=lambda row: (-row.mentions, row.group, row.entity))[:ENTITIES]


def _entity(
    key: tuple[str, str],
    row: EntityRow,
    ranked: tuple[int, RankedEntity] | None,
    *,
    reported: bool,
) -> Row:
    place, believed = ranked or (None, None)
    return {
        "target": key[0],
        "class_name": key[1],
        "group_name": row.group,
        "entity": row.entity,
        "documents": row.documents,
        "mentions": row.mentions,
        "mean": row.mean,
        "magnitude_share": row.share,
        "positive": row.positive,
        "item_rank": row.rank,
        "shrunken": believed.shrunken if believed else None,
        **_interval("shrunken", believed.interval if believed else None),
        "place": place,
        "reported": reported,
    }


_LISTS = ("raising_by_mean", "raising_by_total", "lowering_by_mean", "lowering_by_total")


def _words(view: ClassView) -> Iterator[Row]:
    """The words of all lists, each once, with its places in them."""
    lists: Mapping[str, Sequence[WordRow]] = {name: getattr(view, name) for name in _LISTS}
    places = {
        name: {row.word: place for place, row in enumerate(rows, 1)} for name, rows in lists.items()
    }
    words = {row.word: row for rows in lists.values() for row in rows}
    for word, totals in words.items():
        yield {
            "target": view.target,
            "class_name": view.class_name,
            "word": word,
            "documents": totals.documents,
            "mentions": totals.mentions,
            "relevance": totals.total,
            "magnitude": totals.magnitude,
            "mean": totals.mean,
            "function_word": totals.function,
            **{name: places[name].get(word) for name in _LISTS},
        }


log = logging.getLogger(__name__)

#: seconds between two looks for runs that nobody wrote rows of, whoever looks
EVERY = 300.0
#: seconds that who closed a run has to write its rows, and after which nobody looks any more
PATIENCE, GIVEN_UP = 120.0, 7_200.0
_LOOK = 0.2  #: seconds between two looks whether a worker is to end
_NICE = 10  #: below what explains items


def write(db: Database, run_id: str) -> bool:
    """Compute and write the rows of the run with exactly this id; False: there can be none.

    An evaluation has none, nor has a run that is not over or not as it was saved. Takes as long as
    its report without pictures. Raises ConfigurationError for an unknown run, and what a report
    raises.
    """
    run = runs.get(db, run_id)
    if run.plan.task == "evaluation" or run.state == "running":
        return False
    summary, total = summarised(db, run_id, gallery=0)
    if not summary.whole:
        return False
    return result_rows.replace(db, run_id, sql_rows(summary, total), summary.audited.finished)


def keep(db: Database, summary: Summary, total: ShardAggregate) -> None:
    """Write the rows of a report's run, if it is over and whole; what goes wrong is logged.

    `summary` is the whole one, not redacted; `total` are the totals that it was made from.
    """
    run_id = summary.audited.run_id
    if summary.audited.state == "running" or not summary.whole:
        return
    try:
        result_rows.replace(db, run_id, sql_rows(summary, total), summary.audited.finished)
    except Exception as error:  # noqa: BLE001 - the report is worth as much without them
        _not_written(run_id, type(error).__name__)


def close(db: Database, run_id: str) -> bool:
    """Compute and write the rows of a run that was closed; what goes wrong is logged.

    Returns whether there are rows now.
    """
    try:
        return write(db, run_id)
    except Exception as error:  # noqa: BLE001 - the run is as good without them
        _not_written(run_id, type(error).__name__)
        return False


#: called in a process that is begun here, before it works; it is sent there by pickle
Prepare = Callable[[], None]


def close_apart(
    database_url: str, run_id: str, stop: threading.Event, prepare: Prepare | None = None
) -> None:
    """As `close`, in a process of its own that stands back, for as long as `stop` is not set.

    A report of 10^6 items takes a minute and a gigabyte: in the process of a worker it would keep
    threads that feed a device waiting, and the memory would stay. `prepare` says how it logs.
    """
    apart = multiprocessing.get_context("spawn").Process(
        target=_close_here, args=(database_url, run_id, prepare), name=f"results of {run_id}"
    )
    try:
        apart.start()
        while apart.is_alive() and not stop.is_set():
            apart.join(_LOOK)
        if apart.is_alive():
            log.info("run %s: its rows for SQL are left to others, as this worker ends", run_id)
            apart.terminate()
            apart.join()
            return
    except Exception as error:  # noqa: BLE001 - no process can be started, say
        _not_written(run_id, type(error).__name__)
        return
    if apart.exitcode:
        _not_written(run_id, f"its process ended with status {apart.exitcode}")


def _log_warnings() -> None:
    logging.basicConfig(level=logging.WARNING)


def _close_here(database_url: str, run_id: str, prepare: Prepare | None) -> None:
    """The work of the process of `close_apart`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which ends this
    os.nice(_NICE)
    (prepare or _log_warnings)()
    with open_database(database_url) as db:
        close(db, run_id)


def close_forgotten(db: Database) -> list[str]:
    """Write the rows of runs whose closer did not, because it died, say; returns their ids.

    One process does so at a time, and none within `EVERY` seconds of another. Runs that have been
    over for more than `GIVEN_UP` seconds are left to `transexplain db results`.
    """
    if not shard_messages.take_task(db, "results", EVERY):
        return []
    run_ids = result_rows.over(db, at_least=PATIENCE, at_most=GIVEN_UP)
    return [run_id for run_id in run_ids if close(db, run_id)]


def _not_written(run_id: str, reason: str) -> None:
    """Of an error its kind alone: its text may quote what is not to be in a log."""
    log.warning(
        "run %s: its results are not in the SQL tables (%s); `transexplain report %s` writes them",
        run_id,
        reason,
        run_id,
    )
