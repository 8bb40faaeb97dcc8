"""Pages that do more than read: forms that cancel, retry and resume a run, and live explanation.

A form shows first what would happen, then it is confirmed. Pages keep the handle that only reads; a
second one writes, for these actions alone. A text or picture that a reader's form brings to be
explained by a run's model is in memory until it is answered, and nowhere else.
"""

import asyncio
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any

from markupsafe import Markup
from sqlalchemy.exc import DBAPIError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from orchestrator.dispatch import run_actions
from orchestrator.serve import drawn_pages, live_desk
from orchestrator.serve.links import RefusedError, link
from orchestrator.serve.live_desk import LiveDesk, LiveRequest, LiveSettings, RequestError
from orchestrator.serve.own_forms import Fields, OwnForms
from orchestrator.serve.page_request import NotThereError, names_of, run_called
from orchestrator.serve.replies import answered, sent, wants_json
from transexplain.errors import BrokerError, ConfigurationError, DatabaseError, ObjectStoreError
from transexplain.methods.method_table import TABLE, MethodFacts
from transexplain.reports.coloured_text import marked_html
from transexplain.reports.phrasing import counted
from transexplain.settings import Settings
from transexplain.store import browsing, runs, shards
from transexplain.store.browsing import ListedRun
from transexplain.store.database import Database
from transexplain.store.runs import RunProgress
from transexplain.types.plans import AuditPlan
from transexplain.types.scores import MethodSpec
from transexplain.types.words import Span

log = logging.getLogger(__name__)

#: path of a form, with the run and what is done to it
OPERATE_PATH = "/runs/{run}/operate/{action}"
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
    work = partial(_operate, db, operator, forms)
    return Route(OPERATE_PATH, work, methods=["GET", "POST"], name="operate")


