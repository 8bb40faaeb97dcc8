"""Mentions replaced in texts: which, by what, and the new predictions."""

import json
import re
from collections import Counter
from dataclasses import astuple, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from local_audits import aggregate_of, prepared_tiny
from plain_records import new_plan
from tiny_audit import make_audit
from tiny_models import wordpiece
from torch import Tensor, nn

import transexplain as te
from orchestrator.plan import PreparedAudit, prepare_audit
from orchestrator.spec import load_spec
from transexplain.analysis.groups.answers import answers_of
from transexplain.analysis.groups.counterfactuals import Observation
from transexplain.analysis.groups.mention_ablation import ablations_of
from transexplain.analysis.groups.mention_matching import Match
from transexplain.analysis.groups.shard_aggregate import ControlResults
from transexplain.analysis.groups.word_pieces import pieces
from transexplain.auditing.mention_changes import (
    CandidateCheck,
    SwapCheck,
    _GroupNames,
    _swaps,
    _with_case_of,
    without,
)
from transexplain.data.shard_reader import read_shard
from transexplain.methods import bound
from transexplain.settings import Settings
from transexplain.types.items import EntityGroup, Item
from transexplain.types.pairs import edited
from transexplain.types.plans import CandidateWord, CheckPlan, ModelRef, Shard


def observed(prepared: PreparedAudit, cuts: tuple[int, ...] = ()) -> list[Observation]:
    return sorted(aggregate_of(prepared, cuts=cuts).checked.observations)


@pytest.mark.exhaustive
def test_the_plan_samples_about_as_many_texts_of_every_group_as_requested(tmp_path: Path) -> None:
    prepared = prepared_tiny(tmp_path, "groups.check=5", "groups.budget=0")
    check = prepared.plan.check
    assert check is not None and set(check.swaps) == {"things", "praise"}
    assert all(0 < share < 1 for share in check.swaps.values())
    own = Counter(one.group for one in observed(prepared) if one.own)
    assert all(1 <= own[group] <= 10 for group in check.swaps)
    generous = prepared_tiny(tmp_path, "groups.check=5", "groups.budget=10").plan.check
    assert generous is not None and set(generous.swaps.values()) == {1.0}
    wide = ("groups.check=1", "groups.budget=10", "groups.practical.logit=2")
    enough = prepared_tiny(tmp_path, *wide).plan.check
    assert enough is not None and max(enough.swaps.values()) < 0.5, "more would settle nothing"
    assert prepared_tiny(tmp_path, "groups.check=0").plan.check is None
    assert not observed(replace(prepared, plan=replace(prepared.plan, check=None)))


@pytest.mark.exhaustive
def test_answers_are_those_of_the_model_itself(tmp_path: Path) -> None:
    """Every changed text answered again by hand, from the words that it must have."""
    prepared = prepared_tiny(tmp_path, "groups.check=1000", "model.dtype=float64")
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
    found = observed(prepared_tiny(tmp_path, "groups.check=1000", "groups.reference=praise"))
    for document in {one.document for one in found}:
        names = [(one.group, one.entity) for one in found if one.document == document]
        assert len(set(names)) == len(names), "no name stands twice"
        counts = Counter(group for group, _ in names)
        assert 1 <= counts["praise"] <= 2 and 1 <= counts["things"] <= 2
    assert {one.group for one in found if one.own} == {"praise", "things"}, "both directions"


def values_of(row: Any) -> list[Any]:
    """The fields of a record, those of its tuples one by one."""
    fields = astuple(row)
    return [part for field in fields for part in (field if isinstance(field, tuple) else (field,))]


@pytest.mark.exhaustive
def test_any_cut_into_shards_gives_the_same_controls(tmp_path: Path) -> None:
    """Swaps, ablations, the exact sample and randomised models: drawn by the row alone."""
    explain = {"method": "gradient-x-input", "exact_sample": 0.5}
    prepared = prepared_tiny(tmp_path, "groups.check=20", "model.dtype=float64", explain=explain)
    whole, parts = (
        aggregate_of(prepared, cuts=cuts).checked for cuts in ((), (0, 5, 6, 21, 33, 40))
    )
    for name in ("observations", "ablations", "exact.mentions", "exact.agreements"):
        rows, others = (
            sorted(
                map(values_of, attrgetter(name)(results)),
                key=lambda values: [value for value in values if isinstance(value, str)],
            )
            for results in (whole, parts)
        )
        assert len(rows) == len(others) > 4
        for row, other in zip(rows, others, strict=True):
            assert other == pytest.approx(row, abs=1e-9)
    assert (whole.exact.items, whole.exact.failed) == (parts.exact.items, 0)
    assert whole.randomised.items == parts.randomised.items > 8
    for draw, other in zip(whole.randomised.draws, parts.randomised.draws, strict=True):
        for row, same in zip(draw.rows(draw.strata), other.rows(other.strata), strict=True):
            assert (row.group, row.entity, row.mentions) == (same.group, same.entity, same.mentions)
            assert row.mean == pytest.approx(same.mean, abs=1e-9)


