"""Families of groups, and what each group is compared with."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from entity_samples import POSITIVE, mention, totals_of
from plain_records import new_attribution, new_plan

from transexplain.analysis.groups.entity_finder import (
    EntityFinder,
    crossed,
    crossed_items,
    is_whole,
)
from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.group_cells import Reference, family, references_of
from transexplain.analysis.groups.mention_matching import Matcher
from transexplain.types.items import Attribution, EntityGroup
from transexplain.types.plans import Matching
from transexplain.types.tokens import Token

GENDER = ("gender/female", "gender/male", "gender/neutral")
NATIONS = ("nationality/german", "nationality/french")


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("gender/female", "gender"),
        ("gender/female/old", "gender"),
        ("gender x age/female x old", "gender x age"),
        ("flowers", ""),
    ],
)
def test_a_family_is_what_stands_before_the_first_slash(group: str, expected: str) -> None:
    assert family(group) == expected


BOTH, OF_MALE = (*GENDER, *NATIONS), {"gender": "gender/male"}


@pytest.mark.parametrize(
    ("reference", "groups", "group", "name", "others"),
    [
        (None, BOTH, "gender/female", "all other groups of gender", GENDER[1:]),
        (None, BOTH, NATIONS[0], "all other groups of nationality", NATIONS[1:]),
        # where there is one family it need not be named
        (None, GENDER, "gender/male", "all other groups", ("gender/female", "gender/neutral")),
        (None, ("A", "B"), "A", "all other groups", ("B",)),
        (None, ("A", "B", *NATIONS), "A", "all other groups without a family", ("B",)),
        (None, ("A",), "A", "all other groups", ()),
        ("gender/male", BOTH, NATIONS[0], "gender/male", ("gender/male",)),
        ("gender/male", BOTH, "gender/male", "gender/male", ()),  # the reference itself
        (OF_MALE, BOTH, "gender/neutral", "gender/male", ("gender/male",)),
        (OF_MALE, BOTH, "gender/male", "gender/male", ()),
        (OF_MALE, BOTH, NATIONS[1], "all other groups of nationality", NATIONS[:1]),
    ],
)
def test_what_a_group_is_compared_with(
    reference: Any, groups: tuple[str, ...], group: str, name: str, others: tuple[str, ...]
) -> None:
    assert references_of(reference, groups)[group] == Reference(name, others)


def test_a_group_alone_in_its_family_is_compared_with_all_others_and_says_so() -> None:
    found = references_of(None, (*GENDER, "nationality/german"))["nationality/german"]
    assert (found.name, found.groups) == ("all other groups", GENDER)
    assert found.note == "its family has no other group, so against all other groups"


# ---- intersections of groups: by terms that several lexicons have, and by columns of whole items


GROUPS = (
    EntityGroup(name="gender/female", terms=("Ann", "Lakisha", "Kisha"), entities={"Kisha": "L"}),
    EntityGroup(name="gender/male", terms=("Bob", "Jamal")),
    EntityGroup(name="origin/black", terms=("LAKISHA", "Kisha", "Jamal")),
    EntityGroup(name="origin/white", terms=("Ann",), ambiguous={"Ann": "name"}),
)


def test_a_meeting_has_the_terms_that_all_of_its_groups_have() -> None:
    found = {group.name: group for group in crossed(["gender", "origin"], GROUPS)}
    assert list(found) == [
        "gender x origin/female x black",
        "gender x origin/female x white",
        "gender x origin/male x black",
    ], "nobody is male x white"
    black = found["gender x origin/female x black"]
    assert (black.terms, black.entities) == (("Lakisha", "Kisha"), {"Kisha": "L"})
    assert black.source == "terms of gender/female that are of origin/black"
    assert found["gender x origin/female x white"].ambiguous == {"Ann": "name"}


def test_a_mention_is_of_each_of_its_groups_and_of_their_meeting() -> None:
    matches = Matcher((*GROUPS, *crossed(["gender", "origin"], GROUPS))).find("So Lakisha met Bob.")
    assert [(one.surface, one.group) for one in matches] == [
        ("Lakisha", "gender/female"),
        ("Lakisha", "gender x origin/female x black"),
        ("Bob", "gender/male"),
    ]


def attribution() -> Attribution:
    return new_attribution(
        relevance=np.array([1.0, 2.0]),
        features=(Token(text="a", start=0, end=1), Token(text="b", start=2, end=3)),
        text="a b",
    )


def test_an_item_is_in_a_group_of_every_column_and_of_their_meeting() -> None:
    columns = tuple(
        EntityGroup(name=name, terms=()) for name in ("sex/f", "sex/m", "age/old", "age/young")
    )
    plan = new_plan(
        groups=(*columns, *crossed_items(["sex", "age"], columns)),
        matching=Matching(column=("sex", "age")),
        intersections=(("sex", "age"),),
    )
    finder = EntityFinder(plan)
    found = finder.find("a b", (), {"sex": "f", "age": "old"})
    mentions = finder.mentions(attribution(), found)
    assert [(one.group, one.entity, one.surface, one.relevance) for one in mentions] == [
        ("sex/f", "7", "f", 3.0),
        ("age/old", "7", "old", 3.0),
        ("sex x age/f x old", "7", "f x old", 3.0),
    ]
    assert is_whole(plan, "sex x age/f x old")
    assert finder.find("a b", (), {"sex": "f"}).whole == (("sex/f", "f"),)
    alone = replace(plan, matching=Matching(column="sex"), intersections=())
    assert EntityFinder(alone).find("a b", (), {"sex": "m", "age": "old"}).whole == (
        ("sex/m", "m"),
    )


def test_totals_without_a_group_are_those_of_the_others_alone() -> None:
    both, alone = EntityTotals(), EntityTotals()
    for totals in (both, alone):
        totals_of({"A": [1.0, 2.0], "B": [3.0]}, totals=totals)
    both.add(POSITIVE, [mention("A", "x", 1.0), mention("C", "x", 1.0)], 2.0)
    alone.add(POSITIVE, [mention("A", "x", 1.0)], 2.0)
    totals_of({"C": [1.0]}, POSITIVE._replace(slice="only C"), both)
    before = both.sums.packed()
    both.remove(())
    assert both.sums.packed() == before
    both.remove({"C"})
    assert both.sums.packed() == alone.sums.packed()
