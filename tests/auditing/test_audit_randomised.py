"""The randomised model: the same for any cut into shards, and the audited one as it was."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from local_audits import aggregate_of, prepared_tiny, shard_results
from tiny_audit import make_audit

from orchestrator.plan import PreparedAudit, prepare_audit
from orchestrator.spec import load_spec
from orchestrator.spec.planned_groups import _draws
from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.mixed_audits import ExactSample
from transexplain.analysis.groups.randomised_control import RandomisedTotals
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.auditing import shard_controls
from transexplain.errors import EngineError
from transexplain.models.loaded_model import LoadedModel
from transexplain.settings import Settings
from transexplain.types.scores import ExactPlan, MethodSpec


def prepare(folder: Path, *settings: str) -> PreparedAudit:
    return prepared_tiny(folder, "model.dtype=float64", *settings)


def totals_of(prepared: PreparedAudit, shards: int = 1) -> RandomisedTotals:
    return aggregate_of(prepared, shards).checked.randomised


def mentions(totals: EntityTotals) -> list[tuple[str, str, int]]:
    return [(row.group, row.entity, row.mentions) for row in totals.rows(totals.strata)]


@pytest.mark.exhaustive
def test_the_audited_model_is_bit_for_bit_as_before(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)
    before = {name: one.clone() for name, one in prepared.model.module.state_dict().items()}
    totals = totals_of(prepared)
    after = prepared.model.module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    plain = replace(prepared.plan, check=None)
    untouched = shard_results(replace(prepared, plan=plain))[0]
    [checked] = shard_results(prepared)
    with_, without = (
        ShardAggregate.from_json(result.aggregate).entities for result in (checked, untouched)
    )
    assert with_.rows(with_.strata) == without.rows(without.strata) != []
    assert [one.logits for one in checked.outcomes] == [one.logits for one in untouched.outcomes]
    real, drawn = totals.real, totals.randomised
    assert real.rows(real.strata) != drawn.rows(drawn.strata)


def test_both_models_are_compared_on_the_same_mentions(tmp_path: Path) -> None:
    totals = totals_of(prepare(tmp_path))
    for stratum in totals.real.strata:
        real, random = (t.rows([stratum]) for t in (totals.real, totals.randomised))
        assert [(r.group, r.entity, r.mentions) for r in real] == [
            (r.group, r.entity, r.mentions) for r in random
        ]
    assert totals.real.strata == totals.randomised.strata


@pytest.mark.exhaustive
def test_each_draw_has_other_weights_and_its_own_items(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)
    assert prepared.plan.check is not None and prepared.plan.check.draws == 3
    totals = totals_of(prepared)
    assert sum(len(mentions(draw)) for draw in totals.draws) > 0
    kept = [name for name in prepared.model.variants if name.startswith("randomised")]
    assert len(kept) == 3
    states = [prepared.model.variants[name][1].module.state_dict() for name in kept]
    changed = [n for n in states[0] if not torch.equal(states[0][n], states[1][n])]
    assert changed and any(not torch.equal(states[1][n], states[2][n]) for n in changed)
    single = replace(prepared.plan, check=replace(prepared.plan.check, draws=1))
    alone = totals_of(replace(prepared, plan=single))
    assert alone.items == totals.items and len(alone.draws) == 1
    real = totals.real
    assert alone.real.rows(real.strata) == real.rows(real.strata)


def test_large_models_have_one_draw() -> None:
    assert _draws(500_000_000) == 3
    assert _draws(500_000_001) == 1


def test_it_can_be_left_out(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "groups.randomised=false")
    assert totals_of(prepared).items == totals_of(prepared).failed == 0
    assert totals_of(prepared).draws == []
    assert "randomised" not in prepared.model.variants


def test_a_model_that_cannot_be_randomised_costs_no_item(tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> LoadedModel:
        raise EngineError("it cannot be copied")

    monkeypatch.setattr(shard_controls, "randomised_model", refuse)
    [done] = shard_results(prepare(tmp_path))
    found = ShardAggregate.from_json(done.aggregate).checked
    assert len(done.outcomes) == 40
    assert found.randomised.items == 0 and found.randomised.failed > 0
    assert found.ablations


def test_a_failing_randomised_explanation_costs_only_itself(tmp_path, monkeypatch) -> None:
    prepared, pairs = prepare(tmp_path), shard_controls.explained_pairs
    whole = totals_of(prepared)
    monkeypatch.setattr(shard_controls, "explained_pairs", lambda *of: [[], *pairs(*of)[1:]])
    found = totals_of(prepared)
    assert found.failed > 0 and found.items + found.failed == whole.items
    assert found.real.strata == found.randomised.strata


def test_groups_of_a_column_are_checked_as_whole_items(tmp_path: Path) -> None:
    path = make_audit(tmp_path)
    rows = [f'{{"text": "a film {"x " * (n % 3)}", "side": "{"ab"[n % 2]}"}}\n' for n in range(20)]
    (tmp_path / "texts.jsonl").write_text("".join(rows))
    spec = load_spec(
        path,
        settings=("evaluation.items=0", "data.meta=[side]", 'groups={"column": "side"}'),
    )
    prepared = prepare_audit(spec, Settings(snapshot_dir=tmp_path / "snapshots"))
    check = prepared.plan.check
    assert check is not None and check.whole and not check.swap
    [done] = shard_results(prepared)
    found = ShardAggregate.from_json(done.aggregate).checked
    assert found.randomised.items == 20
    assert found.ablations == [] and found.observations == []


# ---- the exact sample of a shard: which items, which numbers, failures counted


MIXED = {"method": "gradient-x-input", "exact_sample": 0.5}


def prepare_mixed(folder: Path, **keys: object) -> PreparedAudit:
    return prepared_tiny(folder, "model.dtype=float64", "groups.check=0", explain=MIXED, **keys)


def sample_of(prepared: PreparedAudit, shards: int = 1) -> ExactSample:
    return aggregate_of(prepared, shards).checked.exact


def test_both_sides_are_what_either_method_says(tmp_path: Path) -> None:
    prepared = prepare_mixed(tmp_path)
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


def test_the_share_and_the_seed_say_which(tmp_path: Path) -> None:
    prepared = prepare_mixed(tmp_path)

    def items(share: float, seed: int) -> set[str]:
        exact = ExactPlan(share=share, seed=seed)
        plan = replace(prepared.plan, exact=exact, groups=())
        return {one.item_id for one in sample_of(replace(prepared, plan=plan)).agreements}

    assert len(items(1.0, 0)) == 40
    assert items(0.2, 0) < items(0.6, 0)
    assert items(0.5, 0) != items(0.5, 1)


def test_a_failure_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare_mixed(tmp_path)
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
