"""Early stopping, kept weights, precision, divergence, curves."""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tiny_trainings import StopAt, image_plan, text_plan

from transexplain.errors import ConfigurationError
from transexplain.extras.training.classifiers import prepare
from transexplain.extras.training.fitting import History, fit
from transexplain.extras.training.optimisation import ParameterGroup
from transexplain.extras.training.training_plans import FitObserver, FitPlan, TrainingPlan
from transexplain.extras.training.training_runs import train


class Scripted:
    """An objective whose validation is written beforehand; its loss pulls all weights to zero."""

    monitor = "score"

    def __init__(
        self, scores: Sequence[float], *, higher: bool = True, starts: int = 0, loss: float = 1.0
    ) -> None:
        self.module = torch.nn.Linear(2, 2)
        torch.nn.init.ones_(self.module.weight)
        torch.nn.init.ones_(self.module.bias)
        self.scores, self.higher_is_better, self.identity = scores, higher, {}
        self.scale, self.weights = loss, []
        parts = {"weight": (self.module.weight, 0), "bias": (self.module.bias, starts)}
        self.groups = [
            ParameterGroup(
                name=name,
                parameters={name: one},
                learning_rate=0.01,
                weight_decay=0.0,
                starts=begin,
            )
            for name, (one, begin) in parts.items()
        ]

    def losses(self, batch, step: int) -> dict[str, torch.Tensor]:
        part = self.module.weight.square().sum()
        whole = self.scale * (part + self.module.bias.square().sum())
        return {"loss": whole, "weight": part}

    def validate(self) -> dict[str, float]:
        self.weights.append(self.module.weight.detach().clone())
        return {"score": self.scores[len(self.weights) - 1]}


@pytest.fixture
def plan(tmp_path: Path) -> TrainingPlan:
    return text_plan(tmp_path)


def run(plan: TrainingPlan, folder: Path, objective: Scripted, **fields) -> History:
    examples = prepare(plan).training  # 43 examples: 6 steps of 8
    wanted = FitPlan(**{"epochs": 6, "batch_size": 8, "warmup": 0.0, **fields})
    return fit(objective, wanted, folder, examples=examples, observer=FitObserver())


@pytest.mark.parametrize(
    ("scores", "of", "options", "epochs", "kept"),
    [
        ([0.5, 0.7, 0.7, 0.6, 0.9, 0.9], {}, {"patience": 2}, 4, 2),
        ([0.5, 0.3, 0.4, 0.2, 0.6, 0.1], {"higher": False}, {"patience": 2}, 6, 6),
        # in epoch 4 all is trained for the first time
        ([0.9, *[0.1] * 5], {"starts": 18}, {"patience": 2, "patience_from": "start"}, 3, 1),
        ([0.9, *[0.1] * 5], {"starts": 18}, {"patience": 2, "patience_from": "unfrozen"}, 6, 1),
        ([0.9, 0.8, 0.7, 0.6, 0.5, 0.4], {}, {"keep": "last"}, 6, 6),
    ],
)
def test_when_a_fit_ends_and_which_weights_it_keeps(
    plan: TrainingPlan, tmp_path: Path, scores: Any, of: Any, options: Any, epochs: int, kept: int
) -> None:
    objective = Scripted(scores, **of)
    result = run(plan, tmp_path / "fit", objective, **options)
    assert (result.epochs, len(objective.weights)) == (epochs, epochs)
    assert result.stopped_early == (epochs < 6) or options.get("patience_from") == "unfrozen"
    assert result.best_epoch == (1 if "keep" in options else kept)
    assert result.metrics == {"score": scores[kept - 1]}
    assert torch.equal(objective.module.weight, objective.weights[kept - 1])


