"""A cheap method corrected by an exact sample: formulas against loops, and coverage."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
from entity_samples import POSITIVE, mention

from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.group_cells import Cell, cells_of
from transexplain.analysis.groups.group_table import Rules, table_of
from transexplain.analysis.groups.intervals import one_sample
from transexplain.analysis.groups.mixed_audits import (
    UNEVEN,
    ExactSample,
    PairedMentions,
    corrected,
    mixed_groups,
    mixed_table,
    sampled,
    tuned,
)


@dataclass(frozen=True)
class Corpus:
    """Every item by both methods."""

    rows: tuple[PairedMentions, ...]  #: one for every item

    def cells(self, exact: bool = False) -> list[Cell]:
        """What an audit by one of the methods alone adds up."""
        totals = EntityTotals()
        for one in self.rows:
            value = one.exact if exact else one.cheap
            reported = mention(one.group, one.entity, value, one.item_id)
            totals.add(POSITIVE, [reported], magnitude=2.0)
        return cells_of(totals)

    def sample(self, share: float, seed: int = 0) -> tuple[ExactSample, float]:
        """Randomly sampled items, and which part of all they are."""
        draw = random.Random(seed)
        drawn = [one for one in self.rows if draw.random() < share]
        return ExactSample(items=len(drawn), mentions=drawn), len(drawn) / len(self.rows)


def corpus(
    exact: Mapping[str, float],
    cheap: Callable[[str, float, random.Random], float],
    *,
    entities: int = 12,
    mentions: int = 40,
    seed: int = 1,
) -> Corpus:
    """Groups of entities around a mean each; `cheap` makes relevance of (group, exact, draw)."""
    draw, rows = random.Random(seed), []
    for group, mean in exact.items():
        for number in range(entities):
            own = draw.gauss(mean, 0.1)
            for _ in range(mentions):
                value = draw.gauss(own, 0.2)
                rows.append(paired(len(rows), group, number, cheap(group, value, draw), value))
    return Corpus(tuple(rows))


def paired(item: int, group: str, number: int, cheap: float, exact: float) -> PairedMentions:
    """One mention in an item of its own."""
    return PairedMentions(
        item_id=str(item),
        target=POSITIVE.target,
        class_name=POSITIVE.class_name,
        predicted="",
        label="",
        slice="",
        group=group,
        entity=f"{group}{number}",
        mentions=1,
        cheap=cheap,
        exact=exact,
    )


RULES = Rules(reference="B", practical=0.2, permutations=499, bare=True)


def noisy(group: str, value: float, draw: random.Random) -> float:
    return value + draw.gauss(0.3, 0.05)


def overstating(group: str, value: float, draw: random.Random) -> float:
    """Wrong about one group by half a logit."""
    return value + draw.gauss(0.5 if group == "A" else 0.0, 0.05)


def test_the_mean_and_its_variance_against_loops() -> None:
    rows = [paired(i // 2, "A", i % 3, 0.1 * i, 0.2 * i + (-1) ** i) for i in range(20)]
    weights = {("A", f"A{number}"): 1.0 / (number + 1) for number in range(3)}
    found = sampled(rows, weights, 0.25)
    w = [weights[one.group, one.entity] for one in rows]
    d = [one.exact - one.cheap for one in rows]
    mean = sum(a * b for a, b in zip(w, d, strict=True)) / sum(w)
    assert found.mean == pytest.approx(mean)
    assert found.items == 10
    squares = 0.0
    for item in range(10):
        mine = [i for i in range(20) if i // 2 == item]
        own = sum(w[i] for i in mine)
        without = sum(w[i] * d[i] for i in range(20) if i not in mine) / (sum(w) - own)
        squares += (mean - without) ** 2  # the jackknife: the mean without the item
    assert found.variance == pytest.approx(0.75 * squares)
    sizes = [sum(w[2 * item : 2 * item + 2]) for item in range(10)]
    freedom = sum(s * s for s in sizes) ** 2 / sum(s**4 for s in sizes)
    assert found.freedom == pytest.approx(min(freedom, 9))


def test_lambda_leaves_the_smallest_variance() -> None:
    [*rows] = corpus({"A": 0.2}, lambda _, x, draw: 2 * x + draw.gauss(0, 0.3)).rows
    weights = {(one.group, one.entity): 1.0 for one in rows}
    best = tuned(rows, weights)
    assert 0.0 < best < 1.0
    least = _linear(rows, weights, best)
    for other in (0.0, best - 0.05, best + 0.05, 1.0):
        assert least < _linear(rows, weights, other)


def _linear(rows: list, weights: dict, scale: float) -> float:
    found = sampled(rows, weights, 0.0, scale=scale)
    return math.fsum(u * u for u in found.influences.values())


def test_a_method_that_says_nothing_is_left_out() -> None:
    made = corpus({"A": 0.2}, lambda _, x, draw: -x)
    sample, fraction = made.sample(0.3)
    [row] = mixed_groups(made.cells(), sample, fraction)
    assert row.weight == 0.0
    assert row.interval == row.alone_interval and row.corrected == row.alone


def test_the_same_method_twice_is_hardly_moved() -> None:
    made = corpus({"A": 0.2, "B": 0.0}, lambda _, x, draw: x)
    sample, fraction = made.sample(0.2)
    for row in mixed_groups(made.cells(), sample, fraction):
        assert row.reason == "" and row.weight is not None and row.weight > 0.7
        assert row.interval[0] < row.cheap < row.interval[1]
        assert row.narrowing < 0.6  # what was not seen may still be wrong
    plain = table_of(made.cells(), RULES)
    for ours, theirs in zip(mixed_table(made.cells(), RULES, sample, fraction), plain, strict=True):
        assert ours.verdict == theirs.verdict
        assert ours.entity_mean == pytest.approx(theirs.entity_mean, abs=0.02)


def test_room_for_errors_that_were_not_seen_against_loops() -> None:
    draw = random.Random(5)
    rows = [paired(i, "A", i % 4, draw.gauss(0, 1), draw.gauss(0, 1)) for i in range(60)]
    made = Corpus(tuple(rows))
    [cell] = made.cells()
    weights = {("A", f"A{number}"): 1.0 for number in range(4)}
    drawn = [one for one in rows if abs(one.cheap) < 1.0]  # the sample missed the large ones
    found = corrected(drawn, cell.groups["A"], weights, 0.5)
    n, x = len(drawn), [one.exact for one in drawn]
    c = [one.cheap for one in drawn]
    squares = sum((one - sum(x) / n) ** 2 for one in x) / n**2
    seen = sum((one - sum(c) / n) ** 2 for one in c) / n**2
    middle = sum(one.cheap for one in rows) / 60
    missing = sum((one.cheap - middle) ** 2 for one in rows) / (60 * n) - seen
    assert missing > 0.0
    scale = tuned(drawn, weights, 3 * 9 * squares / n + missing)
    assert found.scale in (0.0, pytest.approx(scale))
    plain = sampled(drawn, weights, 0.5, scale=found.scale)
    room = found.scale**2 * (3 * 9 * squares / n + missing)
    assert found.found.variance == pytest.approx(plain.variance + 0.5 * room)


def seldom_wrong(_: str, value: float, draw: random.Random) -> float:
    return value + draw.gauss(0.0, 0.01) + 3.0 * (draw.random() < 0.03)


def test_seldom_but_far_wrong_gives_the_exact_sample_alone() -> None:
    made = corpus({"A": 0.2, "B": 0.0}, seldom_wrong, mentions=80)
    truth = {row.group: row.cheap for row in mixed_groups(made.cells(True), ExactSample(), 0.0)}
    cells, held, requested, fallen = made.cells(), 0, 0, 0
    for seed in range(150):
        sample, fraction = made.sample(45 / 960, seed)
        for row in mixed_groups(cells, sample, fraction):
            if row.interval is None:
                continue
            requested += 1
            held += row.interval[0] <= truth[row.group] <= row.interval[1]
            fallen += row.reason == UNEVEN
            if row.reason:
                assert (row.weight, row.corrected) == (0.0, row.alone)
                assert row.interval == row.alone_interval
    assert requested > 250
    assert held / requested > 0.93  # 0.72 without room for what was not seen
    assert fallen / requested > 0.3


def test_the_table_says_where_the_exact_sample_stands_alone() -> None:
    made = corpus({"A": 0.4, "B": 0.0}, seldom_wrong, mentions=80)
    sample, fraction = made.sample(0.15)
    rows = {row.group: row for row in mixed_table(made.cells(), RULES, sample, fraction)}
    assert UNEVEN in rows["A"].note and "of the reference: " + UNEVEN in rows["A"].note
    assert rows["A"].p is not None and rows["A"].interval_by == "t"
    assert rows["A"].difference == pytest.approx(0.4, abs=0.15)


def test_few_sampled_entities_do_not_stand_alone() -> None:
    made = corpus({"A": 0.2, "B": 0.0}, seldom_wrong, mentions=80)
    sample, fraction = made.sample(0.3)
    kept = [one for one in sample.mentions if one.group == "B" or one.entity in ("A1", "A2", "A3")]
    rows = mixed_table(made.cells(), RULES, ExactSample(items=len(kept), mentions=kept), fraction)
    [row] = [one for one in rows if one.group == "A"]
    assert row.verdict == "inconclusive" and "3 entities" in row.reason


def test_intervals_of_the_sample_alone_are_over_entities() -> None:
    rows = [paired(i, "A", i % 6, 0.0, 0.3 * (i % 6)) for i in range(60)]
    [cell] = Corpus(tuple(rows)).cells()
    weights = {("A", f"A{number}"): 0.1 for number in range(6)}
    found = corrected(rows, cell.groups["A"], weights, 0.1).found.over_entities
    same = one_sample([0.3 * number for number in range(6)])
    assert found.error == pytest.approx(same.error * math.sqrt(6 / 5))  # the jackknife
    assert found.freedom == pytest.approx(5.0)


def test_a_whole_sample_gives_the_exact_method() -> None:
    made = corpus({"A": 0.2, "B": 0.0}, overstating)
    sample, fraction = made.sample(1.1)
    assert fraction == 1.0
    exact = {row.group: row for row in table_of(made.cells(exact=True), RULES)}
    for row in mixed_groups(made.cells(), sample, fraction):
        assert row.corrected == pytest.approx(exact[row.group].mean)
        assert row.interval == pytest.approx((row.corrected, row.corrected))
    for one in mixed_table(made.cells(), RULES, sample, fraction):
        known = exact[one.group]
        assert one.entity_mean == pytest.approx(known.entity_mean)
        assert one.interval == pytest.approx(known.interval, rel=1e-6)
        if known.difference is not None:
            assert one.difference == pytest.approx(known.difference)
            assert one.difference_interval == pytest.approx(known.difference_interval, rel=1e-6)


def test_a_wrong_cheap_method_makes_no_wrong_claim() -> None:
    made = corpus({"A": 0.0, "B": 0.0}, overstating)
    cheap = {row.group: row for row in table_of(made.cells(), RULES)}
    assert cheap["A"].verdict == "difference"
    for seed in range(20):
        sample, fraction = made.sample(0.2, seed)
        found = {row.group: row for row in mixed_table(made.cells(), RULES, sample, fraction)}
        assert found["A"].verdict != "difference"
        assert abs(found["A"].difference or 9.0) < 0.15


def test_too_small_a_sample_corrects_nothing() -> None:
    made = corpus({"A": 0.5, "B": 0.0}, noisy)
    sample, fraction = made.sample(0.02)
    for group in mixed_groups(made.cells(), sample, fraction):
        assert group.interval is None and group.correction is None
        assert group.needed is not None and group.needed * group.documents >= 30
    [row] = [one for one in mixed_table(made.cells(), RULES, sample, fraction) if one.difference]
    assert (row.verdict, row.p) == ("inconclusive", None)
    assert "exact_sample: " in row.reason and "not corrected" in row.note


# ---- the benchmark of corrected group means, on simulated relevance