def drawn(
    plan_groups: dict[str, tuple[str, ...]], prepared: PreparedAudit, match: Match
) -> set[str]:
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
    prepared = prepared_tiny(tmp_path, "groups.check=1000")
    terms = {
        "country/high": ("Greece", "Chad"),
        "country/low": ("Chad", "Papua New Guinea", "Mali"),
        "valence/bad": ("murder",),
        "valence/good": ("gift",),
    }
    greece = Match(group="country/high", entity="Greece", surface="greece", start=0, end=6)
    assert drawn(terms, prepared, greece) == {"Papua New Guinea", "Mali"}, "Chad is in both"


def test_plurals_agree_where_a_lexicon_has_both_forms(tmp_path: Path) -> None:
    lexicon = _GroupNames(EntityGroup(name="n", terms=("german", "germans", "James")), {})
    assert lexicon.agrees("germans", "Poles") and not lexicon.agrees("germans", "Pole")
    assert not lexicon.agrees("german", "Poles")
    assert lexicon.agrees("James", "Maria") and lexicon.agrees("James", "Thomas")


def test_every_mention_of_the_entity_is_replaced() -> None:
    text = "Ann came. ANN left; Anna stayed, said ann."
    places = [(0, 3), (10, 13), (38, 41)]
    matches = [Match(group="g", entity="Ann", surface=text[a:b], start=a, end=b) for a, b in places]
    lexicon = _GroupNames(EntityGroup(name="h", terms=("Maria Luz",)), {})
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


# ---- words that a lexicon may lack: what replaces them, and what is left without


PLAN = new_plan(
    name="p",
    model=ModelRef(source="m", classes=("no", "yes")),
    groups=(
        EntityGroup(name="n/a", terms=("Jose",)),
        EntityGroup(name="n/b", terms=("Emily",)),
    ),
)


@pytest.mark.parametrize(
    ("word", "text", "left"),
    [
        ("she", "She saw her; SHE left", "He saw her; HE left"),
        ("her", "Her brother saw her.", "His brother saw him."),
        ("mrs", "Mrs. Emily and Mrs Ann", "Mr. Emily and Mr Ann"),
        ("mr", "Mr Jose", "Mrs Jose"),
        ("dr", "So Dr. Emily and Dr Ann met", "So Emily and Ann met"),
        ("they", "Emily said they left, they did", "Emily said left, did"),
        ("miss", "I miss Emily", None),
        ("they", "They", ""),
    ],
)
def test_partners_take_its_place_and_other_words_are_ablated(
    word: str, text: str, left: str | None
) -> None:
    assert changed(CandidateWord(word=word, group="n/b", reference="n/a", texts=9), text) == left


def test_a_spelling_gives_way_to_a_name_of_the_reference() -> None:
    spelling = CandidateWord(word="josé", group="n/a", reference="n/b", entity="Jose", texts=9)
    assert changed(spelling, "José and JOSÉ, not josé") == "Emily and Emily, not josé"
    assert changed(spelling, "josé") is None


def changed(candidate: CandidateWord, text: str) -> str | None:
    check = CandidateCheck(PLAN, CheckPlan(share=1.0, candidates=(candidate,)))
    found = check._without_candidate(Item(id="i", index=0, content=text), candidate, pieces(text))
    return None if found is None else str(found.content)


# ---- mentions removed from texts: the remaining text, and the new prediction


CLASSES = ("bad", "so-so", "good")


