"""Pages of runs: the list, one run, the runs of one audit, two runs side by side, failures.

Behind them what takes longer than a request may, the report of a run and clusters of a class; and
the pages of the fleet and of the schedules.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from markupsafe import Markup

from orchestrator.schedule.fire_times import overdue, upcoming
from orchestrator.serve.drawn_pages import line_drawing
from orchestrator.serve.links import link
from orchestrator.serve.page_request import (
    BadQueryError,
    NotThereError,
    PageContent,
    PageRequest,
    run_called,
)
from orchestrator.serve.slow_desk import PageJob
from transexplain.errors import ConfigurationError
from transexplain.reports.forest import ForestAxis, axis_around
from transexplain.reports.page import moment
from transexplain.reports.sections import SECTIONS
from transexplain.store import browsing, browsing_items, fleet_state, runs
from transexplain.store.browsing import ListedRun
from transexplain.store.schedules import fire_rows, receiver_rows, schedule_rows
from transexplain.types.device_time import together
from workers.queue_names import queue_name

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


def all_runs(request: PageRequest) -> PageContent:
    """The newest runs first, by name, model and state."""
    filters = {name: request.word(name) for name in ("name", "model", "state")}
    if filters["state"] and filters["state"] not in _STATES:
        raise BadQueryError(f"state must be one of {', '.join(_STATES)}.")
    listed = browsing.list_page(request.db, **filters, before=_before(request), limit=_RUNS + 1)
    shown, following = listed[:_RUNS], None
    if len(listed) > _RUNS:
        last = f"{shown[-1].created!r},{shown[-1].id}"
        following = link("runs", **filters, before=last)
    unfinished = [run.id for run in shown if run.state == "running"]
    return PageContent(
        {
            "filters": filters,
            "runs": shown,
            "progress": {run_id: runs.progress(request.db, run_id) for run_id in unfinished[:10]},
            "next": following,
        },
        {"states": _STATES, "first": not request.word("before")},
    )


def _before(request: PageRequest) -> tuple[float, str] | None:
    before = request.word("before")
    if not before:
        return None
    created, _, run_id = before.partition(",")
    try:
        return float(created), run_id
    except ValueError:
        raise BadQueryError(f"before must be a moment and a run's id, not {before!r}.") from None


def one_run(request: PageRequest) -> PageContent:
    """The verdict, the groups by both questions and by relevance, and how far the run is."""
    db, run = request.db, request.run
    result = next(iter(browsing.result_rows(db, "run_result", run.id)), None)
    verdicts = browsing.result_rows(db, "group_verdict", run.id, limit=_ROWS)
    relevance = browsing.result_rows(db, "group_result", run.id, limit=_ROWS, split_by="")
    metrics = browsing.result_rows(db, "run_metric", run.id, limit=_ROWS)
    return PageContent(
        {
            "run": run,
            "progress": runs.progress(db, run.id),
            "result": result,
            "group_verdicts": verdicts,
            "groups": relevance,
            "outcomes": browsing.result_rows(db, "outcome_result", run.id, limit=_ROWS),
            "classes": [
                {"target": target, "class_name": name, "words": words}
                for target, name, words in browsing.word_classes(db, run.id, _ROWS)
            ],
            "metrics": metrics,
            "so_far": _so_far(request),
            "failures": runs.failures(db, run.id) if request.readable else None,
        },
        {
            "facts": request.facts,
            "most": _SHOWN,
            "faithful": _faithful(metrics),
            "single": {metric["name"]: metric["value"] for metric in metrics if not metric["part"]},
            "relevance_of": _by_group(relevance),
            "swaps": axis_of(verdicts, "probability"),
            "differences": axis_of(relevance, "difference"),
            "sections": _sections(request),
        },
    )


#: what the page itself shows in other words, and more of in the report
_MORE = ("groups", "classes", "evidence")
_SHOWN_WHOLE = ("failures",)


def _sections(request: PageRequest) -> dict[str, list[tuple[str, str]]]:
    """Sections of the report: those that the page opens on request, and those with more of it."""
    if request.slow is None or request.facts.task == "evaluation":
        return {"lacking": [], "more": []}
    titles = section_titles()
    job = PageJob(kind="report", run_id=request.run.id, finished=request.run.finished)
    known = request.slow.found(job, moving=False, begin=False)
    if known.pieces:
        held = {piece.name for piece in known.pieces}
        titles = {name: title for name, title in titles.items() if name in held}
    lacking = [section for section in titles.items() if section[0] not in (*_MORE, *_SHOWN_WHOLE)]
    return {
        "lacking": lacking,
        "more": [section for section in titles.items() if section[0] in _MORE],
    }


def _so_far(request: PageRequest) -> dict[str, Any] | None:
    """The predictions of a run that works, of the shards that could be read; None: it is over."""
    if request.run.state != "running" or not request.readable:
        return None
    totals = request.counts.totals(request.db, request.run, request.time_left / 2)
    labelled = {pair: n for pair, n in totals.predictions.items() if pair[0]}
    right = sum(n for (label, predicted), n in labelled.items() if label == predicted)
    predicted: Counter[str] = Counter()
    for (_, name), count in totals.predictions.items():
        predicted[name] += count
    total = sum(labelled.values())
    return {
        "shards": totals.shards,
        "all": totals.done,
        "labelled": total,
        "accuracy": right / total if total else None,
        "predicted": dict(predicted.most_common(_PREDICTED)),
    }


def _faithful(metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The measures of faithfulness: the method and random relevance, a row each."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for metric in metrics:
        if metric["name"] in _FAITHFUL:
            row = rows.setdefault(
                (metric["target"], metric["part"]),
                {"target": metric["target"], "metric": metric["part"], **dict.fromkeys(_FAITHFUL)},
            )
            row[metric["name"]] = metric["value"]
            row["items"] = metric["items"]
    return list(rows.values())


def _by_group(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group_name"], []).append(row)
    return groups


def axis_of(rows: Sequence[Mapping[str, Any]], name: str) -> ForestAxis:
    """An axis for a number and its interval in all these rows."""
    ends = [row[f"{name}{end}"] for row in rows for end in ("", "_low", "_high")]
    return axis_around([0.0, *(end for end in ends if end is not None)])


def one_audit(request: PageRequest) -> PageContent:
    """The runs of one audit's name: how each group and each metric develops."""
    name = request.names["audit"]
    rows = browsing.trend(request.db, name, _TREND)
    if not rows:
        raise NotThereError(f"No run in this store is of an audit named {name!r}.")
    runs_by_id = {
        row["id"]: {"id": row["id"], "state": row["state"], "created": row["created"]}
        for row in rows
    }
    metrics = browsing.metric_trend(request.db, list(runs_by_id)[::-1])
    groups = _by_group([row for row in rows if row["group_name"] is not None])
    return PageContent(
        {
            "audit": name,
            "runs": [
                {**run, "metrics": _listed(metrics, run["id"])} for run in runs_by_id.values()
            ],
            "groups": groups,
            "metrics": metrics,
        },
        {
            "swaps": axis_of([row for some in groups.values() for row in some], "probability"),
            "most_metrics": _METRICS,
            "group_chart": lambda rows, name: _chart(
                list(runs_by_id.values()),
                {row["id"]: row for row in rows},
                "probability",
                label=f"effect of swapping {name} on a probability",
            ),
            "metric_chart": lambda metric: _chart(
                list(runs_by_id.values()),
                {run_id: {"value": value} for run_id, value in metric["values"].items()},
                "value",
                label=_spoken(metric),
                zero=False,
            ),
            "latest": lambda metric: [
                metric["values"][of] for of in runs_by_id if of in metric["values"]
            ][:2],
        },
    )


