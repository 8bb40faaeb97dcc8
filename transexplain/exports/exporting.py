"""One run in one format."""

from pathlib import Path

from transexplain.errors import ConfigurationError
from transexplain.exports import EXPORTS, FILES, TRACKERS
from transexplain.exports.files import write_text
from transexplain.exports.kinds import redaction_of
from transexplain.reports.escaping import encodable
from transexplain.store import runs
from transexplain.store.database import Database


def export(
    db: Database,
    run_id: str,
    form: str,
    path: Path | None,
    *,
    redact: bool = False,
    min_count: int | None = None,
) -> str | None:
    """Write a run to `path`, whole or not at all; without a path, give back its text.

    Args:
        db: the store.
        run_id: id, unique beginning of one, or `latest`.
        form: one of `EXPORTS`.
        path: a file that is made or replaced; for `csv` a folder that is not there or is empty.
        redact: without texts, ids, and what rests on few items; see `docs/privacy.md`.
        min_count: items that a number must rest on, with `redact`; None: as in a report.

    Raises ConfigurationError: an unknown format or run, a run that has nothing for the format, data
    without a path, a path that cannot be written, or a format that `redact` means nothing for.
    """
    make = EXPORTS.load(form)
    if form in TRACKERS and path is not None:
        raise ConfigurationError(
            f"{form} is a tracker, which its own variables name; leave out -o {path}"
        )
    run = runs.get(db, run_id)
    redaction = redaction_of(run, form, redact, min_count)
    asked = () if redaction is None else (redaction,)
    if form in FILES:
        if path is None:
            what = "folder" if form == "csv" else "file"
            raise ConfigurationError(f"{form} is no text to print; name a {what} with -o")
        make(db, run, path, *asked)
        return None
    text = encodable(make(db, run, *asked))
    if path is None:
        return text
    write_text(path, text)
    return None
