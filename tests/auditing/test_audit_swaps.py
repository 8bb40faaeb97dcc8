"""Mentions replaced in texts: which, by what, and the new predictions."""

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tiny_audit import make_audit

from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from transexplain.analysis.groups.answers import answers_of
from transexplain.analysis.groups.counterfactuals import Observation
from transexplain.analysis.groups.mention_matching import Match
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.auditing.explained_shard import explain_shard
from transexplain.auditing.mention_changes import SwapCheck, _Lexicon, _swaps, _with_case_of
from transexplain.data.shard_reader import read_shard
from transexplain.explaining.item_loop import Silent
from transexplain.methods import bound
from transexplain.settings import Settings
from transexplain.types.items import EntityGroup, Item
from transexplain.types.pairs import edited
from transexplain.types.plans import Shard


def prepare(folder: Path, *settings: str) -> Prepared:
    spec = load_spec(make_audit(folder), settings=("evaluation.items=0", *settings))
    return prepare_audit(spec, Settings(snapshot_dir=folder / "snapshots"))


def observed(prepared: Prepared, cuts: tuple[int, ...] = (0, 40)) -> list[Observation]:
    total = ShardAggregate()
    for index, (start, stop) in enumerate(pairwise(cuts)):
        shard = Shard(index=index, start=start, stop=stop)
        done = explain_shard(prepared.plan, shard, prepared.model, observer=Silent())
        total.merge(ShardAggregate.from_json(done.aggregate))
    return sorted(total.checked.observations)


@pytest.mark.exhaustive
def test_the_plan_samples_about_as_many_texts_of_every_group_as_requested(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "groups.check=5", "groups.budget=0")
    check = prepared.plan.check
    assert check is not None and set(check.swaps) == {"things", "praise"}
    assert all(0 < share < 1 for share in check.swaps.values())
    own = Counter(one.group for one in observed(prepared) if one.own)
    assert all(1 <= own[group] <= 10 for group in check.swaps)
    generous = prepare(tmp_path, "groups.check=5", "groups.budget=10").plan.check
    assert generous is not None and set(generous.swaps.values()) == {1.0}
    wide = ("groups.check=1", "groups.budget=10", "groups.practical.logit=2")
    enough = prepare(tmp_path, *wide).plan.check
    assert enough is not None and max(enough.swaps.values()) < 0.5, "more would settle nothing"
    assert prepare(tmp_path, "groups.check=0").plan.check is None
    assert not observed(replace(prepared, plan=replace(prepared.plan, check=None)))


@pytest.mark.exhaustive
def test_answers_are_those_of_the_model_itself(tmp_path: Path) -> None:
    """Every changed text answered again by hand, from the words that it must have."""
    prepared = prepare(tmp_path, "groups.check=1000", "model.dtype=float64")
    plan, model = prepared.plan, prepared.model
    found = observed(prepared)
    items = {
        one.id: str(one.content)
        for one in read_shard(plan.dataset, Shard(index=0, start=0, stop=40))
        if isinstance(one, Item)
    }

    def log_odds(text: str) -> list[float]:
        item = Item(id="x", index=0, content=text)
        encoded = model.encode([item], long_text="truncate", max_length=None)
        one = bound(plan.method)(model, model.collate(encoded), lambda rows: [[] for _ in rows])
        return [float(answer.log_odds(one.logits[0])) for answer in answers_of(plan)]

    own = {one.document: one for one in found if one.own}
    others = [one for one in found if not one.own]
    assert len(own) > 10 and len(others) > 20
    for one in own.values():
        assert one.log_odds == pytest.approx(log_odds(items[one.document]), abs=1e-9)
    for one in others[:25]:
        text = re.sub(rf"\b{own[one.document].entity}\b", one.entity, items[one.document])
        assert one.log_odds == pytest.approx(log_odds(text), abs=1e-9)


