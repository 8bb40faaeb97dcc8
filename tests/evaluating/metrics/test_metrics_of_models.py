"""The metrics that explain again, in the loop over items, on texts and pictures."""

import pytest
import torch
from tiny_models import bert, text_items, vit, wordpiece

import transexplain as te
from transexplain.evaluating.evaluate_items import evaluate_items
from transexplain.evaluating.evaluation_bench import Evaluation
from transexplain.evaluating.metrics import metric_facts
from transexplain.evaluating.metrics.metric_table import MODELS
from transexplain.explaining import Request
from transexplain.explaining.item_loop import Silent
from transexplain.types.scores import EvaluatedMethod, EvaluationPlan, MethodSpec, MetricSpec
from transexplain.types.targets import ClassNames, parse_target

METHODS = ("lrp", "rollout", "random")


@pytest.mark.parametrize("modality", ["text", "image"])
def test_every_method_and_item_is_measured(modality: str) -> None:
    draw = torch.Generator().manual_seed(0)
    if modality == "text":
        model = te.wrap(bert(initializer_range=0.3), modality="text", tokenizer=wordpiece())
        items = text_items("a nice film", "unbelievably good goods", "e x - a film")
    else:
        model = te.wrap(vit(initializer_range=0.3), modality="image")
        items = text_items(
            *({"pixel_values": torch.rand(3, 24, 24, generator=draw)} for _ in range(2))
        )
    names = ClassNames(model.classes)
    plan = EvaluationPlan(
        methods=tuple(EvaluatedMethod(label=m, method=MethodSpec(name=m)) for m in METHODS),
        metrics=tuple(MetricSpec(name=name) for name in MODELS),
    )
    request = Request(method=MethodSpec(), targets=(parse_target("predicted", names),), names=names)
    evaluation = Evaluation(request=request, plan=plan, rows=len(items))
    before = {name: one.clone() for name, one in model.module.state_dict().items()}
    found = list(evaluate_items(model, items, evaluation, observer=Silent()))
    scores = {
        (one.metric, one.method, end.outcome.item_id): one
        for end in found
        if end.outcome is not None
        for one in end.scores
    }
    assert len(scores) == len(MODELS) * len(METHODS) * len(items)
    for (metric, method, _), score in scores.items():
        assert score.value is not None, score.reason
        assert bool(score.curve) == bool(metric_facts(metric).axis)
        if method == "random":  # the one row whose answers are known: it reads nothing
            assert score.value == {"randomisation": 1}.get(metric, 0)
    after = model.module.state_dict()
    assert all(torch.equal(after[name], values) for name, values in before.items())
