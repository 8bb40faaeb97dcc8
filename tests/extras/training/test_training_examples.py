"""Training examples: which are usable, and how they are split, ordered and cached."""

import json
from pathlib import Path

import pytest
import timm
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import SIZES, wordpiece
from tiny_trainings import (
    CLASSES,
    image_plan,
    snapshot,
    vit_folder,
    write_pictures,
    write_texts,
)

from transexplain.errors import ConfigurationError, ModelLoadError
from transexplain.extras.training.classifiers import load_for_training
from transexplain.extras.training.examples import read_examples
from transexplain.extras.training.optimisation import augmented, classified
from transexplain.extras.training.training_runs import train
from transexplain.models.load import load_model


@pytest.fixture
def texts(tmp_path: Path, bert_dir: Path):
    ref = snapshot(str(write_texts(tmp_path / "texts.csv")), tmp_path)
    return read_examples(load_model(bert_dir), ref, labels={})


def test_an_item_that_cannot_be_used_costs_only_itself(tmp_path: Path, bert_dir: Path) -> None:
    path = write_texts(tmp_path / "texts.csv", labels={3: ""})
    path.write_text(path.read_text() + "empty,,bad\n", encoding="utf-8")
    found = read_examples(load_model(bert_dir), snapshot(str(path), tmp_path), labels={})
    assert len(found) == 47
    kinds = {failure.item_id: failure.kind for failure in found.failures}
    assert kinds == {"3": "no-label", "48": "empty-text"}


def test_data_that_cannot_be_trained_on_are_named(tmp_path: Path, bert_dir: Path) -> None:
    (tmp_path / "unlabelled.csv").write_text("text,label\nfilm,\n", encoding="utf-8")
    of_no_class = write_texts(tmp_path / "texts.csv", labels={5: "dreadful"})
    for source, message in (
        (of_no_class, r"'dreadful'.*labels:.*classes:"),
        (tmp_path / "unlabelled.csv", r"no item .* can be trained on"),
        (f"imagefolder:{write_pictures(tmp_path / 'p', 1)}", "reads text but dataset"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            read_examples(load_model(bert_dir), snapshot(str(source), tmp_path), labels={})


def test_every_epoch_has_all_rows_in_its_own_order(texts) -> None:
    first, again, other = (texts.shuffled(7, seed=1, epoch=epoch) for epoch in (0, 0, 1))
    assert first == again != other
    assert first != texts.shuffled(7, seed=2, epoch=0)
    for batches in (first, other):
        assert len(batches) == texts.steps(7) == 7
        assert sorted(row for batch in batches for row in batch) == list(range(48))


def test_the_split_goes_by_ids_alone(texts) -> None:
    training, validation = texts.split(0.25, seed=1)
    assert (len(training), len(validation)) == (36, 12)
    held = {one.item.id for one in validation.entries}
    assert not held & {one.item.id for one in training.entries}
    assert held == {one.item.id for one in texts.split(0.25, seed=1)[1].entries}
    assert held != {one.item.id for one in texts.split(0.25, seed=2)[1].entries}
    assert len(texts.split(0.0, seed=1)[1]) == 0
    assert len(texts.split(0.001, seed=1)[1]) == 1


def test_pictures_beyond_the_memory_are_read_again(tmp_path: Path) -> None:
    model = load_model(vit_folder(tmp_path / "vit"))
    ref = snapshot(f"imagefolder:{write_pictures(tmp_path / 'p', 3)}", tmp_path)
    names = {"dark": "0", "light": "1"}
    size = 4 * 3 * 24 * 24
    kept = read_examples(model, ref, labels=names)
    some = read_examples(model, ref, labels=names, kept_bytes=2 * size)
    assert [one.encoded is not None for one in some.entries] == [True, True, *[False] * 4]
    for first, second in zip(kept.in_order(6), some.in_order(6), strict=True):
        assert torch.equal(first.batch.inputs["pixel_values"], second.batch.inputs["pixel_values"])


def test_accuracy_and_loss_do_not_depend_on_the_batches(texts) -> None:
    whole, single = classified(texts.model, texts, 48), classified(texts.model, texts, 1)
    assert whole["accuracy"] == single["accuracy"]
    assert whole["loss"] == pytest.approx(single["loss"], rel=1e-5)
    logits = texts.model.logits(texts.batch(range(48)).batch)
    printed = logits.argmax(dim=1).tolist()
    right = sum(CLASSES.index(CLASSES[row % 3]) == printed[row] for row in range(48))
    assert whole["accuracy"] == right / 48


def test_augmented_pictures_are_mirrored_and_moved() -> None:
    torch.manual_seed(0)
    pictures = torch.arange(8 * 3 * 16 * 16, dtype=torch.float32).reshape(8, 3, 16, 16) + 1
    changed = augmented({"pixel_values": pictures})["pixel_values"]
    assert changed.shape == pictures.shape
    assert not torch.equal(changed, pictures)
    for before, after in zip(pictures, changed, strict=True):
        inside = after[after > 0]
        assert inside.numel() >= 3 * 14 * 14  # moved by 1/8 at most
        assert set(inside.tolist()) <= set(before.flatten().tolist())
    torch.manual_seed(0)
    assert torch.equal(augmented({"pixel_values": pictures})["pixel_values"], changed)


NEW = ("no", "yes")
PICTURES = {"mean": [0.5] * 3, "std": [0.5] * 3, "input_size": [3, 16, 16]}


def same(first: torch.nn.Module, second: torch.nn.Module, but: str) -> bool:
    pairs = zip(first.state_dict().items(), second.state_dict().items(), strict=True)
    return all(torch.equal(a, b) for (name, a), (_, b) in pairs if but not in name)


def head(module: torch.nn.Module, name: str) -> torch.Tensor:
    return module.state_dict()[name]


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


def test_a_timm_model_gets_other_classes_and_is_saved(tmp_path: Path, timm_dir: Path) -> None:
    own = load_model(timm_dir)
    model = load_for_training(str(timm_dir), ("dark", "light"), device="cpu", seed=0)
    assert same(own.module, model.module, but="head.")
    plan = image_plan(tmp_path, source=str(timm_dir))
    trained = load_model(train(plan).model)
    assert trained.classes == ("dark", "light")
    config, before = (
        json.loads((folder / "config.json").read_text())
        for folder in (plan.output / "model", timm_dir)
    )
    assert config["mean"] == before["mean"]
    assert config["timm_args"] == before["timm_args"] | {"num_classes": 2}


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
