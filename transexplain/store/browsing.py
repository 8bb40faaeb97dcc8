"""Reads what pages show of runs: lists by key, the rows that runs wrote when they closed, trends.

Every query has an end that does not grow with the store, and none reads a text of an item.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    not_,
    select,
    text,
    tuple_,
    type_coerce,
)

from transexplain.store.database import Database
from transexplain.store.result_tables import (
    RESULT_TABLES,
    class_word,
    entity_result,
    group_verdict,
    run_metric,
    run_result,
)
from transexplain.store.schema import OF_ITEMS, form_key, run, shard

_TABLES = {table.name: table for table in RESULT_TABLES}
_PLAIN = ("id", "name", "state", "created", "finished", "previous")
_FOUND = ("verdict_kind", "verdict")
_OF_PLAN = ("model", "method", "dataset")


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRun:
    """A run in a list."""

    id: str
    name: str
    state: str  #: running | done | cancelled
    created: float  #: seconds since the epoch
    finished: float | None
    previous: str | None  #: id of the run to compare with; it may be gone
    model: str
    method: str
    dataset: str
    verdict_kind: str | None  #: as `run_result` has it; None: no results were written
    verdict: str | None
    metrics: Mapping[str, float]  #: of those in `LISTED` the ones that were written


class PlanFacts(NamedTuple):
    """What pages need of a run's plan, whatever version wrote it."""

    model: str
    modality: str
    device: str  #: torch device that the plan names
    classes: tuple[str, ...]
    method: str
    dataset: str
    root: str  #: folder that picture paths are relative to
    targets: tuple[str, ...]
    task: str
    store_text: str  #: full | hashed | none
    redact: bool  #: words were blanked before texts were stored


#: metrics of the whole run that a list shows
LISTED = ("items", "items_explained", "items_failed", "accuracy")


def texts_readable(db: Database) -> bool:
    """Whether this role may read items; see `upkeep`. SQLite has no roles."""
    if db.engine.name != "postgresql":
        return True
    quoted = db.engine.dialect.identifier_preparer.quote_identifier
    may = [
        func.has_table_privilege(quoted(table.name), text("'SELECT'"))
        for table in (*OF_ITEMS, shard)
    ]
    with db.read() as connection:
        return bool(connection.execute(select(and_(*may))).scalar_one())


def signing_key(db: Database) -> bytes:
    """What every server over this store signs its forms with."""
    with db.read() as connection:
        return bytes(connection.execute(select(form_key.c.key)).scalar_one())


def list_page(
    db: Database,
    *,
    name: str = "",
    model: str = "",
    state: str = "",
    before: tuple[float, str] | None = None,
    limit: int = 50,
) -> list[ListedRun]:
    """The newest runs first, of those older than `before` (its `created` and id).

    `name` and `model` are parts of these, in any case; `state` is the whole word.
    """
    query = _listed()
    if name:
        query = query.where(run.c.name.icontains(name, autoescape=True))
    if model:
        query = query.where(_model(db).icontains(model, autoescape=True))
    if state:
        query = query.where(run.c.state == state)
    if before is not None:
        query = query.where(tuple_(run.c.created, run.c.id) < before)
    query = query.order_by(run.c.created.desc(), run.c.id.desc()).limit(limit)
    with db.read() as connection:
        return _made(connection, connection.execute(query).mappings().all())


def listed_run(db: Database, run_id: str) -> ListedRun | None:
    """The run with exactly this id."""
    with db.read() as connection:
        rows = connection.execute(_listed().where(run.c.id == run_id)).mappings().all()
        return next(iter(_made(connection, rows)), None)


def _listed() -> Select[Any]:
    without = run_result.c.run_id.is_(None)
    plan: ColumnElement[Any] = type_coerce(case((without, run.c.plan)), run.c.plan.type)
    columns = [run.c[name] for name in _PLAIN]
    results = [run_result.c[name] for name in (*_FOUND, *_OF_PLAN)]
    return select(*columns, *results, plan.label("plan")).join_from(
        run, run_result, run_result.c.run_id == run.c.id, isouter=True
    )


