"""Answers that are ties: a sound run is not accused, and what was changed is found."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_language as tiny
import torch
from gallery import Audit, run_audit
from kinds_of_audits import audit_of
from rewritten_parts import rewrite

import transexplain as te
from transexplain.data.shard_reader import read_shard
from transexplain.explaining import Explained, Request
from transexplain.explaining.item_loop import explain_again
from transexplain.extras.language.load_language import generating
from transexplain.models.load import load_model
from transexplain.models.loaded_model import LoadedModel
from transexplain.provenance.explained_again import tied_answer
from transexplain.store import readers, runs
from transexplain.store.revisions import open_database
from transexplain.types.items import Item
from transexplain.types.pairs import joined
from transexplain.types.plans import AuditPlan, PrivacyPlan, Shard, ShardResult
from transexplain.types.token_labels import ANSWER, TaggedSpan, explained_characters

PROMPTS = ["The nurse said that", "The capital of Italy is", "and the film was"]


def opened(run: Audit) -> tuple[AuditPlan, LoadedModel]:
    with open_database(run.url) as db:
        plan = runs.get(db, run.id).plan
    return plan, load_model(plan.model.source)


def item_of(plan: AuditPlan, row: int) -> Item:
    (item,) = read_shard(plan.dataset, Shard(index=0, start=row, stop=row + 1))
    return item


def store(run: Audit, to: Path, made: Explained, relevance: float = 1.0) -> str:
    """A copy of the store in which an item of the first shard is stored as it was `made`."""
    url = run.copy_store(to)
    outcome = made.outcome
    scaled = [replace(one, relevance=one.relevance * relevance) for one in made.attributions]

    def change(result: ShardResult) -> ShardResult:
        outcomes = {one.item_id: one for one in result.outcomes} | {outcome.item_id: outcome}
        attributions = {one.item_id: [] for one in result.outcomes}
        for one in result.attributions:
            attributions[one.item_id].append(one)
        attributions[outcome.item_id] = scaled
        flat = tuple(one for some in attributions.values() for one in some)
        return replace(result, outcomes=tuple(outcomes.values()), attributions=flat)

    rewrite(url, run.id, 0, change)
    return url


def said_of(run: Audit, url: str, **requested: Any) -> tuple[str, str]:
    found = run.checks(url, items=40, **requested)["explained again"]
    return found.status, found.text


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    folder = tmp_path_factory.mktemp("questions")
    keys = {"evaluation": {"items": 0}, "groups": {"lexicon": str(folder / "groups.json")}}
    return run_audit(audit_of("answers", folder, **keys), folder)


def other_span(plan: AuditPlan, model: LoadedModel, item: Item) -> tuple[Explained, float]:
    """The item explained for the next best span, and how much less both its logits sum to."""
    request = Request.from_plan(plan)
    (made,) = explain_again(model, request, [(item, None)])
    best = made.attributions[0]
    tokens = [one for one in best.features if not one.special and one.start >= item.second_at]
    spans = [(a.start, b.end) for a in tokens for b in tokens if a.start <= b.start]
    spans.remove(explained_characters(best.notes) or (0, 0))
    items = [replace(item, id=f"{start} {end}") for start, end in spans]
    marked = {
        one.id: TaggedSpan(start=start, end=end, type=ANSWER)
        for one, (start, end) in zip(items, spans, strict=True)
    }
    ends = explain_again(model, replace(request, pinned=marked), [(one, None) for one in items])
    second = max(ends, key=lambda one: one.attributions[0].logit)
    assert second.outcome is not None
    outcome = replace(second.outcome, item_id=item.id)
    attribution = replace(second.attributions[0], item_id=item.id)
    other = replace(second, outcome=outcome, attributions=(attribution,))
    return other, best.logit - attribution.logit


def test_a_span_that_is_as_likely_is_a_tie(questions: Audit, tmp_path: Path) -> None:
    plan, model = opened(questions)
    other, gap = other_span(plan, model, item_of(plan, 1))
    logit = other.attributions[0].logit
    share = gap / max(1.0, abs(logit), abs(logit + gap)) / 2
    assert share > 1e-3, "the model itself has no tie here"
    url = store(questions, tmp_path / "tied.db", other)
    status, text = said_of(questions, url, tolerance=1.01 * share)
    assert status == "PASS" and "1 item is a tie" in text, text
    status, text = said_of(questions, url, tolerance=0.99 * share)
    assert status == "FAIL" and "item '1'" in text, text


def twins(module: Any, tokenizer: Any) -> tuple[int, int]:
    """Make a token the model's own equal of another, which it says behind the first prompt."""
    model = te.load_language_model(module, tokenizer)
    said = model.generate(tokenizer(PROMPTS[0]).input_ids, 3)[0]
    used = {one for text in PROMPTS for one in model.generate(tokenizer(text).input_ids, 3)}
    twin = next(
        one
        for one in range(len(tokenizer) - 1, said, -1)
        if one not in used and tokenizer(f"x{tokenizer.decode([one])}").input_ids[-1] == one
    )
    with torch.no_grad():
        module.lm_head.weight[twin] = module.lm_head.weight[said]
    return said, twin


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Audit, str, str]:
    """A run of generated answers; a word of the first, and another that is exactly as likely."""
    folder = tmp_path_factory.mktemp("spoken")
    module, tokenizer = tiny.causal(tie_word_embeddings=False), tiny.byte_pairs()
    said, twin = twins(module, tokenizer)
    module.float().save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rows = "".join(json.dumps({"text": text}) + "\n" for text in PROMPTS)
    (folder / "prompts.jsonl").write_text(rows)
    spec = {
        "name": "spoken",
        "model": f"lm:{folder / 'model'}?generate=3",
        "data": str(folder / "prompts.jsonl"),
        "targets": ["predicted"],
        "evaluation": {"items": 0},
    }
    (folder / "audit.yaml").write_text(json.dumps(spec))
    words = (str(tokenizer.decode([one])) for one in (said, twin))
    return run_audit(folder / "audit.yaml", folder), *words


