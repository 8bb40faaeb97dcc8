"""The end of a run: its reports on disk, its findings in a few lines, its exit code."""

import os
from pathlib import Path

from rich.console import Console

from transexplain.errors import ConfigurationError
from transexplain.reports import REPORTS
from transexplain.reports.records import Statement, Summary
from transexplain.reports.summary import summarise
from transexplain.store import runs
from transexplain.store.database import Database

_STYLES = {"good": "green", "clear": "green", "problem": "yellow", "flagged": "bold yellow"}
_INCOMPLETE = 3


def write_reports(db: Database, run_id: str, folder: Path) -> tuple[Summary, list[Path]]:
    """Write the run's report in every format into `folder`; returns what it says, and where.

    Raises ConfigurationError where the folder cannot be written.
    """
    summary = summarise(db, run_id)
    name = f"{summary.audited.name}-{summary.audited.run_id}"
    paths = []
    for form in REPORTS:
        path = folder / f"{name}.{form}"
        partial = path.with_suffix(path.suffix + f".{os.getpid()}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            partial.write_text(REPORTS.load(form)(summary), encoding="utf-8")
            partial.replace(path)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write the report {path}: {error.strerror}. Choose another --report-dir"
            ) from error
        paths.append(path)
    return summary, paths


def print_summary(summary: Summary, paths: list[Path]) -> None:
    """The findings for a terminal."""
    console = Console(highlight=False, soft_wrap=True)
    for statement in summary.headline:
        console.print(_bullet(statement), style=_STYLES.get(statement.kind), markup=False)
    found = summary.conservation
    if found is not None:
        console.print(
            f"- conservation over {found.attributions} attributions: largest |gap| "
            f"{found.worst:.1e}, mean {found.mean:.1e} of the sum of |terms|",
            markup=False,
        )
    for path in paths:
        console.print(f"report: {path}", markup=False)


def _bullet(statement: Statement) -> str:
    return f"- {statement.text}"


def exit_code(db: Database, run_id: str) -> int:
    """0, or 3 where items are missing or failed beyond the plan's tolerance."""
    state = runs.progress(db, run_id)
    missing = state.items_total - state.items_done
    allowed = runs.get(db, run_id).plan.tolerance * state.items_total
    return _INCOMPLETE if missing > allowed else 0
