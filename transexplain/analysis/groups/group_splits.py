"""The group table within parts of the items: by predicted class, right or wrong, and by slice."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.analysis.groups.group_cells import Cell, by_class, cell_of
from transexplain.analysis.groups.group_table import Rules, table_of
from transexplain.types.findings import GroupStatistic

SplitBy = Literal["predicted class", "label", "slice"]
PARTS = 12  #: of a split that are shown, those with the most mentions

RIGHT, WRONG = "right", "wrong"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """The group table of some of the items."""

    value: str  #: predicted class; right or wrong; or what the metadata column holds
    rows: tuple[GroupStatistic, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reversal:
    """A difference whose sign is the other one in every part that could be compared.

    Where neither it nor that of any part exceeds the practical size, nothing turned around.
    """

    group: str
    target: str
    class_name: str
    overall: float  #: difference, in the unit
    parts: Mapping[str, float]  #: value -> difference


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """All parts of one way to split; their comparisons are one family, p is adjusted within."""

    by: SplitBy
    parts: tuple[Part, ...]
    omitted: int  #: parts with fewer mentions than those shown
    reversals: tuple[Reversal, ...]

    def apart(self, overall: Iterable[GroupStatistic]) -> Iterator[tuple[str, GroupStatistic]]:
        """(value, row) where the verdict of a part differs from that of all items together.

        A part that is inconclusive or suppressed has fewer entities, so that is no contradiction.
        """
        known = {_key(row): row.verdict for row in overall}
        for part in self.parts:
            for row in part.rows:
                decided = row.verdict in ("difference", "equivalent")
                if decided and row.verdict != known.get(_key(row)):
                    yield part.value, row


def splits(
    totals: EntityTotals, overall: Sequence[GroupStatistic], rules: Rules
) -> tuple[Split, ...]:
    """Every split in which a target and class has at least two parts.

    A target and class with one part only (predicted classes of the target `predicted`) would be
    compared a second time and is left out; so are items without a label, or without the slice's
    column. The same rules judge.

    Args:
        totals: of the run.
        overall: the group table over all items, for reversals.
        rules: of the table.
    """
    ways: tuple[tuple[SplitBy, Callable[[Stratum], str]], ...] = (
        ("predicted class", lambda stratum: stratum.predicted),
        ("label", _rightness),
        ("slice", lambda stratum: stratum.slice),
    )
    found = (_split(by, value_of, totals, overall, rules) for by, value_of in ways)
    return tuple(one for one in found if one is not None)


def with_reversals(
    rows: Iterable[GroupStatistic], found: Iterable[Split]
) -> Iterator[GroupStatistic]:
    """Rows with a note where their difference is reversed within the parts of a split."""
    turned: dict[tuple[str, str, str], list[str]] = {}
    for split in found:
        for one in split.reversals:
            key = (one.target, one.class_name, one.group)
            turned.setdefault(key, []).append(f"the sign is the other one within every {split.by}")
    for row in rows:
        notes = turned.get(_key(row), [])
        yield replace(row, note="; ".join(filter(None, (row.note, *notes))))


def _rightness(stratum: Stratum) -> str:
    if not stratum.label:
        return ""
    return RIGHT if stratum.label == stratum.predicted else WRONG


def _split(
    by: SplitBy,
    value_of: Callable[[Stratum], str],
    totals: EntityTotals,
    overall: Sequence[GroupStatistic],
    rules: Rules,
) -> Split | None:
    cells: list[tuple[str, Cell]] = []
    for strata in by_class(totals).values():
        parts: dict[str, list[Stratum]] = {}
        for stratum in strata:
            if value := value_of(stratum):
                parts.setdefault(value, []).append(stratum)
        if len(parts) > 1:
            cells += [(value, cell_of(totals, some)) for value, some in parts.items()]
    if not cells:
        return None
    sizes: Counter[str] = Counter()
    for value, cell in cells:
        sizes[value] += sum(row.mentions for rows in cell.groups.values() for row in rows)
    shown = sorted(sorted(sizes, key=lambda value: (-sizes[value], value))[:PARTS])
    kept = [(value, cell) for value, cell in cells if value in shown]
    rows = _by_value(kept, rules)
    return Split(
        by=by,
        parts=tuple(Part(value=value, rows=tuple(rows[value])) for value in shown),
        omitted=len(sizes) - len(shown),
        reversals=tuple(_reversals(overall, rows, rules.practical)),
    )


def _by_value(cells: Sequence[tuple[str, Cell]], rules: Rules) -> dict[str, list[GroupStatistic]]:
    """The rows of all cells, judged as one family."""
    values = [value for value, cell in cells for _ in cell.groups]
    found: dict[str, list[GroupStatistic]] = {}
    for value, row in zip(values, table_of([cell for _, cell in cells], rules), strict=True):
        found.setdefault(value, []).append(row)
    return found


def _reversals(
    overall: Iterable[GroupStatistic],
    parts: Mapping[str, Sequence[GroupStatistic]],
    practical: float,
) -> Iterator[Reversal]:
    within: dict[tuple[str, str, str], dict[str, float]] = {}
    for value, rows in parts.items():
        for row in rows:
            if row.difference is not None:
                within.setdefault(_key(row), {})[value] = row.difference
    for row in overall:
        found, whole = within.get(_key(row), {}), row.difference or 0.0
        matters = max(map(abs, (whole, *found.values()))) > practical
        if matters and len(found) > 1 and all(inside * whole < 0.0 for inside in found.values()):
            yield Reversal(
                group=row.group,
                target=row.target,
                class_name=row.class_name,
                overall=whole,
                parts=dict(sorted(found.items())),
            )


def _key(row: GroupStatistic) -> tuple[str, str, str]:
    return row.target, row.class_name, row.group
