"""Pages of runs: the list, one run, the runs of one audit, two runs side by side, failures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from orchestrator.serve.asked import Answer, Asked, BadQueryError, NotThereError, run_called
from orchestrator.serve.drawn_pages import LinePoint, line_drawing
from orchestrator.serve.links import link
from orchestrator.serve.slow_pages import section_titles
from orchestrator.serve.slow_worker import Job
from transexplain.reports.forest import Axis, axis_around
from transexplain.reports.page import moment
from transexplain.store import browsing, browsing_items, fleet_state, runs
from transexplain.store.browsing import ListedRun

_STATES = fleet_state.RUN_STATES
_RUNS = 50  #: on a page
_TREND = 50  #: runs of an audit
_METRICS = 60  #: drawn over these; the others are in the JSON
_ROWS = 200  #: of a table
_PREDICTED = 20  #: classes of a run that works
_FAITHFUL = (
    *("faithfulness", "faithfulness_random", "faithfulness_difference", "faithfulness_p"),
    "beats_random",
)
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
    """The verdict, the groups by both questions and by relevance, and how far the run is."""
    db, run = asked.db, asked.run
    found = next(iter(browsing.result_rows(db, "run_result", run.id)), None)
    verdicts = browsing.result_rows(db, "group_verdict", run.id, limit=_ROWS)
    relevance = browsing.result_rows(db, "group_result", run.id, limit=_ROWS, split_by="")
    metrics = browsing.result_rows(db, "run_metric", run.id, limit=_ROWS)
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
            "metrics": metrics,
            "so_far": _so_far(asked),
            "failures": fleet_state.failures(db, run.id) if asked.readable else None,
        },
        {
            "facts": asked.facts,
            "most": _SHOWN,
            "faithful": _faithful(metrics),
            "single": {one["name"]: one["value"] for one in metrics if not one["part"]},
            "relevance_of": _by_group(relevance),
            "swaps": axis_of(verdicts, "probability"),
            "differences": axis_of(relevance, "difference"),
            "sections": _sections(asked),
        },
    )


#: what the page itself shows in other words, and more of in the report
_MORE = ("groups", "classes", "evidence")
_SHOWN_WHOLE = ("failures",)


def _sections(asked: Asked) -> dict[str, list[tuple[str, str]]]:
    """Sections of the report: those that the page opens on request, and those with more of it."""
    if asked.slow is None or asked.facts.task == "evaluation":
        return {"lacking": [], "more": []}
    found = section_titles()
    job = Job(kind="report", run_id=asked.run.id, finished=asked.run.finished)
    known = asked.slow.found(job, moving=False, begin=False)
    if known.pieces:
        held = {one.name for one in known.pieces}
        found = {name: title for name, title in found.items() if name in held}
    lacking = [one for one in found.items() if one[0] not in (*_MORE, *_SHOWN_WHOLE)]
    return {"lacking": lacking, "more": [one for one in found.items() if one[0] in _MORE]}


def _so_far(asked: Asked) -> dict[str, Any] | None:
    """What a run that works has predicted, of the shards that could be read; None: it is over."""
    if asked.run.state != "running" or not asked.readable:
        return None
    found = asked.counts.totals(asked.db, asked.run, asked.time_left / 2)
    labelled = {pair: n for pair, n in found.predictions.items() if pair[0]}
    right = sum(n for (label, predicted), n in labelled.items() if label == predicted)
    predicted: Counter[str] = Counter()
    for (_, name), count in found.predictions.items():
        predicted[name] += count
    total = sum(labelled.values())
    return {
        "shards": found.shards,
        "all": found.done,
        "labelled": total,
        "accuracy": right / total if total else None,
        "predicted": dict(predicted.most_common(_PREDICTED)),
    }


def _faithful(metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The measures of faithfulness: the method beside random relevance, a row each."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in metrics:
        if one["name"] in _FAITHFUL:
            row = found.setdefault(
                (one["target"], one["part"]),
                {"target": one["target"], "metric": one["part"], **dict.fromkeys(_FAITHFUL)},
            )
            row[one["name"]] = one["value"]
            row["items"] = one["items"]
    return list(found.values())


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
    """The runs of one audit's name: how each group and each metric develops."""
    name = asked.names["audit"]
    rows = browsing.trend(asked.db, name, _TREND)
    if not rows:
        raise NotThereError(f"No run in this store is of an audit named {name!r}.")
    made = {
        row["id"]: {"id": row["id"], "state": row["state"], "created": row["created"]}
        for row in rows
    }
    metrics = browsing.metric_trend(asked.db, list(made)[::-1])
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["group_name"] is not None:
            groups.setdefault(row["group_name"], []).append(row)
    return Answer(
        {
            "audit": name,
            "runs": [{**one, "metrics": _listed(metrics, one["id"])} for one in made.values()],
            "groups": groups,
            "metrics": metrics,
        },
        {
            "swaps": axis_of([row for some in groups.values() for row in some], "probability"),
            "most_metrics": _METRICS,
            "group_chart": lambda rows, name: _group_chart(rows, list(made.values()), name),
            "metric_chart": lambda one: _metric_chart(one, list(made.values())),
            "latest": lambda one: [one["values"][of] for of in made if of in one["values"]][:2],
        },
    )