def _model(db: Database) -> ColumnElement[str]:
    """The plan is looked into where a run has no results yet, and where SQL can read it."""
    plan_text = type_coerce(run.c.plan, Text)
    # PostgreSQL refuses JSON with a NUL in any string
    readable = not_(plan_text.contains("\\u0000"))
    document = case((and_(run_result.c.run_id.is_(None), readable), plan_text))
    # SQLite reads JSON from text as it is
    plain = db.engine.name == "sqlite"
    plan: Any = type_coerce(document, JSON) if plain else cast(document, JSON)
    return func.coalesce(run_result.c.model, plan[("model", "source")].as_string())


def _made(connection: Connection, rows: Sequence[RowMapping]) -> list[ListedRun]:
    metrics = _metrics(connection, [row["id"] for row in rows])
    listed = []
    for row in rows:
        values = {name: row[name] for name in (*_PLAIN, *_FOUND, *_OF_PLAN)}
        if row["plan"] is not None:
            facts = facts_of(row["plan"])
            values |= {name: getattr(facts, name) for name in _OF_PLAN}
        listed.append(ListedRun(**values, metrics=metrics.get(row["id"], {})))
    return listed


def _metrics(connection: Connection, ids: Sequence[str]) -> dict[str, dict[str, float]]:
    query = select(run_metric.c.run_id, run_metric.c.name, run_metric.c.value).where(
        run_metric.c.run_id.in_(ids), run_metric.c.name.in_(LISTED), run_metric.c.part == ""
    )
    metrics: dict[str, dict[str, float]] = {}
    for run_id, name, value in connection.execute(query):
        metrics.setdefault(run_id, {})[name] = value
    return metrics


def plan_facts(db: Database, run_id: str) -> PlanFacts:
    """Of the run with exactly this id, which must be there."""
    with db.read() as connection:
        return facts_of(
            connection.execute(select(run.c.plan).where(run.c.id == run_id)).scalar_one()
        )


def facts_of(plan: Mapping[str, Any]) -> PlanFacts:
    """From the document as it is stored: what an older or newer version left out is empty."""
    model, dataset = plan.get("model") or {}, plan.get("dataset") or {}
    privacy = plan.get("privacy") or {}
    return PlanFacts(
        model=str(model.get("source", "")),
        modality=str(dataset.get("modality") or model.get("modality") or "text"),
        device=str(model.get("device", "")),
        classes=tuple(model.get("classes") or ()),
        method=str((plan.get("method") or {}).get("name", "")),
        dataset=str(dataset.get("source", "")),
        root=str(dataset.get("root") or ""),
        targets=tuple(plan.get("targets") or ()),
        task=str(plan.get("task") or "audit"),
        store_text=str(privacy.get("store_text") or "full"),
        redact=bool(privacy.get("redact")),
    )


def result_rows(
    db: Database, table: str, run_id: str, *, limit: int = 500, **equal: str
) -> list[dict[str, Any]]:
    """Rows of one of `RESULT_TABLES` in the report's order, where columns `equal` these values."""
    of = _TABLES[table]
    query = select(of).where(of.c.run_id == run_id)
    for name, value in equal.items():
        query = query.where(of.c[name] == value)
    if "ordinal" in of.c:
        query = query.order_by(of.c.ordinal)
    with db.read() as connection:
        return [dict(row) for row in connection.execute(query.limit(limit)).mappings()]


def entities_of(
    db: Database, run_id: str, group: str, limit: int, *, driving: bool = False
) -> list[dict[str, Any]]:
    """Entities of a group that were mentioned most, for every class that was explained.

    `driving`: of those with two mentions or more the ones with the largest relevance of a mention
    first, either way; shrunken where that is known.
    """
    of = entity_result.c
    query = select(entity_result).where(of.run_id == run_id, of.group_name == group).limit(limit)
    if driving:
        size = func.abs(func.coalesce(of.shrunken, of.mean))
        query = query.where(of.mentions >= 2, size.is_not(None)).order_by(size.desc(), of.ordinal)
    else:
        query = query.order_by(of.mentions.desc(), of.ordinal)
    with db.read() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def word_classes(db: Database, run_id: str, limit: int) -> list[tuple[str, str, int]]:
    """(target, class, words) of the classes that the report lists words for."""
    of = class_word.c
    query = (
        select(of.target, of.class_name, func.count())
        .where(of.run_id == run_id)
        .group_by(of.target, of.class_name)
        .order_by(func.min(of.ordinal))
        .limit(limit)
    )
    with db.read() as connection:
        return [(target, name, int(words)) for target, name, words in connection.execute(query)]


