"""The support table of docs/models.md, from what is measured; run it to rewrite the table.

python tests/support/support_table.py
"""

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT), str(_ROOT / "tests" / "support")]  # no package when run as a script

from architectures import ARCHITECTURES  # noqa: E402
from architectures_measured import explained, ready  # noqa: E402

from transexplain.errors import EngineError, ItemError, ModelLoadError, TransExplainError  # noqa: E402

PAGE = _ROOT / "docs" / "models.md"
_BEGIN, _END = "<!-- support table -->", "<!-- end of support table -->"
_BETWEEN = re.compile(f"{re.escape(_BEGIN)}\n(.*?)\n{re.escape(_END)}", re.DOTALL)
_COLUMNS = (
    "",
    "closes to 1e-12",
    "closes to 1e-5 (float32 inside)",
    "in batches of equal lengths",
    "not covered",
)


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
    """The table in Markdown: one row per source and kind, names in the order of the table."""
    measured = {name: measure(name) for name in ARCHITECTURES}
    rows: dict[str, list[str]] = {}
    for name, one in ARCHITECTURES.items():
        rows.setdefault(f"{one.source}: {one.kind}", []).append(name)
    lines = [_line(_COLUMNS), _line(["---"] * len(_COLUMNS))]
    lines += [_line([row, *_cells(names, measured)]) for row, names in rows.items()]
    counted = sum(one.gap is not None and one.gap <= 1e-5 for one in measured.values())
    head = (
        f"Measured with `lrp` on {len(measured)} tiny random models in float64: {counted} are "
        "covered. The gap of the ledger is relative to the sum of its |terms|. Where a model's "
        "own logits depend on padding it runs in batches of equal lengths, so that results in a "
        "batch equal those of each item alone. An operator without a rule is refused by name, "
        "never passed over."
    )
    return f"{head}\n\n" + "\n".join(lines)


def _cells(names: list[str], measured: dict[str, Measured]) -> Iterable[str]:
    def listed(chosen: Iterable[str]) -> str:
        return ", ".join(name.removeprefix("timm ") for name in chosen)

    gaps = {name: measured[name].gap for name in names}
    yield listed(n for n, gap in gaps.items() if gap is not None and gap <= 1e-12)
    yield listed(n for n, gap in gaps.items() if gap is not None and 1e-12 < gap <= 1e-5)
    yield listed(n for n in names if measured[n].equal_lengths)
    open_gaps = [
        f"{n} (gap {gap:.0e})" for n, gap in gaps.items() if gap is not None and gap > 1e-5
    ]
    refused = [f"{n} ({measured[n].refused})" for n in names if measured[n].refused]
    yield listed([*refused, *open_gaps])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def in_docs() -> str:
    """The table as docs/models.md holds it."""
    found = _BETWEEN.search(PAGE.read_text(encoding="utf-8"))
    assert found, f"docs/models.md has no {_BEGIN} ... {_END}"
    return found[1]


def main() -> None:
    """Put what is measured now between the markers of docs/models.md."""
    table = measured_table()
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_BETWEEN.sub(lambda _: f"{_BEGIN}\n{table}\n{_END}", text), encoding="utf-8")


if __name__ == "__main__":
    main()
