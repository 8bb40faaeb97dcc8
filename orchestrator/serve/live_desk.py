"""One process with a model, and the requests that wait for it.

A thread hands it one request at a time. A request that takes too long ends with the process, and
the next gets a new process; so does a request whose process died. A process without work ends.

One request comes to the process by a pipe, JSON goes back by it. It holds one model, that of the
last request, loaded as workers load it. What it is given it keeps no longer than it takes, writes
nowhere and names in no log. It ends with its parent.
"""

import gc
import json
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from orchestrator.serve.drawn_pages import attribution_document
from orchestrator.serve.links import RefusedError
from orchestrator.serve.slow_desk import Desk
from transexplain.errors import ConfigurationError, EngineError, ItemError, TransExplainError
from transexplain.types.items import Attribution, Item, PatchGrid
from transexplain.types.plans import AuditPlan, ModelRef
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import ClassNames, parse_target
from transexplain.types.words import spans_of
from workers.child_process import HungError, await_message

if TYPE_CHECKING:
    from PIL import Image

    from transexplain.explaining import Explained, Request
    from transexplain.models.loaded_model import LoadedModel
    from transexplain.types.items import ItemOutcome, Target


log = logging.getLogger(__name__)

#: seconds in which methods are tried on a new model; those that it does not come to are offered
TRYING = 5.0
_MOST_TARGETS = 10  #: classes that one request explains
_SMALL, _LARGE = 192, 320  #: pixels of a picture's longer side on a page
_ALPHA = 0.15
_TRIAL_TEXT = "a good day"
_TRIAL_SIDE = 64  #: pixels


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveRequest:
    """A text or picture to explain, by the model of a run."""

    plan: AuditPlan  #: of the run; groups are not needed
    methods: tuple[MethodSpec, ...]
    target: str
    text: str | None
    picture: bytes | None
    pixels: int  #: a picture may have at most
    offered: tuple[str, ...]  #: methods to try on the model; none: they were tried before


class RequestError(RefusedError):
    """There is no explanation, for a reason that lies in the request, the model or the desk."""


