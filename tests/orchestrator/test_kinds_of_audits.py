"""One audit of each kind: pairs, several labels, labels of tokens, answers, two towers.

From plan to gate, one of them on a queue, too. All models have random weights.
"""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_language as tiny
import torch
from chaos_groups import environment
from command_line_here import run_here
from gallery import Gallery
from kinds_of_audits import KINDS, audit_of, question_rows

import transexplain as te
from benchmarks import pronoun_pairs
from transexplain.errors import ModelLoadError, TargetError
from transexplain.extras.language.load_language import generating
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.answer_spans import agreement
from transexplain.types.items import ItemFailure
from transexplain.types.pairs import texts_of

Call = Callable[..., tuple[int, str]]
EXPORTS = ("csv", "jsonl", "parquet", "markdown", "model-card", "annex-iv")


@pytest.mark.parametrize(
    ("answer", "given", "exact", "f1"),
    [
        ("The Film!", ["a film"], True, 1.0),
        ("the nice film", ["film"], False, 2 / 3),
        ("x", ["good film", "X."], True, 1.0),
        ("good", ["bad"], False, 0.0),
        ("", ["the"], True, 1.0),
        ("", ["film"], False, 0.0),
    ],
)
def test_answers_agree_as_squad_measures_them(
    answer: str, given: list[str], exact: bool, f1: float
) -> None:
    found = agreement(answer, given)
    assert (found.exact, found.f1) == (exact, pytest.approx(f1))
    assert found.name == ("exact" if exact else "partly" if f1 else "other")


@pytest.mark.exhaustive
def test_answers_of_a_group_are_counted_with_their_f1(gallery: Gallery) -> None:
    (outcome,) = [
        row for row in gallery.document("answers")["groups"]["outcomes"] if row["group"] == "things"
    ]
    things = [
        row["label"]
        for row in question_rows()
        if row["label"] is not None
        and {"film", "goods", "x"} & {*f"{row['question']} {row['context']}".split()}
    ]
    selected, exact = outcome["own"]["selected"], sum(isinstance(label, dict) for label in things)
    assert (selected["count"], selected["total"]) == (exact, len(things)) and exact > 5
    assert exact / len(things) < outcome["own"]["probability"]["value"] < 1, "the mean F1"
    assert outcome["counted"] == "answers"


@pytest.fixture
def here(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=f"sqlite:///{tmp_path / 'here.db'}")


@pytest.mark.exhaustive
@pytest.mark.timeout(480)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_audit(kind: str, here: dict[str, str], tmp_path: Path) -> None:
    """Run, export and verify; compare with another model and gate where answers are entities."""
    run_here(here, tmp_path, "run", str(audit_of(kind, tmp_path)))
    report = json.loads(run_here(here, tmp_path, "report", "latest", "--json"))
    assert report["counts"]["done"] == report["counts"]["total"] == 40
    for form in EXPORTS:
        run_here(here, tmp_path, "export", "--format", form, "-o", f"exported-{form}")
        assert (tmp_path / f"exported-{form}").exists()
    assert "verified" in run_here(here, tmp_path, "verify", "latest", "--items", "5")
    if kind in ("labels", "tokens", "answers"):
        refused = run_here(here, tmp_path, "evaluate", str(tmp_path / "audit.yaml"), code=2)
        assert "are not evaluated" in refused
    if kind not in ("tokens", "answers"):
        return
    first = report["audited"]["run_id"]
    run_here(here, tmp_path, "run", str(audit_of(kind, tmp_path, seed=1)))
    compared = json.loads(run_here(here, tmp_path, "compare", first, "latest", "--json"))
    flips, changes = (compared["predictions"][name] for name in ("changed", "found"))
    assert flips > 0 and changes
    for one in changes:
        assert 0 <= one["same"] + one["renamed"] <= min(one["before"], one["after"])
    policy = f"drift: {{against: {first}, max_changed_predictions: 0.0001, force: true}}\n"
    (tmp_path / "policy.yaml").write_text(policy)
    printed = run_here(here, tmp_path, "gate", "latest", "--policy", "policy.yaml", code=1)
    assert f"{flips / 40:.3g} of 40" in " ".join(printed.split()), printed


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


def test_a_wrong_prompt_costs_no_other(model: Any) -> None:
    wrong = ["", ("she", " "), ("she", " that he was late" * 4), " said" * 70]
    joined = ("she sai", "d that")
    found = te.explain(model, [*wrong, joined, PROMPTS[0]], on_error="record")
    kinds = [one.kind if isinstance(one, ItemFailure) else "" for one in found]
    assert kinds == ["empty-text", "empty-text", "too-long", "too-long", "joined-token", ""]


def test_what_generates_no_answers_is_refused(causal: Any, model: Any) -> None:
    for source in ("lm:x?generate=0", "lm:x?generate=many", "lm:?generate=5", "lm:x?generate=9999"):
        with pytest.raises(ModelLoadError):
            te.load_model(source)
    for module in (tiny.encoder_decoder(), tiny.masked()):
        with pytest.raises(ModelLoadError):
            generating(te.load_language_model(module, tiny.byte_pairs()), 5)
    with pytest.raises(ModelLoadError, match="no tokenizer"):
        generating(te.load_language_model(tiny.causal()), 5)
    for target in ("label", "top:1"):
        with pytest.raises(TargetError, match="its own answer"):
            te.explain(model, PROMPTS[0], target=target)


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
