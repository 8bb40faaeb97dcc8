"""Pages that take longer than a request may: the report of a run, and clusters of a class."""

from typing import Any

from markupsafe import Markup

from orchestrator.serve.page_request import BadQueryError, PageContent, PageRequest
from orchestrator.serve.slow_worker import PageJob
from transexplain.reports.sections import SECTIONS

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
