from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_records import new_attribution

from transexplain.analysis.groups.mention_matching import Match, Matcher, mentions_of
from transexplain.types.items import Attribution, EntityGroup, PatchGrid
from transexplain.types.tokens import Token


def attribution(text: str, tokens: list[tuple[int, int]], relevance: list[float]) -> Attribution:
    """CLS, the tokens given by their offsets, SEP."""
    inner = [Token(text=text[a:b], start=a, end=b, word=i) for i, (a, b) in enumerate(tokens)]
    special = Token(text="[X]", start=0, end=0, special=True)
    last = Token(text="[SEP]", start=0, end=len(text), special=True)
    return new_attribution(
        target="top:2",
        rank=1,
        class_index=1,
        class_name="positive",
        relevance=np.array([100.0, *relevance, 1000.0], dtype=np.float32),
        features=(special, *inner, last),
        text=text,
    )


def match(start: int, end: int) -> Match:
    return Match(group="g", entity="E", surface="s", start=start, end=end)


def test_relevance_is_the_sum_over_overlapping_tokens() -> None:
    text = "So Aurelia's dog"
    record = attribution(
        text, [(0, 2), (3, 5), (5, 10), (10, 11), (11, 12), (12, 16)], [1, 2, 4, 8, 16, 32]
    )
    matches = Matcher([EntityGroup(name="names", terms=("Aurelia",))]).find(text)
    (mention,) = mentions_of(record, matches)
    assert mention.relevance == 2 + 4
    assert (mention.item_id, mention.target, mention.rank) == ("7", "top:2", 1)
    assert (mention.class_name, mention.group, mention.entity) == ("positive", "names", "Aurelia")
    assert (mention.surface, mention.start, mention.end) == ("Aurelia", 3, 10)


def test_touching_tokens_and_special_tokens_do_not_count() -> None:
    record = attribution("abcdef", [(0, 2), (2, 2), (2, 4), (4, 6)], [1, 2, 4, 8])
    assert [m.relevance for m in mentions_of(record, [match(2, 4), match(3, 5)])] == [4, 12]


def test_a_match_that_the_model_did_not_read_is_no_mention() -> None:
    record = attribution("abcdef", [(0, 2)], [1])
    assert mentions_of(record, [match(2, 6)]) == []


def test_an_image_is_refused() -> None:
    record = attribution("a", [(0, 1)], [1])
    grid = PatchGrid(rows=1, cols=1, height=8, width=8)
    image = Attribution(
        **{
            name: getattr(record, name)
            for name in ("item_id", "method", "target", "rank", "class_index", "class_name")
        },
        logit=0.0,
        relevance=np.zeros((1, 1)),
        unit="logits",
        at="encoder",
        features=grid,
        ledger=None,
    )
    with pytest.raises(TypeError, match="of an image"):
        mentions_of(image, [])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.data())
def test_mentions_that_tile_the_tokens_sum_to_all_relevance(lengths: list[int], data) -> None:
    edges = [0, *np.cumsum(lengths).tolist()]
    text = "x" * edges[-1]
    values = [float(i + 1) for i in range(len(lengths))]
    record = attribution(text, list(pairwise(edges)), values)
    cuts = sorted(data.draw(st.sets(st.sampled_from(edges[1:-1]))) if len(edges) > 2 else [])
    spans = list(pairwise([0, *cuts, edges[-1]]))
    found = mentions_of(record, [match(a, b) for a, b in spans])
    assert len(found) == len(spans)
    assert sum(m.relevance for m in found) == sum(values)
