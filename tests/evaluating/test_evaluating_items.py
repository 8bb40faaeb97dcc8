"""The loop that measures explanations: its forward passes, and the handling of bad items."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_evaluations import evaluated, three_classes
from tiny_evaluations import plan_of as some_plan
from tiny_models import text_items, vit

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.evaluating.evaluation_bench import Stopwatch
from transexplain.evaluating.metrics import curve_of
from transexplain.explaining import Explained, Stopped
from transexplain.explaining.item_loop import Silent
from transexplain.models.loaded_model import LoadedModel
from transexplain.randomness import row_places
from transexplain.types.items import Evidence, Item, ItemFailure
from transexplain.types.scores import (
    EvaluatedMethod,
    EvaluationPlan,
    MethodSpec,
    MetricScore,
    MetricSpec,
)

TEXTS = (
    "a nice film",
    "good",
    "unbelievably nice goods - e x",
    "a a film x good",
    "e film nice unbelievably good good x a",
)
LONG = "a nice unbelievably good film x e film good goods nice a unbelievably a film e x good nice"
CURVES = ("activation", "pruning", "comprehensiveness", "positive-perturbation")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return three_classes()


def plan_of(
    methods: tuple[Any, ...] = ("lrp", "random"), metrics: tuple[Any, ...] = CURVES, **keys: Any
) -> EvaluationPlan:
    return some_plan(methods, metrics, **keys)


def scores_of(ends: list[Explained]) -> dict[tuple[str, str, str], MetricScore]:
    found = [score for end in ends for score in end.scores]
    by_key = {(one.item_id, one.method, one.metric): one for one in found}
    assert len(by_key) == len(found)
    return by_key


def logits_without(model: LoadedModel, item: Item, present: np.ndarray, token: int) -> np.ndarray:
    """(C,) by hand: the item alone, absent content tokens replaced."""
    (encoded,) = model.encode([item])
    ids = encoded.inputs["input_ids"].clone()
    content = [place for place, one in enumerate(encoded.features) if not one.special]
    for place, there in zip(content, present, strict=True):
        if not there:
            ids[place] = token
    inputs = {**encoded.inputs, "input_ids": ids}
    with torch.no_grad():
        answer = model.module(**{name: value[None] for name, value in inputs.items()}).logits
    return answer[0].numpy()


def test_curves_are_what_the_model_says_one_text_at_a_time(model: LoadedModel) -> None:
    items = text_items(*TEXTS)
    found = scores_of(evaluated(model, items, plan_of()))
    mask = model.encoder.tokenizer.mask_token_id
    for item in items:
        for method in ("lrp", "random"):
            (attribution,) = te.explain(model, [item], method)
            own = [not token.special for token in attribution.features]
            for metric in CURVES:
                score = found[item.id, method, metric]
                if sum(own) == 1:
                    assert score.value is None
                    assert "one position" in score.reason
                    continue
                curve = curve_of(MetricSpec(name=metric))
                masks = curve.masks(attribution.relevance[own])
                requested = np.stack([logits_without(model, item, row, mask) for row in masks])
                whole = logits_without(model, item, np.ones(sum(own)), mask)
                by_hand = curve.score(whole, requested, attribution.class_index)
                assert score.curve == pytest.approx(by_hand.curve, abs=1e-12)
                assert score.value == pytest.approx(by_hand.value, abs=1e-12)


def test_other_items_in_the_batch_change_no_score(model: LoadedModel) -> None:
    metrics = tuple(MetricSpec(name=name, params={"over": "words"}) for name in CURVES)
    items = text_items(*TEXTS)
    together = scores_of(evaluated(model, items, plan_of(metrics=metrics)))
    for item in items:
        alone = scores_of(evaluated(model, [item], plan_of(metrics=metrics)))
        for key, score in alone.items():
            other = together[key]
            assert other.reason == score.reason
            assert other.curve == pytest.approx(score.curve, abs=1e-12)


def test_long_texts_are_evaluated_window_by_window(model: LoadedModel) -> None:
    item = text_items(LONG)[0]
    keys = {"long_text": "window", "window": 8}
    ends = evaluated(model, [item], plan_of(), **keys)
    found = scores_of(ends)
    (attribution,) = te.explain(model, [item], "lrp", **keys)
    own = np.array([not token.special for token in attribution.features])
    curve = curve_of(MetricSpec(name="activation"))
    masks = curve.masks(attribution.relevance[own])
    mask = model.encoder.tokenizer.mask_token_id
    requested = [joined_logits(model, item, row, own, mask) for row in masks]
    whole = joined_logits(model, item, np.ones(own.sum(), dtype=bool), own, mask)
    assert ends[0].outcome.logits == pytest.approx(whole, abs=1e-12)
    by_hand = curve.score(whole, np.stack(requested), attribution.class_index)
    assert found[item.id, "lrp", "activation"].curve == pytest.approx(by_hand.curve, abs=1e-12)


def joined_logits(
    model: LoadedModel, item: Item, present: np.ndarray, own: np.ndarray, token: int
) -> np.ndarray:
    """(C,) by hand: 6 tokens at a time between CLS and SEP, the mean of their logits."""
    ids = model.encoder.tokenizer(item.content, add_special_tokens=False)["input_ids"]
    assert len(ids) == own.sum()
    ids = [one if there else token for one, there in zip(ids, present, strict=True)]
    tokenizer = model.encoder.tokenizer
    parts = [ids[start : start + 6] for start in range(0, len(ids), 6)]
    logits = []
    for part in parts:
        framed = [tokenizer.cls_token_id, *part, tokenizer.sep_token_id]
        with torch.no_grad():
            logits.append(model.module(torch.tensor([framed])).logits[0].numpy())
    return np.mean(logits, axis=0)


def test_pictures_lose_their_patches() -> None:
    module = vit(id2label=dict(enumerate("abcd"))).double()
    model = te.wrap(module, modality="image", classes=list("abcd"))
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randn(3, 24, 24, generator=draw, dtype=torch.float64)
    item = Item(id="p", index=0, content={"pixel_values": pixels})
    deletion = MetricSpec(name="deletion", params={"steps": 3, "baseline": "mean"})
    (end,) = evaluated(model, [item], plan_of(("gradient-x-input",), (deletion,)))
    (attribution,) = te.explain(model, [item], "gradient-x-input")
    order = np.argsort(-attribution.relevance.reshape(-1), kind="stable")
    expected = []
    for count in (0, 3, 6, 9):
        changed = pixels.clone()
        for patch in order[:count]:
            row, col = divmod(int(patch), 3)
            changed[:, 8 * row : 8 * row + 8, 8 * col : 8 * col + 8] = 0
        with torch.no_grad():
            logits = module(changed[None]).logits[0]
        expected.append(float(logits.softmax(-1)[attribution.class_index]))
    (score,) = [one for one in end.scores if one.method == "gradient-x-input"]
    assert score.curve == pytest.approx(expected, abs=1e-12)


def test_a_bad_item_costs_only_itself(model: LoadedModel) -> None:
    good = text_items(*TEXTS[:2])
    bad = [
        ItemFailure(item_id="row", index=5, kind="malformed-row", message="torn"),
        Item(id="blank", index=6, content="   "),
    ]
    ends = evaluated(model, [good[0], *bad, good[1]], plan_of())
    assert [end.failure.kind if end.failure else None for end in ends][1] == "malformed-row"
    assert [end.outcome.item_id for end in ends if end.outcome] == ["i0", "i1"]
    assert ends[2].failure is not None
    assert not ends[2].scores


def test_an_item_without_label_is_counted(model: LoadedModel) -> None:
    items = [
        replace(item, label=label)
        for item, label in zip(text_items(*TEXTS), [None, "good"], strict=False)
    ]
    plan = plan_of(targets=("predicted", "label"), metrics=("activation", "sparsity"))
    ends = evaluated(model, items, plan)
    # without a label the method explains nothing of the item: every score says so
    reasons = {score.reason for score in ends[0].scores}
    assert len(reasons) == 1
    assert "no label" in reasons.pop()
    assert {(s.target, s.method, s.metric) for s in ends[0].scores} == {
        (target, method, metric)
        for target in ("predicted", "label")
        for method in ("lrp", "random")
        for metric in ("activation", "sparsity")
    }
    assert all("one position" in s.reason for s in ends[1].scores if s.metric == "activation")


def test_items_that_the_model_is_unsure_of_are_counted(model: LoadedModel) -> None:
    items = text_items(*TEXTS)
    for confidence in (0.0, 0.999999):
        ends = evaluated(model, items, plan_of(confidence=confidence, metrics=("sparsity",)))
        reasons = [score.reason for end in ends for score in end.scores]
        assert len(reasons) == 2 * len(items)
        assert all(("not sure" in reason) == (confidence > 0) for reason in reasons)


def test_limits_are_nested_samples(model: LoadedModel) -> None:
    items = text_items(*TEXTS)
    few = EvaluatedMethod(label="lrp few", method=MethodSpec(name="lrp"), items=3)
    metric = MetricSpec(name="activation", items=2)
    plan = plan_of((few, "random"), (metric, "sparsity"), seed=4)
    found = scores_of(evaluated(model, items, plan))
    order = np.argsort(row_places(len(items), 4))
    ids = [items[row].id for row in order]
    measured = {key: {i for i, m, k in found if (m, k) == key} for key in {k[1:] for k in found}}
    assert measured == {
        ("lrp few", "sparsity"): set(ids[:3]),
        ("lrp few", "activation"): set(ids[:2]),
        ("random", "sparsity"): set(ids),
        ("random", "activation"): set(ids[:2]),
    }


def test_the_human_rationale_has_its_own_row(model: LoadedModel) -> None:
    marked = replace(text_items(TEXTS[0])[0], evidence=Evidence(spans=((2, 6),)))
    (end,) = evaluated(model, [marked], plan_of(metrics=("activation", "sparsity", "runtime")))
    found = {(s.method, s.metric): s.value for s in end.scores}
    # one of three tokens is marked
    assert found["oracle", "sparsity"] == pytest.approx(2 / 3)
    assert found["oracle", "activation"] is not None
    assert ("oracle", "runtime") not in found


def test_stopping_ends_the_work(model: LoadedModel) -> None:
    class Impatient(Silent):
        calls = 0

        def should_stop(self) -> bool:
            self.calls += 1
            return self.calls > 3

    with pytest.raises(Stopped):
        evaluated(model, text_items(*TEXTS), plan_of(), Impatient())


@pytest.mark.parametrize(
    ("plan", "printed"),
    [
        (plan_of(targets=("top:2",)), "one class an item"),
        (plan_of(metrics=(MetricSpec(name="activation", params={"baseline": "grey"}),)), "grey"),
        (plan_of(metrics=(MetricSpec(name="activation", params={"over": "lines"}),)), "lines"),
        (plan_of(methods=("lrpp",)), "did you mean 'lrp'"),
    ],
)
def test_a_wrong_plan_is_reported(model: LoadedModel, plan: EvaluationPlan, printed: str) -> None:
    with pytest.raises(ConfigurationError, match=printed):
        evaluated(model, text_items(*TEXTS), plan)


def test_a_batch_is_timed_in_equal_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([20.0, 21.0, 30.0, 33.0, 40.0, 44.0])
    monkeypatch.setattr(
        "transexplain.evaluating.evaluation_bench.time.perf_counter", lambda: next(now)
    )
    watch = Stopwatch(Silent())
    watch.item_done("one that was not encoded")
    watch.batch_started(["a", "b"])
    watch.item_done("a")
    watch.item_done("b")
    watch.batch_started(["c", "d"])  # windows of two texts, ended by those of d alone
    watch.batch_started(["d"])
    watch.item_done("c")
    assert dict(watch.seconds) == {"a": 0.5, "b": 0.5, "c": 1.5, "d": 1.5 + 4.0}
