"""Which parameters move in which stage, and how fast."""

from pathlib import Path
from typing import ClassVar

import timm
import torch
import transformers
from tiny_models import SIZES, text_items

from transexplain.extras.training.optimisation import (
    ParameterGroup,
    Stepper,
    parameter_groups,
    parts_of,
    stages_of,
)
from transexplain.extras.training.training_plans import FitPlan, Optimisation, Stages
from transexplain.models.load import load_model, wrap
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Item


def sample(model: LoadedModel):
    if model.modality == "text":
        encoded = model.encode(text_items("a nice film", "good"))
    else:
        pixels = torch.rand(2, 3, *model.encoder.shape[1:])
        items = [
            Item(id=str(row), index=row, content={"pixel_values": one})
            for row, one in enumerate(pixels)
        ]
        encoded = model.encode(items)
    return model.collate(encoded)


def test_the_stages_of_bert(bert_dir: Path) -> None:
    model = load_model(bert_dir)
    stages = dict(stages_of(model, sample(model), Stages(layers_per_interval=1)))
    assert list(stages) == ["head", "layer 1", "layer 0", "embeddings"]
    assert {name.split(".")[0] for name in stages["head"]} == {"bert", "classifier"}
    assert {name for name in stages["head"] if name.startswith("bert")} == {
        "bert.pooler.dense.weight",
        "bert.pooler.dense.bias",
    }
    assert all(name.startswith("bert.encoder.layer.1.") for name in stages["layer 1"])
    assert all(name.startswith("bert.embeddings.") for name in stages["embeddings"])
    every = [name for names in stages.values() for name in names]
    assert sorted(every) == sorted(name for name, _ in model.module.named_parameters())


def test_relative_positions_are_no_part_of_the_head() -> None:
    """DeBERTa registers them behind its layers, but the layers read them."""
    config = transformers.DebertaV2Config(
        vocab_size=18, relative_attention=True, pos_att_type=["c2p", "p2c"], **SIZES
    )
    module = transformers.DebertaV2ForSequenceClassification(config).eval()
    from tiny_models import wordpiece

    model = wrap(module, modality="text", tokenizer=wordpiece())
    head, layers, below = parts_of(model, sample(model))
    assert "deberta.encoder.rel_embeddings.weight" in below
    assert not any("encoder" in name for name in head)
    assert len(layers) == 2


def test_the_parts_of_a_vision_model() -> None:
    sizes = {"img_size": 32, "embed_dim": 8, "depths": (2, 2), "num_heads": (1, 2)}
    module = timm.create_model(
        "swin_tiny_patch4_window7_224", num_classes=3, window_size=4, **sizes
    ).eval()
    model = wrap(module, modality="image", input_size=(3, 32, 32))
    head, found, below = parts_of(model, sample(model))
    assert {one.split(".")[0] for one in head} == {"norm", "head"}
    assert len(found) == 2
    assert any(one.startswith("patch_embed.") for one in below)
    every = [*head, *below, *(one for names in found for one in names)]
    assert sorted(every) == sorted(one for one, _ in module.named_parameters())


def test_later_stages_have_lower_rates(bert_dir: Path) -> None:
    model = load_model(bert_dir)
    groups = parameter_groups(
        model,
        sample(model),
        stages=Stages(head_epochs=2, interval_epochs=3, layers_per_interval=1, decay=0.5),
        optimisation=Optimisation(
            learning_rate=1e-3,
            head_learning_rate=1e-2,
            weight_decay=0.1,
            embedding_weight_decay=7.0,
        ),
        epoch_steps=10,
    )
    found = {one.name: (one.learning_rate, one.starts, one.weight_decay) for one in groups}
    assert found["head"] == (1e-2, 0, 0.1)
    assert found["head, vectors"] == (1e-2, 0, 0.0)
    assert found["layer 1"] == (1e-3, 20, 0.1)
    assert found["layer 0, vectors"] == (5e-4, 50, 0.0)
    assert found["embeddings, words"] == (2.5e-4, 80, 7.0)
    (words,) = [one for one in groups if one.name == "embeddings, words"]
    assert list(words.parameters) == ["bert.embeddings.word_embeddings.weight"]


def test_running_statistics_of_frozen_layers_stay() -> None:
    whole = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)
    )

    class Toy:
        module = whole
        groups: ClassVar = [
            ParameterGroup(
                name=name,
                parameters=dict(part.named_parameters()),
                learning_rate=0.1,
                weight_decay=0.0,
                starts=starts,
            )
            for name, part, starts in (("head", whole[2], 0), ("rest", whole[:2], 2))
        ]

        def losses(self, batch, step):
            return {"loss": whole(batch).square().mean()}

    stepper, means = Stepper(Toy(), FitPlan(epochs=1), 4), [whole[1].running_mean.clone()]
    for step in range(3):
        stepper.step(torch.rand(5, 3), step)
        means.append(whole[1].running_mean.clone())
    assert torch.equal(means[0], means[2]) and not torch.equal(means[2], means[3])
