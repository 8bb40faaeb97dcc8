"""Finishes a run: writes its reports, prints its findings, and chooses the exit code."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rich.console import Console

from transexplain.errors import ConfigurationError
from transexplain.files.paths import AnyPath, write_whole
from transexplain.provenance.manifest import manifest_of
from transexplain.registry import Registry
from transexplain.reports import DRIFT_REPORTS, EVALUATION_REPORTS, REPORTS, STRATEGY_REPORTS
from transexplain.reports.report_records import Summary
from transexplain.reports.report_section import Statement
from transexplain.reports.sql_results import keep
from transexplain.reports.summary import redacted, summarised
from transexplain.store import runs
from transexplain.store.database import Database

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

    from transexplain.analysis.groups.matching_sheet import MatchPrecision
    from transexplain.reports.evaluation import EvaluationSummary
    from transexplain.reports.runs_compared import DriftSummary
    from transexplain.reports.strategies_report import StrategyReport  # which loads scikit-learn

#: what a report is made of
Report: TypeAlias = "Summary | EvaluationSummary | DriftSummary | StrategyReport"
_STYLES = {"good": "green", "clear": "green", "problem": "yellow", "flagged": "bold yellow"}
_INCOMPLETE = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportOptions:
    """Options of a report, besides what the run recorded."""

    checked: Path | None = None  #: sheet of matches that a person filled
    fewest: int | None = None  #: items behind every row; then it is redacted
    sign: Path | None = None  #: private key that the files are signed with

    def signer(self) -> "CryptoSigner | None":
        """The signer of the files; raises ConfigurationError for an unusable key."""
        if self.sign is None:
            return None
        from transexplain.provenance.report_signature import load_signer

        return load_signer(self.sign)

    def summary(self, db: Database, run_id: str) -> Summary:
        """The summary of an audit with these options; it is kept for SQL, too.

        Raises ConfigurationError for a bad sheet.
        """
        precisions: list[MatchPrecision] = []
        if self.checked is not None:
            from transexplain.analysis.groups.matching_sheet import checked_precisions

            groups = [group.name for group in runs.get(db, run_id).plan.groups]
            precisions = checked_precisions(self.checked, groups)
        summary, total = summarised(db, run_id, precisions=precisions)
        keep(db, summary, total)
        return summary if self.fewest is None else redacted(summary, self.fewest)

    def refuse_evaluation(self, run_id: str) -> None:
        """Raise ConfigurationError for an evaluation where a report of an audit is requested."""
        options = {"--redact": self.fewest, "--checked": self.checked}
        for option, value in options.items():
            if value is not None:
                raise ConfigurationError(
                    f"run {run_id} is an evaluation; {option} is for the reports of audits and "
                    "imports"
                )


_PLAIN = ReportOptions()


class Written(NamedTuple):
    """A report that was written."""

    headline: Sequence[Statement]
    paths: list[AnyPath]
    exit_code: int  #: 3 where results are not those that were saved


def report(
    db: Database,
    run_id: str,
    folder: AnyPath,
    options: ReportOptions = _PLAIN,
    *,
    show: bool = True,
) -> Written:
    """Write the findings of an audit or an evaluation, and `show` them on a terminal.

    A redacted report says so in its name, and has no manifest. Raises
    ConfigurationError where the folder cannot be written or the key cannot sign, or for what an
    evaluation has not.
    """
    signer = options.signer()  # before anything is written
    summary = _summarised(db, run_id, options)
    paths = _written(db, summary, folder)
    if signer is not None:
        from transexplain.provenance.report_signature import signature_text

        # its name begins as a manifest's does, as a report is JSON too
        path = paths[0].with_name(f"signature-{paths[0].stem}.json")
        _write_whole(path, signature_text(paths, runs.get(db, run_id).id, signer))
        paths.append(path)
    if show:
        print_findings(summary.headline, paths)
    return Written(summary.headline, paths, _code(summary))


def as_json(db: Database, run_id: str, options: ReportOptions = _PLAIN) -> tuple[str, int]:
    """The findings of a run as JSON, and the exit code; raises as `report`."""
    summary = _summarised(db, run_id, options)
    forms = REPORTS if isinstance(summary, Summary) else EVALUATION_REPORTS
    return str(forms.load("json")(summary)), _code(summary)


def _summarised(db: Database, run_id: str, options: ReportOptions) -> "Summary | EvaluationSummary":
    if runs.get(db, run_id).plan.task == "evaluation":
        from transexplain.reports.evaluation import tabulate

        options.refuse_evaluation(run_id)
        return tabulate(db, run_id)
    return options.summary(db, run_id)


def _written(
    db: Database, summary: "Summary | EvaluationSummary", folder: AnyPath
) -> list[AnyPath]:
    """Write a report in every format, and the manifest next to it if it is not redacted."""
    if not isinstance(summary, Summary):
        forms, name, run_id = EVALUATION_REPORTS, summary.evaluated.name, summary.evaluated.run_id
    else:
        forms, name, run_id = REPORTS, summary.audited.name, summary.audited.run_id
        if summary.fewest is not None:
            return _write(forms, summary, folder / f"{name}-{run_id}-redacted")
    stem = folder / f"{name}-{run_id}"
    paths = _write(forms, summary, stem)
    path = stem.with_name(f"manifest-{stem.name}.json")
    _write_whole(path, manifest_of(db, run_id).text)
    return [*paths, path]


def report_files(folder: AnyPath | None, name: str, run_id: str) -> list[Path]:
    """The files of a run's report in a folder of this machine, with manifest and signatures."""
    if not isinstance(folder, Path) or not folder.is_dir():
        return []
    stem = f"{name}-{run_id}"
    begins = (f"{stem}.", f"{stem}-redacted.", f"manifest-{stem}.", f"signature-{stem}")
    return sorted(file for file in folder.iterdir() if file.name.startswith(begins))