def answered(run: Audit, change: Callable[[str], str]) -> tuple[Explained, str, str]:
    """The first prompt explained for another answer; that answer, and the stored one."""
    plan, model = opened(run)
    with open_database(run.url) as db:
        (outcome,) = readers.iter_items(db, run.id, item_ids=["0"])
    prompt, answer = outcome.texts
    content, second_at = joined(prompt, change(answer))
    item = replace(item_of(plan, 0), content=content, second_at=second_at)
    (made,) = explain_again(model, Request.from_plan(plan), [(item, None)])
    assert made.outcome is not None, made.failure
    return made, change(answer), answer


def test_a_word_that_is_as_likely_is_a_tie(spoken: tuple[Audit, str, str], tmp_path: Path) -> None:
    run, said, twin = spoken
    encoder = opened(run)[1].encoder
    instead = encoder.said_nearby(PROMPTS[0], twin, 1e-6)[0]
    made, other, answer = answered(run, lambda _: instead)
    assert answer.startswith(said) and other.startswith(twin)
    url = store(run, tmp_path / "tied.db", made)
    status, text = said_of(run, url)
    assert status == "PASS" and "1 item is a tie" in text, text
    url = store(run, tmp_path / "scaled.db", made, relevance=1.5)
    status, text = said_of(run, url)
    assert status == "FAIL" and "relevance differs by" in text, text
    assert "tie" not in said_of(run, run.url)[1]


@pytest.mark.parametrize("what", ["other", "shorter", "the text alone"])
def test_an_answer_that_was_never_given_is_found(
    spoken: tuple[Audit, str, str], tmp_path: Path, what: str
) -> None:
    run, said, _ = spoken
    made, other, answer = answered(run, lambda text: said if what == "shorter" else " he")
    if what == "the text alone":
        own, _, _ = answered(run, lambda text: text)
        assert own.outcome is not None
        made = replace(own, outcome=replace(own.outcome, text=made.outcome.text))
    status, text = said_of(run, store(run, tmp_path / "changed.db", made))
    assert status == "FAIL" and f"answers {answer!r}, stored {other!r}" in text, text


def test_where_an_end_is_as_likely_an_answer_may_end() -> None:
    module, tokenizer = tiny.causal(), tiny.byte_pairs()
    said, _ = twins(module, tokenizer)
    model = te.load_language_model(module, tokenizer)
    ids = tokenizer(PROMPTS[0]).input_ids
    second = model.generate(ids, 3)[1]
    with torch.no_grad():
        module.lm_head.weight[2] = module.lm_head.weight[second]
    encoder = generating(model, 3).encoder
    word = str(tokenizer.decode([said]))
    assert encoder.said_nearby(PROMPTS[0], word, 1e-6)[:2] == (word, 0.0)


def test_an_answer_that_is_not_stored_may_be_another_where_two_are_as_likely(
    spoken: tuple[Audit, str, str],
) -> None:
    plan, model = opened(spoken[0])
    hashed = replace(plan, privacy=PrivacyPlan(store_text="hashed"))
    plain = te.load_language_model(tiny.causal().float(), tiny.byte_pairs())
    found = []
    for one in (model, generating(plain, 3)):
        (made,) = explain_again(one, Request.from_plan(plan), [(item_of(plan, 0), None)])
        assert made.outcome is not None
        outcome = replace(made.outcome, text=None)
        found.append(tied_answer(one, hashed, 1e-6, outcome, (), made))
    assert found[0] is not None and found[0].repeat is None
    assert found[1] is None, "no two tokens are as likely"