def _listed(metrics: Sequence[Mapping[str, Any]], run_id: str) -> dict[str, float]:
    return {
        metric["name"]: metric["values"][run_id]
        for metric in metrics
        if metric["name"] in browsing.LISTED and not metric["part"] and run_id in metric["values"]
    }


def _spoken(metric: Mapping[str, Any]) -> str:
    words = " ".join(filter(None, (metric["name"], metric["part"], metric["target"])))
    return words.replace("_", " ")


def _chart(
    listed: Sequence[Mapping[str, Any]],
    rows: Mapping[str, Mapping[str, Any]],
    name: str,
    *,
    label: str,
    zero: bool = True,
) -> Markup:
    """A number of the runs' rows with its interval, from the oldest run to the newest."""
    points = [
        (
            f"{run['id']}, {moment(run['created'])}",
            *(row.get(name), row.get(f"{name}_low"), row.get(f"{name}_high")),
        )
        for run in reversed(listed)
        for row in [rows.get(run["id"], {})]
    ]
    return line_drawing(points, label=f"{label}, from the oldest run on", zero=zero)


def two_runs(request: PageRequest) -> PageContent:
    """The results of two runs side by side, from their result tables."""
    first, second = request.word("a"), request.word("b")
    if not (first and second):
        listed = browsing.list_page(request.db, limit=_OTHERS)
        return PageContent(
            {"a": None, "b": None, "runs": listed}, {"first": first, "second": second}
        )
    before, after = run_called(request.db, first), run_called(request.db, second)
    ids = (before.id, after.id)
    verdicts = browsing.side_by_side(request.db, "group_verdict", *ids, ("group_name",))
    metrics = browsing.side_by_side(request.db, "run_metric", *ids, ("name", "target", "part"))
    return PageContent(
        {
            "a": before,
            "b": after,
            "facts": _facts(request, before, after),
            "changed": [
                change
                for pair in verdicts
                for question in ("mention", "outcome")
                if (change := _change(pair, question))["before"] != change["after"]
            ],
            "group_verdicts": verdicts,
            "metrics": metrics,
            "entities": browsing.moved_entities(request.db, *ids, 20),
        },
        {"first": first, "second": second},
    )