async def _operate(
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
        drawing = {"title": name.capitalize(), "here": "operate"}
        drawing["address"] = link("runs", run_id, "operate", name)
        return forms.shown(request, scope, "operate", document, drawing)
    forms.check_origin(request)
    fields = await forms.fields(request, scope, _FORM_BYTES, "A form has at most 16 KiB.")
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


#: path of the page that explains
EXPLAIN_PATH = "/runs/{run}/explain"
_ROOM = 65_536  #: bytes of a form besides what is explained
_CLASSES = 1_000  #: in the choice of a target
_RETRY = {429: "10", 503: "5"}


def _explainable(db: Database, run_id: str) -> tuple[ListedRun, AuditPlan]:
    """A run and its plan; raises NotThereError, and RefusedError where nothing is explained."""
    run = run_called(db, run_id)
    try:
        plan = _plan(db, run_id)
    except ConfigurationError as error:
        raise RefusedError(409, "Not explained here", str(error)) from None
    if (against := _refusal(plan)) is not None:
        raise RefusedError(409, "Not explained here", against)
    return run, plan


@lru_cache(maxsize=64)
def _plan(db: Database, run_id: str) -> AuditPlan:
    """The plan of a run, which never changes, reduced to what explaining one item needs."""
    return live_desk.without_groups(runs.get(db, run_id).plan)


def _refusal(plan: AuditPlan) -> str | None:
    if plan.task == "imported":
        return "The run's attributions were made elsewhere: it has no model to explain with."
    if plan.model.modality == "nodes":
        return "Graphs are not explained here; `transexplain explain FILE.npz` does."
    if not plan.model.digest:
        return "The run did not record which bytes its model has, so it cannot be known again."
    return None


def methods_for(plan: AuditPlan, refused: Mapping[str, str]) -> dict[str, MethodFacts]:
    """The methods to choose from, the run's own first.

    Those that need a file or a package that is not here, and those that the model refused, are
    not among them.
    """
    planned = plan.method.name
    return {
        name: TABLE[name]
        for name in sorted(TABLE, key=lambda method: method != planned)
        if _is_possible(TABLE[name], plan) and name not in refused
    }


def _is_possible(facts: MethodFacts, plan: AuditPlan) -> bool:
    installed = facts.needs is None or find_spec(facts.needs[0]) is not None
    return plan.model.modality in facts.modalities and not facts.files and installed


def _targets(plan: AuditPlan) -> Iterator[str]:
    """The targets to choose from: those of the run, and each class."""
    seen = {"label"}
    classes = plan.model.classes
    usual = ["predicted", *(target for target in plan.targets if target != "predicted")]
    usual += ["top:2"] if len(classes) > 2 else ["all"]
    usual += [scheme.name for scheme in plan.classifications]
    usual += [f"class:{name}" for name in classes[:_CLASSES]]
    for target in usual:
        if target not in seen:
            seen.add(target)
            yield target


def live_route(db: Database, desk: LiveDesk | None, forms: OwnForms) -> Route:
    """The page's route; without a desk it says that it is switched off."""
    work = partial(_page, db, desk, forms)
    return Route(EXPLAIN_PATH, work, methods=["GET", "POST"], name="explain")


async def _page(db: Database, desk: LiveDesk | None, forms: OwnForms, request: Request) -> Response:
    if desk is None:
        raise RefusedError(
            403, "Switched off", "Nothing is explained here: the server was started without --live."
        )
    run_id = names_of(request)["run"]
    if request.method != "POST":
        run, plan = await run_in_threadpool(_explainable, db, run_id)
        return _shown(request, desk, forms, run, plan)
    try:
        return await _explained(db, desk, forms, request, run_id)
    except RequestError as error:
        error.back = (link("runs", run_id, "explain"), "the form")
        if error.status in _RETRY:
            error.headers["Retry-After"] = _RETRY[error.status]
        raise


async def _explained(
    db: Database, desk: LiveDesk, forms: OwnForms, request: Request, run_id: str
) -> Response:
    forms.check_origin(request)
    desk.allow(_client(forms, request))
    run, plan = await run_in_threadpool(_explainable, db, run_id)
    limits, is_text = desk.settings, plan.model.modality == "text"
    most = limits.text_bytes * 3 if is_text else limits.picture_bytes  # three: percent-encoded
    scope = f"explain {run.id}"
    fields = await forms.fields(request, scope, most + _ROOM, _limit(limits, is_text))
    request_ = _request(desk, plan, fields)
    answer = await asyncio.wrap_future(desk.ask(request_))
    if wants_json(request):
        document = {"run": run.id, "model": plan.model.source, **live_desk.plain(answer)}
        return sent(drawn_pages.json_bytes(document), True)
    return _shown(request, desk, forms, run, plan, _Given(request_, answer))


def _client(forms: OwnForms, request: Request) -> str:
    if forms.rules.user_header is not None:
        return forms.user_of(request)
    return request.client.host if request.client else ""


def _limit(limits: LiveSettings, is_text: bool) -> str:
    if is_text:
        return f"A text has at most {limits.text_bytes:,} bytes."
    return f"A picture has at most {limits.picture_bytes:,} bytes."


def _request(desk: LiveDesk, plan: AuditPlan, fields: Fields) -> LiveRequest:
    """The request of a form; raises RequestError where it cannot be explained."""
    words, limits, refused = fields.words, desk.settings, desk.refused(plan.model.digest)
    text, picture = None, None
    if plan.model.modality == "text":
        if not fields.is_utf8:
            raise RequestError(422, "No text", "The text is not encoded as UTF-8.")
        # forms send line ends as CR LF, whatever was typed
        text = fields.words.get("text", "").replace("\r\n", "\n")
        if not text.strip():
            raise RequestError(422, "No text", "Write or paste a text first; this one is empty.")
        if len(text.encode("utf-8", "surrogatepass")) > limits.text_bytes:
            raise RequestError(413, "Too large", _limit(limits, is_text=True))
    else:
        picture = fields.files.get("picture", b"")
        if not picture:
            raise RequestError(422, "No picture", "Choose a picture first; this has no bytes.")
        if len(picture) > limits.picture_bytes:
            raise RequestError(413, "Too large", _limit(limits, is_text=False))
    offered = methods_for(plan, refused)
    names = dict.fromkeys(
        name for name in (words.get("method", ""), words.get("beside", "")) if name
    )
    for name in names:
        if name not in offered:
            reason = refused.get(name) or f"Choose one of {', '.join(offered)}."
            raise RequestError(422, "Not this method", f"{name[:80]!r} is not there. {reason}")
    return LiveRequest(
        plan=plan,
        methods=tuple(
            plan.method if name == plan.method.name else MethodSpec(name=name)
            for name in names or (next(iter(offered)),)
        ),
        target=words.get("target", "")[:500] or "predicted",
        text=text,
        picture=picture,
        pixels=limits.pixels,
        offered=() if desk.knows(plan.model.digest) else tuple(offered),
    )


class _Given:
    """The request and its explanation, for the page that shows it."""

    def __init__(self, request: LiveRequest, answer: Mapping[str, Any]) -> None:
        self.text, self.target = request.text or "", request.target
        self.methods = [method.name for method in request.methods]
        self.answer = answer
        self.logits = sorted(answer["logits"], key=lambda logit: -logit[1])

    def coloured(self, explanation: Mapping[str, Any]) -> Markup:
        """The text with its words in the colours of an explanation, on its own scale."""
        spans = [Span(start=a, end=b, relevance=value) for a, b, value in explanation["words"]]
        read = max((span.end for span in spans), default=0)
        unread = read if self.answer["truncated"] else None
        return marked_html(self.text, spans, scale=0.0, unread_from=unread)


def _shown(
    request: Request,
    desk: LiveDesk,
    forms: OwnForms,
    run: ListedRun,
    plan: AuditPlan,
    form: _Given | None = None,
) -> Response:
    """The form, with what was explained where there is something."""
    offered = methods_for(plan, desk.refused(plan.model.digest))
    document: dict[str, Any] = {
        "run": run,
        "model": plan.model.source,
        "modality": plan.model.modality,
        "methods": [
            {"name": name, "unit": facts.unit, "source": facts.source}
            for name, facts in offered.items()
        ],
        "targets": list(_targets(plan)),
        "limits": asdict(desk.settings),
        "desk": desk.state,
    }
    address = link("runs", run.id, "explain")
    drawing: dict[str, Any] = {"here": "explain", "address": address, "beside": f"{address}.json"}
    drawing |= {"chosen": _chosen(form, list(offered)), "given": form}
    return forms.shown(request, f"explain {run.id}", "explain", document, drawing)


def _chosen(form: _Given | None, offered: Sequence[str]) -> dict[str, str]:
    """The values of the form: the last ones, or the run's method and another."""
    if form is not None:
        first, second = (*form.methods, "")[:2]
        return {"method": first, "beside": second, "target": form.target}
    others = [name for name in ("gradient-x-input", "lrp", *offered) if name in offered]
    second = next((name for name in others if name != offered[0]), "")
    return {"method": offered[0] if offered else "", "beside": second, "target": "predicted"}
