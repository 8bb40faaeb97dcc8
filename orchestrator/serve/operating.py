"""Forms that cancel, retry and resume a run: first what would happen, then a confirmation.

Pages keep the handle that only reads; a second one writes, for these actions alone.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy.exc import DBAPIError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from orchestrator.dispatch import run_actions
from orchestrator.serve.links import RefusedError, link
from orchestrator.serve.own_forms import TOKEN, Fields, OwnForms, fields_of
from orchestrator.serve.page_request import NotThereError, names_of, run_called
from orchestrator.serve.replies import answered
from transexplain.errors import BrokerError, ConfigurationError, DatabaseError, ObjectStoreError
from transexplain.reports.phrasing import counted
from transexplain.settings import Settings
from transexplain.store import browsing, runs, shards
from transexplain.store.browsing import ListedRun
from transexplain.store.database import Database
from transexplain.store.runs import RunProgress

log = logging.getLogger(__name__)

#: path of a form, with the run and what is done to it
PATH = "/runs/{run}/operate/{action}"
_FORM_BYTES = 16_384
_NO_BROKER = (
    "No broker is configured here (TRANSEXPLAIN_BROKER_URL), so no worker got a message. Processes "
    "that work on the run already go on with it; else run `transexplain resume {run}` where its "
    "model and data are."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetOperator:
    """A handle that writes, and the broker that workers listen to."""

    db: Database
    settings: Settings
    has_broker: bool  #: the environment names one
    ending: threading.Event = field(default_factory=threading.Event)  #: set when the server ends

    def close_apart(self, _db: Database, run_id: str) -> None:
        """Begin to write the rows for SQL of a run that is over, by a process of its own.

        For a large run it takes a minute and a gigabyte. Where the server ends first, a sweep or
        `transexplain report` writes them.
        """
        from transexplain.reports import sql_results  # slow to import

        work = (self.settings.database_url, run_id, self.ending)
        threading.Thread(target=sql_results.close_apart, args=work, name="results").start()


#: what is done to a run -> what happens, in a sentence
ACTIONS: Mapping[str, str] = {
    "cancel": "Waiting shards are not computed, workers stop before their next batch, and what "
    "they have in hand is lost. What was saved stays. A cancelled run cannot go on.",
    "retry": "Shards that gave up and damaged ones wait again, with all their attempts. What they "
    "saved stays until it is replaced.",
    "resume": "Finished shards stay. Those that gave up and damaged ones wait again, and workers "
    "are told of all that wait.",
}
#: what an action did, the shards that it queued, and the messages to workers; None: none were sent
_Done = tuple[str, int, int | None]


def _cancel(operator: FleetOperator, run_id: str) -> _Done:
    if not run_actions.cancel(operator.db, run_id, operator.close_apart):
        return "The run was over already; nothing was changed.", 0, None
    return "The run is cancelled. Workers stop before their next batch.", 0, None


def _again(operator: FleetOperator, run_id: str, *, failed: bool) -> _Done:
    run_actions.resumable(operator.db, run_id)
    queued = run_actions.queue_again(operator.db, run_id, failed=failed)
    answer = f"{counted(queued, 'shard')} queued once more."
    if not runs.progress(operator.db, run_id).states["queued"]:
        return f"{answer} Nothing waits to be done.", queued, None
    if not operator.has_broker:
        return f"{answer} {_NO_BROKER.format(run=run_id)}", queued, None
    try:
        sent = run_actions.send_hints(operator.db, operator.settings, run_id)
    except BrokerError as error:
        log.warning("%s", error)
        away = "The broker does not answer; workers hear of the shards when a sweep reaches it."
        return f"{answer} {away}", queued, None
    return f"{answer} Workers got messages about {counted(sent, 'shard')}.", queued, sent


def _against(action: str, run: ListedRun, progress: RunProgress, passing: int | None) -> str:
    """Why the action makes no sense; "": it does. `passing`: see `_look`."""
    if action == "cancel":
        return "" if run.state == "running" else f"The run is {run.state} already."
    if run.state == "cancelled":
        return "The run was cancelled; start a new one."
    if action == "resume" or progress.states["dead"] or passing != 0:
        return ""
    return "No shard of this run gave up, and no item failed that another try may explain."


def operating_route(db: Database, operator: FleetOperator | None, forms: OwnForms) -> Route:
    """The forms' route; without an operator it says that this server only reads."""
    work = partial(_form, db, operator, forms)
    return Route(PATH, work, methods=["GET", "POST"], name="operate")


async def _form(
    db: Database, operator: FleetOperator | None, forms: OwnForms, request: Request
) -> Response:
    if operator is None:
        raise RefusedError(
            403, "Read-only", "This server only reads; it was started without --operate."
        )
    names = names_of(request)
    if names["action"] not in ACTIONS:
        raise NotThereError(f"A run can be: {', '.join(ACTIONS)}.")
    name, run_id = names["action"], names["run"]
    run, document = await run_in_threadpool(_look, db, name, run_id)
    scope = f"{name} {run_id}"
    if request.method != "POST":
        token, cookie = forms.token(request, scope)
        drawing = {"title": name.capitalize(), "here": "operate"}
        drawing["address"] = link("runs", run_id, "operate", name)
        page = answered(request, "operate", {**document, TOKEN: token}, drawing)
        return forms.kept(request, page, cookie)
    forms.check_origin(request)
    fields = await fields_of(request, _FORM_BYTES, "A form has at most 16 KiB.")
    forms.check(request, scope, fields.words.get(TOKEN, ""))
    user = forms.user_of(request)
    text, queued, hints = await run_in_threadpool(_act, operator, name, user, run_id, fields)
    counts = {"shards_queued": queued, "hints_sent": hints}
    result = {"run": run_id, "action": name, "done": text, **counts}
    shown = {"title": name.capitalize(), "here": "operate", "run": run}
    return answered(request, "operated", result, shown)


def _look(db: Database, action: str, run_id: str) -> tuple[ListedRun, dict[str, Any]]:
    """The run, and what would be done to it as it stands."""
    run, progress = run_called(db, run_id), runs.progress(db, run_id)
    failures = runs.failures(db, run_id) if browsing.texts_readable(db) else None
    passing = None  # failed items that another try may explain, where they can be read
    if failures is not None:
        passing = sum(failures.get(kind, 0) for kind in shards.PASSING_KINDS)
    return run, {
        "run": run,
        "action": action,
        "does": ACTIONS[action],
        "against": _against(action, run, progress, passing),
        "progress": progress,
        "failures": failures,
        "failed_to_retry": passing,
    }


def _act(operator: FleetOperator, name: str, user: str, run_id: str, fields: Fields) -> _Done:
    failed = name == "retry" and fields.words.get("failed", "") not in ("", "false", "0")
    try:
        if name == "cancel":
            done = _cancel(operator, run_id)
        else:
            done = _again(operator, run_id, failed=failed)
    except (ConfigurationError, ObjectStoreError) as error:
        log.warning("%s of run %s by %r was refused: %s", name, run_id, user, error)
        raise RefusedError(409, "Not possible", str(error)) from None
    except (DatabaseError, DBAPIError) as error:
        reason = " ".join(str(getattr(error, "orig", error)).split())
        log.warning("%s of run %s by %r failed: %s", name, run_id, user, reason)
        raise RefusedError(
            503,
            "Nothing was done",
            "The database refused or did not answer; the server's log says why. The role that "
            "this server uses must be allowed to write.",
        ) from None
    log.warning("%s of run %s by %r: %s", name, run_id, user, done[0])
    return done
