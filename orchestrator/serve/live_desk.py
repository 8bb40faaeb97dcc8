"""One process with a model, and the requests that wait for it.

A thread hands it one request at a time. A request that takes too long ends with the process, and
the next gets a new process; so does a request whose process died. A process without work ends.
"""

import json
import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from orchestrator.serve import live_worker
from orchestrator.serve.live_worker import LiveRequest, RequestError
from orchestrator.serve.slow_desk import Desk

log = logging.getLogger(__name__)

_LARGEST_ANSWER = 256 * 2**20  #: bytes
_CLIENTS = 10_000  #: whose requests are counted
_KNOWN = 64  #: models whose methods are known
_ENDING = 10  #: seconds that a killed process has to be gone
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


class _EndedError(Exception):
    """The process ended; `heard`: after it had begun with the request."""

    def __init__(self, heard: bool) -> None:
        super().__init__()
        self.heard = heard


class LiveDesk(Desk):
    """Explains what readers bring; `close` ends its process and thread."""

    def __init__(self, settings: LiveSettings | None = None) -> None:
        super().__init__("live")
        self.settings = settings or LiveSettings()
        self._waiting = 0
        self._phase = "asleep"
        self._refused: OrderedDict[str, Mapping[str, str]] = OrderedDict()
        self._buckets = Buckets(self.settings.rate)
        self._pipe: Any = None

    @property
    def state(self) -> dict[str, Any]:
        """`phase` (asleep, starting, loading, trying, explaining, ready), and how many wait."""
        return {"phase": self._phase, "waiting": self._waiting}

    @property
    def pid(self) -> int | None:
        """The id of the process with the model."""
        return None if self._process is None else self._process.pid

    def refused(self, digest: str) -> Mapping[str, str]:
        """Methods that the model with this digest does not allow, as far as is known -> why."""
        return self._refused.get(digest, {})

    def knows(self, digest: str) -> bool:
        """Return whether methods were tried on the model with this digest."""
        return digest in self._refused

    def allow(self, client: str) -> None:
        """Count a request of a client; raises RequestError where there were too many."""
        wait = self._buckets.take(client)
        if wait:
            text = f"At most {self.settings.rate} requests a minute; try again in {wait:.0f} s."
            raise RequestError(429, "Too many requests", text)

    def ask(self, request: LiveRequest) -> "Future[Answer]":
        """The answer, soon, or RequestError; raises RequestError where too many wait."""
        future: Future[Answer] = Future()
        with self._lock:
            if self._closed or self._waiting >= self.settings.waiting:
                raise RequestError(
                    503, "Too many wait", "Too many requests wait for the model; try again soon."
                )
            self._waiting += 1
            self._begin_thread()
        self._tasks.put((request, future))
        return future

    def _run(self) -> None:
        while True:
            try:
                idle = None if self._process is None else self.settings.idle_seconds
                task = self._tasks.get(timeout=idle)
            except queue.Empty:
                self._end()
                continue
            if task is None:
                break
            with self._lock:
                self._waiting -= 1
            self._serve(*task)
        self._end()
        self._drop()

    def _serve(self, request: LiveRequest, future: "Future[Answer]") -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(self._answer(request))
        except BaseException as error:  # noqa: BLE001 - raised where the answer is wanted
            future.set_exception(error)

    def _answer(self, request: LiveRequest) -> Answer:
        message: Answer | None = None
        for _ in range(2):  # it may have died before, unnoticed
            try:
                message = self._sent(request)
                break
            except _EndedError as gone:
                self._end()
                if gone.heard or self._closed:
                    log.warning("the process of live explanations ended at its work")
                    raise RequestError(
                        503,
                        "The model's process ended",
                        "The process with the model ended at this, for lack of memory perhaps. "
                        "The next request gets a new one.",
                    ) from None
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

    def _sent(self, request: LiveRequest) -> Answer:
        """The last message of the process; raises _GoneError, and RequestError in the end."""
        if self._process is None or not self._process.is_alive():
            self._end()
            self._begin()
        heard = False
        until = time.monotonic() + self.settings.load_seconds
        try:
            self._pipe.send(request)
            while True:
                if not self._pipe.poll(max(0.0, until - time.monotonic())):
                    raise self._too_long()
                message: Answer = json.loads(self._pipe.recv_bytes(_LARGEST_ANSWER))
                if "phase" not in message:
                    return message
                heard, self._phase = True, message["phase"]
                until = time.monotonic() + self._most
        except (EOFError, OSError):
            raise _EndedError(heard) from None

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

    def _begin(self) -> None:
        self._phase = "starting"
        self._pipe = self._begun(live_worker.serve, self.settings.device)

    def _end(self) -> None:
        process = self._process
        if process is not None:
            process.kill()
            process.join(_ENDING)
            self._pipe.close()
        with self._lock:
            self._process = self._pipe = None
        self._phase = "asleep"

    def _drop(self) -> None:
        """Tell those who still wait that nobody comes any more."""
        while True:
            try:
                task = self._tasks.get_nowait()
            except queue.Empty:
                return
            if task is not None and task[1].set_running_or_notify_cancel():
                error = RequestError(503, "The server ends", "The server ends; try again later.")
                task[1].set_exception(error)


class Buckets:
    """A token bucket for each client: `rate` requests at once, and as many more in each minute."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  #: tokens, and when
        self._lock = threading.Lock()

    def take(self, client: str, now: float | None = None) -> float:
        """Take a token and return 0, or the seconds until there is one."""
        now = time.monotonic() if now is None else now
        with self._lock:
            tokens, at = self._left.pop(client, (float(self._rate), now))
            tokens = min(float(self._rate), tokens + (now - at) * self._rate / 60)
            wait = 0.0 if tokens >= 1 else (1 - tokens) * 60 / self._rate
            self._left[client] = (tokens - 1 if not wait else tokens, now)
            while len(self._left) > _CLIENTS:
                self._left.popitem(last=False)
        return wait
