"""Mentions removed from texts: the remaining text, and the new prediction."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_audit import make_audit
from tiny_models import wordpiece
from torch import Tensor, nn

import transexplain as te
from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from transexplain.analysis.groups.mention_ablation import ablations_of
from transexplain.analysis.groups.shard_aggregate import ControlResults, ShardAggregate
from transexplain.auditing.explained_shard import explain_shard
from transexplain.auditing.mention_ablations import without
from transexplain.explaining.item_loop import Silent
from transexplain.settings import Settings
from transexplain.types.plans import Shard

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


def prepare(folder: Path, *settings: str) -> Prepared:
    spec = load_spec(make_audit(folder), settings=("evaluation.items=0", *settings))
    return prepare_audit(spec, Settings(snapshot_dir=folder / "snapshots"))


def prepare_texts(folder: Path, texts: list[str], *settings: str) -> Prepared:
    prepared_in = make_audit(folder)
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    spec = load_spec(prepared_in, settings=("evaluation.items=0", "groups.check=1000", *settings))
    prepared = prepare_audit(spec, Settings(snapshot_dir=folder / "snapshots"))
    model = te.wrap(DependsOn("good"), tokenizer=wordpiece(), modality="text", classes=CLASSES)
    return replace(prepared, model=model)


def checked_of(prepared: Prepared) -> ControlResults:
    rows = prepared.plan.dataset.rows
    shard = Shard(index=0, start=0, stop=rows)
    done = explain_shard(prepared.plan, shard, prepared.model, observer=Silent())
    assert not done.failures
    return ShardAggregate.from_json(json.loads(json.dumps(done.aggregate))).checked


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


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["occlusion", "integrated-gradients", "rollout", "saliency"])
def test_the_model_runs_once_per_ablation_for_every_method(tmp_path: Path, method: str) -> None:
    settings = (f"method.name={method}", "groups.check=1000", "targets=[predicted]")
    prepared = prepare(tmp_path, *settings, "model.dtype=float64")
    by_method = {(r.item_id, r.group): r for r in checked_of(prepared).ablations}
    lrp = prepare(tmp_path, *settings[1:], "model.dtype=float64")
    assert len(by_method) > 15
    for one in checked_of(lrp).ablations:
        other = by_method[one.item_id, one.group]
        assert (other.flipped, other.entity) == (one.flipped, one.entity)
        assert other.change == pytest.approx(one.change, abs=1e-9)


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
    prepared = prepare(tmp_path, "groups.check=0")
    assert prepared.plan.check is None
    assert checked_of(prepared).to_json() == ControlResults().to_json()
    nobody = prepare_texts(tmp_path, ["a e", "e e"])
    assert nobody.plan.check is None
    assert ablations_of(checked_of(nobody).ablations) is None


@pytest.mark.exhaustive
def test_ablations_are_sampled_by_row_alone(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "groups.check=12", "model.dtype=float64")
    whole = sorted(checked_of(prepared).ablations)
    parts = ControlResults()
    for index, (start, stop) in enumerate([(0, 5), (5, 6), (6, 33), (33, 40)]):
        shard = Shard(index=index, start=start, stop=stop)
        done = explain_shard(prepared.plan, shard, prepared.model, observer=Silent())
        parts.merge(ShardAggregate.from_json(done.aggregate).checked)
    assert len(whole) > 4
    for one, other in zip(whole, sorted(parts.ablations), strict=True):
        exact = replace(other, change=one.change, relevance=one.relevance)
        assert exact == one
        assert other.change == pytest.approx(one.change, abs=1e-9)


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
