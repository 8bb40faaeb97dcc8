"""The randomised model: the same for any cut into shards, and the audited one as it was."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from local_audits import aggregate_of, prepared_tiny, shard_results
from store_samples import stored_again
from tiny_audit import make_audit

from orchestrator.plan import PreparedAudit, prepare_audit
from orchestrator.spec import load_spec
from orchestrator.spec.planned_groups import _draws
from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.randomised_control import RandomisedTotals
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.auditing import shard_controls
from transexplain.errors import EngineError
from transexplain.explaining import Explained, explain_items
from transexplain.models.loaded_model import LoadedModel
from transexplain.settings import Settings
from transexplain.types.items import ItemFailure


def prepare(folder: Path, *settings: str) -> PreparedAudit:
    return prepared_tiny(folder, "model.dtype=float64", *settings)


def totals_of(prepared: PreparedAudit, shards: int = 1) -> RandomisedTotals:
    return aggregate_of(prepared, shards).checked.randomised


def means(totals: RandomisedTotals) -> dict[tuple[Any, ...], float]:
    return {
        (*stratum, row.group, row.entity, row.mentions): row.mean
        for stratum in totals.randomised.strata
        for row in totals.randomised.rows([stratum])
    }


def mentions(totals: EntityTotals) -> list[tuple[str, str, int]]:
    return [(row.group, row.entity, row.mentions) for row in totals.rows(totals.strata)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("shards", [3, 7])
def test_any_number_of_shards_gives_the_same(tmp_path: Path, shards: int) -> None:
    prepared = prepare(tmp_path, "groups.check=20")
    one, many = totals_of(prepared), totals_of(prepared, shards)
    assert one.items == many.items > 8
    assert one.failed == 0
    assert sum(bool(draw.strata) for draw in one.draws) == 3
    for draw, other in zip(one.draws, many.draws, strict=True):
        assert mentions(draw) == mentions(other)
    whole, parts = means(one), means(many)
    assert whole.keys() == parts.keys()
    for key, value in whole.items():
        assert parts[key] == pytest.approx(value, abs=1e-9)


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


def test_draws_are_part_of_a_plan_and_its_digest(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "groups.draws=1")
    plan = prepared.plan
    assert plan.check is not None and plan.check.draws == 1
    more = replace(plan, check=replace(plan.check, draws=3))
    assert more.digest != plan.digest
    assert stored_again(more) == more


def test_large_models_have_one_draw() -> None:
    assert _draws(500_000_000) == 3
    assert _draws(500_000_001) == 1


def test_it_can_be_left_out(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "groups.randomised=false")
    assert totals_of(prepared).items == totals_of(prepared).failed == 0
    assert totals_of(prepared).draws == []
    assert "randomised" not in prepared.model.variants


def test_it_is_made_only_where_an_item_was_drawn(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)
    never = replace(prepared.plan, check=replace(prepared.plan.check, share=0.0))
    assert totals_of(replace(prepared, plan=never)).items == 0
    assert "randomised" not in prepared.model.variants


@pytest.mark.exhaustive
def test_a_failing_randomised_explanation_costs_no_item(tmp_path, monkeypatch) -> None:
    prepared = prepare(tmp_path)
    original, audited = explain_items, prepared.model

    def failing(model: LoadedModel, *args: Any, **kwargs: Any) -> Iterator[Explained]:
        for place, one in enumerate(original(model, *args, **kwargs)):
            if model is audited or place % 2 or one.item is None:
                yield one
            else:
                failure = ItemFailure(
                    item_id=one.item.id, index=one.item.index, kind="model-error", message="nan"
                )
                yield Explained(item=one.item, failure=failure)

    whole = totals_of(prepared)
    monkeypatch.setattr("transexplain.explaining.item_loop.explain_items", failing)
    [done] = shard_results(prepared)
    found = ShardAggregate.from_json(done.aggregate).checked.randomised
    assert len(done.outcomes) == 40 and not done.failures
    assert found.failed > 0 and found.items + found.failed == whole.items
    assert found.real.strata == found.randomised.strata


def test_a_model_that_cannot_be_randomised_costs_no_item(tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> LoadedModel:
        raise EngineError("it cannot be copied")

    monkeypatch.setattr(shard_controls, "randomised_model", refuse)
    [done] = shard_results(prepare(tmp_path))
    found = ShardAggregate.from_json(done.aggregate).checked
    assert len(done.outcomes) == 40
    assert found.randomised.items == 0 and found.randomised.failed > 0
    assert found.ablations


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