def test_an_end_by_patience_survives_a_kill_before_the_result(
    plan: TrainingPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = [0.5, 0.4, 0.3, 0.2, 0.1, 0.0]
    with monkeypatch.context() as patch:
        patch.setattr("transexplain.extras.training.fitting._Fit._finish", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(plan, tmp_path / "fit", Scripted(scores), patience=2)
    objective = Scripted(scores)
    result = run(plan, tmp_path / "fit", objective, patience=2)
    assert (result.epochs, result.best_epoch, objective.weights) == (3, 1, [])


def test_the_clip_bounds_a_step(plan: TrainingPlan, tmp_path: Path) -> None:
    """The gradients of the step before are those that were clipped."""
    seen: list[float] = []

    class Watched(Scripted):
        def losses(self, batch, step: int) -> dict[str, torch.Tensor]:
            found = super().losses(batch, step)
            if self.module.weight.grad is not None:
                parts = [one.grad.norm() for one in self.module.parameters()]
                seen.append(float(torch.stack(parts).norm()))
            return found

    run(plan, tmp_path / "fit", Watched([0.0] * 6, loss=100.0), clip=0.25)
    assert seen
    assert max(seen) == pytest.approx(0.25, rel=1e-4)


def test_a_loss_that_is_no_number_ends_with_a_remedy(plan: TrainingPlan, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="lower learning_rate"):
        run(plan, tmp_path / "fit", Scripted([0.0] * 6, loss=math.inf))


def test_training_in_bfloat16_keeps_float32_weights(plan: TrainingPlan) -> None:
    plan = replace(plan, fit=plan.fit.model_copy(update={"precision": "bfloat16", "epochs": 1}))
    weights = load_file(Path(train(plan).model) / "model.safetensors")
    assert {one.dtype for one in weights.values()} == {torch.float32}


def test_patience_without_validation_is_refused(plan: TrainingPlan) -> None:
    plan = replace(plan, share=0.0, fit=plan.fit.model_copy(update={"patience": 2}))
    with pytest.raises(ConfigurationError, match="patience needs validation"):
        train(plan)


def test_without_validation_the_last_weights_are_kept(plan: TrainingPlan) -> None:
    trained = train(replace(plan, share=0.0, fit=plan.fit.model_copy(update={"epochs": 1})))
    assert (trained.metrics, trained.best_epoch, trained.examples) == ({}, None, 48)
    assert all(path.is_file() for path in trained.curves)


def test_a_fit_learns_dark_from_light(tmp_path: Path) -> None:
    plan = image_plan(tmp_path, share=0.3)
    trained = train(replace(plan, fit=plan.fit.model_copy(update={"epochs": 8})))
    assert trained.metrics["accuracy"] == 1.0
    assert trained.validation_examples == 7


@pytest.mark.exhaustive
def test_curves_and_history_are_written(plan: TrainingPlan) -> None:
    trained = train(plan, StopAt())
    svg, png = trained.curves
    text = svg.read_text(encoding="utf-8")
    for word in ("validation accuracy", "layers 3-4", "layer 0", "embeddings", "epoch"):
        assert word in text
    with Image.open(png) as picture:
        assert picture.width > 1000
    reported = json.loads(trained.histories[0].read_text(encoding="utf-8"))
    assert [entry["step"] for entry in reported["unfrozen"]] == [0, 6, 12, 18, 24]
    assert len(reported["training"]) == reported["steps"] == 30
    assert [row["epoch"] for row in reported["validation"]] == [1, 2, 3, 4, 5]
    best = max(row["accuracy"] for row in reported["validation"])
    assert best == reported["best"] == trained.metrics["accuracy"]
    with trained.histories[0].with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 30 + 2 * 5
    assert float(rows[0]["value"]) == reported["training"][0]["loss"]


def test_an_output_with_other_things_is_left_alone(plan: TrainingPlan) -> None:
    plan.output.mkdir()
    (plan.output / "thesis.tex").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="not empty"):
        train(plan)
    assert [path.name for path in plan.output.iterdir()] == ["thesis.tex"]
