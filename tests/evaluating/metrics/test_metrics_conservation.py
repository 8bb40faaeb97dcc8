"""Conservation against sums written out, and the bookkeeping beside it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from benches import bench_of, case_of, explained
from tiny_models import bert, text_items, vit, wordpiece

import transexplain as te
from transexplain.evaluating.metrics.map_metrics import conservation, ledger_gap
from transexplain.models.loaded_model import LoadedModel

ITEMS = text_items("a nice unbelievably good film", "x e - good film", "good")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return te.wrap(bert(initializer_range=0.5).double(), modality="text", tokenizer=wordpiece())


def test_gradient_x_input_over_the_embedded_positions(model: LoadedModel) -> None:
    """Ali et al.: the score beside the sum of x df/dx over the embeddings with positions."""
    for case in explained(bench_of(model, "gradient-x-input"), ITEMS):
        encoded = wordpiece()(case.item.content, return_tensors="pt")
        module: Any = model.module
        hidden = module.bert.embeddings(encoded["input_ids"]).detach().requires_grad_()
        logits = module.classifier(
            module.bert.pooler(module.bert.encoder(hidden).last_hidden_state)
        )
        logit = logits[0, case.attribution.class_index]
        (gradient,) = torch.autograd.grad(logit, hidden)
        values, slopes = hidden.detach()[0].tolist(), gradient[0].tolist()
        f, total = logit.item(), 0.0
        for position in range(len(values)):
            for unit in range(len(values[0])):
                total += values[position][unit] * slopes[position][unit]
        found = conservation(case)
        assert found.detail["pair"] == pytest.approx([f, total], rel=1e-9)
        assert found.value == pytest.approx(abs(f - total) / abs(f), rel=1e-9)


@pytest.mark.parametrize("method", ["lrp", "attention-last", "gae", "random"])
def test_special_positions_count_and_units_do_not(model: LoadedModel, method: str) -> None:
    for case in explained(bench_of(model, method), ITEMS):
        summed = sum(case.attribution.relevance.tolist())
        found = conservation(case)
        assert found.detail["pair"] == pytest.approx([case.attribution.logit, summed], rel=1e-9)
        if method == "attention-last":
            assert found.detail["pair"][1] == pytest.approx(1.0)


def test_the_class_token_of_pictures_counts() -> None:
    model = te.wrap(vit().double(), modality="image")
    picture = {"pixel_values": torch.rand(3, 24, 24, generator=torch.Generator().manual_seed(0))}
    (one,) = te.explain(model, picture, "lrp", "class:1")
    found = conservation(replace(case_of([0.0]), attribution=one))
    assert one.ledger is not None and one.prefix_relevance != (0.0,)
    assert found.detail["pair"][1] == pytest.approx(one.ledger.inputs + one.ledger.special)


def test_a_rule_that_loses_relevance_closes_its_books_but_does_not_conserve(
    model: LoadedModel,
) -> None:
    for case in explained(bench_of(model, "gradient-x-input"), ITEMS):
        books, sums = ledger_gap(case).value, conservation(case).value
        assert books is not None and books < 1e-12
        assert sums is not None and sums > 0.01


def test_by_hand_and_without_a_logit() -> None:
    case = case_of([1.0, -3.0])
    assert conservation(case).value == pytest.approx(3.0)  # |1 - (7 + 1 - 3 - 7)| / 1
    none = replace(case, attribution=replace(case.attribution, logit=0.0))
    assert conservation(none).reason == "the explained logit is 0"
    assert ledger_gap(case).reason == "the method keeps no ledger"
