"""The group table's comparisons by a second lexicon: what depends on the choice of words."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from transexplain.bias.cells import Cell
from transexplain.bias.group_table import Rules, estimated
from transexplain.bias.intervals import MIN_ENTITIES, Estimate
from transexplain.findings import GroupStatistic, Robustness

NAME = "second lexicon"


def with_second(
    rows: Iterable[GroupStatistic],
    cells: Iterable[Cell],
    second: Iterable[Cell],
    names: Sequence[str],
    rules: Rules,
) -> Iterator[GroupStatistic]:
    """Rows with one more robustness row where the second lexicon has their group.

    Its groups stand in the place of those of the same name, the reference's included; groups
    that it does not have stay as they are. Its mentions count nowhere else.

    Args:
        rows: of the group table.
        cells: that the table was made of.
        second: cells of the second lexicon's mentions.
        names: of the second lexicon's groups.
        rules: of the table.
    """
    cells, second = list(cells), list(second)
    theirs = {(cell.target, cell.class_name): cell.groups for cell in second}
    mixed = {}
    for cell in cells:
        key = (cell.target, cell.class_name)
        kept = {group: of for group, of in cell.groups.items() if group not in names}
        mixed[key] = replace(cell, groups={**kept, **theirs.get(key, {})})
    references = rules.references([*cells, *second])
    for row in rows:
        if row.group not in names or row.group == row.reference:
            yield row
            continue
        against = references[row.group].groups
        found = _compared(mixed[row.target, row.class_name], row.group, against, rules)
        if found is None:
            note = f"{NAME}: fewer than {MIN_ENTITIES} entities on a side"
            yield replace(row, note="; ".join(filter(None, (row.note, note))))
        else:
            one = Robustness(
                name=NAME, unit="", difference=found.difference, interval=found.interval()
            )
            yield replace(row, robustness=(*row.robustness, one))


def _compared(cell: Cell, group: str, against: Collection[str], rules: Rules) -> Estimate | None:
    members = cell.groups.get(group, ())
    others = cell.others(group, against)[0] if members else []
    if min(len(members), len(others)) < MIN_ENTITIES:
        return None
    return estimated(members, others, rules)