class DependsOn(nn.Module):
    """Says `good` where the word is there, and `bad` where it is not."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.table = nn.Embedding(18, 3)
        with torch.no_grad():
            self.table.weight.zero_()
            self.table.weight[wordpiece().convert_tokens_to_ids(word), 2] = 2.0

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Tensor) -> Tensor:
        seen = self.table(input_ids) * attention_mask[..., None]
        return seen.sum(1) + torch.tensor([1.0, 0.0, 0.0])


def prepare_texts(folder: Path, texts: list[str], *settings: str) -> PreparedAudit:
    spec = make_audit(folder)
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    settings = ("evaluation.items=0", "groups.check=1000", *settings)
    settings_of = Settings(snapshot_dir=folder / "snapshots")
    prepared = prepare_audit(load_spec(spec, settings=settings), settings_of)
    model = te.wrap(DependsOn("good"), tokenizer=wordpiece(), modality="text", classes=CLASSES)
    return replace(prepared, model=model)


def checked_of(prepared: PreparedAudit) -> ControlResults:
    return aggregate_of(prepared).checked


TEXTS = 6 * ["a good film", "good good nice", "a nice film", "x film", "a e", "good", "film, good"]


def test_an_answer_that_hangs_on_one_word_flips_without_it(tmp_path: Path) -> None:
    found = checked_of(prepare_texts(tmp_path, TEXTS)).ablations
    assert {TEXTS[int(one.item_id)] for one in found} == {*TEXTS} - {"a e", "good"}
    good = [one for one in found if one.entity == "good"]
    assert good and all(one.flipped for one in good)
    assert not any(one.flipped for one in found if one.entity != "good")
    for one in found:
        if one.target == "predicted":
            times = TEXTS[int(one.item_id)].count("good")
            assert one.change == pytest.approx(2.0 * times if one.entity == "good" else 0.0)
            assert one.relevance == pytest.approx(one.change, abs=1e-6)


def test_a_contrast_changes_by_both_its_classes(tmp_path: Path) -> None:
    texts = ["a good film"] * 12
    found = checked_of(prepare_texts(tmp_path, texts, "targets=[contrast:bad-good]")).ablations
    assert {one.change for one in found if one.entity == "good"} == {-2.0}


def test_a_text_of_one_word_is_not_counted(tmp_path: Path) -> None:
    assert checked_of(prepare_texts(tmp_path, ["good", "film", "good!", "x"])).ablations == []


def test_one_group_is_enough(tmp_path: Path) -> None:
    prepared = prepare_texts(tmp_path, TEXTS, "groups.include=[praise]")
    check = prepared.plan.check
    assert check is not None and not check.swap
    found = checked_of(prepared)
    assert found.observations == []
    assert {one.group for one in found.ablations} == {"praise"}


def test_without_samples_or_mentions_there_are_no_ablations(tmp_path: Path) -> None:
    prepared = prepared_tiny(tmp_path, "groups.check=0")
    assert prepared.plan.check is None
    checked = checked_of(prepared)
    assert checked.ablations == checked.observations == checked.candidates == []
    nobody = prepare_texts(tmp_path, ["a e", "e e"])
    assert nobody.plan.check is None
    assert ablations_of(checked_of(nobody).ablations) is None


@pytest.mark.parametrize(
    ("text", "taken", "left"),
    [
        ("Ann was good", ["Ann"], "was good"),
        ("I saw Ann , today", ["Ann"], "I saw , today"),
        ("I saw Ann, today", ["Ann"], "I saw, today"),
        ("Ann's film and Ann\u2019s book", ["Ann", "Ann"], "film and book"),
        ("(Ann) x", ["Ann"], "() x"),
        ("the end: Ann.", ["Ann"], "the end:."),
        ("two  spaces stay, Ann  goes", ["Ann"], "two  spaces stay,  goes"),
        ("Ann Ann", ["Ann", "Ann"], ""),
        ("Anns Ann'stuff", ["Ann'"], "Anns stuff"),
    ],
)
def test_the_remaining_text_is_tidy(text: str, taken: list[str], left: str) -> None:
    spans, cursor = [], 0
    for word in taken:
        start = text.index(word, cursor)
        cursor = start + len(word)
        spans.append((start, cursor))
    assert without(text, spans) == left


@given(st.text("ab ,.'s", max_size=20), st.data())
def test_only_spaces_go_besides_what_is_taken(text: str, data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.integers(0, len(text)), max_size=6).map(sorted))
    spans = list(zip(ends[::2], ends[1::2], strict=False))
    left = without(text, spans)
    inside = {place for start, end in spans for place in range(start, end)}
    kept = "".join(letter for place, letter in enumerate(text) if place not in inside)
    wanted, rest = iter("".join(kept.split())), "".join(left.split())
    assert all(letter in wanted for letter in rest), "in order, nothing new"
    if not spans:
        assert left == text.strip()
