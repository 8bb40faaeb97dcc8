"""Audits of what a language model generates: its own answer, recorded, is what is explained."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_language as tiny
import torch
from celery_fleets import celery_fleet
from chaos_groups import wait_for
from command_line_here import run_here

import transexplain as te
from benchmarks import pronoun_pairs
from transexplain.analysis.groups.answers import Answer
from transexplain.errors import ModelLoadError, TargetError
from transexplain.extras.language.generated_answers import generating
from transexplain.models.loaded_model import LoadedModel
from transexplain.store import runs
from transexplain.types.items import ItemFailure
from transexplain.types.pairs import texts_of

Call = Callable[..., tuple[int, str]]
PROMPTS = ["The nurse said that", "The capital of Italy is", "and the film was"]


@pytest.fixture(scope="module")
def causal() -> Any:
    return te.load_language_model(tiny.causal(), tiny.byte_pairs())


@pytest.fixture(scope="module")
def model(causal: Any) -> LoadedModel:
    return generating(causal, 5)


def log_probability(causal: Any, prompt: str, answer: str) -> float:
    """Of an answer behind a prompt, by the module itself."""
    before, whole = (causal.tokenizer(text)["input_ids"] for text in (prompt, prompt + answer))
    with torch.no_grad():
        logits = causal.module(input_ids=torch.tensor([whole])).logits[0]
    logs = logits.log_softmax(-1)
    return float(sum(logs[k - 1, whole[k]] for k in range(len(before), len(whole))))


def test_the_answer_of_each_prompt_is_recorded_and_explained(causal: Any, model: Any) -> None:
    together = te.explain(model, PROMPTS)
    for prompt, one in zip(PROMPTS, together, strict=True):
        first, answer = texts_of(one.text, one.second_at)
        assert first == prompt and answer.strip()
        generated = causal.tokenizer.decode(causal.generate(causal.tokenizer(prompt).input_ids, 5))
        assert generated.startswith(answer)
        assert one.logit == pytest.approx(log_probability(causal, prompt, answer))
        assert one.ledger is not None and one.ledger.relative_gap < 1e-12
        assert one.relevance[-1] == 0  # nothing of the answer comes after its last token
        (whole,) = te.explain_answers(causal, prompt, target={"continuation": answer}, per="answer")
        np.testing.assert_allclose(one.relevance[:-1], whole.relevance, atol=1e-12)
        (alone,) = te.explain(model, prompt)  # the others were padded
        np.testing.assert_allclose(one.relevance, alone.relevance, atol=1e-12)
        parts = one.by_text()
        assert sum(parts) == pytest.approx(float(one.relevance.sum()))
    words = [word.text for word in together[0].words()]
    assert words[:4] == ["The", "nurse", "said", "that"]


def test_an_answer_that_is_given_stays_when_the_prompt_changes(causal: Any, model: Any) -> None:
    for prompt in (PROMPTS[0], "The doctor said that"):
        (one,) = te.explain(model, [(prompt, " he was")])
        assert one.logit == pytest.approx(log_probability(causal, prompt, " he was"))


@pytest.mark.parametrize("prompt", ["The\x1enurse", "\x1eThe nurse said", "The nurse said\x1e"])
def test_record_separators_are_characters_of_prompts_and_answers(
    causal: Any, model: Any, prompt: str
) -> None:
    for answer in (" he\x1ewas", "\x1e he was\x1e"):
        (one,) = te.explain(model, [(prompt, answer)])
        assert texts_of(one.text, one.second_at) == (prompt, answer)
        assert one.logit == pytest.approx(log_probability(causal, prompt, answer))
        (whole,) = te.explain_answers(causal, prompt, target={"continuation": answer}, per="answer")
        assert whole.log_probability == pytest.approx(one.logit)


def test_an_answer_is_generated_behind_a_prompt_with_a_record_separator(
    causal: Any, model: Any
) -> None:
    (one,) = te.explain(model, "The\x1enurse said that")
    prompt, answer = texts_of(one.text, one.second_at)
    assert prompt == "The\x1enurse said that" and answer
    assert one.logit == pytest.approx(log_probability(causal, prompt, answer))


def test_a_wrong_prompt_costs_no_other(model: Any) -> None:
    wrong = ["", ("she", " "), ("she", " that he was late" * 4), " said" * 70]
    joined = ("she sai", "d that")
    found = te.explain(model, [*wrong, joined, PROMPTS[0]], on_error="record")
    kinds = [one.kind if isinstance(one, ItemFailure) else "" for one in found]
    assert kinds == ["empty-text", "empty-text", "too-long", "too-long", "joined-token", ""]


def test_what_generates_no_answers_is_refused(causal: Any, model: Any) -> None:
    for source in ("lm:x?generate=0", "lm:x?generate=many", "lm:?generate=5", "lm:x?generate=9999"):
        with pytest.raises(ModelLoadError, match="the form is lm:FOLDER"):
            te.load_model(source)
    for module in (tiny.encoder_decoder(), tiny.masked()):
        with pytest.raises(ModelLoadError, match="no causal model of texts"):
            generating(te.load_language_model(module, tiny.byte_pairs()), 5)
    with pytest.raises(ModelLoadError, match="no tokenizer"):
        generating(te.load_language_model(tiny.causal()), 5)
    for target in ("label", "top:1"):
        with pytest.raises(TargetError, match="its own answer"):
            te.explain(model, PROMPTS[0], target=target)


def test_log_odds_of_a_log_probability() -> None:
    answer = Answer(name="answer", plus=(0,), minus=(), logarithm=True)
    shares = np.array([[0.5], [0.9], [1e-30]])
    wanted = np.log(shares[:, 0]) - np.log1p(-shares[:, 0])
    np.testing.assert_allclose(answer.log_odds(np.log(shares)), wanted, atol=1e-12)
    assert np.isfinite(answer.odds_of([0.0]))


def make_audit(folder: Path, planted: float = 1.5, **keys: Any) -> Path:
    """A model that prefers a pronoun by occupation, its prompts, and an audit of its answers."""
    pronoun_pairs.train(folder / "model", 0, planted)
    with (folder / "prompts.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for frame in pronoun_pairs.FRAMES:
            for names in pronoun_pairs.OCCUPATIONS.values():
                rows.writerows([frame.format(name), " HE"] for name in names)
    spec = {
        "name": "answers",
        "model": f"lm:{folder / 'model'}?generate=1",
        "data": str(folder / "prompts.csv"),
        "targets": ["predicted"],
        "groups": {"lexicon": pronoun_pairs.OCCUPATIONS, "reference": "occupation/second"},
        "shard_size": 64,
        **keys,
    }
    groups = folder / "groups.json"
    groups.write_text(json.dumps(spec["groups"]["lexicon"]))
    spec["groups"] = {**spec["groups"], "lexicon": str(groups)}
    path = folder / "audit.yaml"
    path.write_text(json.dumps(spec))
    return path


@pytest.mark.exhaustive
def test_an_audit_refuses_what_answers_have_not(call: Call, tmp_path: Path) -> None:
    path = str(make_audit(tmp_path))
    for wrong, message in (
        ("labels.x=answer", "this model generates its answers"),
        ("targets=[label]", "its own answer"),
        ("data.template=label", "every prompt has an answer of its own"),
    ):
        code, printed = call("plan", path, "--set", wrong)
        assert code == 2 and message in " ".join(printed.split()), printed


@pytest.mark.exhaustive
def test_an_audit_of_answers_from_plan_to_gate(call: Call, tmp_path: Path) -> None:
    path = str(make_audit(tmp_path))
    code, printed = call("run", path)
    assert code == 0, printed
    assert call("verify", "latest")[0] == 0
    report = json.loads(call("report", "latest", "--json")[1])
    assert "the likeliest token each time" in json.dumps(report["notes"])
    first = report["audited"]["run_id"]
    assert call("export", "--format", "jsonl", "-o", "rows.jsonl")[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == 320
    for row in rows:
        answer = row["text"][row["second_at"] :].strip()
        assert answer in ("he", "she") and row["class"] == "answer"
        assert row["prediction"] == ("answer" if answer == "he" else "another answer")
    # the swaps: the same answer behind another name, by the module itself
    (group,) = report["groups"]["verdicts"]
    assert group["mention"] == "changes"
    (tmp_path / "policy.yaml").write_text("verdicts: {outcome: []}\n")
    assert call("gate", "latest", "--policy", "policy.yaml")[0] == 1
    assert call("run", str(make_audit(tmp_path, 0.0)))[0] == 0
    assert call("gate", "latest", "--policy", "policy.yaml")[0] == 0
    code, printed = call("compare", first, "latest")
    printed = " ".join(printed.split())
    assert code == 0 and "320 items in both" in printed, printed
    assert "with another answer (" in printed and "left out" not in printed
    code, printed = call(
        "explain", PROMPTS[0].lower(), "--model", f"lm:{tmp_path}/model?generate=1"
    )
    assert code == 0, printed


@pytest.mark.exhaustive
@pytest.mark.parametrize("planted", [1.5, 0.0])
def test_a_continuation_is_compared_behind_prompts_of_a_template(
    tmp_path: Path, planted: float
) -> None:
    pronoun_pairs.train(tmp_path / "model", 0, planted)
    rows = [
        {"prompt": frame.format(name), "answer": " she", "template": str(number)}
        for number, frame in enumerate(pronoun_pairs.FRAMES)
        for names in pronoun_pairs.OCCUPATIONS.values()
        for name in names
    ]
    with pytest.warns(UserWarning, match="share word pieces"):
        result = te.audit(
            f"lm:{tmp_path / 'model'}?generate=1",
            {"source": rows, "text": ["prompt", "answer"], "template": "template"},
            groups={"lexicon": pronoun_pairs.OCCUPATIONS, "reference": "occupation/second"},
            database=f"sqlite:///{tmp_path / 'runs.db'}",
            evaluation={"items": 0},
            progress=False,
        )
    (row,) = result.groups.to_dict("records")
    assert (row["mention"] == "changes") == bool(planted)
    (verdict,) = result.summary.groups.verdicts
    assert verdict.counterfactual.effect == pytest.approx(2 * planted, abs=0.2)


@pytest.mark.exhaustive
def test_an_audit_of_answers_on_the_queue(redis_url: str, tmp_path: Path) -> None:
    audit = make_audit(tmp_path)
    with celery_fleet(redis_url, tmp_path) as fleet, fleet.worker():
        run_here(fleet.env, tmp_path, "submit", str(audit))
        (run,) = runs.list_runs(fleet.db)
        wait_for(lambda: runs.progress(fleet.db, run.id).state == "done", "the end")
        assert {*fleet.states(run.id)} == {"done"}
