"""The exact sample of a shard: the same items for any cut, the same classes, failures counted."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from local_audits import aggregate_of, prepared_tiny, shard_results

from orchestrator.plan import PreparedAudit
from transexplain.analysis.groups.mixed_audits import ExactSample
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.auditing import shard_controls
from transexplain.types.scores import ExactPlan, MethodSpec

MIXED = {"method": "gradient-x-input", "exact_sample": 0.5}


def prepare(folder: Path, **keys: object) -> PreparedAudit:
    return prepared_tiny(folder, "model.dtype=float64", "groups.check=0", explain=MIXED, **keys)


def sample_of(prepared: PreparedAudit, shards: int = 1) -> ExactSample:
    return aggregate_of(prepared, shards).checked.exact


@pytest.mark.exhaustive
def test_any_cut_draws_the_same_items(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)
    whole, cut = sample_of(prepared), sample_of(prepared, 7)
    assert 5 < whole.items < 35 and whole.failed == 0
    assert (cut.items, cut.failed) == (whole.items, whole.failed)

    def names(found: ExactSample) -> list[tuple[str, ...]]:
        return [(m.item_id, m.target, m.group, m.entity) for m in _mentions(found)]

    assert names(cut) == names(whole)
    for ours, theirs in zip(_mentions(cut), _mentions(whole), strict=True):
        assert (ours.cheap, ours.exact) == pytest.approx((theirs.cheap, theirs.exact), abs=1e-12)


def _mentions(found: ExactSample) -> list:
    return [one for rows in found.by_class().values() for one in rows]


def test_both_sides_are_what_either_method_says(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)
    exact = replace(prepared, plan=replace(prepared.plan, method=MethodSpec(name="lrp")))
    [cheap], [alone] = shard_results(prepared), shard_results(exact)
    found = sample_of(prepared)
    assert found.mentions
    for one in found.mentions:
        for side, value in ((cheap, one.cheap), (alone, one.exact)):
            reported = [
                m.relevance
                for m in side.mentions
                if (m.item_id, m.target, m.group, m.entity)
                == (one.item_id, one.target, one.group, one.entity)
            ]
            assert len(reported) == one.mentions
            assert sum(reported) == pytest.approx(value, rel=1e-9, abs=1e-15)
    stored = {(a.item_id, a.target): a for a in cheap.attributions}
    for two in found.agreements:
        attribution = stored[two.item_id, two.target]
        plain = [not token.special for token in attribution.features]
        assert two.cheap == pytest.approx(float(np.sum(attribution.relevance[plain])))
    assert {a.method for a in cheap.attributions} == {"gradient-x-input"}


def test_items_that_mention_nobody_are_drawn_and_no_groups_are_needed(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)
    whole = sample_of(prepared)
    alone = replace(prepared, plan=replace(prepared.plan, groups=()))
    found = sample_of(alone)
    assert (found.items, found.mentions) == (whole.items, [])
    assert len(found.agreements) == len(whole.agreements) == 2 * whole.items


def test_the_share_and_the_seed_say_which(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)

    def items(share: float, seed: int) -> set[str]:
        exact = ExactPlan(share=share, seed=seed)
        plan = replace(prepared.plan, exact=exact, groups=())
        return {one.item_id for one in sample_of(replace(prepared, plan=plan)).agreements}

    assert len(items(1.0, 0)) == 40
    assert items(0.2, 0) < items(0.6, 0)
    assert items(0.5, 0) != items(0.5, 1)


def test_a_failure_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(tmp_path)
    whole = sample_of(prepared)
    again = shard_controls.explained_pairs

    def failing(*args: object) -> object:
        found = again(*args)
        return [[], *found[1:]]

    monkeypatch.setattr(shard_controls, "explained_pairs", failing)
    found = sample_of(prepared)
    assert (found.items, found.failed) == (whole.items - 1, 1)
    lost = {one.item_id for one in whole.agreements} - {one.item_id for one in found.agreements}
    assert len(lost) == 1
    assert not lost & {one.item_id for one in found.mentions}


def test_numbers_that_no_total_holds_fail_their_items(tmp_path: Path) -> None:
    prepared = prepared_tiny(tmp_path, "model.dtype=float64", "groups.check=0")
    before = shard_results(prepared)[0]
    with torch.no_grad():
        prepared.model.module.classifier.weight *= 1e20
    [result] = shard_results(prepared)
    assert not result.outcomes and not result.attributions and not result.mentions
    kinds = [failure.kind for failure in result.failures if failure.kind == "not-finite"]
    assert len(kinds) == len(before.outcomes)
    assert ShardAggregate.from_json(result.aggregate).items == 0
