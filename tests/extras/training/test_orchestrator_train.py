"""`transexplain train`: specification, presets, the verb."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tiny_trainings import bert_folder, write_texts

from transexplain.extras.learned.learned_facts import read_facts
from transexplain.extras.training.train_command import (
    PRESETS,
    TrainingSpec,
    load_training,
    plan_training,
    with_preset,
)
from transexplain.extras.training.training_plans import Stages
from transexplain.models.load import load_model
from transexplain.settings import Settings

pytestmark = pytest.mark.exhaustive

Call = Callable[..., tuple[int, str]]


def write(folder: Path, **keys: object) -> Path:
    path = folder / "train.yaml"
    document = {"name": "films", "model": str(folder / "bert"), "data": str(folder / "texts.csv")}
    document |= {"optimisation": {"epochs": 2, "batch_size": 16, "learning_rate": 5e-3}}
    document["stages"] = {"layers_per_interval": 3}
    path.write_text(yaml.safe_dump(document | keys), encoding="utf-8")
    return path


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    bert_folder(tmp_path / "bert", layers=2)
    write_texts(tmp_path / "texts.csv")
    return write(tmp_path)


def test_the_verb_trains_and_says_what_is_where(spec: Path, call: Call, tmp_path: Path) -> None:
    code, printed = call("train", str(spec))
    assert code == 0, printed
    folder = Path("trainings/films")
    for name in ("model", "history.json", "curves.png", "curves.svg"):
        assert str(folder / name) in printed
        assert (tmp_path / folder / name).exists()
    assert "accuracy" in printed
    assert f"transexplain run --model {folder / 'model'}" in printed
    assert load_model(tmp_path / folder / "model").classes == ("bad", "so-so", "good")


@pytest.mark.parametrize("mode", ["separate", "joint"])
def test_an_explainer_is_trained_and_described(
    spec: Path, call: Call, tmp_path: Path, mode: str
) -> None:
    requested = {"mode": mode, "epochs": 2, "width": 16, "depth": 1, "layers": [0, 1]}
    code, printed = call(
        "train", str(write(tmp_path, explainer=requested, validation={"share": 0.3}))
    )
    assert code == 0, printed
    folder = Path("trainings/films")
    facts = read_facts(folder / "explainer.safetensors")
    assert (facts.mode, facts.architecture.layers) == (mode, (0, 1))
    assert facts.base == load_model(folder / "model").ref.digest
    assert "rank correlation" in printed
    assert f"--set method.params.explainer={folder / 'explainer.safetensors'}" in printed
    assert (folder / "explainer-curves.png").exists() == (mode == "separate")


def test_an_interrupted_training_says_how_to_go_on(
    spec: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            "transexplain.extras.training.train_command._Bar.should_stop", lambda self: True
        )
        code, printed = call("train", str(spec))
    assert (code, "goes on" in printed) == (130, True)
    assert Path("trainings/films/fit/checkpoint.safetensors").is_file()
    code, printed = call("train", str(spec))
    assert code == 0, printed


@pytest.mark.parametrize(
    ("keys", "printed"),
    [
        ({"modle": "x"}, "modle: unknown key; did you mean 'model'? known here: name, preset"),
        ({"optimisation": {"lr": 1}}, "optimisation.lr: unknown key; known here: epochs"),
        ({"optimisation": {"epochs": 0}}, "0 epochs"),
        ({"preset": "joint-sound"}, "joint-text, joint-vision, separate-text, separate-vision"),
        ({"stages": {"decay": 2}}, "stages.decay"),
        ({"classes": [True, False]}, "put it into quotes"),
        ({"labels": {"dreadful": "awful"}, "data": "x.csv"}, "x.csv"),
        ({"model": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"validation": {"share": 0.2, "source": "x.csv"}}, "source and a share"),
        ({"explainer": {"mode": "separate", "method": "rollout"}}, "logits"),
        ({"classes": ["bad", "good"]}, "'so-so'"),
        ({"precision": "int8"}, "precision"),
    ],
)
def test_bad_specifications_are_named(
    spec: Path, tmp_path: Path, call: Call, keys: dict, printed: str
) -> None:
    code, message = call("train", str(write(tmp_path, **keys)))
    assert code == 2
    assert printed in message
    assert "Traceback" not in message


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_presets_are_whole_and_the_users_keys_win(spec: Path, tmp_path: Path, preset: str) -> None:
    found = load_training(write(tmp_path, preset=preset, explainer="none"))
    assert found.explainer.mode == "none"
    assert found.optimisation.epochs == 2  # the user's
    assert found.optimisation.weight_decay == PRESETS[preset]["optimisation"]["weight_decay"]
    assert found.stages is not None and found.stages.layers_per_interval == 3
    alone = TrainingSpec.model_validate(
        with_preset({"model": "m", "data": "d.csv"}, PRESETS[preset])
    )
    assert alone.explainer.mode in preset.split("-")
    assert (alone.stages is None) == preset.startswith("separate")


def test_a_specification_becomes_a_plan(spec: Path, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        classes=["bad", "so-so", "good"],
        labels={0: "bad"},
        stages="none",
        validation=str(tmp_path / "texts.csv"),
    )
    settings = Settings(snapshot_dir=tmp_path / "snapshots")
    plan = plan_training(load_training(path), settings)
    assert plan.stages is None
    assert plan.labels == {"0": "bad"}
    assert plan.share == 0.0
    assert plan.validation.rows == 48
    assert plan.optimisation.learning_rate == 5e-3
    plan = plan_training(load_training(write(tmp_path)), settings)
    assert (plan.share, plan.stages) == (0.1, Stages(layers_per_interval=3))
