"""A small classifier of texts with three classes, and evaluations of it in memory."""

from collections.abc import Sequence
from typing import Any

from tiny_models import bert, wordpiece

import transexplain as te
from transexplain.evaluating.evaluate_items import evaluate_items
from transexplain.evaluating.evaluation_bench import Evaluation
from transexplain.explaining import Explained, Request
from transexplain.explaining.item_loop import Silent
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.scores import (
    EvaluatedMethod,
    EvaluationPlan,
    MethodSpec,
    MetricSpec,
)
from transexplain.types.targets import ClassNames, parse_target

CLASSES = {0: "bad", 1: "so-so", 2: "good"}


def three_classes() -> LoadedModel:
    """The classifier, of random weights that are large enough to tell texts apart; float64."""
    module = bert(id2label=CLASSES, initializer_range=0.5).double()
    return te.wrap(module, tokenizer=wordpiece(), modality="text")


def plan_of(methods: Sequence[Any], metrics: Sequence[Any], **keys: Any) -> EvaluationPlan:
    """Methods and metrics by their names, or as they are."""
    return EvaluationPlan(
        methods=tuple(
            one
            if isinstance(one, EvaluatedMethod)
            else EvaluatedMethod(label=one, method=MethodSpec(name=one))
            for one in methods
        ),
        metrics=tuple(
            one if isinstance(one, MetricSpec) else MetricSpec(name=one) for one in metrics
        ),
        **keys,
    )


def evaluated(
    model: LoadedModel,
    items: Sequence[Any],
    plan: EvaluationPlan,
    observer: Any = None,
    **keys: Any,
) -> list[Explained]:
    """The end of every item; `keys` are of the request."""
    names = ClassNames(model.classes)
    targets = tuple(parse_target(spec, names) for spec in plan.targets)
    request = Request(method=MethodSpec(), targets=targets, names=names, **keys)
    evaluation = Evaluation(request=request, plan=plan, rows=max(1, len(items)))
    return list(evaluate_items(model, items, evaluation, observer=observer or Silent()))
