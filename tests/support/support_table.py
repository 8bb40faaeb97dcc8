"""The support table of the documentation, from what is measured; run it to rewrite the table.

python tests/support/support_table.py
"""

import csv
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT), str(_ROOT / "tests" / "support")]  # no package when run as a script

from architectures import ARCHITECTURES  # noqa: E402
from architectures_measured import UNTRACED, explained, ready  # noqa: E402

from transexplain.errors import EngineError, ItemError, ModelLoadError, TransExplainError  # noqa: E402

FILE = _ROOT / "docs" / "reference" / "architectures.csv"
_COLUMNS = (
    "architecture",
    "library",
    "kind",
    "ledger closes to",
    "batches",
    "traced",
    "autoLRP 0.2",
)
#: what `benchmarks/autolrp_architectures.py` recorded
PEER = FILE.with_name("architectures_autolrp.csv")


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What came out for one architecture under `lrp`."""

    gap: float | None  #: the worst of its ledgers, relative; None: not covered
    equal_lengths: bool  #: its own logits change with padding
    refused: str = ""  #: the operator without a rule, or what else went wrong


def measure(name: str) -> Measured:
    """Explain every class of every item of one architecture, one by one."""
    try:
        one = ready(name)
        found = [each for item in one.items for each in explained(name, "lrp", [item])]
    except (EngineError, ItemError, ModelLoadError) as error:
        return Measured(gap=None, equal_lengths=False, refused=_reason(error))
    gaps = [each.ledger.relative_gap for each in found if each.ledger is not None]
    assert len(gaps) == len(found)
    return Measured(gap=max(gaps), equal_lengths=not one.padding_invariant)


def _reason(error: TransExplainError) -> str:
    operator = re.search(r"operator '([^']+)'", str(error))
    if isinstance(error, EngineError) and operator:
        return f"`{operator[1]}`"
    return str(error).partition(":")[0]


@lru_cache(maxsize=1)
def measured_table() -> str:
    """The table as CSV: one row per architecture, in the order in which they are listed."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_COLUMNS, *_rows()])
    return text.getvalue()


def _rows() -> Iterator[tuple[str, ...]]:
    peers = of_peer()
    for name, one in ARCHITECTURES.items():
        found = measure(name)
        batches = "of equal lengths" if found.equal_lengths else "any"
        covered = found.gap is not None and found.gap <= 1e-5
        refused = f"not covered: {found.refused or f'gap {found.gap:.0e}'}"
        yield (
            name.removeprefix("timm "),
            one.source,
            one.kind,
            ("1e-12" if found.gap <= 1e-12 else "1e-5") if covered else refused,
            batches if covered else "",
            ("no" if name in UNTRACED else "yes") if covered else "",
            peers[name],
        )


def of_peer() -> dict[str, str]:
    """What autoLRP does on each architecture, by name."""
    with PEER.open(encoding="utf-8", newline="") as file:
        return {row["architecture"]: _in_words(row) for row in csv.DictReader(file)}


def _in_words(row: dict[str, str]) -> str:
    if row["runs"] != "yes":
        return "no"
    held = [name for name in ("runs", "conserves", "batches") if row[name] == "yes"]
    return ", ".join(held) + ("; conserves unknown" if row["conserves"] == "unknown" else "")


def in_docs() -> str:
    """The table as the documentation holds it."""
    return FILE.read_text(encoding="utf-8")


def main() -> None:
    """Write what is measured now into the documentation."""
    FILE.write_text(measured_table(), encoding="utf-8")


if __name__ == "__main__":
    main()