def serve(connection: Connection, device: str, idle_seconds: float) -> None:
    """Answer requests until the pipe ends, or none comes for so long."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # what the run's machine has, and nothing from elsewhere
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.nice(5)  # pages come first
    bench = _Bench(connection, device)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # nobody asks any more
        while connection.poll(idle_seconds):
            bench.say(**bench.answer(connection.recv()))


class _Bench:
    """The model in memory, and the pipe that hears how far a request is."""

    def __init__(self, connection: Connection, device: str) -> None:
        self._connection, self._device = connection, device
        self._ref: ModelRef | None = None
        self._model: LoadedModel | None = None

    def say(self, **message: Any) -> None:
        self._connection.send_bytes(json.dumps(message, allow_nan=False).encode("ascii"))

    def answer(self, request: LiveRequest) -> dict[str, Any]:
        """The last message of a request: `answer`, or `refused` with status, title and text."""
        try:
            return {"answer": self._explained(request)}
        except RequestError as error:
            refused = (error.status, error.title, error.text)
        except ItemError as error:
            status = 413 if error.kind == "image-too-large" else 422
            refused = (status, "This cannot be explained", str(error))
        except (ConfigurationError, EngineError) as error:
            refused = (422, "This cannot be explained", str(error))
        except MemoryError:
            refused = (503, "Out of memory", "There is not enough memory for this.")
        except Exception as error:  # noqa: BLE001 - whatever a model does with what it was given
            # its text may quote what was pasted
            log.warning("a live explanation failed: %s", type(error).__name__)
            text = f"The model failed on this: {type(error).__name__}."
            refused = (500, "The model failed", text)
        return {"refused": refused}

    def _explained(self, request: LiveRequest) -> dict[str, Any]:
        self.say(phase="explaining")
        content = _content(request)
        model = self._loaded(request.plan.model)
        refused: dict[str, str] | None = None
        if request.offered:
            self.say(phase="trying")
            refused = _refused(model, request.offered)
            self.say(phase="explaining")
        return {**_explained(model, request, content), "refused": refused}

    def _loaded(self, ref: ModelRef) -> "LoadedModel":
        """The model of a run; the previous model is released first."""
        if self._model is not None and self._ref == ref:
            return self._model
        from workers.model_cache import ModelCache

        self.say(phase="loading")
        self._model = self._ref = None
        gc.collect()
        try:
            self._model = ModelCache(self._device, memory=0).get(ref)
        except TransExplainError as error:
            raise RequestError(409, "The run's model is not here", str(error)) from None
        self._ref = ref
        self.say(phase="explaining")
        return self._model


def _content(request: LiveRequest) -> "str | Image.Image":
    if request.picture is None:
        return request.text or ""
    from transexplain.data.image_files import image_of

    return image_of(request.picture, name="the picture", most_pixels=request.pixels)


def _refused(model: "LoadedModel", names: Sequence[str]) -> dict[str, str]:
    """Methods that are not defined for the model -> why; the cheapest are tried first."""
    from transexplain.api import explain_by_methods
    from transexplain.methods import cost_of

    def passes(name: str) -> float:
        try:
            return sum(cost_of(MethodSpec(name=name), 4).of(1))
        except ConfigurationError:
            return 0.0

    content, until = _trial(model), time.monotonic() + TRYING
    fields: dict[str, str] = {}
    for name in sorted(names, key=passes):
        if time.monotonic() > until:
            break
        try:
            (tried,) = explain_by_methods(model, content, methods=name, target="predicted")
        except ItemError:
            continue  # about this trial, not about the method
        if tried.error is not None and not tried.attributions:
            fields[name] = tried.error
    return fields


def _trial(model: "LoadedModel") -> Any:
    if model.modality == "text":
        return _TRIAL_TEXT
    import numpy as np

    values = np.random.default_rng(0).integers(0, 256, (_TRIAL_SIDE, _TRIAL_SIDE, 3))
    return values.astype(np.uint8)


def _explained(model: "LoadedModel", request: LiveRequest, content: Any) -> dict[str, Any]:
    from transexplain.explaining import Request

    base = Request.from_plan(request.plan)
    target = _target(request.target, base.names)
    item = Item(id="given", index=0, content=content)
    outcome: ItemOutcome | None = None
    columns = []
    for method in request.methods:
        begun = time.perf_counter()
        column: dict[str, Any] = {"method": method.name, "error": None, "explanations": []}
        try:
            done = _one(model, item, replace(base, method=method, targets=(target,)))
        except (ConfigurationError, EngineError) as error:
            column["error"] = str(error)
        else:
            outcome = done.outcome or outcome
            column["explanations"] = [_document(attribution) for attribution in done.attributions]
            column["drawn"] = list(_drawn(content, done.attributions))
        column["seconds"] = time.perf_counter() - begun
        columns.append(column)
    if outcome is None:
        reasons = " ".join(f"{column['method']}: {column['error']}" for column in columns)
        raise RequestError(422, "This cannot be explained", reasons)
    return {**_outcome(model, outcome), "columns": columns, "picture": _picture(content)}


def _one(model: "LoadedModel", item: Item, request: "Request") -> "Explained":
    from transexplain.explaining import explain_items

    (done,) = explain_items(model, [item], request)
    if done.failure is not None:
        raise ItemError(done.failure.kind, done.failure.message)
    return done


def _target(spec: str, names: ClassNames) -> "Target":
    target = parse_target(spec, names)
    if target.kind == "label":
        raise RequestError(422, "No label", "What is given here has no label; choose a class.")
    count = len(names.classes) if target.kind == "all" else target.k
    if count > _MOST_TARGETS:
        raise RequestError(
            422, "Too many classes", f"At most {_MOST_TARGETS} classes are explained at once."
        )
    return target


def _outcome(model: "LoadedModel", outcome: "ItemOutcome") -> dict[str, Any]:
    logits = outcome.logits
    known = len(model.classes) == len(logits)
    names = model.classes if known else tuple(map(str, range(len(logits))))
    return {
        "predicted": outcome.predicted,
        "logits": [[name, value] for name, value in zip(names, logits, strict=True)],
        "positions": outcome.positions,
        "truncated": outcome.truncated,
    }


def _document(attribution: Attribution) -> dict[str, Any]:
    document: dict[str, Any] = {
        **attribution_document(attribution),
        "relevance": attribution.relevance.tolist(),
        "words": [],
        "tokens": [],
    }
    if not isinstance(attribution.features, PatchGrid):
        _, spans = spans_of(attribution)
        document["words"] = [[span.start, span.end, span.relevance] for span in spans]
        document["tokens"] = [
            {"text": token.text, "start": token.start, "end": token.end, "special": token.special}
            for token in attribution.features
        ]
    return document


def _drawn(content: Any, attributions: Sequence[Attribution]) -> Iterator[str]:
    """Heatmaps over the picture in pale grey, each on its own scale, as `data:` addresses."""
    if isinstance(content, str):
        return
    from transexplain.reports.heatmap import data_uri, muted, overlay, resized

    ground = muted(resized(content, smallest=_SMALL, largest=_LARGE))
    for attribution in attributions:
        assert isinstance(attribution.features, PatchGrid)
        yield data_uri(
            overlay(ground, attribution.relevance, alpha=_ALPHA, box=attribution.features.box)
        )


def _picture(content: Any) -> str | None:
    if isinstance(content, str):
        return None
    from transexplain.reports.heatmap import data_uri, resized

    return data_uri(resized(content, smallest=_SMALL, largest=_LARGE))


def without_groups(plan: AuditPlan) -> AuditPlan:
    """A plan reduced to the parts that explaining one item needs."""
    return replace(plan, groups=(), second=(), lexicons=(), check=None)


def plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """An answer without what is only drawn."""
    columns = [{k: v for k, v in column.items() if k != "drawn"} for column in document["columns"]]
    kept = {k: v for k, v in document.items() if k not in ("columns", "picture", "refused")}
    return {**kept, "logits": dict(document["logits"]), "methods": columns}


_LARGEST_ANSWER = 256 * 2**20  #: bytes
_CLIENTS = 10_000  #: whose requests are counted
_KNOWN = 64  #: models whose methods are known
Answer = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveSettings:
    """Limits of live explanation."""

    seconds: float = 30.0  #: that one explanation may take, its model loaded
    load_seconds: float = 120.0  #: that a model may take to load
    rate: int = 20  #: requests a minute of one client
    waiting: int = 8  #: requests that wait for the process
    text_bytes: int = 65_536
    picture_bytes: int = 10_485_760
    pixels: int = 16_000_000  #: of a picture
    idle_seconds: float = 600.0  #: without a request, after which the process ends
    device: str = "cpu"


class LiveDesk(Desk):
    """Explains what readers bring; `close` ends its process and thread."""

    def __init__(self, settings: LiveSettings | None = None) -> None:
        super().__init__("live")
        self.settings = settings or LiveSettings()
        self._asked: set[Future[Answer]] = set()  #: the one that is answered, and those that wait
        self._phase = "asleep"
        self._refused: OrderedDict[str, Mapping[str, str]] = OrderedDict()
        self._buckets = Buckets(self.settings.rate)

    @property
    def state(self) -> dict[str, Any]:
        """`phase` (asleep, starting, loading, trying, explaining, ready), and how many wait."""
        ended = self._phase == "ready" and self.pid is None
        return {"phase": "asleep" if ended else self._phase, "waiting": self._waiting}

    @property
    def pid(self) -> int | None:
        """The id of the process with the model."""
        child = self._child
        return None if child is None or not child.is_alive() else child.pid

    @property
    def _waiting(self) -> int:
        return max(0, len(self._asked) - 1)

    def refused(self, digest: str) -> Mapping[str, str]:
        """Methods that the model with this digest does not allow, as far as is known -> why."""
        return self._refused.get(digest, {})

    def knows(self, digest: str) -> bool:
        """Return whether methods were tried on the model with this digest."""
        return digest in self._refused

    def allow(self, client: str) -> None:
        """Count a request of a client, in one thread; RequestError where there were too many."""
        wait = self._buckets.take(client)
        if wait:
            text = f"At most {self.settings.rate} requests a minute; try again in {wait:.0f} s."
            raise RequestError(429, "Too many requests", text)

    def ask(self, request: LiveRequest) -> "Future[Answer]":
        """The answer, soon, or RequestError; raises RequestError where too many wait."""
        with self._lock:
            if self._closed or self._waiting >= self.settings.waiting:
                raise RequestError(
                    503, "Too many wait", "Too many requests wait for the model; try again soon."
                )
            future = self._thread.submit(self._answer, request)
            self._asked.add(future)
        future.add_done_callback(self._asked.discard)
        return future

    def _answer(self, request: LiveRequest) -> Answer:
        if self._closed:
            raise RequestError(503, "The server ends", "The server ends; try again later.")
        message = self._sent(request) or self._sent(request)  # it may have died before, unnoticed
        if message is None:
            raise RequestError(
                503, "The model's process ended", "No process for the model can be kept running."
            )
        self._phase = "ready"
        if "refused" in message:
            raise RequestError(*message["refused"])
        answer: Answer = message["answer"]
        if answer["refused"] is not None:
            self._refused[request.plan.model.digest] = answer["refused"]
            while len(self._refused) > _KNOWN:
                self._refused.popitem(last=False)
        return answer

    def _sent(self, request: LiveRequest) -> Answer | None:
        """The last message of the process; None: it ended before. Raises RequestError."""
        child = self._child
        if child is None or not child.is_alive():
            self._end()
            self._phase = "starting"
            child = self._begun(serve, self.settings.device, self.settings.idle_seconds)
        heard, most = False, self.settings.load_seconds
        try:
            child.pipe.send(request)
            while True:
                await_message(child.pipe, most)
                message: Answer = json.loads(child.pipe.recv_bytes(_LARGEST_ANSWER))
                if "phase" not in message:
                    return message
                heard, self._phase = True, message["phase"]
                most = self._most
        except HungError:
            raise self._too_long() from None
        except (EOFError, OSError):
            self._end()
            if not heard and not self._closed:
                return None
        log.warning("the process of live explanations ended at its work")
        raise RequestError(
            503,
            "The model's process ended",
            "The process with the model ended at this, for lack of memory perhaps. The next "
            "request gets a new one.",
        )

    def _too_long(self) -> RequestError:
        explaining, most = self._phase == "explaining", self._most
        self._end()
        if not explaining:
            return RequestError(
                503, "The model takes too long", f"The model was not loaded within {most:g} s."
            )
        return RequestError(
            504,
            "This takes too long",
            f"The explanation was not there within {most:g} s and was given up. A shorter text, a "
            "smaller picture or a cheaper method may do.",
        )

    @property
    def _most(self) -> float:
        """Seconds that the present phase may take."""
        explaining = self._phase == "explaining"
        return self.settings.seconds if explaining else self.settings.load_seconds

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
        self._child, self._phase = None, "asleep"


class Buckets:
    """A token bucket for each client: `rate` requests at once, and as many more in each minute."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  #: tokens, and when

    def take(self, client: str, now: float | None = None) -> float:
        """Take a token and return 0, or the seconds until there is one."""
        now = time.monotonic() if now is None else now
        tokens, at = self._left.pop(client, (float(self._rate), now))
        tokens = min(float(self._rate), tokens + (now - at) * self._rate / 60)
        wait = 0.0 if tokens >= 1 else (1 - tokens) * 60 / self._rate
        self._left[client] = (tokens - 1 if not wait else tokens, now)
        while len(self._left) > _CLIENTS:
            self._left.popitem(last=False)
        return wait
