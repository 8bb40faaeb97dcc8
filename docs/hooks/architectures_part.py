"""The table of architectures that were measured; `tests/support/support_table.py` writes it."""

import csv
from pathlib import Path

from markdown_text import table

_FILE = Path(__file__).resolve().parents[1] / "reference" / "architectures.csv"


def architectures() -> str:
    """One row for each architecture, in a block that `assets/filter.js` makes searchable."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    return (
        '<div class="filtered" data-label="Find an architecture" markdown="block">\n\n'
        f"{table(head, rows)}\n\n</div>"
    )
