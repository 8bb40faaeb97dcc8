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
from dataclasses import asdict, fields
from functools import cache
from typing import Any

from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.group_cells import by_class
from transexplain.analysis.groups.group_table import rankings
from transexplain.analysis.groups.group_verdicts import GroupVerdict
from transexplain.analysis.groups.measures import gravest
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports.exports.run_facts import MEASURE_COLUMNS, Measured, measures
from transexplain.reports.report_records import Summary
from transexplain.reports.run_metrics import run_metrics
from transexplain.reports.sections.class_views import ClassView, WordRow
from transexplain.reports.sections.group_matching import without_rare
from transexplain.reports.sections.group_section import Groups
from transexplain.reports.summary import summarised
from transexplain.reports.tables import record_columns
from transexplain.store import queueing, result_rows, runs
from transexplain.store.database import Database
from transexplain.store.result_tables import metadata
from transexplain.store.revisions import open_database
from transexplain.types.findings import Practical

Row = dict[str, Any]
#: entities of a target and class that have rows, besides those that the report lists
ENTITIES = 1_000


def sql_rows(summary: Summary, total: ShardAggregate) -> dict[str, list[Row]]:
    """Name of a result table -> its rows, without run and ordinal.

    `summary` is not redacted; `total` are the totals that it was made from. A number that is not
    finite is None, as in the report's JSON.
    """
    tables: dict[str, Iterator[Row]] = {
        "run_result": iter((_run(summary),)),
        **group_rows(summary.groups),
        "entity_result": _entities(summary, total),
        "class_word": (row for view in summary.classes for row in _words(view)),
        "run_metric": (
            asdict(metric) for metric in run_metrics(summary) if math.isfinite(metric.value)
        ),
    }
    return {name: [_finite(row) for row in rows] for name, rows in tables.items()}


def group_rows(groups: Groups | None) -> dict[str, Iterator[Row]]:
    """Name of a result table -> its rows, without run and ordinal; of those about groups."""
    return {name: rows_of(groups) if groups else iter(()) for name, rows_of in _OF_GROUPS.items()}


def _finite(row: Row) -> Row:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


#: columns of every table, which the store fills
_KEYS = ("run_id", "ordinal", "written")
_GROUP = {"group_name": "group"}
_AUDITED = {"dataset_fingerprint": "fingerprint"}
_SWAP = {**_GROUP, "reference_entities": "other_entities"}
_VERDICT = {
    **_GROUP,
    "probability": "counterfactual_probability",
    "changed_across": "counterfactual_changed_across",
    "changed_within": "counterfactual_changed_within",
    "documents": "counterfactual_documents",
    "items": "rates_own_selected_total",
    "reference_items": "rates_other_selected_total",
}
_STATISTIC = {
    **_GROUP,
    "positive_share": "positive",
    "entity_mean_low": "interval_low",
    "entity_mean_high": "interval_high",
    "difference_low": "difference_interval_low",
    "difference_high": "difference_interval_high",
    "item_rank": "rank",
    "mention_q05": "quantiles_low",
    "mention_q25": "quantiles_lower",
    "mention_q50": "quantiles_median",
    "mention_q75": "quantiles_upper",
    "mention_q95": "quantiles_high",
    "background_difference_low": "background_difference_interval_low",
    "background_difference_high": "background_difference_interval_high",
}
#: rate of a side -> its field
_RATES = {
    "rate": "selected",
    "label_rate": "labelled",
    "error_rate": "error",
    "true_positive_rate": "true_positive",
    "false_positive_rate": "false_positive",
}
_SIDE = {
    "items": "selected_total",
    "selected": "selected_count",
    "mean_probability": "probability_value",
    "mean_probability_low": "probability_interval_low",
    "mean_probability_high": "probability_interval_high",
    "calibration": "calibration",
    **{f"{name}_low": f"{rate}_interval_low" for name, rate in _RATES.items()},
    **{f"{name}_high": f"{rate}_interval_high" for name, rate in _RATES.items()},
    **{f"{name}_items": f"{rate}_total" for name, rate in _RATES.items()},
}
_SIDES = {"": "own", "reference_": "other"}
_OUTCOME = {
    **_GROUP,
    "rate_difference": "difference",
    **{f"{p}{name}": f"{of}_{way}" for p, of in _SIDES.items() for name, way in _SIDE.items()},
}
_ENTITY = {**_GROUP, "magnitude_share": "share", "item_rank": "rank"}
_WORD = {"relevance": "total", "function_word": "function"}


@cache
def _cells(record: type) -> Mapping[str, Callable[[Any], Any]]:
    return {column.title: column.cell for column in record_columns(record)}


