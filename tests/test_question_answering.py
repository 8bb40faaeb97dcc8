"""Question answering: start and end logits of the answer in the context, of pairs alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from architectures_measured import TEXTS
from architectures_record import Architecture, build
from architectures_text import ANSWERS
from kinds_of_audits import reader
from numpy.typing import NDArray
from tiny_models import SIZES, wordpiece

import transexplain as te
from transexplain.errors import ConfigurationError, ItemError, ModelLoadError
from transexplain.methods import bound
from transexplain.models.assemble import Origin, assemble_text
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Item, ResolvedTarget
from transexplain.types.scores import MethodSpec

QUESTION, CONTEXT = "a nice film", "good goods x e a un film nice good"
PAIR = (QUESTION, CONTEXT)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return te.wrap(reader().double(), tokenizer=wordpiece())


def test_the_answer_is_the_best_span_of_the_context(model: LoadedModel) -> None:
    assert model.classes == ("start", "end") and model.ref.head == "span"
    inputs = wordpiece()(*PAIR, return_tensors="pt")
    with torch.no_grad():
        out = model.module(**inputs)
    start, end = out.start_logits[0].numpy(), out.end_logits[0].numpy()
    context = [n for n, one in enumerate(inputs.sequence_ids(0)) if one == 1]
    sums = {(i, j): start[i] + end[j] for i in context for j in context if i <= j < i + 30}
    first, last = max(sums, key=lambda key: sums[key])
    (one,) = te.explain(model, [PAIR])
    assert one.positions == (first, last) and one.class_name == "answer"
    assert one.logit == pytest.approx(sums[first, last], rel=1e-9)
    assert one.ledger is not None and one.ledger.relative_gap < 1e-12
    begin, _, stop = one.notes[0].removeprefix("explains the answer, characters ").split()
    assert one.text is not None and one.text[int(begin) : int(stop)] in CONTEXT
    (head,) = te.explain(model, [PAIR], target="class:start")
    (tail,) = te.explain(model, [PAIR], target="class:end")
    assert head.logit == pytest.approx(start[first], rel=1e-9)
    np.testing.assert_allclose(one.relevance, head.relevance + tail.relevance, atol=1e-9)
    question, context_sum = one.by_text()
    assert question != 0 and context_sum != 0


def test_given_answers_are_targets(model: LoadedModel) -> None:
    squad = '{"text": ["un film"], "answer_start": [15]}'
    by_text, by_squad = (
        te.explain(model, [Item(id="a", index=0, content=PAIR, label=label)], target="label")[0]
        for label in ("un film", squad)
    )
    np.testing.assert_array_equal(by_text.relevance, by_squad.relevance)
    assert [by_text.features[place].text for place in by_text.positions] == ["un", "film"]
    begin = len(PAIR[0]) + 1 + PAIR[1].index("un film")
    (marked,) = te.explain(model, [PAIR], target={"span": [begin, begin + 7, "answer"]})
    np.testing.assert_array_equal(marked.relevance, by_text.relevance)


def test_bad_input_costs_its_own_item(model: LoadedModel) -> None:
    items = [
        Item(id="a", index=0, content="only a film"),
        Item(id="b", index=1, content=PAIR, label="unbelievable"),
        Item(id="c", index=2, content=PAIR, label="good"),
    ]
    ends = te.explain(model, items, target="label", on_error="record")
    assert ends[0].kind == "no-context" and "--second" in ends[0].message
    assert "does not hold the answer 'unbelievable'" in ends[1].message
    assert ends[2].class_name == "answer"
    with pytest.raises(ItemError, match="the second text of the pair is empty"):
        te.explain(model, [(QUESTION, " ")])
    with pytest.raises(ConfigurationError, match="answers questions are not evaluated"):
        te.evaluate(model, [PAIR])


def test_multiple_choice_and_beams_are_refused_by_name(tmp_path: Path) -> None:
    settings = {"vocab_size": 18, "max_position_embeddings": 40, **SIZES}
    choice = transformers.BertForMultipleChoice(transformers.BertConfig(**settings))
    choice.save_pretrained(tmp_path)
    wordpiece().save_pretrained(tmp_path)
    for call in (lambda: te.wrap(choice, tokenizer=wordpiece()), lambda: te.load_model(tmp_path)):
        with pytest.raises(ModelLoadError, match="BertForMultipleChoice"):
            call()
    own = {"d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 24, "vocab_size": 18}
    beams = transformers.XLNetForQuestionAnswering(transformers.XLNetConfig(**own))
    with pytest.raises(ModelLoadError, match="XLNetForQuestionAnswering"):
        te.load_model(beams.eval(), wordpiece())


def test_a_saved_model_is_explained_in_the_terminal(call: Any, tmp_path: Path) -> None:
    model = str(tmp_path / "model")
    reader().save_pretrained(model)
    wordpiece().save_pretrained(model)
    code, printed = call("explain", QUESTION, "--second", CONTEXT, "--model", model)
    assert code == 0 and "answer" in printed and "characters" in printed, printed


def start_and_end(logits: NDArray[Any]) -> list[list[ResolvedTarget]]:
    ends: Any = {"coefficients": ((0, 1.0), (1, 1.0)), "positions": (1, 2)}
    target = ResolvedTarget(spec="predicted", rank=0, class_index=None, class_name="answer", **ends)
    return [[target] for _ in logits]


@pytest.mark.parametrize("architecture", ANSWERS, ids=lambda one: one.name)
def test_ledgers_of_start_and_end_close(architecture: Architecture) -> None:
    origin = Origin(source="module:random", digest="", device="cpu")
    model = assemble_text(build(architecture), tokenizer=None, classes=(), origin=origin)
    assert model.ref.head == "span"
    (made,) = model.encode([Item(id="a", index=0, content={"input_ids": torch.tensor(TEXTS[0])})])
    found = bound(MethodSpec(name="lrp"))(model, model.collate([made]), start_and_end)
    ((one,),) = found.attributions
    assert one.logit == pytest.approx(found.logits[0, 1, 0] + found.logits[0, 2, 1], rel=1e-12)
    assert one.ledger.relative_gap <= architecture.tolerance
    assert np.abs(one.relevance).max() > 1e-9
