"""Families of groups, and the reference that every group is compared with.

A group's family is what stands before the first slash of its name: `gender` of `gender/female`.
Groups without a slash are one family, that has no name. Women are compared with men and not with
Germans: the other groups of the family are what a group is an alternative to.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ALL_OTHERS = "all other groups"

#: of a plan: one group for all; a group for some families; None: all other groups of the family
PlanReference = str | Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Reference:
    """What one group is compared with."""

    name: str  #: a group, or words for several of them
    groups: tuple[str, ...]  #: their entities; empty: it is the reference itself, or nobody else
    note: str = ""  #: why it is another one than the family's


def family(group: str) -> str:
    """What stands before the first slash of a group's name; empty without a slash."""
    before, slash, _ = group.partition("/")
    return before if slash else ""


def references_of(reference: PlanReference, names: Iterable[str]) -> dict[str, Reference]:
    """The reference of every group, by its name.

    One group is the reference of all, whatever their family. A mapping names the reference of
    some families. Else a group is compared with all others of its family, and one that is alone
    in its family with all others there are.

    Args:
        reference: as the plan has it.
        names: of all groups of the plan, mentioned or not.
    """
    groups = tuple(dict.fromkeys(names))
    return {name: _reference(reference, name, groups) for name in groups}


def reference_name(names: Iterable[str]) -> str:
    """The references of all rows of a table in a few words: the one that they share, if one."""
    found = set(names)
    return found.pop() if len(found) == 1 else "their references" if found else ALL_OTHERS


def _reference(planned: PlanReference, name: str, groups: tuple[str, ...]) -> Reference:
    own = family(name)
    named = planned.get(own) if isinstance(planned, Mapping) else planned
    if named is not None:
        return Reference(named, () if named == name else (named,))
    others = tuple(one for one in groups if one != name)
    relatives = tuple(one for one in others if family(one) == own)
    if len(relatives) == len(others):
        return Reference(ALL_OTHERS, others)
    if relatives:
        of = f"of {own}" if own else "without a family"
        return Reference(f"{ALL_OTHERS} {of}", relatives)
    return Reference(ALL_OTHERS, others, f"its family has no other group, so against {ALL_OTHERS}")