def _row(table: str, record: Any, names: Mapping[str, str], **more: Any) -> Row:
    """A row of a result table: `more`, and what the record has of its other columns.

    `names` gives the columns of the record that are not called as those of the table are.
    """
    kind: Any = type(record)
    cells = _cells(kind)
    columns = metadata.tables[table].c.keys()
    rest = (column for column in columns if column not in more and column not in _KEYS)
    return {column: cells[names.get(column, column)](record) for column in rest} | more


def _run(summary: Summary) -> Row:
    groups, verdict = summary.groups, summary.verdict
    limits = {f"practical_{field.name}": None for field in fields(Practical)}
    if groups:
        limits = {f"practical_{name}": limit for name, limit in asdict(groups.limits).items()}
    return _row(
        "run_result",
        summary.audited,
        _AUDITED,
        reference=groups.reference if groups else None,
        correction=groups.correction if groups else None,
        practical_relevance=groups.practical if groups else None,
        **limits,
        verdict_kind=verdict.kind if verdict else "unknown",
        verdict=verdict.text if verdict else "",
    )


def _interval(name: str, ends: tuple[float, float] | None) -> Row:
    low, high = ends or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _verdict(verdict: GroupVerdict) -> Row:
    swap, rates = verdict.counterfactual, verdict.rates
    moved = swap.measure("probability") if swap else None
    texts = ("mention_reasons", "outcome_reasons", "notes", "missing")
    return _row(
        "group_verdict",
        verdict,
        _VERDICT,
        **{name: "; ".join(getattr(verdict, name)) for name in texts},
        **_decided("mention", swap),
        **_interval("probability", moved.interval if moved else None),
        **_decided("outcome", rates),
        rate=rates.own.selected.share if rates else None,
        reference_rate=rates.other.selected.share if rates else None,
    )


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
    return _row(
        "group_measure",
        measure,
        MEASURE_COLUMNS,
        group_name=row.group,
        reference=row.reference,
        question=question,
        prediction=row.prediction,
        stratum=row.stratum,
    )


def _groups(groups: Groups) -> Iterator[Row]:
    """The table over all items, then those of the splits."""
    states = {verdict.group: verdict.state for verdict in groups.verdicts}
    parts = [(split.by, part.value, part.rows) for split in groups.splits for part in split.parts]
    for by, value, rows in (("", "", groups.rows), *parts):
        for row in rows:
            yield _row(
                "group_result",
                row,
                _STATISTIC,
                split_by=by,
                split_value=value,
                suppressed=row.verdict == "suppressed",
                overall_verdict=states.get(row.group),
            )


def _outcome(outcome: Outcome) -> Row:
    rates = {
        f"{prefix}{name}": getattr(getattr(outcome, side), field)
        for prefix, side in _SIDES.items()
        for name, field in _RATES.items()
    }
    shares = {name: rate.share if rate else None for name, rate in rates.items()}
    return _row("outcome_result", outcome, _OUTCOME, **shares)


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
        most = sorted(rows, key=lambda row: (-row.mentions, row.group, row.entity))
        usual = {id(row) for row in most[:ENTITIES]}
        for row in rows:
            if id(row) in usual or row.entity in listed:
                place, believed = ranked.get(key, {}).get(row.entity, (None, None))
                yield _row(
                    "entity_result",
                    row,
                    _ENTITY,
                    target=key[0],
                    class_name=key[1],
                    shrunken=believed.shrunken if believed else None,
                    **_interval("shrunken", believed.interval if believed else None),
                    place=place,
                    reported=row.entity in listed,
                )


_LISTS = ("raising_by_mean", "raising_by_total", "lowering_by_mean", "lowering_by_total")


def _words(view: ClassView) -> Iterator[Row]:
    """The words of all lists, each once, with its places in them."""
    lists: Mapping[str, Sequence[WordRow]] = {name: getattr(view, name) for name in _LISTS}
    places = {
        name: {row.word: place for place, row in enumerate(rows, 1)} for name, rows in lists.items()
    }
    words = {row.word: row for rows in lists.values() for row in rows}
    for word, totals in words.items():
        lists_of_word = {name: places[name].get(word) for name in _LISTS}
        key = {"target": view.target, "class_name": view.class_name}
        yield _row("class_word", totals, _WORD, **key, **lists_of_word)


#: result table -> what makes its rows of a report's groups
_OF_GROUPS: Mapping[str, Callable[[Groups], Iterator[Row]]] = {
    "group_verdict": lambda groups: map(_verdict, groups.verdicts),
    "group_measure": lambda groups: map(_measure, measures(groups)),
    "group_result": _groups,
    "counterfactual_result": lambda groups: (
        _row("counterfactual_result", row, _SWAP) for row in groups.counterfactuals
    ),
    "outcome_result": lambda groups: map(_outcome, groups.outcomes),
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
    if not queueing.take_task(db, "results", EVERY):
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
