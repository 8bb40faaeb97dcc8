"""Intersections of groups: by terms that several lexicons have, and by columns of whole items."""

from dataclasses import replace

import numpy as np
from entity_samples import POSITIVE, mention, totals_of
from plain_records import new_attribution, new_plan

from transexplain.analysis.groups.entity_finder import (
    EntityFinder,
    crossed,
    crossed_items,
    is_whole,
)
from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.mention_matching import Matcher
from transexplain.types.items import Attribution, EntityGroup
from transexplain.types.plans import Matching
from transexplain.types.tokens import Token

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
    assert both.without({"C"}).to_json() == alone.to_json()
    assert both.without(()).to_json() == both.to_json()
