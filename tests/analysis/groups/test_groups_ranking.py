"""The ranking of entities: those seen once do not lead it."""

import random

import pytest
from entity_samples import totals_of

from transexplain.analysis.groups.entity_ranking import FEWEST, rankings


def test_an_entity_seen_once_does_not_lead() -> None:
    draw = random.Random(5)
    names = {f"n{i}": [draw.gauss(0.05 * i, 1.0) for _ in range(60)] for i in range(20)}
    names["once"] = [2.5]
    [found] = rankings(totals_of({"A": names}))
    assert (found.target, found.class_name) == ("predicted", "positive")
    raw = {one.entity: one.mean for one in found.entities}
    assert max(raw, key=raw.__getitem__) == "once"
    assert found.entities[0].entity != "once"
    [once] = [one for one in found.entities if one.entity == "once"]
    assert once.shrunken < 0.5 * once.mean
    low, high = once.interval
    assert low < once.shrunken < high
    assert found.spread == pytest.approx(0.29, abs=0.15)


def test_an_entity_of_two_groups_is_ranked_once() -> None:
    draw = random.Random(6)
    names = {f"n{i}": [draw.gauss(0, 1) for _ in range(3)] for i in range(FEWEST)}
    [found] = rankings(totals_of({"A": names, "B": {"n0": names["n0"]}}))
    assert len(found.entities) == FEWEST
    [shared] = [one for one in found.entities if one.entity == "n0"]
    assert (shared.groups, shared.mentions) == (("A", "B"), 3)


def test_too_few_or_never_twice_is_no_ranking() -> None:
    assert rankings(totals_of({"A": {f"n{i}": [1.0, 2.0] for i in range(FEWEST - 1)}})) == []
    assert rankings(totals_of({"A": {f"n{i}": [float(i)] for i in range(50)}})) == []


def test_the_ends_keep_count_of_what_is_between() -> None:
    names = {f"n{i:02}": [float(i), i + 1.0] for i in range(30)}
    [found] = rankings(totals_of({"A": names}))
    short = found.ends(5)
    assert [one.entity for one in short.entities] == [
        *(f"n{i}" for i in range(29, 24, -1)),
        *(f"n{i:02}" for i in range(4, -1, -1)),
    ]
    assert short.omitted == 20
    assert found.ends(15) is found
