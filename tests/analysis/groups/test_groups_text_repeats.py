"""Texts that repeat each other, counted shard by shard."""

import random
from dataclasses import replace

import pytest
from store_samples import make_outcome, make_plan

from transexplain.analysis.groups import text_repeats
from transexplain.analysis.groups.merged_aggregates import merged_aggregates
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.analysis.groups.text_repeats import TextRepeats
from transexplain.errors import ConfigurationError
from transexplain.types.plans import AuditPlan, PrivacyPlan

ROWS = 60_000


def listed(rows: int = ROWS, **changes: object) -> AuditPlan:
    plan = make_plan(rows)
    return replace(plan, dataset=replace(plan.dataset, manifest=True), **changes)


def texts() -> list[str]:
    """4,000 texts that stand alone, 500 that two items have and 20 that fifty have."""
    found = [f"alone {n}" for n in range(4000)]
    found += [f"twice {n}" for n in range(500)] * 2 + [f"often {n}" for n in range(20)] * 50
    random.Random(3).shuffle(found)
    return found


def shards(plan: AuditPlan, size: int) -> list[ShardAggregate]:
    every = [make_outcome(n, text=text) for n, text in enumerate(texts())]
    made = []
    for start in range(0, len(every), size):
        made.append(ShardAggregate.of(plan))
        made[-1].add_all(every[start : start + size], ())
    return made


def test_all_texts_are_counted_however_shards_are_cut_and_merged() -> None:
    found = []
    for size in (7000, 256, 100):
        payloads = [one.to_json() for one in shards(listed(), size)]
        for some in (payloads, payloads[::-1]):
            total = merged_aggregates(some)
            assert (total.repeats.drawn, total.repeats.repeating) == (6000, 2000)
            found.append(total.to_json()["repeats"])
    assert all(one == found[0] for one in found)


def test_of_many_all_items_of_a_text_are_drawn_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_repeats, "DRAWN", ROWS // 4)
    whole = merged_aggregates(one.to_json() for one in shards(listed(), 500)).repeats
    sizes = sorted(whole.texts.values())
    assert set(sizes) == {1, 2, 50}
    assert 900 < sizes.count(1) < 1100
    assert 90 < sizes.count(2) < 160
    # as a share of all: 2000 of 6000, of about a quarter of the texts
    assert whole.repeating / whole.drawn == pytest.approx(1 / 3, abs=0.12)


@pytest.mark.parametrize(
    "plan",
    [
        make_plan(ROWS),
        listed(1000),
        listed(privacy=PrivacyPlan(store_text="hashed", key="k")),
        listed(privacy=PrivacyPlan(redact="a.b:c")),
    ],
    ids=["copied", "few", "hashed", "redacted"],
)
def test_they_are_not_counted_where_planning_has_read_them_or_none_is_kept(plan: AuditPlan) -> None:
    assert TextRepeats.of(plan) is None
    (one,) = shards(plan, 7000)
    assert "repeats" not in one.to_json()


def test_damage_is_told() -> None:
    payload = shards(listed(), 7000)[0].to_json()
    payload["repeats"]["texts"][0][1] = -3
    with pytest.raises(ConfigurationError, match="aggregate"):
        ShardAggregate.from_json(payload)