def check_folder(folder: AnyPath, run_id: str) -> None:
    """Raise ConfigurationError where this user can write no report: not after hours of work."""
    if not isinstance(folder, Path):
        return
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise ConfigurationError(
            f"cannot write the report into {folder}: {there} is no folder that this user may write "
            f"to. Choose another: transexplain resume {run_id} --out FOLDER"
        )


def _code(summary: "Summary | EvaluationSummary") -> int:
    return 0 if summary.whole else _INCOMPLETE


def write_reports(db: Database, run_id: str, folder: AnyPath) -> tuple[Summary, list[AnyPath]]:
    """Write an audit's report in every format into `folder`; returns what it says, and where.

    Raises ConfigurationError where the folder cannot be written.
    """
    summary = _PLAIN.summary(db, run_id)
    return summary, _written(db, summary, folder)


def write_comparison(summary: "DriftSummary", folder: AnyPath) -> None:
    """Write and print what two runs compared say, in every format.

    Raises ConfigurationError where the folder cannot be written.
    """
    name = f"{summary.after.name}-{summary.before.run_id}-{summary.after.run_id}"
    print_findings(summary.headline, _write(DRIFT_REPORTS, summary, folder / name))


def write_strategies(report: "StrategyReport", folder: AnyPath) -> None:
    """Write and print what strategy discovery found.

    Raises ConfigurationError where the folder cannot be written.
    """
    stem = folder / f"{report.explored.name}-{report.strategies.run_id}-strategies"
    print_findings(report.headline, _write(STRATEGY_REPORTS, report, stem))


def _write(forms: Registry, summary: Report, stem: AnyPath) -> list[AnyPath]:
    paths: list[AnyPath] = []
    for form in forms:
        path = stem.with_name(f"{stem.name}.{form}")
        _write_whole(path, forms.load(form)(summary).encode())
        paths.append(path)
    return paths


def _write_whole(path: AnyPath, content: bytes) -> None:
    try:
        write_whole(path, content)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write the report {path}: {error.strerror}. Choose another --out"
        ) from error


def print_findings(statements: Sequence[Statement], paths: Sequence[AnyPath]) -> None:
    """Print findings, and where their files are."""
    console = Console(highlight=False, soft_wrap=True)
    for statement in statements:
        console.print(f"- {statement.text}", style=_STYLES.get(statement.kind), markup=False)
    for path in paths:
        kinds = ("manifest", "signature")
        kind = next((name for name in kinds if path.name.startswith(f"{name}-")), "report")
        console.print(f"{kind}: {path}", markup=False)


def exit_code(db: Database, run_id: str) -> int:
    """0, or 3 where items are missing or failed beyond the plan's tolerance."""
    state = runs.progress(db, run_id)
    missing = state.items_total - state.items_done
    allowed = runs.get(db, run_id).plan.tolerance * state.items_total
    return _INCOMPLETE if missing > allowed else 0
