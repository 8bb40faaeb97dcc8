"""Pages of what takes longer than a request has: the report of a run, and clusters of a class."""

from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from orchestrator.serve.asked import Answer, Asked, BadQueryError
from orchestrator.serve.slow_worker import Job, Piece
from transexplain.reports.sections import SECTIONS


class Documents(Mapping[str, Any]):
    """What pieces say to programs, unpacked where it is read: a page does not."""

    def __init__(self, pieces: Mapping[str, Piece]) -> None:
        self._pieces = pieces

    def __getitem__(self, name: str) -> Any:
        """The document of a piece."""
        return self._pieces[name].document

    def __iter__(self) -> Iterator[str]:
        """Names of the pieces."""
        return iter(self._pieces)

    def __len__(self) -> int:
        """How many there are."""
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


def live_report(asked: Asked) -> Answer:
    """The sections of the run's report, of what is saved by now; all of them, or one."""
    titles, wanted = section_titles(), asked.word("section")
    if wanted and wanted not in titles:
        raise BadQueryError(f"section must be one of {', '.join(titles)}.")
    job = Job(kind="report", run_id=asked.run.id, finished=asked.run.finished)
    document, html = _made(asked, job, wanted)
    return Answer({**document, "section": wanted}, {"html": html, "titles": titles})


def clusters(asked: Asked) -> Answer:
    """In how many ways explanations of a class come about: clusters, with words or places."""
    name = asked.class_name
    job = Job(kind="clusters", run_id=asked.run.id, finished=asked.run.finished, class_name=name)
    document, html = _made(asked, job, "")
    return Answer({**document, "class_name": name}, {"html": html})


def _made(asked: Asked, job: Job, wanted: str) -> tuple[dict[str, Any], list[Markup]]:
    """What the page says of a job, and its pieces as they were drawn."""
    run = asked.run
    document: dict[str, Any] = {
        "run": run,
        "readable": asked.readable,
        "off": asked.slow is None,
        "at": None,
        "waiting": False,
        "error": None,
        "sections": {},
    }
    if asked.slow is None or not asked.readable:
        return document, []
    found = asked.slow.found(job, moving=run.state == "running")
    shown = [one for one in found.pieces if wanted in ("", one.name)]
    document |= {
        "at": found.at,
        "waiting": found.waiting,
        "error": found.error,
        "sections": Documents({one.name: one for one in shown}),
    }
    # made by the report's own templates, which escape every value
    return document, [Markup(html) for one in shown if (html := one.html)]
