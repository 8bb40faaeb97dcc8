"""Exports a run in one format, completely or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from transexplain.errors import ConfigurationError
from transexplain.files.atomic_write import atomic_file, atomic_folder
from transexplain.files.paths import AnyPath, RemotePath
from transexplain.files.remote_files import under, write
from transexplain.reports.exports import EXPORTS, FILES, TRACKERS
from transexplain.reports.phrasing import encodable
from transexplain.reports.redaction import FEWEST, fewest_of
from transexplain.reports.report_records import Summary
from transexplain.reports.summary import redacted, summarise
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.shard_digests import refuse_damaged
from transexplain.types.plans import AuditRun


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path in the folder of `path` to write a file to, which replaces `path` at the end.

    After an error `path` is as it was. Raises ConfigurationError where it is a folder or cannot be
    written.
    """
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; name a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as partial:
            yield partial
    except OSError as error:
        raise unwritable(path, error) from error


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which is called `path` at the end and gone after an error.

    Raises ConfigurationError where `path` is a file, holds something, or cannot be written.
    """
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"{path} is a file; this format writes a folder of files")
    try:
        if path.is_dir() and any(path.iterdir()):
            raise ConfigurationError(f"the folder {path} is not empty; name a new one")
        with atomic_folder(path) as partial:
            yield partial
            if path.is_dir():
                path.rmdir()  # refused where somebody has written into it since
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> ConfigurationError:
    """The error for an export that cannot be written."""
    return ConfigurationError(
        f"cannot write {path}: {error.strerror or error}. Choose another path with -o"
    )


def write_text(path: AnyPath, text: str) -> None:
    """Write a text in UTF-8; raises ConfigurationError as `replacing` does, ObjectStoreError."""
    if isinstance(path, RemotePath):
        path.write_bytes(text.encode())
        return
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


#: made of findings: redacted as a report is
_OF_FINDINGS = (
    "csv",
    "xlsx",
    "markdown",
    "model-card",
    "annex-iv",
    "local-law-144",
    "mlflow",
    "wandb",
)
#: a row for each attribution: redaction keeps the row and removes the content
_OF_ITEMS = ("parquet", "jsonl")


@dataclass(frozen=True, kw_only=True, slots=True)
class Redaction:
    """The redaction of an export, so that it can be shared."""

    fewest: int = FEWEST  #: items behind every number; of formats of findings


def check_explained(run: AuditRun, form: str) -> None:
    """Raise ConfigurationError for an evaluation, which stores no explanations."""
    if run.plan.task == "evaluation":
        raise ConfigurationError(
            f"run {run.id} is an evaluation, which keeps scores and no explanations: there is no "
            f"{form} of it. `transexplain report {run.id}` writes its tables, `--format csv` its "
            "scores"
        )


def check_over(run: AuditRun, form: str) -> None:
    """Raise ConfigurationError for a run that is not over: its export would look complete."""
    if run.state == "running":
        raise ConfigurationError(
            f"run {run.id} is not over: its {form} would be a part that looks like the whole. Wait "
            "for it, `transexplain resume` or `transexplain cancel` it"
        )


def redaction_of(run: AuditRun, form: str, redact: bool, min_count: int | None) -> Redaction | None:
    """The redaction of this format of this run; None: none is requested.

    Raises ConfigurationError: a format or a run that redacting means nothing for, or a `min_count`
    without `redact`, below 2, or for rows of single items.
    """
    fewest = fewest_of(redact, min_count)
    if fewest is None:
        return None
    if form not in (*_OF_FINDINGS, *_OF_ITEMS):
        raise ConfigurationError(f"{form} holds nothing of the data; leave out --redact")
    if form in ("csv", "xlsx") and run.plan.task == "evaluation":
        raise ConfigurationError(
            f"run {run.id} is an evaluation, whose tables have a row per item: nothing would be "
            f"left of them. `transexplain report {run.id}` writes means over items, without texts"
        )
    if form in _OF_ITEMS and min_count is not None:
        raise ConfigurationError(
            f"every row of {form} is of one item, so --min-count would leave out all of them; "
            "leave it out, or export csv, which has counts over items"
        )
    return Redaction(fewest=fewest)


def summary_of(
    db: Database, run: AuditRun, redaction: Redaction | None, gallery: int = 0
) -> Summary:
    """The findings of a run with so many examples for each class, redacted where requested."""
    summary = summarise(db, run.id, gallery=gallery)
    return summary if redaction is None else redacted(summary, redaction.fewest)


def explained_summary(
    db: Database, run: AuditRun, redaction: Redaction | None, form: str
) -> Summary:
    """The findings for a text called `form`; raises ConfigurationError for an evaluation."""
    check_explained(run, form)
    return summary_of(db, run, redaction)


@contextmanager
def _written_here(path: AnyPath) -> Iterator[Path]:
    """A path of this machine to write to; what is there at the end is copied to a URL.

    Raises ConfigurationError for a folder in a store that holds files already, ObjectStoreError.
    """
    if isinstance(path, Path):
        yield path
        return
    with TemporaryDirectory(prefix="transexplain-") as folder:
        here = Path(folder) / path.name
        yield here
        if here.is_file():
            write(path.url, here)
            return
        if under(f"{path.url.rstrip('/')}/"):
            raise ConfigurationError(f"the folder {path} is not empty; name a new one")
        for source in sorted(file for file in here.rglob("*") if file.is_file()):
            write((path / source.relative_to(here).as_posix()).url, source)


def export(
    db: Database,
    run_id: str,
    form: str,
    path: AnyPath | None,
    *,
    redact: bool = False,
    min_count: int | None = None,
) -> str | None:
    """Write a run to `path`, whole or not at all; without a path, give back its text.

    Args:
        db: the store.
        run_id: id, unique beginning of one, or `latest`.
        form: one of `EXPORTS`.
        path: a file that is made or replaced; for `csv` a folder that is not there or is empty;
            either may be a URL.
        redact: without texts, ids, and what rests on few items; see `docs/explanation/privacy.md`.
        min_count: items that a number must rest on, with `redact`; None: as in a report.

    Raises ConfigurationError: an unknown format or run, a run that has nothing for the format, data
    without a path, a path that cannot be written, or a format that `redact` means nothing for;
    DamagedRowError where results are not those that were saved.
    """
    make = EXPORTS.load(form)
    if form in TRACKERS and path is not None:
        raise ConfigurationError(
            f"{form} is a tracker, which its own variables name; leave out -o {path}"
        )
    run = runs.get(db, run_id)
    redaction = redaction_of(run, form, redact, min_count)
    refuse_damaged(db, run.id)
    redactions = () if redaction is None else (redaction,)
    if form in FILES:
        if path is None:
            what = "folder" if form == "csv" else "file"
            raise ConfigurationError(f"{form} is no text to print; name a {what} with -o")
        with _written_here(path) as here:
            make(db, run, here, *redactions)
        return None
    text = encodable(make(db, run, *redactions))
    if path is None:
        return text
    write_text(path, text)
    return None
