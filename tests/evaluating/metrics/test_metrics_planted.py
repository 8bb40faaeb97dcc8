"""Models whose evidence is known: the rationale is what the model uses."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_models import wordpiece
from torch import nn

import transexplain as te
from transexplain.evaluating.evaluate_items import evaluate_items
from transexplain.evaluating.evaluation_bench import Evaluation
from transexplain.explaining import Request
from transexplain.explaining.item_loop import Silent
from transexplain.types.items import Evidence, Item
from transexplain.types.scores import (
    ORACLE,
    EvaluatedMethod,
    EvaluationPlan,
    MethodSpec,
    MetricSpec,
)
from transexplain.types.targets import ClassNames, parse_target


def values_of(model: Any, items: list[Item], methods: list[str], metrics: list[MetricSpec]) -> Any:
    """(method, metric) -> its values."""
    names = ClassNames(model.classes)
    plan = EvaluationPlan(
        methods=tuple(EvaluatedMethod(label=m, method=MethodSpec(name=m)) for m in methods),
        metrics=tuple(metrics),
    )
    target = parse_target("class:yes", names)
    request = Request(method=MethodSpec(), targets=(target,), names=names)
    evaluation = Evaluation(request=request, plan=plan, rows=len(items))
    found = defaultdict(list)
    for end in evaluate_items(model, items, evaluation, observer=Silent()):
        assert end.failure is None
        for score in end.scores:
            found[score.method, score.metric].append(score.value)
    return found


class Spot(nn.Module):
    """Says `yes` by the light within one rectangle of the patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 6, kernel_size=4, stride=4, bias=False)
        self.blocks = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.head = nn.Linear(6, 2, bias=False)
        spot = torch.zeros(8, 8)
        spot[1:4, 2:6] = 1.0
        self.register_buffer("spot", spot.reshape(1, 64, 1))
        for weight in self.parameters():
            nn.init.constant_(weight, 0.1 if weight.ndim > 1 else 0.0)
        with torch.no_grad():
            self.head.weight[0] = 0.0

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        states = self.patch(pixels).flatten(2).transpose(1, 2)
        for block in self.blocks:
            states = torch.relu(block(states))
        return self.head((states * self.spot).sum(1))


def pictures(count: int) -> list[Item]:
    """Bright noise of 64 x 48 pixels, of which the model sees 32 x 32 in small."""
    generator = np.random.default_rng(0)
    mask = np.zeros((48, 64), dtype=bool)
    mask[6:24, 16:48] = True  # rows 1 to 3 and columns 2 to 5 of 8 each
    noise = generator.integers(100, 256, size=(count, 48, 64, 3), dtype=np.uint8)
    marks = [Evidence(mask=mask), Evidence(boxes=((16 / 64, 6 / 48, 48 / 64, 24 / 48),))]
    return [
        Item(id=str(n), index=n, content=Image.fromarray(noise[n]), evidence=marks[n % 2])
        for n in range(count)
    ]


def small(picture: Image.Image) -> torch.Tensor:
    pixels = np.asarray(picture.resize((32, 32), Image.Resampling.BILINEAR), dtype=np.float32)
    return torch.from_numpy(pixels / 255).permute(2, 0, 1)


def test_a_picture_model_that_looks_at_one_spot() -> None:
    model = te.wrap(
        Spot().eval(),
        modality="image",
        transform=small,
        classes=["no", "yes"],
        input_size=(3, 32, 32),
    )
    names = ("pointing-game", "segmentation-ap", "segmentation-miou", "pixel-accuracy")
    metrics = [
        MetricSpec(
            name=name, params={} if name == "pointing-game" else {"interpolation": "nearest"}
        )
        for name in names
    ]
    found = values_of(model, pictures(6), ["lrp", "gradient-x-input", "random"], metrics)
    for method in ("lrp", "gradient-x-input", ORACLE):
        assert found[method, "pointing-game"] == [1] * 6
        assert min(found[method, "segmentation-miou"]) > 0.9
        assert min(found[method, "segmentation-ap"]) > 0.9
    assert np.mean(found["random", "segmentation-miou"]) < 0.5
    assert np.mean(found["random", "pixel-accuracy"]) < 0.7


class Bag(nn.Module):
    """Says `yes` by the words it knows to be good, wherever they stand."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(18, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.head = nn.Linear(4, 2, bias=False)
        with torch.no_grad():
            self.words.weight.zero_()
            self.words.weight[11] = torch.tensor([1.0, 2.0, 0.5, 1.0])  # good
            self.words.weight[7] = torch.tensor([2.0, 0.5, 1.0, 0.1])  # nice
            for layer in self.layers:
                layer.weight.copy_(torch.eye(4))
                layer.bias.zero_()
            self.head.weight.copy_(torch.tensor([[0.0] * 4, [1.0] * 4]))

    def forward(self, input_ids: Any, attention_mask: Any, **_: Any) -> torch.Tensor:
        states = self.words(input_ids)
        for layer in self.layers:
            states = layer(states)
        return self.head((states * attention_mask[..., None]).sum(1))


@pytest.mark.parametrize("method", ["lrp", "gradient-x-input"])
def test_a_text_model_that_knows_two_words(method: str) -> None:
    model = te.wrap(Bag().eval(), modality="text", tokenizer=wordpiece(), classes=["no", "yes"])
    texts = ["a film nice a un x e a film x e", "goods a good x e film a film nice a x film"]
    items = [
        Item(
            id=str(n),
            index=n,
            content=text,
            evidence=Evidence(
                spans=tuple(
                    (text.index(f" {word}") + 1, text.index(f" {word}") + 5)
                    for word in ("nice", "good")
                    if f" {word}" in text
                )
            ),
        )
        for n, text in enumerate(texts)
    ]
    metrics = [
        MetricSpec(name="rationale-auprc"),
        MetricSpec(name="rationale-iou", params={"share": 0.15}),
        MetricSpec(name="rationale-iou-f1", params={"share": 0.15}),
        MetricSpec(name="token-f1"),
    ]
    found = values_of(model, items, [method], metrics)
    assert found[method, "rationale-auprc"] == [1.0, 1.0]
    # 0.15 of 11 tokens is 2, of which 1 is marked; of 12 it is 2, both marked
    assert found[method, "rationale-iou"] == [0.5, 1.0]
    # equal relevance of 0: the first token is the other passage of the first text
    assert found[method, "rationale-iou-f1"] == pytest.approx([2 / 3, 1.0])
    assert found[method, "token-f1"] == pytest.approx(
        [(2 / 11 + 7 * 2 / 12) / 8, (4 / 12 + 7 * 4 / 14) / 8]
    )
