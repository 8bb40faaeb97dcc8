"""Mentions replaced in texts: which, by what, and what is told of it."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tiny_audit import make_audit

from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from transexplain.audit import explain_shard
from transexplain.bias.aggregates import ShardAggregate
from transexplain.bias.matching import Match
from transexplain.bias.swaps import Swap
from transexplain.checking.swaps import Swaps, _shape
from transexplain.data.reader import read_shard
from transexplain.explaining.items import Silent
from transexplain.methods import bound
from transexplain.plans import Shard
from transexplain.settings import Settings
from transexplain.types import EntityGroup, Item


def prepare(folder: Path, *settings: str) -> Prepared:
    spec = load_spec(make_audit(folder), settings=("evaluation.items=0", *settings))
    return prepare_audit(spec, Settings(snapshot_dir=folder / "snapshots"))


def swaps_of(prepared: Prepared, cuts: tuple[int, ...] = (0, 40)) -> list[Swap]:
    total = ShardAggregate()
    for index, (start, stop) in enumerate(pairwise(cuts)):
        shard = Shard(index=index, start=start, stop=stop)
        done = explain_shard(prepared.plan, shard, prepared.model, observer=Silent())
        total.merge(ShardAggregate.from_json(done.aggregate))
    return sorted(total.checked.swaps)


def test_the_plan_draws_about_as_many_as_asked(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "groups.check=10")
    check = prepared.plan.check
    assert check is not None and 0 < check.share < 1
    assert check.counts["good"] > 0
    found = {one.item_id for one in swaps_of(prepared)}
    assert 3 <= len(found) <= 18
    assert prepare(tmp_path, "groups.check=0").plan.check is None
    assert not swaps_of(replace(prepared, plan=replace(prepared.plan, check=None)))


def test_changes_are_those_of_the_model_itself(tmp_path: Path) -> None:
    """Every swap explained again by hand: the text as it says, the logit of the same class."""
    prepared = prepare(tmp_path, "groups.check=1000", "model.dtype=float64")
    plan, model = prepared.plan, prepared.model
    found = swaps_of(prepared)
    assert len(found) > 20
    items = {
        one.id: one
        for one in read_shard(plan.dataset, Shard(index=0, start=0, stop=40))
        if isinstance(one, Item)
    }

    def logits(text: str) -> list[float]:
        item = Item(id="x", index=0, content=text)
        encoded = model.encode([item], long_text="truncate", max_length=None)
        one = bound(plan.method)(model, model.collate(encoded), lambda rows: [[] for _ in rows])
        return [float(value) for value in one.logits[0]]

    for one in found[:12]:
        text = str(items[one.item_id].content)
        before = logits(text)
        changes = []
        for place in range(len(text)):
            if text[place:].startswith(one.entity):
                other = text[:place] + one.replacement + text[place + len(one.entity) :]
                after = logits(other)
                changes.append(_explained(one, before) - _explained(one, after))
        assert any(one.change == pytest.approx(change, abs=1e-9) for change in changes)


def test_a_replacement_is_of_the_same_family_and_kind_before_all(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "groups.check=1000")
    terms = {
        "country/high": ("Greece",),
        "country/low": ("Chad", "delta"),
        "valence/bad": ("murder", "Goods"),
    }
    groups = tuple(EntityGroup(name=name, terms=of) for name, of in terms.items())
    plan = replace(prepared.plan, groups=groups)
    assert plan.check is not None
    found = Swaps(plan, replace(plan.check, counts={"Greece": 9, "murder": 9}), prepared.model)
    greece = Match(group="country/high", entity="Greece", surface="greece", start=0, end=6)
    order = [entity for _, entity in found._candidates(greece, np.random.default_rng(0))]
    assert order == ["Chad", "delta", "murder"]  # `Goods` would be a plural


def _explained(one: Swap, logits: list[float]) -> float:
    names = ("bad", "so-so", "good")
    if one.target.startswith("contrast"):
        return logits[2] - logits[0]
    return logits[names.index(one.class_name)]


def test_any_cut_into_shards_swaps_the_same(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "groups.check=20", "model.dtype=float64")
    whole = swaps_of(prepared)
    parts = swaps_of(prepared, (0, 7, 8, 21, 40))
    keys = [(s.item_id, s.target, s.entity, s.replacement) for s in whole]
    assert [(s.item_id, s.target, s.entity, s.replacement) for s in parts] == keys
    for one, other in zip(whole, parts, strict=True):
        assert other.change == pytest.approx(one.change, abs=1e-9)
        assert other.gap == pytest.approx(one.gap, abs=1e-9)


def test_replacements_are_of_the_reference(tmp_path: Path) -> None:
    found = swaps_of(prepare(tmp_path, "groups.check=1000", "groups.reference=praise"))
    groups = {(one.group, one.other) for one in found}
    assert groups == {("things", "praise"), ("praise", "things")}


@pytest.mark.parametrize(
    ("entity", "surface", "shown"),
    [
        ("muslim", "Christian", "Muslim"),
        ("Muslim", "christian", "muslim"),
        ("Ann Lee", "BOB", "ANN LEE"),
        ("women", "Men", "Women"),
        ("girls", "boy", None),
        ("girl", "boys", None),
        ("McCoy", "Bob", "McCoy"),
        ("it", "I", "It"),
    ],
)
def test_capitals_and_plurals_agree(entity: str, surface: str, shown: str | None) -> None:
    assert _shape(entity, surface) == shown


def test_one_group_has_nobody_to_swap_with(tmp_path: Path) -> None:
    check = prepare(tmp_path, "groups.include=[things]").plan.check
    assert check is not None and not check.swap, "its mentions can still be removed"
