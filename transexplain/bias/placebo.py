"""The control that should find nothing: groups whose members were drawn by lot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from transexplain.bias.entity_totals import EntityRow
from transexplain.bias.group_table import Cell, Rules, by_group, table_of
from transexplain.bias.sampling import generator

DRAWS = 20
_PERMUTATIONS = 999


@dataclass(frozen=True, kw_only=True, slots=True)
class Placebo:
    """What the group table says of lexicons without any meaning."""

    lexicons: int  #: how often the entities were dealt out to the groups anew
    comparisons: int  #: tested, over all of them
    below: int  #: with a raw p of at most 5 %; one in twenty is what chance gives
    differences: int  #: with the verdict *difference*


def placebo(cells: Sequence[Cell], rules: Rules, draws: int = DRAWS) -> Placebo:
    """Judge `draws` random relabellings by the same rules as the lexicon itself.

    Each entity takes the groups of another one, the same in every cell: sizes of groups and their
    overlaps stay, and so do the entities' relevance and how often they are mentioned.
    """
    comparisons = below = differences = 0
    fast = replace(rules, permutations=rules.permutations or _PERMUTATIONS, bare=True)
    for draw in range(draws):
        for row in table_of(_relabelled(cells, rules.seed, draw), fast):
            if row.p is not None:
                comparisons += 1
                below += row.p <= 0.05
                differences += row.flagged
    return Placebo(lexicons=draws, comparisons=comparisons, below=below, differences=differences)


def _relabelled(cells: Sequence[Cell], seed: int, draw: int) -> Iterator[Cell]:
    groups: dict[str, set[str]] = {}
    for cell in cells:
        for group, rows in cell.groups.items():
            for row in rows:
                groups.setdefault(row.entity, set()).add(group)
    names = sorted(groups)
    order = generator("placebo", seed, draw).permutation(len(names))
    dealt = {name: sorted(groups[names[place]]) for name, place in zip(names, order, strict=True)}
    for cell in cells:
        single = {row.entity: row for rows in cell.groups.values() for row in rows}
        members = by_group(_moved(single, dealt))
        documents = {group: sum(one.documents for one in of) for group, of in members.items()}
        yield replace(cell, groups=members, documents=documents, pairs={})


def _moved(single: dict[str, EntityRow], dealt: dict[str, list[str]]) -> Iterator[EntityRow]:
    for entity in sorted(single):
        for group in dealt[entity]:
            yield replace(single[entity], group=group)
