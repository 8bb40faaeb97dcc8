"""Sections and clusters of runs, made on request in a process of their own and kept.

One process works at a time, for one job, and is ended where it takes too long. A page that asks
gets what there is at once. The process reads the store as the server does, sends pieces of pages
with their JSON back by a pipe, and frees its memory by its end.
"""

import json
import logging
import os
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from orchestrator.serve.links import RefusedError
from transexplain.errors import ConfigurationError, TransExplainError
from transexplain.store.database import Database
from workers.child_process import ChildProcess, HungError, await_message

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class PagePiece:
    """A piece of a page, compressed."""

    name: str
    packed_html: bytes
    packed_document: bytes  #: JSON

    @property
    def html(self) -> str:
        """Escaped already, by the templates that drew it."""
        return zlib.decompress(self.packed_html).decode()

    @property
    def document(self) -> dict[str, Any]:
        """The same for programs."""
        document: dict[str, Any] = json.loads(zlib.decompress(self.packed_document))
        return document


@dataclass(frozen=True, kw_only=True, slots=True)
class PageJob:
    """The section or clusters to make."""

    kind: str  #: a key of `JOBS`
    run_id: str
    finished: float | None  #: of the run: reopened, it is another one
    class_name: str = ""


def work(connection: Connection, url: str, job: PageJob) -> None:
    """Make the pieces, send them and end."""
    os.nice(10)  # pages come first
    connection.send(made(url, job))


def made(url: str, job: PageJob) -> list[PagePiece] | str:
    """The pieces, or why there are none."""
    try:
        with Database(url, read_only=True) as db:
            return list(map(_piece, JOBS[job.kind](db, job)))
    except TransExplainError as error:
        return str(error)
    except Exception:
        log.exception("%s of run %s", job.kind, job.run_id)
        return "The server met an error of its own, which its log describes."


def _piece(section: Mapping[str, Any]) -> PagePiece:
    document = json.dumps(section["document"], allow_nan=False).encode("ascii")
    return PagePiece(
        name=section["name"],
        packed_html=zlib.compress(section["html"].encode(), 3),
        packed_document=zlib.compress(document, 3),
    )


_Made = Iterable[Mapping[str, Any]]  # `name`, `html` and `document`


def _report(db: Database, job: PageJob) -> _Made:
    """The sections of the report of what is saved by now."""
    from transexplain.reports.report_formats import pieces
    from transexplain.reports.summary import summarise

    return pieces(summarise(db, job.run_id))


def _clusters(db: Database, job: PageJob) -> _Made:
    """The clusters of a class's explanations, for the first target that explains it."""
    from transexplain.analysis.strategies.discover_strategies import discover
    from transexplain.reports.strategies_report import class_piece, strategy_report
    from transexplain.store.runs import get

    refused: list[ConfigurationError] = []
    for target in (None, *get(db, job.run_id).plan.targets):
        try:
            strategies = discover(
                db, job.run_id, target=target, class_name=job.class_name, sample=CLUSTERED
            )
        except ConfigurationError as error:
            refused.append(error)
        else:
            return [class_piece(strategy_report(db, strategies), job.class_name)]
    raise refused[0]


CLUSTERED = 1_000  #: items of a class, at most
JOBS: Mapping[str, Callable[[Database, PageJob], _Made]] = {
    "report": _report,
    "clusters": _clusters,
}


_LONGEST = 900.0  #: seconds of a job
_KEPT_BYTES = 24 * 2**20  #: of pieces, compressed
_KEPT = 64  #: jobs, those that failed among them
_WAITING = 8  #: jobs
_FRESH = 30.0  #: seconds for which pieces of a run that works, and what failed, are not made again


class Desk:
    """A thread that has a process do one task after the other; `close` ends both."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread = ThreadPoolExecutor(1, f"{name}-desk")
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        self._closed = False

    def close(self) -> None:
        """End the process, whatever it does, and the thread."""
        with self._lock:
            self._closed = True
        if self._child is not None:
            self._child.kill()
        self._thread.shutdown()
        if self._child is not None:
            self._child.end()

    def _begun(self, target: Callable[..., None], *args: Any) -> ChildProcess:
        child = self._child = ChildProcess(self._name, target, *args)
        if self._closed:
            child.kill()
        return child


@dataclass(frozen=True, kw_only=True, slots=True)
class JobState:
    """The state and the pieces of a job."""

    at: float | None = None  #: when they were begun, seconds since the epoch; None: there are none
    pieces: Sequence[PagePiece] = ()
    error: str | None = None
    waiting: bool = False  #: it is being made, or made anew


class SlowDesk(Desk):
    """Several threads may ask; `close` ends what works."""

    def __init__(self, url: str) -> None:
        super().__init__("slow")
        self._url = url
        self._kept: OrderedDict[PageJob, JobState] = OrderedDict()
        self._waiting: set[PageJob] = set()

    def found(self, job: PageJob, *, moving: bool, begin: bool = True) -> JobState:
        """The pieces of a job; begins it, with `begin`, where there is nothing fresh.

        `moving`: its run works, so that what was made grows old. Raises RefusedError where too
        many others wait.
        """
        with self._lock:
            kept = self._kept.get(job, JobState())
            if kept.at is not None:
                self._kept.move_to_end(job)
        passes = moving or kept.error is not None
        if begin and (kept.at is None or (passes and time.time() - kept.at > _FRESH)):
            self._ask(job)
        return replace(kept, waiting=job in self._waiting)

    def _ask(self, job: PageJob) -> None:
        with self._lock:
            if job in self._waiting or self._closed:
                return
            if len(self._waiting) >= _WAITING:
                raise RefusedError(
                    503,
                    "Too much waits",
                    "Too many others wait for what takes long; try again soon.",
                    headers={"Retry-After": "30"},
                )
            self._waiting.add(job)
            self._thread.submit(self._work, job)

    def _work(self, job: PageJob) -> None:
        if self._closed:
            return
        begun = time.time()
        try:
            pieces = self._made(job)
        except Exception as error:  # noqa: BLE001 - no process, no memory: the next may pass
            log.warning("%s of run %s: %s", job.kind, job.run_id, error)
            pieces = "It could not be made; the server's log says why."
        if isinstance(pieces, str):
            self._keep(job, JobState(at=begun, error=pieces))
        else:
            self._keep(job, JobState(at=begun, pieces=pieces))

    def _keep(self, job: PageJob, pieces: JobState) -> None:
        with self._lock:
            self._kept[job] = pieces
            self._kept.move_to_end(job)
            while len(self._kept) > _KEPT or (len(self._kept) > 1 and self._bytes() > _KEPT_BYTES):
                self._kept.popitem(last=False)
            self._waiting.discard(job)

    def _bytes(self) -> int:
        pieces = [piece for kept in self._kept.values() for piece in kept.pieces]
        return sum(len(piece.packed_html) + len(piece.packed_document) for piece in pieces)

    def _made(self, job: PageJob) -> Sequence[PagePiece] | str:
        """The pieces, or why there are none."""
        child = self._begun(work, self._url, job)
        try:
            await_message(child.pipe, _LONGEST)
            pieces: Sequence[PagePiece] | str = child.pipe.recv()
            return pieces
        except HungError:
            return f"It was given up after {_LONGEST / 60:g} minutes."
        except (EOFError, OSError):
            return "The process that made it ended, for lack of memory perhaps."
        finally:
            child.end()