def _change(pair: Mapping[str, Any], question: str) -> dict[str, Any]:
    """The verdicts of two runs on a question about a group; None: there is no verdict."""
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


def _facts(request: PageRequest, before: ListedRun, after: ListedRun) -> list[dict[str, Any]]:
    rows = [
        next(iter(browsing.result_rows(request.db, "run_result", run.id)), {})
        for run in (before, after)
    ]
    return [
        {"name": name, "before": rows[0].get(name), "after": rows[1].get(name)}
        for name in _COMPARED
    ]


def failures(request: PageRequest) -> PageContent:
    """Items that could not be explained, shards that gave up, and items in quarantine."""
    db, run, start = request.db, request.run, request.number("start")
    if not request.readable:
        return PageContent({"run": run, "readable": False})
    items = browsing_items.failed_page(db, run.id, start=start, limit=_FAILED + 1)
    following = items[_FAILED].index if len(items) > _FAILED else None
    shards = browsing_items.troubled_shards(db, run.id, _ROWS)
    return PageContent(
        {
            "run": run,
            "readable": True,
            "kinds": runs.failures(db, run.id),
            "items": items[:_FAILED],
            "next": None
            if following is None
            else link("runs", run.id, "failures", start=following),
            "shards": shards,
        }
    )


#: of sections whose names say too little
_TITLES = {
    "untested": "Not tested",
    "data": "Data and matching",
    "evidence": "Faithfulness",
    "mixed": "Mixed methods",
    "scenarios": "Bias scenarios",
    "impact": "Impact ratios",
    "previous": "Comparison with the previous run",
    "unreadable": "Unreadable items",
    "about": "Audited run",
}


def section_titles() -> dict[str, str]:
    """Name of every section of a report -> its title; none of them is loaded for it."""
    return {name: _TITLES.get(name) or name.replace("_", " ").capitalize() for name in SECTIONS}


def live_report(request: PageRequest) -> PageContent:
    """The sections of the run's report, of what is saved by now; all of them, or one."""
    titles, section = section_titles(), request.word("section")
    if section and section not in titles:
        raise BadQueryError(f"section must be one of {', '.join(titles)}.")
    job = PageJob(kind="report", run_id=request.run.id, finished=request.run.finished)
    document, html = _made(request, job, section)
    return PageContent({**document, "section": section}, {"html": html, "titles": titles})


def clusters(request: PageRequest) -> PageContent:
    """In how many ways explanations of a class come about: clusters, with words or places."""
    name = request.class_name
    job = PageJob(
        kind="clusters", run_id=request.run.id, finished=request.run.finished, class_name=name
    )
    document, html = _made(request, job, "")
    return PageContent({**document, "class_name": name}, {"html": html})


