"""The ranking of entities: those seen once do not lead it."""

import random

import numpy as np
import pytest
from entity_samples import totals_of

from transexplain.analysis.groups.group_table import FEWEST, mean_variances, rankings, shrink


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


# ---- empirical Bayes: rare entities are shrunk to the mean, and intervals cover


def test_by_hand() -> None:
    """Equal variances 1, means -2, 0, 2: Paule-Mandel solves 8 / (1 + b) = 2, so b = 3."""
    found = shrink([-2.0, 0.0, 2.0], [1.0, 1.0, 1.0])
    assert found.spread == pytest.approx(3**0.5)
    assert found.centre == pytest.approx(0.0)
    assert found.mean == pytest.approx([-1.5, 0.0, 1.5])
    variance = 0.75 + 0.25**2 / 0.75  # kept * v + (1 - kept)**2 / sum of weights (3 / 4)
    assert found.high - found.mean == pytest.approx([1.959964 * variance**0.5] * 3, abs=1e-6)


def test_without_spread_beyond_chance_all_means_shrink_to_the_centre() -> None:
    found = shrink([0.1, -0.1, 0.05], [1.0, 1.0, 4.0])
    assert found.spread == 0.0
    assert found.mean == pytest.approx([found.centre] * 3)
    assert shrink([0.7], [0.1]).mean == pytest.approx([0.7])


def test_a_mean_without_variance_is_refused() -> None:
    with pytest.raises(ValueError, match="variance"):
        shrink([1.0, 2.0], [0.0, 1.0])


def test_variances_from_one_variance_of_mentions() -> None:
    """Mentions 1, 3 of one and 5, 5 of another: squares within 2 + 0 over 2 degrees, so 1."""
    assert mean_variances([2, 2, 1], [2.0, 5.0, 9.0], [10.0, 50.0, 81.0]) == pytest.approx(
        [0.5, 0.5, 1.0]
    )
    assert mean_variances([1, 1], [1.0, 2.0], [1.0, 4.0]) is None


def test_the_top_ten_is_right_more_often_and_intervals_cover() -> None:
    random = np.random.default_rng(2)
    covered, entities, raw_errors, errors = 0, 0, [], []
    for _ in range(60):
        counts = np.minimum(random.zipf(1.6, 300), 200)
        truth = random.normal(0.2, 0.4, 300)
        mentions = [random.normal(t, 1.0, n) for t, n in zip(truth, counts, strict=True)]
        means = [float(one.mean()) for one in mentions]
        squares = [float((one**2).sum()) for one in mentions]
        variances = mean_variances(list(counts), means, squares)
        found = shrink(means, variances)
        covered += int(np.sum((found.low <= truth) & (truth <= found.high)))
        entities += 300
        top = np.argsort(means)[-10:]
        raw_errors.append(np.abs(np.array(means)[top] - truth[top]).mean())
        top = np.argsort(found.mean)[-10:]
        errors.append(np.abs(found.mean[top] - truth[top]).mean())
    assert covered / entities == pytest.approx(0.95, abs=0.015)
    assert np.mean(errors) < 0.5 * np.mean(raw_errors)
