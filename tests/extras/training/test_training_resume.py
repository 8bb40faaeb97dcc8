"""Whatever ends a training, going on gives the same bits; a real kill included."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_trainings import StopAt, image_plan, text_plan

from transexplain.errors import ConfigurationError
from transexplain.extras.training.training_plans import TrainingPlan
from transexplain.extras.training.training_runs import forget, train
from transexplain.models.load import load_model

pytestmark = pytest.mark.exhaustive

Make = Callable[..., TrainingPlan]

_CHILD = """
import os, signal, sys, torch
from pathlib import Path
from tiny_trainings import StopAt, text_plan
from transexplain.extras.training.training_runs import train
torch.set_num_threads(1)

class Killed(StopAt):
    def stepped(self, step, steps, losses):
        if step == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

from dataclasses import replace
plan = text_plan(Path(sys.argv[1]))
train(replace(plan, fit=plan.fit.model_copy(update={"checkpoint_steps": 2})), Killed())
"""


def weights(plan: TrainingPlan) -> dict[str, torch.Tensor]:
    return load_file(plan.output / "model" / "model.safetensors")


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


def stopped(plan: TrainingPlan, step: int) -> StopAt:
    observer = StopAt(step)
    with pytest.raises(KeyboardInterrupt):
        train(plan, observer)
    return observer


@pytest.mark.parametrize("make", [text_plan, image_plan])
def test_a_training_that_is_ended_several_times_gives_the_same_bits(
    tmp_path: Path, make: Make
) -> None:
    whole = make(tmp_path, output=tmp_path / "whole")
    uninterrupted = train(whole)
    broken = replace(whole, output=tmp_path / "broken")
    ends = [stopped(broken, step).steps[-1] for step in (1, 2, 5, 6, 11)]
    assert ends == [1, 2, 5, 6, 11]
    observer = StopAt()
    resumed = train(broken, observer)
    assert observer.steps[0] == 12
    assert same(weights(whole), weights(broken))
    assert resumed.metrics == uninterrupted.metrics
    assert resumed.histories[0].read_text() == uninterrupted.histories[0].read_text()


def test_a_killed_process_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    plan = text_plan(tmp_path)
    for step in ("3", "13"):
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(tmp_path), step],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        observer = StopAt()
        train(plan, observer)
        whole = replace(plan, output=tmp_path / "whole")
        train(whole)
    finally:
        torch.set_num_threads(threads)
    assert observer.steps[0] == 13
    assert same(weights(plan), weights(whole))


def test_a_finished_training_is_not_trained_again_until_it_is_forgotten(tmp_path: Path) -> None:
    plan = text_plan(tmp_path)
    first, again, anew = StopAt(), StopAt(), StopAt()
    trained = train(plan, first)
    before = weights(plan)
    assert train(plan, again) == trained
    assert not again.steps
    forget(plan.output)
    train(plan, anew)
    assert anew.steps == first.steps == list(range(1, 31))
    assert same(before, weights(plan))


def test_other_settings_do_not_go_on_with_a_checkpoint(tmp_path: Path) -> None:
    plan = text_plan(tmp_path)
    stopped(plan, 4)
    rate = plan.optimisation.model_copy(update={"learning_rate": 1e-4})
    with pytest.raises(ConfigurationError, match="--restart"):
        train(replace(plan, optimisation=rate))
    with pytest.raises(ConfigurationError, match="other settings"):
        train(replace(plan, fit=plan.fit.model_copy(update={"seed": 4})))


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    plan = text_plan(tmp_path)
    stopped(plan, 4)
    (plan.output / "fit" / "checkpoint.safetensors").write_bytes(b"short")
    with pytest.raises(ConfigurationError, match=r"checkpoint\.safetensors"):
        train(plan)


def test_only_safetensors_hold_weights(tmp_path: Path) -> None:
    plan = text_plan(tmp_path)
    stopped(plan, 13)
    names = sorted(path.name for path in (plan.output / "fit").iterdir())
    assert names[-1] == "checkpoint.safetensors"
    assert len(names) == 2
    assert names[0].startswith("best-")
    train(plan)
    assert [path.name for path in (plan.output / "fit").iterdir()] == ["finished.safetensors"]
    kinds = {path.suffix for path in plan.output.rglob("*") if path.is_file()}
    assert kinds == {".safetensors", ".json", ".csv", ".svg", ".png"}
    assert load_model(plan.output / "model").classes == ("bad", "so-so", "good")
