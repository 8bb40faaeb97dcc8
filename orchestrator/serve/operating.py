"""Forms that cancel, retry and resume a run: first what would happen, then a confirmation.

Pages keep the handle that only reads; a second one writes, for these actions alone.
"""

import logging
import threading
from collections.abc import Callable, Mapping
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
from transexplain.store import browsing, fleet_state, runs, shards
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


@dataclass(frozen=True, slots=True)
class _Done:
    """The result of an action."""

    text: str
    queued: int = 0  #: shards
    hints: int | None = None  #: messages to workers; None: there is no broker, or it is away


@dataclass(frozen=True, slots=True)
class _Action:
    """One thing to do to a run."""

    title: str
    does: str  #: what happens, in a sentence
    act: Callable[[FleetOperator, str, Fields], _Done]


def _cancel(operator: FleetOperator, run_id: str, _fields: Fields) -> _Done:
    if not run_actions.cancel(operator.db, run_id, operator.close_apart):
        return _Done("The run was over already; nothing was changed.")
    return _Done("The run is cancelled. Workers stop before their next batch.")


def _retry(operator: FleetOperator, run_id: str, fields: Fields) -> _Done:
    failed = fields.words.get("failed", "") not in ("", "false", "0")
    return _again(operator, run_id, failed=failed)


def _resume(operator: FleetOperator, run_id: str, _fields: Fields) -> _Done:
    return _again(operator, run_id)


def _again(operator: FleetOperator, run_id: str, *, failed: bool = False) -> _Done:
    run_actions.resumable(operator.db, run_id)
    queued = run_actions.queue_again(operator.db, run_id, failed=failed)
    answer = f"{counted(queued, 'shard')} queued once more."
    if not runs.progress(operator.db, run_id).states["queued"]:
        return _Done(f"{answer} Nothing waits to be done.", queued)
    if not operator.has_broker:
        return _Done(f"{answer} {_NO_BROKER.format(run=run_id)}", queued)
    try:
        sent = run_actions.send_hints(operator.db, operator.settings, run_id)
    except BrokerError as error:
        log.warning("%s", error)
        away = "The broker does not answer; workers hear of the shards when a sweep reaches it."
        return _Done(f"{answer} {away}", queued)
    return _Done(f"{answer} Workers got messages about {counted(sent, 'shard')}.", queued, sent)


ACTIONS: Mapping[str, _Action] = {
    "cancel": _Action(
        "Cancel",
        "Waiting shards are not computed, workers stop before their next batch, and what they "
        "have in hand is lost. What was saved stays. A cancelled run cannot go on.",
        _cancel,
    ),
    "retry": _Action(
        "Retry",
        "Shards that gave up and damaged ones wait again, with all their attempts. What they saved "
        "stays until it is replaced.",
        _retry,
    ),
    "resume": _Action(
        "Resume",
        "Finished shards stay. Those that gave up and damaged ones wait again, and workers are "
        "told of all that wait.",
        _resume,
    ),
}


@dataclass(frozen=True, slots=True)
class _SeenRun:
    """A run as it stands when somebody wants to act on it."""

    run: ListedRun
    progress: RunProgress
    failures: Mapping[str, int] | None  #: kind -> items; None: not readable

    @property
    def passing(self) -> int | None:
        """Failed items that another try may explain."""
        if self.failures is None:
            return None
        return sum(self.failures.get(kind, 0) for kind in shards.PASSING_KINDS)

    def against(self, action: str) -> str:
        """Why the action makes no sense; "": it does."""
        state, states = self.run.state, self.progress.states
        if action == "cancel":
            return "" if state == "running" else f"The run is {state} already."
        if state == "cancelled":
            return "The run was cancelled; start a new one."
        if action == "resume" or states["dead"] or self.passing != 0:
            return ""
        return "No shard of this run gave up, and no item failed that another try may explain."


def operating_routes(db: Database, operator: FleetOperator | None, forms: OwnForms) -> list[Route]:
    """The forms' routes; without an operator they say that this server only reads."""
    return [
        Route(PATH, partial(_form, db, operator, forms), methods=["GET", "POST"], name="operate")
    ]


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
    action = ACTIONS[name]
    seen = await run_in_threadpool(_look, db, run_id)
    scope = f"{name} {run_id}"
    if request.method != "POST":
        return _confirmation(request, forms, scope, name, seen)
    forms.check_origin(request)
    fields = await fields_of(request, _FORM_BYTES, "A form has at most 16 KiB.")
    forms.check(request, scope, fields.words.get(TOKEN, ""))
    user = forms.user_of(request)
    done = await run_in_threadpool(_act, operator, action, name, user, run_id, fields)
    document = {
        "run": run_id,
        "action": name,
        "done": done.text,
        "shards_queued": done.queued,
        "hints_sent": done.hints,
    }
    drawing = {"title": action.title, "here": "operate", "run": seen.run}
    return answered(request, "operated", document, drawing)


def _look(db: Database, run_id: str) -> _SeenRun:
    run = run_called(db, run_id)
    readable = browsing.texts_readable(db)
    failures = fleet_state.failures(db, run_id) if readable else None
    return _SeenRun(run, runs.progress(db, run_id), failures)


def _confirmation(
    request: Request, forms: OwnForms, scope: str, name: str, seen: _SeenRun
) -> Response:
    against = seen.against(name)
    token, cookie = forms.token(request, scope)
    document: dict[str, Any] = {
        "run": seen.run,
        "action": name,
        "does": ACTIONS[name].does,
        "against": against,
        "progress": seen.progress,
        "failures": seen.failures,
        "failed_to_retry": seen.passing,
        TOKEN: token,
    }
    drawing = {"title": ACTIONS[name].title, "here": "operate"}
    drawing["address"] = link("runs", seen.run.id, "operate", name)
    response = answered(request, "operate", document, drawing)
    forms.keep(request, response, cookie)
    return response


def _act(
    operator: FleetOperator, action: _Action, name: str, user: str, run_id: str, fields: Fields
) -> _Done:
    try:
        done = action.act(operator, run_id, fields)
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
    log.warning("%s of run %s by %r: %s", name, run_id, user, done.text)
    return done