def trend(db: Database, name: str, limit: int) -> list[dict[str, Any]]:
    """Verdict and effect of each group in the newest `limit` runs of exactly this audit name.

    A run without groups, or without results, has one row whose group is None.
    """
    newest = (
        select(*(run.c[column] for column in ("id", "state", "created")))
        .where(run.c.name == name)
        .order_by(run.c.created.desc(), run.c.id.desc())
        .limit(limit)
        .subquery()
    )
    columns = [
        column.label("group_state") if column.name == "state" else column
        for column in group_verdict.c
        if column.name not in ("run_id", "ordinal")
    ]
    query = (
        select(newest, *columns)
        .join_from(newest, group_verdict, group_verdict.c.run_id == newest.c.id, isouter=True)
        .order_by(newest.c.created.desc(), newest.c.id.desc(), group_verdict.c.ordinal)
    )
    with db.read() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def metric_trend(db: Database, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Every metric of these runs, of which the last decides on the order."""
    of = run_metric.c
    query = (
        select(of.run_id, of.name, of.target, of.part, of.value, of.unit)
        .where(of.run_id.in_(ids))
        .order_by(of.run_id, of.ordinal)
    )
    measures: dict[tuple[str, str, str], dict[str, Any]] = {}
    with db.read() as connection:
        rows = connection.execute(query).mappings().all()
    for row in sorted(
        rows, key=lambda measure_row: measure_row["run_id"] != (ids[-1] if ids else "")
    ):
        key = (row["name"], row["target"], row["part"])
        named = dict(zip(("name", "target", "part"), key, strict=True))
        measure = measures.setdefault(key, {**named, "unit": row["unit"], "values": {}})
        measure["values"][row["run_id"]] = row["value"]
    return list(measures.values())


def moved_entities(db: Database, before: str, after: str, limit: int) -> list[dict[str, Any]]:
    """Entities with two mentions or more in both runs whose mean relevance moved most."""
    earlier, later = entity_result.alias("earlier"), entity_result.alias("later")
    same = ("target", "class_name", "group_name", "entity")
    moved = later.c.mean - earlier.c.mean
    query = (
        select(
            *(later.c[name] for name in same),
            earlier.c.mean.label("mean_before"),
            later.c.mean.label("mean"),
            moved.label("moved"),
            earlier.c.mentions.label("mentions_before"),
            later.c.mentions,
        )
        .join_from(later, earlier, and_(*(later.c[column] == earlier.c[column] for column in same)))
        .where(later.c.run_id == after, earlier.c.run_id == before)
        .where(later.c.mentions >= 2, earlier.c.mentions >= 2, moved.is_not(None))
        .order_by(func.abs(moved).desc(), later.c.ordinal)
        .limit(limit)
    )
    with db.read() as connection:
        if connection.dialect.name == "postgresql":
            # it expects one row of a run, and would compare every row with every other
            connection.exec_driver_sql("SET LOCAL enable_nestloop TO off")
        entities = [dict(row) for row in connection.execute(query).mappings()]
        if connection.dialect.name == "postgresql":
            # the transaction may go on
            connection.exec_driver_sql("SET LOCAL enable_nestloop TO DEFAULT")
    return entities


def side_by_side(
    db: Database, table: str, before: str, after: str, key: Iterable[str], limit: int = 500
) -> list[dict[str, Any]]:
    """Rows of both runs with the same `key`: `{"before": row or None, "after": row or None}`.

    In the later run's order; rows that only the earlier one has follow.
    """
    names = tuple(key)
    earlier = {_key(row, names): row for row in result_rows(db, table, before, limit=limit)}
    sides = [
        {"before": earlier.pop(_key(row, names), None), "after": row}
        for row in result_rows(db, table, after, limit=limit)
    ]
    return [*sides, *({"before": row, "after": None} for row in earlier.values())]


def _key(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)