def _made(request: PageRequest, job: PageJob, section: str) -> tuple[dict[str, Any], list[Markup]]:
    """The document of a job, and its pieces as HTML."""
    run = request.run
    document: dict[str, Any] = {
        "run": run,
        "readable": request.readable,
        "off": request.slow is None,
        "at": None,
        "waiting": False,
        "error": None,
        "sections": {},
    }
    if request.slow is None or not request.readable:
        return document, []
    found_pieces = request.slow.found(job, moving=run.state == "running")
    shown = [piece for piece in found_pieces.pieces if section in ("", piece.name)]
    document |= {
        "at": found_pieces.at,
        "waiting": found_pieces.waiting,
        "error": found_pieces.error,
        "sections": {piece.name: piece for piece in shown},
    }
    # made by the report's own templates, which escape every value
    return document, [Markup(html) for piece in shown if (html := piece.html)]


_FIRES = 5  #: of each schedule
_LATE = 900.0  #: seconds after which a fire without a run is missed, as in ops/alerts.yml


def fleet(request: PageRequest) -> PageContent:
    """Workers and their rates, what their devices waited for, and the shards that are left."""
    db, recent = request.db, fleet_state.RECENT
    if request.broker is not None:
        request.broker.begin()  # meanwhile the database is read
    status = fleet_state.status(db, items=request.readable)
    every = together(status.devices)
    rates = fleet_state.worker_rates(db, recent)
    known = [rate["rate"] for rate in rates if rate["rate"] is not None]
    running = fleet_state.running_runs(db, _RUNS)
    messages = None if request.broker is None else request.broker.waiting()
    return PageContent(
        {
            "recent_seconds": recent,
            "runs": status.runs,
            "shards": status.shards,
            "queued": status.shards["queued"],
            "expired": status.expired,
            "items_explained": status.explained,
            "failures": status.failed if request.readable else None,
            "refused": status.refused if request.readable else None,
            "claims": status.claims,
            "items_a_second": sum(known) if known else None,
            "workers": status.workers,
            "rates": rates,
            "devices": [{**device.document, "stages": device.stages} for device in status.devices],
            "waited": every.waited,
            "running": running,
            "queues": _queues(request, running, messages),
            "broker": None if request.broker is None else messages is not None,
        }
    )


def _queues(
    request: PageRequest, running: Sequence[Mapping[str, Any]], messages: Mapping[str, int] | None
) -> list[dict[str, Any]]:
    """The queues with work: shards of these runs by SQL, and messages at the broker."""
    shards: dict[str, Counter[str]] = {
        name: Counter() for name, count in (messages or {}).items() if count
    }
    for run in running:
        facts = request.counts.facts(request.db, run["id"])
        counts = shards.setdefault(
            queue_name(request.queue, facts.modality, facts.device), Counter()
        )
        counts.update({"queued": run["queued"], "in_work": run["in_work"]})
    return [
        {
            "queue": name,
            "shards_queued": counts["queued"],
            "shards_in_work": counts["in_work"],
            "messages": None if messages is None else messages.get(name, 0),
        }
        for name, counts in sorted(shards.items())
    ]


def schedules(request: PageRequest) -> PageContent:
    """Every schedule: when it fires next, and what its last runs found."""
    db, now = request.db, time.time()
    return PageContent(
        {
            "now": now,
            "late_after": _LATE,
            "schedules": [
                {
                    **row,
                    **_fires(row, now),
                    "receivers": receiver_rows(db, row["name"]),
                    "fires": fire_rows(db, row["name"], _FIRES),
                }
                for row in schedule_rows(db, errors=request.readable)
            ],
        }
    )


def _fires(row: Mapping[str, Any], now: float) -> dict[str, float | None]:
    """The next fire, and the seconds since a fire that has made no run."""
    times: dict[str, float | None] = {"next": None, "overdue": 0.0}
    if row["state"] != "paused":
        with suppress(ConfigurationError):  # this machine lacks the time zone; the tick says so
            times["next"] = next(upcoming(row["cron"], row["time_zone"], now), None)
            times["overdue"] = overdue(row["cron"], row["time_zone"], row["since"], now)
    return times