def test_a_text_is_read_with_names_of_both_sides(tmp_path: Path) -> None:
    found = observed(prepare(tmp_path, "groups.check=1000", "groups.reference=praise"))
    for document in {one.document for one in found}:
        names = [(one.group, one.entity) for one in found if one.document == document]
        assert len(set(names)) == len(names), "no name stands twice"
        counts = Counter(group for group, _ in names)
        assert 1 <= counts["praise"] <= 2 and 1 <= counts["things"] <= 2
    assert {one.group for one in found if one.own} == {"praise", "things"}, "both directions"


@pytest.mark.exhaustive
def test_any_cut_into_shards_swaps_the_same(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "groups.check=20", "model.dtype=float64")
    whole = observed(prepared)
    parts = observed(prepared, (0, 7, 8, 21, 40))
    keys = [(one.document, one.group, one.entity, one.own) for one in whole]
    assert [(one.document, one.group, one.entity, one.own) for one in parts] == keys
    for one, other in zip(whole, parts, strict=True):
        assert other.log_odds == pytest.approx(one.log_odds, abs=1e-9)


def drawn(plan_groups: dict[str, tuple[str, ...]], prepared: Prepared, match: Match) -> set[str]:
    groups = tuple(EntityGroup(name=name, terms=of) for name, of in plan_groups.items())
    plan = replace(prepared.plan, groups=groups, reference=None)
    swaps = SwapCheck(plan, replace(plan.check, counts={}))
    against = sorted(swaps._against[match.group])
    found: set[str] = set()
    for seed in range(40):
        random = np.random.default_rng(seed)
        found |= {entity for _, entity, _ in swaps._drawn(against, 2, match, random)}
    return found


def test_replacements_are_of_the_same_family_in_any_number_of_pieces(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "groups.check=1000")
    terms = {
        "country/high": ("Greece", "Chad"),
        "country/low": ("Chad", "Papua New Guinea", "Mali"),
        "valence/bad": ("murder",),
        "valence/good": ("gift",),
    }
    greece = Match(group="country/high", entity="Greece", surface="greece", start=0, end=6)
    assert drawn(terms, prepared, greece) == {"Papua New Guinea", "Mali"}, "Chad is in both"


def test_plurals_agree_where_a_lexicon_has_both_forms(tmp_path: Path) -> None:
    lexicon = _Lexicon(EntityGroup(name="n", terms=("german", "germans", "James")), {})
    assert lexicon.agrees("germans", "Poles") and not lexicon.agrees("germans", "Pole")
    assert not lexicon.agrees("german", "Poles")
    assert lexicon.agrees("James", "Maria") and lexicon.agrees("James", "Thomas")


def test_every_mention_of_the_entity_is_replaced() -> None:
    text = "Ann came. ANN left; Anna stayed, said ann."
    places = [(0, 3), (10, 13), (38, 41)]
    matches = [Match(group="g", entity="Ann", surface=text[a:b], start=a, end=b) for a, b in places]
    lexicon = _Lexicon(EntityGroup(name="h", terms=("Maria Luz",)), {})
    changed, _ = edited(text, None, _swaps(matches, ("Maria Luz",), lexicon))
    assert changed == "Maria Luz came. MARIA LUZ left; Anna stayed, said maria luz."


@pytest.mark.parametrize(
    ("term", "surface", "shown"),
    [
        ("muslim", "Christian", "Muslim"),
        ("Muslim", "christian", "muslim"),
        ("Ann Lee", "BOB", "ANN LEE"),
        ("women", "Men", "Women"),
        ("McCoy", "Bob", "McCoy"),
        ("it", "I", "It"),
    ],
)
def test_capitals_are_those_of_what_is_replaced(term: str, surface: str, shown: str) -> None:
    assert _with_case_of(surface, term) == shown


def test_one_group_has_nobody_to_swap_with(tmp_path: Path) -> None:
    check = prepare(tmp_path, "groups.include=[things]").plan.check
    assert check is not None and not check.swap, "its mentions can still be removed"
