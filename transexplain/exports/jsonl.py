"""Attributions as JSON lines, in the columns of the Parquet export."""

import json
from pathlib import Path

from transexplain.exports.attributions import iter_rows
from transexplain.exports.files import replacing
from transexplain.exports.kinds import Redaction, check_explained, check_over
from transexplain.plans import AuditRun
from transexplain.store.database import Database


def write(db: Database, run: AuditRun, path: Path, redaction: Redaction | None = None) -> None:
    """Write every attribution as one line of ASCII.

    Raises ConfigurationError: the run is an evaluation or not over, or `path` cannot be written.
    """
    check_explained(run, "JSON lines")
    check_over(run, "JSON lines")
    with replacing(path) as partial, partial.open("w", encoding="ascii") as file:
        for row in iter_rows(db, run, redacted=redaction is not None):
            file.write(json.dumps({**row, "meta": json.loads(row["meta"])}, allow_nan=False))
            file.write("\n")
