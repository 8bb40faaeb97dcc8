"""Pages that take longer than a request may: the report of a run, and clusters of a class."""

from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from orchestrator.serve.page_request import Answer, BadQueryError, PageRequest
from orchestrator.serve.slow_worker import Job, Piece
from transexplain.reports.sections import SECTIONS


class Documents(Mapping[str, Any]):
    """The JSON of pieces, unpacked where it is read: a page does not."""

    def __init__(self, pieces: Mapping[str, Piece]) -> None:
        self._pieces = pieces

    def __getitem__(self, name: str) -> Any:
        """The document of a piece."""
        return self._pieces[name].document

    def __iter__(self) -> Iterator[str]:
        """Names of the pieces."""
        return iter(self._pieces)

    def __len__(self) -> int:
        """The number of documents."""
        return len(self._pieces)


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


def live_report(request: PageRequest) -> Answer:
    """The sections of the run's report, of what is saved by now; all of them, or one."""
    titles, section = section_titles(), request.word("section")
    if section and section not in titles:
        raise BadQueryError(f"section must be one of {', '.join(titles)}.")
    job = Job(kind="report", run_id=request.run.id, finished=request.run.finished)
    document, html = _made(request, job, section)
    return Answer({**document, "section": section}, {"html": html, "titles": titles})


def clusters(request: PageRequest) -> Answer:
    """In how many ways explanations of a class come about: clusters, with words or places."""
    name = request.class_name
    job = Job(
        kind="clusters", run_id=request.run.id, finished=request.run.finished, class_name=name
    )
    document, html = _made(request, job, "")
    return Answer({**document, "class_name": name}, {"html": html})


def _made(request: PageRequest, job: Job, section: str) -> tuple[dict[str, Any], list[Markup]]:
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
        "sections": Documents({piece.name: piece for piece in shown}),
    }
    # made by the report's own templates, which escape every value
    return document, [Markup(html) for piece in shown if (html := piece.html)]
