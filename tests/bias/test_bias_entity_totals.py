"""Totals of entities: exact, whatever the cuts and the order; and the two-way variance."""

import json
import random
from collections import defaultdict

import numpy as np
import pytest
from entity_samples import POSITIVE, mention
from hypothesis import given
from hypothesis import strategies as st

from transexplain.bias.entity_totals import EntityTotals, Stratum
from transexplain.bias.two_way import two_way

STRATA = (POSITIVE, Stratum("predicted", "negative", "negative", "x", "old"))
DOCUMENT = st.lists(
    st.tuples(
        st.sampled_from("ABC"), st.sampled_from("xyz"), st.floats(-9, 9, allow_subnormal=False)
    ),
    min_size=1,
    max_size=4,
)


def added(documents: list[tuple[int, list[tuple[str, str, float]]]]) -> EntityTotals:
    totals = EntityTotals()
    for stratum, mentions in documents:
        ranks = [None if amount > 8 else abs(amount) / 9 for *_, amount in mentions]
        totals.add(STRATA[stratum], [mention(*one) for one in mentions], 3.0, ranks)
    return totals


@given(
    st.lists(st.tuples(st.integers(0, 1), DOCUMENT), max_size=12),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_any_cut_and_any_order_give_the_same_bits(
    documents: list[tuple[int, list[tuple[str, str, float]]]], shards: int, shuffle: random.Random
) -> None:
    whole = json.dumps(added(documents).to_json())
    parts = [added(documents[i::shards]) for i in range(shards)]
    shuffle.shuffle(parts)
    merged = EntityTotals()
    for part in parts:
        merged.merge(EntityTotals.from_json(json.loads(json.dumps(part.to_json()))))
    assert json.dumps(merged.to_json()) == whole


def test_a_row_by_hand() -> None:
    totals = added([(0, [("A", "x", 1.5), ("A", "x", -0.5)]), (0, [("A", "x", 2.0)])])
    [row] = totals.rows([POSITIVE])
    assert (row.group, row.entity, row.documents, row.mentions, row.positive) == ("A", "x", 2, 3, 2)
    assert (row.mean, row.squares, row.share) == (1.0, 2.25 + 0.25 + 4.0, 1.0 / 3.0)
    assert (row.by_document.relevance, row.by_document.left, row.by_document.mentions) == (
        1.0 + 4.0,
        2.0 + 2.0,
        4 + 1,
    )


def test_ranks_are_means_over_the_mentions_that_have_one() -> None:
    totals = EntityTotals()
    three = [mention("A", "x", 1.0), mention("A", "x", 2.0), mention("A", "y", 3.0)]
    totals.add(POSITIVE, three, 3.0, [0.25, 0.75, None])
    totals.add(POSITIVE, three[:1], 3.0, [0.125])
    totals.add(POSITIVE, three[:1], 3.0)
    x, y = totals.rows([POSITIVE])
    assert (x.rank, x.mentions) == ((0.25 + 0.75 + 0.125) / 3, 4)
    assert y.rank is None
    with pytest.raises(ValueError, match=r"shorter|longer"):
        totals.add(POSITIVE, three, 3.0, [0.5])


def test_histograms_hold_every_mention_of_a_group() -> None:
    totals = added([(0, [("A", "x", 1.5), ("B", "y", -0.5)]), (1, [("A", "z", 2.0)])])
    both = totals.histograms(STRATA)
    assert {group: sum(found.counts.values()) for group, found in both.items()} == {"A": 2, "B": 1}
    assert both["A"].quantile(1.0) == pytest.approx(2.0, rel=0.005)
    assert totals.histograms([POSITIVE])["A"].quantile(1.0) == pytest.approx(1.5, rel=0.005)
    assert sum(totals.histograms(STRATA)["A"].counts.values()) == 2, (
        "reading adds nothing up in place"
    )


def test_totals_written_before_ranks_and_sizes_are_read() -> None:
    written = added([(0, [("A", "x", 1.5), ("A", "y", -0.5)])]).to_json()
    for part in written:
        del part["sizes"]
        rows = part["rows"]
        part["rows"] = {g: {e: entry[:9] for e, entry in of.items()} for g, of in rows.items()}
    old = EntityTotals.from_json(json.loads(json.dumps(written)))
    assert [(row.mean, row.rank) for row in old.rows([POSITIVE])] == [(1.5, None), (-0.5, None)]
    assert old.histograms([POSITIVE]) == {}
    assert old.merge(added([(0, [("A", "x", 0.5)])])).rows([POSITIVE])[0].mean == 1.0


def test_documents_and_pairs_by_hand() -> None:
    first = [("B", "y", 2.0), ("A", "x", 1.0), ("A", "z", 3.0)]
    totals = added([(0, first), (0, [("A", "x", 5.0)])])
    assert totals.documents([POSITIVE]) == {"A": 2, "B": 1}
    pairs = totals.pairs([POSITIVE])
    assert set(pairs) == {("A", "A"), ("A", "B"), ("B", "B")}
    both = pairs["A", "B"]
    assert (both.relevance, both.left, both.right, both.mentions) == (4 * 2, 4 * 1, 2 * 2, 2 * 1)


def test_an_item_without_magnitude_has_no_share() -> None:
    totals = EntityTotals()
    totals.add(POSITIVE, [mention("A", "x", 0.0)], magnitude=0.0)
    assert totals.rows([POSITIVE])[0].share == 0.0
    with pytest.raises(ValueError, match="not finite"):
        totals.add(POSITIVE, [mention("A", "x", float("nan"))], magnitude=1.0)


def test_two_way_is_the_formula_over_single_mentions() -> None:
    """Cameron, Gelbach and Miller's sums, written out over every mention."""
    draw = random.Random(8)
    documents = [
        [
            (draw.choice("AB"), draw.choice("uvwxyz"), draw.gauss(0.2 * d, 1))
            for _ in range(draw.randint(1, 5))
        ]
        for d in range(14)
    ]
    totals = added([(0, one) for one in documents])
    rows = totals.rows([POSITIVE])
    left, right = ([row for row in rows if row.group == group] for group in "AB")
    found = two_way(left, right, totals.pairs([POSITIVE]))
    assert found is not None

    single = [(g, e, d, r) for d, one in enumerate(documents) for g, e, r in one]
    mean = {g: np.mean([r for h, _, _, r in single if h == g]) for g in "AB"}
    size = {g: sum(h == g for h, *_ in single) for g in "AB"}
    sums: dict[str, dict[object, float]] = {name: defaultdict(float) for name in "edm"}
    for g, e, d, r in single:
        part = (1 if g == "A" else -1) * (r - mean[g]) / size[g]
        sums["e"][g, e] += part
        sums["d"][d] += part
        sums["m"][g, e, d] += part
    small = {g: len(side) / (len(side) - 1) for g, side in (("A", left), ("B", right))}
    entity = sum(small[g] * part**2 for (g, _), part in sums["e"].items())  # type: ignore[misc]
    document, meeting = (sum(part**2 for part in sums[name].values()) for name in "dm")
    variance = max(entity + document - meeting, entity, document)
    assert found.difference == pytest.approx(mean["A"] - mean["B"])
    assert found.error == pytest.approx(variance**0.5)
    assert two_way(left[:1], right, totals.pairs([POSITIVE])) is None
