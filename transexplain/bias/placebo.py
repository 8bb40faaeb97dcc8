"""The control that should find nothing: groups of randomly sampled entities."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from transexplain.bias.cells import Cell
from transexplain.bias.entity_rows import EntityRow
from transexplain.bias.families import family
from transexplain.bias.group_table import Rules, table_of
from transexplain.randomness import generator

DRAWS = 20
_PERMUTATIONS = 999


@dataclass(frozen=True, kw_only=True, slots=True)
class Placebo:
    """The group table's verdicts on lexicons without any meaning."""

    lexicons: int  #: how often the entities were dealt out to the groups anew
    comparisons: int  #: tested, over all of them
    below: int  #: with a raw p of at most 5 %; one in twenty is what chance gives
    differences: int  #: with the verdict *difference*


def placebo(cells: Sequence[Cell], rules: Rules, draws: int = DRAWS) -> Placebo:
    """Judge `draws` random relabellings by the same rules as the lexicon itself.

    Each entity takes the groups of another one of the same families, the same in every cell: sizes
    of groups and their overlaps stay, and so do the entities' relevance and how often they are
    mentioned.
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
    random = generator("placebo", seed, draw)
    dealt: dict[str, list[str]] = {}
    for names in _alike(groups):
        order = random.permutation(len(names))
        dealt |= {
            one: sorted(groups[names[place]]) for one, place in zip(names, order, strict=True)
        }
    turns = {one: int(random.integers(2**31)) for one in sorted(groups)}
    for cell in cells:
        members: dict[str, list[EntityRow]] = {}
        for group, row in _moved(cell, dealt, turns):
            members.setdefault(group, []).append(row)
        documents = {group: sum(one.documents for one in of) for group, of in members.items()}
        yield replace(cell, groups=members, documents=documents, pairs={}, quantiles={})


def _alike(groups: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The entities that may change places: those in groups of the same families; names sorted."""
    found: dict[tuple[str, ...], list[str]] = {}
    for entity, of in sorted(groups.items()):
        found.setdefault(tuple(sorted({family(group) for group in of})), []).append(entity)
    return [found[families] for families in sorted(found)]


def _moved(
    cell: Cell, dealt: Mapping[str, Sequence[str]], turns: Mapping[str, int]
) -> Iterator[tuple[str, EntityRow]]:
    """The new groups of each entity, each with a row of it, in a random order of the entity's own.

    An entity of several groups has the same row in each where a lexicon has it there, and rows of
    its own where they are regions of one picture.
    """
    rows: dict[str, list[EntityRow]] = {}
    for of in cell.groups.values():
        for row in of:
            rows.setdefault(row.entity, []).append(row)
    for entity, own in sorted(rows.items()):
        for place, group in enumerate(dealt[entity], start=turns[entity]):
            yield group, own[place % len(own)]
