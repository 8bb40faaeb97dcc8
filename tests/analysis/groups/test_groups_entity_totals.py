"""Totals of entities: exact, whatever the cuts and the order; and the two-way variance."""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import repeat

import numpy as np
import pytest
from entity_samples import POSITIVE, mention

from transexplain.analysis.groups.entity_totals import EntityTotals, Stratum
from transexplain.analysis.groups.group_cells import by_group, cell_of
from transexplain.analysis.groups.intervals import Estimate
from transexplain.errors import ConfigurationError

STRATA = (POSITIVE, Stratum("predicted", "negative", "negative", "x", "old"))


def added(
    documents: list[tuple[int, list[tuple[str, str, float]]]], clusters: Sequence[str] = ()
) -> EntityTotals:
    totals = EntityTotals()
    for (stratum, mentions), cluster in zip(documents, clusters or repeat(""), strict=False):
        ranks = [None if amount > 8 else abs(amount) / 9 for *_, amount in mentions]
        reported = [mention(*one) for one in mentions]
        totals.add(STRATA[stratum], reported, 3.0, ranks, cluster)
    return totals


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
    found = judged(totals, [POSITIVE])

    single = [(g, e, d, r) for d, one in enumerate(documents) for g, e, r in one]
    mean = {g: np.mean([r for h, _, _, r in single if h == g]) for g in "AB"}
    size = {g: sum(h == g for h, *_ in single) for g in "AB"}
    sums: dict[str, dict[object, float]] = {name: defaultdict(float) for name in "edm"}
    for g, e, d, r in single:
        part = (1 if g == "A" else -1) * (r - mean[g]) / size[g]
        sums["e"][g, e] += part
        sums["d"][d] += part
        sums["m"][g, e, d] += part
    names = {g: len({e for h, e, *_ in single if h == g}) for g in "AB"}
    texts = {g: effective([d for h, _, d, _ in single if h == g]) for g in "AB"}
    entity = sum(small(names[g]) * part**2 for (g, _), part in sums["e"].items())
    document = sum(part**2 for part in sums["d"].values())
    meeting = sum(small(max(names[g], texts[g])) * part**2 for (g, *_), part in sums["m"].items())
    variance = max(entity + document - meeting, entity, document)
    assert found.difference == pytest.approx(mean["A"] - mean["B"])
    assert found.error == pytest.approx(variance**0.5)
    units = [effective([e for h, e, *_ in single if h == g]) for g in "AB"]
    assert found.freedom == pytest.approx(min(*units, *texts.values()) - 1)


def effective(units: list[object]) -> float:
    """How many units of one size say as much."""
    return len(units) ** 2 / sum(count**2 for count in Counter(units).values())


def small(units: float) -> float:
    return units / (units - 1)


def judged(totals: EntityTotals, strata: Sequence[Stratum]) -> Estimate | None:
    return cell_of(totals, strata).two_way(*by_group(totals.rows(strata)).values())


def test_a_cluster_is_one_document() -> None:
    """Whatever strata and shards its items are in."""
    draw = random.Random(9)
    documents = [
        [(draw.choice("AB"), draw.choice("uvwxyz"), draw.gauss(0.1 * d, 1)) for _ in range(3)]
        for d in range(30)
    ]
    clusters = [f"c{d % 7}" if d % 7 else "" for d in range(30)]
    strata = [d % 2 for d in range(30)]
    apart = added(list(zip(strata, documents, strict=True)), clusters)
    merged = added(list(zip(strata[:11], documents[:11], strict=True)), clusters[:11])
    merged.merge(added(list(zip(strata[11:], documents[11:], strict=True)), clusters[11:]))
    assert merged.sums.packed() == apart.sums.packed()
    glued: dict[str, list[tuple[str, str, float]]] = defaultdict(list)
    for d, (cluster, mentions) in enumerate(zip(clusters, documents, strict=True)):
        glued[cluster or f"alone {d}"] += mentions
    whole = added([(0, mentions) for mentions in glued.values()])
    assert apart.pairs(STRATA) == whole.pairs([POSITIVE])
    for one, other in zip(apart.rows(STRATA), whole.rows([POSITIVE]), strict=True):
        assert one.by_document == other.by_document
        assert (one.mentions, one.mean) == (other.mentions, pytest.approx(other.mean))
    assert (apart.clusters(STRATA), whole.clusters([POSITIVE])) == (6, 0)
    assert sum(apart.documents(STRATA).values()) > sum(whole.documents([POSITIVE]).values())


def test_one_document_has_no_interval() -> None:
    both = [("A", "x", 1.0), ("A", "y", 2.0), ("B", "u", 1.0), ("B", "v", 0.0)]
    assert judged(added([(0, both)]), [POSITIVE]) is None
    assert judged(added([(0, both), (0, both)], ["c", "c"]), [POSITIVE]) is None
    assert judged(added([(0, both), (0, both)]), [POSITIVE]) is not None


def test_an_entity_of_a_cluster_alone_is_damage() -> None:
    totals = added([(0, [("A", "x", 1.0)])], ["c"])
    totals.sums.remove("entities.rows")
    with pytest.raises(ConfigurationError, match="cluster and nowhere"):
        totals.rows([POSITIVE])
