"""Fresh heads: other classes, encoders without one, and what is refused."""

import json
from pathlib import Path

import pytest
import timm
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import SIZES, wordpiece
from tiny_trainings import image_plan, text_plan

from transexplain.errors import ConfigurationError, ModelLoadError
from transexplain.extras.training.classifiers import load_for_training
from transexplain.extras.training.training_runs import train
from transexplain.models.load import load_model

NEW = ("no", "yes")
PICTURES = {"mean": [0.5] * 3, "std": [0.5] * 3, "input_size": [3, 16, 16]}


def same(first: torch.nn.Module, second: torch.nn.Module, but: str) -> bool:
    pairs = zip(first.state_dict().items(), second.state_dict().items(), strict=True)
    return all(torch.equal(a, b) for (name, a), (_, b) in pairs if but not in name)


def head(module: torch.nn.Module, name: str) -> torch.Tensor:
    return module.state_dict()[name]


def test_own_classes_keep_the_head(bert_dir: Path) -> None:
    own = load_model(bert_dir)
    for classes in (None, own.classes):
        found = load_for_training(str(bert_dir), classes, device="cpu", seed=0)
        assert same(own.module, found.module, but="nothing")


def test_other_classes_get_a_head_drawn_from_the_seed(bert_dir: Path) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, again, other = (
        load_for_training(str(bert_dir), NEW, device="cpu", seed=seed) for seed in (3, 3, 4)
    )
    assert torch.equal(state, torch.get_rng_state())
    assert first.classes == NEW
    assert first.module.config.id2label == {0: "no", 1: "yes"}
    assert same(first.module, again.module, but="nothing")
    assert same(first.module, other.module, but="classifier")
    name = "classifier.weight"
    assert head(first.module, name).shape == (2, 16)
    assert not torch.equal(head(first.module, name), head(other.module, name))


def test_a_language_model_gets_a_head(tmp_path: Path) -> None:
    config = transformers.BertConfig(vocab_size=18, max_position_embeddings=20, **SIZES)
    torch.manual_seed(0)
    pretrained = transformers.BertForMaskedLM(config)
    pretrained.save_pretrained(tmp_path)
    wordpiece().save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError):
        load_model(tmp_path)
    model = load_for_training(str(tmp_path), NEW, device="cpu", seed=0)
    assert torch.equal(
        pretrained.bert.encoder.layer[1].output.dense.weight,
        model.module.bert.encoder.layer[1].output.dense.weight,
    )


def test_a_missing_layer_is_no_fresh_head(bert_dir: Path) -> None:
    weights = load_file(bert_dir / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.weight"]
    save_file(weights, bert_dir / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"layer\.1\.output\.dense\.weight"):
        load_for_training(str(bert_dir), NEW, device="cpu", seed=0)


@pytest.mark.parametrize("classes", [("one",), ("a", "a"), ()])
def test_classes_are_two_or_more_different_names(bert_dir: Path, classes: tuple) -> None:
    with pytest.raises(ConfigurationError, match="two or more different names"):
        load_for_training(str(bert_dir), classes, device="cpu", seed=0)


def timm_folder(folder: Path) -> Path:
    folder.mkdir()
    args = {"img_size": 16, "patch_size": 8, "embed_dim": 8, "depth": 2, "num_heads": 2}
    args["num_classes"] = 4
    torch.manual_seed(0)
    module = timm.models.vision_transformer.VisionTransformer(**args)
    config = {"timm_args": args, "mean": [0.5] * 3, "std": [0.5] * 3, "input_size": [3, 16, 16]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(module.state_dict(), folder / "model.safetensors")
    return folder


def test_a_timm_model_gets_other_classes_and_is_saved(tmp_path: Path) -> None:
    source = str(timm_folder(tmp_path / "timm"))
    own = load_model(source)
    model = load_for_training(source, ("dark", "light"), device="cpu", seed=0)
    assert same(own.module, model.module, but="head.")
    plan = image_plan(tmp_path, source=source)
    trained = load_model(train(plan).model)
    assert trained.classes == ("dark", "light")
    config = json.loads((plan.output / "model" / "config.json").read_text())
    assert config["mean"] == [0.5] * 3
    assert config["timm_args"]["num_classes"] == 2


def test_a_timm_checkpoint_by_name(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = timm.create_model("test_vit", pretrained=False, num_classes=7)
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    source = f"timm:test_vit?checkpoint={tmp_path / 'w.safetensors'}"
    model = load_for_training(source, NEW, device="cpu", seed=0)
    assert model.classes == NEW
    assert same(module, model.module, but="head.")


def test_a_pickle_is_never_read(tmp_path: Path, bert_dir: Path) -> None:
    weights = load_file(bert_dir / "model.safetensors")
    (bert_dir / "model.safetensors").unlink()
    torch.save(weights, bert_dir / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match=r"pytorch_model\.bin"):
        load_for_training(str(bert_dir), NEW, device="cpu", seed=0)


@pytest.mark.exhaustive
def test_the_saved_model_has_the_tokenizer_and_the_classes(tmp_path: Path) -> None:
    plan = text_plan(tmp_path, classes=("bad", "good", "so-so"))
    trained = load_model(train(plan).model)
    assert trained.classes == ("bad", "good", "so-so")
    names = {path.name for path in (plan.output / "model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_hidden_layers": 4000}, "far larger model"),
        ({**PICTURES, "timm_args": {"checkpoint_path": "w.pth"}}, "checkpoint_path"),
    ],
)
def test_a_hostile_configuration_is_refused(
    bert_dir: Path, change: dict[str, object], named: str
) -> None:
    file = bert_dir / "config.json"
    base = {} if "timm_args" in change else json.loads(file.read_text())
    file.write_text(json.dumps({**base, **change}))
    with pytest.raises(ModelLoadError, match=named):
        load_for_training(str(bert_dir), NEW, device="cpu", seed=0)
