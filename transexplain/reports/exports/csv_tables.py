"""A run's findings as a folder of tidy CSV tables (RFC 4180, UTF-8): one row per observation, one
column per variable.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from transexplain.analysis.groups.entity_totals import EntityRow
from transexplain.analysis.groups.group_cells import by_class
from transexplain.analysis.groups.group_controls import Planted
from transexplain.analysis.groups.group_table import RankedEntity, rankings
from transexplain.analysis.groups.mention_ablation import AblationStatistic
from transexplain.analysis.groups.randomised_control import RandomisedRow
from transexplain.analysis.groups.shard_aggregate import ShardAggregate, WordTotal
from transexplain.reports.exports.export_run import Redaction, check_over, new_folder, summary_of
from transexplain.reports.report_records import Summary
from transexplain.reports.report_section import merged
from transexplain.reports.sections import SECTIONS
from transexplain.reports.sections.group_relevance import QualityScore
from transexplain.reports.sections.group_section import Groups
from transexplain.reports.sections.measured_faithfulness import FaithfulnessRow
from transexplain.reports.sql_results import group_rows
from transexplain.reports.tables import Column, Columns, Table, chosen, record_columns, write_csv
from transexplain.store import readers
from transexplain.store.database import Database
from transexplain.store.result_tables import metadata
from transexplain.types.findings import Robustness
from transexplain.types.items import ItemFailure, ItemOutcome, Mention
from transexplain.types.plans import AuditRun
from transexplain.types.scores import MetricScore


def tables_of(summary: Summary, total: ShardAggregate, fewest: int = 0) -> Iterator[Table]:
    """Every table of an audit's statistics, also those without a row.

    Entities and words that fewer than `fewest` items hold are left out; `summary` is redacted
    already where it is to be.
    """
    yield from _group_tables(summary.groups)
    rows, ranked = record_columns(EntityRow, 2), record_columns(RankedEntity, 3)
    columns = (*_CLASS, *chosen(rows, _OF_ENTITY), *chosen(ranked, _SHRUNKEN))
    yield Table(name="entities", columns=columns, rows=_entities(total, fewest))
    columns = (*_CLASS, _MEAN, *record_columns(WordTotal, 2))
    yield Table(name="words", columns=columns, rows=_words(total, fewest))
    yield _records("faithfulness", FaithfulnessRow, getattr(summary.faithfulness, "rows", ()))
    for name, record in summary.sections.items():
        yield from SECTIONS.load(name).tables(record)


#: file of a table -> the table of SQL that has its rows, under the same names
_OF_SQL = {
    "verdicts": "group_verdict",
    "measures": "group_measure",
    "groups": "group_result",
    "counterfactuals": "counterfactual_result",
    "outcomes": "outcome_result",
}


#: file of a table -> the table of SQL that describes its columns, as far as it has them
_MEANT = _OF_SQL | {
    "predictions": "item",
    "failures": "failure",
    "mentions": "mention",
    "metrics": "score",
    "entities": "entity_result",
    "words": "class_word",
}
#: titles of columns, and what they are called in SQL
_IN_SQL = {
    "id": "item_id",
    "prediction": "predicted",
    "positions": "length",
    "start": "start_at",
    "end": "end_at",
    "share": "magnitude_share",
    "rank": "item_rank",
    "message": "error",
}


def _group_tables(groups: Groups | None) -> Iterator[Table]:
    if groups is None:
        return
    rows = group_rows(groups)
    for name, table in _OF_SQL.items():
        columns = [Column(title, itemgetter(title)) for title in _described(table)]
        yield Table(name=name, columns=columns, rows=rows[table])
    robustness = ((row, robustness) for row in groups.rows for robustness in row.robustness)
    yield _behind(_KEY, "robustness", Robustness, robustness)
    yield _records("removals", AblationStatistic, getattr(groups.removals, "rows", ()))
    yield _records("randomised", RandomisedRow, getattr(groups.randomised, "rows", ()))
    yield _records("planted", Planted, groups.planted)
    quality = ((quality, score) for quality in groups.quality for score in quality.scores)
    yield _behind(_KEY[:1], "quality", QualityScore, quality)


def _described(table: str) -> dict[str, str]:
    """The columns of a table of SQL that an export has, and what they hold."""
    known = metadata.tables.get(table)
    return {
        column.name: str(column.comment)
        for column in (() if known is None else known.c)
        if column.name not in ("run_id", "ordinal")
    }


def _records(name: str, record: type, rows: Iterable[Any]) -> Table:
    return Table(name=name, columns=_as_in_sql(record_columns(record)), rows=rows)


def _behind(first: Columns[Any], name: str, record: type, rows: Iterable[Any]) -> Table:
    """A table of records, each in a row behind what the `first` columns are of."""
    return Table(name=name, columns=(*first, *_as_in_sql(record_columns(record, 1))), rows=rows)


def _as_in_sql(columns: Columns[Any]) -> Columns[Any]:
    return [replace(column, title=_NAMES.get(column.title, column.title)) for column in columns]


#: names that columns have in SQL, where `group` is a keyword; an item's id joins all tables
_NAMES = {"group": "group_name", "item_id": "id"}


_KEY: Columns[Any] = (
    Column("group_name", lambda row: row[0].group),
    Column("target", lambda row: row[0].target),
    Column("class_name", lambda row: row[0].class_name),
)
_CLASS: Columns[Any] = (
    Column("target", lambda row: row[0]),
    Column("class_name", lambda row: row[1]),
)
_MEAN: Column[Any] = Column("mean", lambda row: row[2].relevance / row[2].mentions)
_OF_ENTITY = "group_name=group entity mentions documents mean share positive rank"
_SHRUNKEN = "shrunken shrunken_low=interval_low shrunken_high=interval_high"


def _entities(
    total: ShardAggregate, fewest: int
) -> Iterator[tuple[str, str, EntityRow, RankedEntity | None]]:
    """Every entity of every group; shrunken where there are enough of them to be ranked."""
    ranked = {
        (ranking.target, ranking.class_name, entity.entity): entity
        for ranking in rankings(total.entities)
        for entity in ranking.entities
    }
    for key, strata in by_class(total.entities).items():
        for row in total.entities.rows(strata):
            if row.documents >= fewest:
                yield *key, row, ranked.get((*key, row.entity))


def _words(total: ShardAggregate, fewest: int) -> Iterator[tuple[str, str, WordTotal]]:
    for key in total.class_keys:
        for word in total.words(*key):
            if word.documents >= fewest:
                yield *key, word


def write(db: Database, run: AuditRun, path: Path, redaction: Redaction | None = None) -> None:
    """Write the tables into the new folder `path`.

    Redacted, those are left out that have a row for each item. A cell that a spreadsheet would
    compute has an apostrophe before it; NUL becomes the replacement character. Raises
    ConfigurationError: the run is not over, or `path` holds something or cannot be written.
    """
    check_over(run, "CSV")
    with new_folder(path) as folder:
        for table in tables_for(db, run, redaction):
            with (folder / f"{table.name}.csv").open("w", encoding="utf-8", newline="") as file:
                write_csv(file, table.columns, table.rows)


def tables_for(db: Database, run: AuditRun, redaction: Redaction | None) -> Iterator[Table]:
    """Every table of a run that has a row, and last a dictionary of their columns.

    Redacted, those are left out that have a row for each item.
    """
    meanings: list[tuple[str, str, str]] = []
    tables = [] if redaction else [_stored(db, run)]
    if run.plan.task != "evaluation":
        fewest = redaction.fewest if redaction else 0
        tables.append(tables_of(summary_of(db, run, redaction), merged(db, run.id), fewest))
    for table in chain.from_iterable(tables):
        rows = iter(table.rows)
        for first in rows:
            about = _described(_MEANT.get(table.name, ""))
            titles = [column.title for column in table.columns]
            known = (
                (title, about.get(title) or about.get(_IN_SQL.get(title, ""))) for title in titles
            )
            meanings += [(table.name, title, meaning) for title, meaning in known if meaning]
            yield replace(table, rows=chain([first], rows))
    if meanings:
        yield Table(name="columns", columns=_DICTIONARY, rows=meanings)


_DICTIONARY: Columns[tuple[str, str, str]] = (
    Column("file", itemgetter(0)),
    Column("column", itemgetter(1)),
    Column("meaning", itemgetter(2)),
)


def _stored(db: Database, run: AuditRun) -> Iterator[Table]:
    """The tables of items, mentions and scores, read a page at a time."""
    yield Table(
        name="predictions",
        columns=(*_PREDICTION, *_logit_columns(run.plan.model.classes)),
        rows=(item for item in readers.iter_items(db, run.id) if isinstance(item, ItemOutcome)),
    )
    failed = readers.iter_items(db, run.id, only_failed=True)
    yield Table(
        name="failures",
        columns=_FAILURE,
        rows=(failure for failure in failed if isinstance(failure, ItemFailure)),
    )
    mentions = readers.iter_mentions(db, run.id)
    yield Table(name="mentions", columns=_as_in_sql(record_columns(Mention)), rows=mentions)
    scores = readers.iter_scores(db, run.id)
    yield Table(
        name="metrics", columns=(*_as_in_sql(record_columns(MetricScore)), _CURVE), rows=scores
    )


_PREDICTION: Columns[ItemOutcome] = (
    *chosen(
        record_columns(ItemOutcome),
        "id=item_id idx=index label raw_label prediction=predicted truncated positions",
    ),
    Column("meta", lambda outcome: json.dumps(dict(outcome.meta)) if outcome.meta else None),
)
_FAILURE: Columns[ItemFailure] = chosen(
    record_columns(ItemFailure), "id=item_id idx=index kind message traceback"
)
_CURVE: Column[MetricScore] = Column(
    "curve", lambda score: json.dumps(list(score.curve)) if score.curve else None
)


def _logit_columns(classes: Sequence[str]) -> Iterator[Column[ItemOutcome]]:
    """A column per class; two classes of one name differ by their index."""
    for place, name in enumerate(classes):
        title = f"logit_{name}" if classes.count(name) == 1 else f"logit_{name}_{place}"
        yield Column(title, partial(_logit, place=place))


def _logit(outcome: ItemOutcome, place: int) -> float | None:
    return outcome.logits[place] if place < len(outcome.logits) else None
