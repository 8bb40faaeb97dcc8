"""Crossed groups: black women, beside women and black people.

`gender x ethnicity/female x black` is of the family `gender x ethnicity`, so it is compared with
the other pairs of a gender and an ethnicity (Crenshaw 1989 for why; the rates by sex and race
that New York's Local Law 144 asks for are such a table, and leave out categories under 2 %).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from transexplain.bias.families import family
from transexplain.bias.words import pieces
from transexplain.types import Ambiguity, EntityGroup

BETWEEN = " x "
#: of the mentions of its family, below which a group is left out of comparisons
LEAST_SHARE = 0.02


def crossed_family(families: Iterable[str]) -> str:
    """The family of the groups that are in one group of each of `families`."""
    return BETWEEN.join(families)


def crossed_group(groups: Sequence[str]) -> str:
    """The name of what several groups, of one family each, have in common."""
    members = (group.partition("/")[2] for group in groups)
    return f"{crossed_family(map(family, groups))}/{BETWEEN.join(members)}"


def crossed_items(families: Sequence[str], groups: Sequence[EntityGroup]) -> list[EntityGroup]:
    """One group for every choice of a group of whole items from each family."""
    source = f"metadata of the items, columns {' and '.join(families)}"
    return [
        EntityGroup(name=crossed_group([one.name for one in chosen]), terms=(), source=source)
        for chosen in _choices(families, groups)
    ]


def crossed(families: Sequence[str], groups: Sequence[EntityGroup]) -> list[EntityGroup]:
    """One group for every choice of a group from each family whose lexicons share a term.

    Its terms are those that all of them have, whatever their capitals, and its entities are those
    of the first family. A term is ambiguous where one of the lexicons has it so.
    """
    found = []
    for chosen in _choices(families, groups):
        terms = _shared(chosen)
        if terms:
            first = chosen[0]
            found.append(
                EntityGroup(
                    name=crossed_group([group.name for group in chosen]),
                    terms=terms,
                    source=f"terms of {' that are of '.join(group.name for group in chosen)}",
                    entities={one: first.entities[one] for one in terms if one in first.entities},
                    ambiguous=_ambiguous(terms, chosen),
                )
            )
    return found


def _choices(
    families: Sequence[str], groups: Sequence[EntityGroup]
) -> Iterator[tuple[EntityGroup, ...]]:
    return product(*([one for one in groups if family(one.name) == of] for of in families))


def _shared(groups: Sequence[EntityGroup]) -> tuple[str, ...]:
    common = set.intersection(*({_key(term) for term in group.terms} for group in groups))
    return tuple(term for term in groups[0].terms if _key(term) in common)


def _ambiguous(terms: Sequence[str], groups: Sequence[EntityGroup]) -> dict[str, Ambiguity]:
    kinds = {_key(term): kind for group in groups for term, kind in group.ambiguous.items()}
    return {term: kinds[_key(term)] for term in terms if _key(term) in kinds}


def _key(term: str) -> tuple[str, ...]:
    return tuple(piece.key for piece in pieces(term))
