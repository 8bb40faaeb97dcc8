"""Slow sections and clusters of a run, made in a process that ends with them and frees its memory.

It reads the store as the server does, and sends pieces of pages with their JSON back by a pipe.
"""

import json
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from transexplain.errors import ConfigurationError, TransExplainError
from transexplain.store.database import Database
from workers.reader_process import follow_parent

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
    follow_parent()
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
