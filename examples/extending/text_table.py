"""An export: how many items of each label got each answer, as a table in plain text."""

from collections import Counter

from transexplain.reports.exports.export_run import Redaction, check_explained
from transexplain.store.database import Database
from transexplain.store.readers import iter_items
from transexplain.types.items import ItemOutcome
from transexplain.types.plans import AuditRun

_HEADS = ("label", "predicted", "items")


def text_table(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """One line per label and predicted class; raises ConfigurationError for an evaluation.

    A redacted table does not print counts of fewer items than `redaction.fewest`.
    """
    check_explained(run, "table")
    counts = Counter(
        (one.label or "-", one.predicted)
        for one in iter_items(db, run.id)
        if isinstance(one, ItemOutcome)
    )
    fewest = 0 if redaction is None else redaction.fewest
    rows = [
        (label, predicted, str(count) if count >= fewest else f"< {fewest}")
        for (label, predicted), count in sorted(counts.items())
    ]
    widths = [max(map(len, column)) for column in zip(_HEADS, *rows, strict=True)]
    return "".join(_line(row, widths) for row in (_HEADS, *rows))


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return "  ".join(cells).rstrip() + "\n"
