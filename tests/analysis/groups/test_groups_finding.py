"""Groups that the data names: marked entities, whole items, regions of pictures."""

from dataclasses import replace

import numpy as np
import pytest
from plain_records import new_attribution, new_plan

from transexplain.analysis.groups.entity_finder import EntityFinder
from transexplain.data.item_marks import annotations_cell, read_annotations
from transexplain.errors import ItemError
from transexplain.types.items import Annotation, Attribution, EntityGroup, PatchGrid
from transexplain.types.plans import Matching
from transexplain.types.scores import MethodSpec
from transexplain.types.tokens import Token

TEXT = "Ann and 🙂 Zoë"
PLAN = new_plan(
    method=MethodSpec(name="lrp"),
    groups=(
        EntityGroup(name="names", terms=("Ann",)),
        EntityGroup(name="marked", terms=()),
        EntityGroup(name="author/woman", terms=()),
    ),
    matching=Matching(column="author"),
)


def attribution() -> Attribution:
    spans = [(0, 0), (0, 3), (4, 7), (8, 9), (10, 13), (0, 0)]
    tokens = [Token(text=TEXT[a:b], start=a, end=b, special=a == b) for a, b in spans]
    return new_attribution(
        relevance=np.array([100.0, 1.0, 2.0, 4.0, 8.0, 1000.0]), features=tuple(tokens), text=TEXT
    )


def picture() -> Attribution:
    grid = PatchGrid(rows=2, cols=2, height=8, width=8)
    relevance = np.array([[1.0, 2.0], [4.0, 8.0]])
    return replace(attribution(), features=grid, relevance=relevance, text=None)


def test_terms_marked_entities_and_the_item_itself() -> None:
    kept = annotations_cell('[[10, 13, "marked"], [0, 7, "marked", "pair"], [0, 3, "other"]]', TEXT)
    finder = EntityFinder(PLAN)
    found = finder.find(TEXT, read_annotations(kept), {"author": "woman"})
    mentions = finder.mentions(attribution(), found)
    assert [(m.group, m.entity, m.surface, m.start, m.end, m.relevance) for m in mentions] == [
        ("names", "Ann", "Ann", 0, 3, 1.0),
        ("marked", "Zoë", "Zoë", 10, 13, 8.0),
        ("marked", "pair", "Ann and", 0, 7, 3.0),
        ("author/woman", "7", "woman", 0, 13, 15.0),
    ]


@pytest.mark.parametrize("meta", [{}, {"author": "nobody"}, {"other": "woman"}])
def test_an_item_without_a_value_of_the_column_is_in_no_group(meta: dict[str, str]) -> None:
    assert EntityFinder(PLAN).find("nothing", (), meta).whole == ()


def test_regions_of_a_picture_count_by_the_share_of_every_patch() -> None:
    finder = EntityFinder(PLAN)
    (named, unnamed, other) = read_annotations(
        annotations_cell(
            '[[0, 0, 0.5, 1, "marked", "cat"], [0, 0, 1, 1, "marked"], [0, 0, 1, 1, "no"]]', None
        )
    )
    share = np.array([[1.0, 0.0], [0.5, 0.0]])
    regions = [(named, share), (unnamed, np.ones((2, 2))), (other, np.ones((2, 2)))]
    found = finder.find(None, (), {"author": "woman"})
    mentions = finder.mentions(picture(), found, [*regions, (named, np.zeros((2, 2)))])
    assert [(m.group, m.entity, m.relevance) for m in mentions] == [
        ("marked", "cat", 3.0),
        ("marked", "7", 15.0),
        ("author/woman", "7", 15.0),
    ]


@pytest.mark.parametrize(
    ("cell", "text", "says"),
    [
        ("{}", "ab", "JSON dict"),
        ("[[0, 1", "ab", "JSON list"),
        ("[[0, 1]]", "ab", r"\[start, end, group\]"),
        ("[[0, 1, 2]]", "ab", "group and entity"),
        ('[[0, 1, " "]]', "ab", "group and entity"),
        ('[[0, 3, "g"]]', "ab", "within the text's 2 characters"),
        ('[[1, 1, "g"]]', "ab", "start < end"),
        ('[[true, 2, "g"]]', "ab", "start < end"),
        ('[[0, 1, "g"]]', " a", "white space only"),
        ('[[0, 1, "g"]]', None, r"right, bottom, group\]"),
        ('[[0, 0, 2, 1, "g"]]', None, "picture"),
    ],
)
def test_a_wrong_cell_is_reported(cell: str, text: str | None, says: str) -> None:
    with pytest.raises(ItemError, match=says) as caught:
        annotations_cell(cell, text)
    assert caught.value.kind == "bad-spans"


def test_a_cell_comes_back_as_it_was_written() -> None:
    assert read_annotations(None) == read_annotations(annotations_cell("[]", "a")) == ()
    assert read_annotations(annotations_cell('[[0, 6, "g"]]', "a  \n b")) == (
        Annotation(group="g", entity="a b", span=(0, 6)),
    )
