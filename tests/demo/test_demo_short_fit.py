"""The demo trains to the same weights as `transexplain train` does with ignite."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from orchestrator.demo import text_model
from orchestrator.demo.short_fit import train_classifier
from transexplain.data.snapshot import prepare
from transexplain.training.training_plans import FitPlan, Optimisation, TrainingPlan
from transexplain.types.plans import DatasetSpec


def small_plan(folder: Path) -> TrainingPlan:
    """Three epochs of a small training with dropout, smoothing, warm-up and strong decay."""
    text_model._write_untrained(folder / "start", seed=3)
    text_model.write_csv(folder / "letters.csv", text_model.letters(40, seed=3))
    data = DatasetSpec(source=str(folder / "letters.csv"), id="id")
    return TrainingPlan(
        source=str(folder / "start"),
        dataset=prepare(data, folder / "snapshots"),
        output=folder / "training",
        share=0.05,
        stages=None,
        seed=3,
        optimisation=Optimisation(
            learning_rate=1e-3, embedding_weight_decay=20.0, label_smoothing=0.05
        ),
        fit=FitPlan(epochs=3, batch_size=16, warmup=0.3, clip=None, keep="last", seed=3),
    )


@pytest.mark.exhaustive
def test_the_weights_are_those_of_the_full_training(tmp_path: Path) -> None:
    from transexplain.training import train

    plan = small_plan(tmp_path)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    short = load_file(train_classifier(plan) / "model.safetensors")
    assert torch.equal(before, torch.get_rng_state())
    long = train(replace(plan, output=tmp_path / "long"))
    wanted = load_file(Path(long.model) / "model.safetensors")
    first = load_file(tmp_path / "start" / "model.safetensors")
    assert short.keys() == wanted.keys()
    assert all(torch.equal(short[name], wanted[name]) for name in wanted)
    assert any(not torch.equal(short[name], first[name]) for name in first)
