"""The page on which a reader's own text or picture is explained by a run's model.

What is given is in memory until it is answered, and nowhere else.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from typing import Any

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from orchestrator.serve import drawn_pages, live_desk
from orchestrator.serve.links import RefusedError, link
from orchestrator.serve.live_desk import LiveDesk, LiveRequest, LiveSettings, RequestError
from orchestrator.serve.own_forms import TOKEN, Fields, OwnForms, fields_of
from orchestrator.serve.page_request import names_of, run_called
from orchestrator.serve.replies import answered, sent, wants_json
from transexplain.errors import ConfigurationError
from transexplain.methods.method_table import TABLE, MethodFacts
from transexplain.reports.coloured_text import marked_html
from transexplain.store import runs
from transexplain.store.browsing import ListedRun
from transexplain.store.database import Database
from transexplain.types.plans import AuditPlan
from transexplain.types.scores import MethodSpec
from transexplain.types.words import Span

#: path of the page
PATH = "/runs/{run}/explain"
_ROOM = 65_536  #: bytes of a form besides what is explained
_CLASSES = 1_000  #: in the choice of a target
_PLANS = 64  #: kept
_RETRY = {429: "10", 503: "5"}


class _Runs:
    """Runs and their plans, without groups; a plan never changes."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._plans: dict[str, AuditPlan] = {}

    def get(self, run_id: str) -> tuple[ListedRun, AuditPlan]:
        """Raises NotThereError, and RefusedError where its model explains nothing here."""
        run = run_called(self._db, run_id)
        plan = self._plans.get(run_id)
        if plan is None:
            try:
                plan = live_desk.without_groups(runs.get(self._db, run_id).plan)
            except ConfigurationError as error:
                raise RefusedError(409, "Not explained here", str(error)) from None
            while len(self._plans) >= _PLANS:
                self._plans.pop(next(iter(self._plans)), None)
            self._plans[run_id] = plan
        if (against := _against(plan)) is not None:
            raise RefusedError(409, "Not explained here", against)
        return run, plan


def _against(plan: AuditPlan) -> str | None:
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
    work = partial(_page, _Runs(db), desk, forms)
    return Route(PATH, work, methods=["GET", "POST"], name="explain")


async def _page(known: _Runs, desk: LiveDesk | None, forms: OwnForms, request: Request) -> Response:
    if desk is None:
        raise RefusedError(
            403, "Switched off", "Nothing is explained here: the server was started without --live."
        )
    run_id = names_of(request)["run"]
    if request.method != "POST":
        run, plan = await run_in_threadpool(known.get, run_id)
        return _shown(request, desk, forms, run, plan)
    try:
        return await _explained(known, desk, forms, request, run_id)
    except RequestError as error:
        error.back = (link("runs", run_id, "explain"), "the form")
        if error.status in _RETRY:
            error.headers["Retry-After"] = _RETRY[error.status]
        raise


async def _explained(
    known: _Runs, desk: LiveDesk, forms: OwnForms, request: Request, run_id: str
) -> Response:
    forms.check_origin(request)
    desk.allow(_client(forms, request))
    run, plan = await run_in_threadpool(known.get, run_id)
    limits, is_text = desk.settings, plan.model.modality == "text"
    most = limits.text_bytes * 3 if is_text else limits.picture_bytes  # three: percent-encoded
    fields = await fields_of(request, most + _ROOM, _limit(limits, is_text))
    forms.check(request, f"explain {run.id}", fields.words.get(TOKEN, ""))
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
    token, cookie = forms.token(request, f"explain {run.id}")
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
        TOKEN: token,
    }
    address = link("runs", run.id, "explain")
    drawing: dict[str, Any] = {"here": "explain", "address": address, "beside": f"{address}.json"}
    drawing |= {"chosen": _chosen(form, list(offered)), "given": form}
    return forms.kept(request, answered(request, "explain", document, drawing), cookie)


def _chosen(form: _Given | None, offered: Sequence[str]) -> dict[str, str]:
    """The values of the form: the last ones, or the run's method and another."""
    if form is not None:
        first, second = (*form.methods, "")[:2]
        return {"method": first, "beside": second, "target": form.target}
    others = [name for name in ("gradient-x-input", "lrp", *offered) if name in offered]
    second = next((name for name in others if name != offered[0]), "")
    return {"method": offered[0] if offered else "", "beside": second, "target": "predicted"}