def _listed(metrics: Sequence[Mapping[str, Any]], run_id: str) -> dict[str, float]:
    return {
        one["name"]: one["values"][run_id]
        for one in metrics
        if one["name"] in browsing.LISTED and not one["part"] and run_id in one["values"]
    }


def _group_chart(
    rows: Sequence[Mapping[str, Any]], made: Sequence[Mapping[str, Any]], name: str
) -> Markup:
    """The effect of swapping a group, from the oldest run to the newest."""
    known = {row["id"]: row for row in rows}
    points = [
        LinePoint(
            name=f"{one['id']}, {moment(one['created'])}",
            value=row.get("probability"),
            low=row.get("probability_low"),
            high=row.get("probability_high"),
        )
        for one in reversed(made)
        for row in [known.get(one["id"], {})]
    ]
    return line_drawing(
        points, label=f"effect of swapping {name} on a probability, from the oldest run on"
    )


def _metric_chart(metric: Mapping[str, Any], made: Sequence[Mapping[str, Any]]) -> Markup:
    points = [
        LinePoint(
            name=f"{one['id']}, {moment(one['created'])}", value=metric["values"].get(one["id"])
        )
        for one in reversed(made)
    ]
    words = " ".join(filter(None, (metric["name"], metric["part"], metric["target"])))
    return line_drawing(
        points, label=f"{words.replace('_', ' ')}, from the oldest run on", zero=False
    )


def two_runs(asked: Asked) -> Answer:
    """What two runs found, side by side, from their result tables."""
    first, second = asked.word("a"), asked.word("b")
    if not (first and second):
        listed = browsing.list_page(asked.db, limit=_OTHERS)
        return Answer({"a": None, "b": None, "runs": listed}, {"first": first, "second": second})
    before, after = run_called(asked.db, first), run_called(asked.db, second)
    verdicts = _beside(asked, "group_verdict", before, after, ("group_name",))
    return Answer(
        {
            "a": before,
            "b": after,
            "facts": _facts(asked, before, after),
            "changed": [
                change
                for pair in verdicts
                for question in ("mention", "outcome")
                if (change := _change(pair, question))["before"] != change["after"]
            ],
            "group_verdicts": verdicts,
            "metrics": _beside(asked, "run_metric", before, after, ("name", "target", "part")),
            "entities": browsing.moved_entities(asked.db, before.id, after.id, 20),
        },
        {"first": first, "second": second},
    )


def _change(pair: Mapping[str, Any], question: str) -> dict[str, Any]:
    """How either run answers a question about a group; None: it has, or had, no verdict."""
    before, after = (row and row[question] for row in (pair["before"], pair["after"]))
    return {
        "group_name": (pair["after"] or pair["before"])["group_name"],
        "question": question,
        "before": before,
        "after": after,
    }


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
