"""Pages of runs: the list, one run, the runs of one audit, two runs side by side, failures."""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.serve.asked import Answer, Asked, BadQueryError, NotThereError
from orchestrator.serve.links import link
from transexplain.reports.forest import Axis, axis_around
from transexplain.store import browsing, browsing_items, fleet_state, runs
from transexplain.store.browsing import ListedRun

_STATES = fleet_state.RUN_STATES
_RUNS = 50  #: on a page
_TREND = 50  #: runs of an audit
_ROWS = 200  #: of a table
_SHOWN = 30  #: of these on a page; the others are in the JSON, and on the pages of groups
_FAILED = 100  #: items on a page
_OTHERS = 30  #: runs to choose from


def all_runs(asked: Asked) -> Answer:
    """The newest runs first, by name, model and state."""
    filters = {name: asked.word(name) for name in ("name", "model", "state")}
    if filters["state"] and filters["state"] not in _STATES:
        raise BadQueryError(f"state must be one of {', '.join(_STATES)}.")
    found = browsing.list_page(asked.db, **filters, before=_before(asked), limit=_RUNS + 1)
    shown, following = found[:_RUNS], None
    if len(found) > _RUNS:
        last = f"{shown[-1].created!r},{shown[-1].id}"
        following = link("runs", **filters, before=last)
    unfinished = [one.id for one in shown if one.state == "running"]
    return Answer(
        {
            "filters": filters,
            "runs": shown,
            "progress": {one: runs.progress(asked.db, one) for one in unfinished[:10]},
            "next": following,
        },
        {"states": _STATES, "first": not asked.word("before")},
    )


def _before(asked: Asked) -> tuple[float, str] | None:
    given = asked.word("before")
    if not given:
        return None
    created, _, run_id = given.partition(",")
    try:
        return float(created), run_id
    except ValueError:
        raise BadQueryError(f"before must be a moment and a run's id, not {given!r}.") from None


def one_run(asked: Asked) -> Answer:
    """The verdict, the groups by all three kinds of evidence, and how far the run is."""
    db, run = asked.db, asked.run
    found = next(iter(browsing.result_rows(db, "run_result", run.id)), None)
    verdicts = browsing.result_rows(db, "group_verdict", run.id, limit=_ROWS)
    relevance = browsing.result_rows(db, "group_result", run.id, limit=_ROWS, split_by="")
    return Answer(
        {
            "run": run,
            "progress": runs.progress(db, run.id),
            "result": found,
            "group_verdicts": verdicts,
            "groups": relevance,
            "outcomes": browsing.result_rows(db, "outcome_result", run.id, limit=_ROWS),
            "classes": [
                {"target": target, "class_name": name, "words": words}
                for target, name, words in browsing.word_classes(db, run.id, _ROWS)
            ],
            "metrics": browsing.result_rows(db, "run_metric", run.id, limit=_ROWS),
            "failures": fleet_state.failures(db, run.id) if asked.readable else None,
        },
        {
            "facts": asked.facts,
            "most": _SHOWN,
            "relevance_of": _by_group(relevance),
            "swaps": axis_of(verdicts, "swap_effect"),
            "differences": axis_of(relevance, "difference"),
        },
    )


def _by_group(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["group_name"], []).append(row)
    return found


def axis_of(rows: Sequence[Mapping[str, Any]], name: str) -> Axis:
    """An axis for a number and its interval in all these rows."""
    ends = [row[f"{name}{end}"] for row in rows for end in ("", "_low", "_high")]
    return axis_around([0.0, *(one for one in ends if one is not None)])


def one_audit(asked: Asked) -> Answer:
    """The runs of one audit's name: how each group's verdict and effect develop."""
    name = asked.names["audit"]
    rows = browsing.trend(asked.db, name, _TREND)
    if not rows:
        raise NotThereError(f"No run in this store is of an audit named {name!r}.")
    metrics = browsing.metric_trend(asked.db, name, _TREND)
    made = {
        row["id"]: {"id": row["id"], "state": row["state"], "created": row["created"]}
        for row in rows
    }
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["group_name"] is not None:
            groups.setdefault(row["group_name"], []).append(row)
    return Answer(
        {
            "audit": name,
            "runs": [{**one, "metrics": metrics.get(one["id"], {})} for one in made.values()],
            "groups": groups,
        },
        {"swaps": axis_of([row for some in groups.values() for row in some], "swap_effect")},
    )


def two_runs(asked: Asked) -> Answer:
    """What two runs found, side by side, from their result tables."""
    first, second = asked.word("a"), asked.word("b")
    if not (first and second):
        listed = browsing.list_page(asked.db, limit=_OTHERS)
        return Answer({"a": None, "b": None, "runs": listed}, {"first": first, "second": second})
    before, after = asked.run_called(first), asked.run_called(second)
    return Answer(
        {
            "a": before,
            "b": after,
            "facts": _facts(asked, before, after),
            "group_verdicts": _beside(asked, "group_verdict", before, after, ("group_name",)),
            "metrics": _beside(asked, "run_metric", before, after, ("name", "target", "part")),
            "entities": browsing.moved_entities(asked.db, before.id, after.id, 20),
        },
        {"first": first, "second": second},
    )


_COMPARED = (
    *("task", "model", "model_digest", "dtype", "dataset", "dataset_fingerprint", "method"),
    *("unit", "plan_digest", "reference", "correction", "practical_relevance", "version"),
    "verdict",
)


def _facts(asked: Asked, before: ListedRun, after: ListedRun) -> list[dict[str, Any]]:
    rows = [
        next(iter(browsing.result_rows(asked.db, "run_result", one.id)), {})
        for one in (before, after)
    ]
    return [
        {"name": name, "before": rows[0].get(name), "after": rows[1].get(name)}
        for name in _COMPARED
    ]


def _beside(
    asked: Asked, table: str, before: ListedRun, after: ListedRun, key: Sequence[str]
) -> list[dict[str, Any]]:
    return browsing.side_by_side(asked.db, table, before.id, after.id, key)


def failures(asked: Asked) -> Answer:
    """Items that could not be explained, shards that gave up, and items in quarantine."""
    db, run, start = asked.db, asked.run, asked.number("start")
    if not asked.readable:
        return Answer({"run": run, "readable": False})
    items = browsing_items.failed_page(db, run.id, start=start, limit=_FAILED + 1)
    following = items[_FAILED].index if len(items) > _FAILED else None
    shards = browsing_items.troubled_shards(db, run.id, _ROWS)
    return Answer(
        {
            "run": run,
            "readable": True,
            "kinds": fleet_state.failures(db, run.id),
            "items": items[:_FAILED],
            "next": None
            if following is None
            else link("runs", run.id, "failures", start=following),
            "shards": shards,
        }
    )
