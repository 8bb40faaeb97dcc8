"""The small models of tests/golden, whose reference outputs the original authors' code made."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import transexplain as te

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def arrays(model: str, source: str) -> Any:
    """The arrays of one source, by `<input>.<array>`."""
    with np.load(GOLDEN / model / f"A.{source}.npz") as found:
        return dict(found)


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """max |a - b| / max |b|, the measure of the folder's README files."""
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@cache
def bert() -> Any:
    """A BERT of three layers and three classes in float64."""
    from transformers import BertForSequenceClassification

    folder = GOLDEN / "bert_tiny" / "weights_A"
    module = BertForSequenceClassification.from_pretrained(folder, dtype=torch.float64)
    return te.wrap(module, modality="text")


@cache
def vit() -> Any:
    """A timm ViT of three layers and five classes in float64."""
    from timm.models.vision_transformer import VisionTransformer

    folder = GOLDEN / "vit_tiny" / "weights_A"
    module = VisionTransformer(**json.loads((folder / "timm_args.json").read_text()))
    module.load_state_dict(load_file(folder / "model.safetensors"))
    return te.wrap(module.double().eval(), modality="image")


class LastPosition(nn.Module):
    """A language model whose logits at the last position are the classes."""

    def __init__(self, language_model: nn.Module) -> None:
        super().__init__()
        self.language_model = language_model

    def get_input_embeddings(self) -> nn.Module:
        return self.language_model.get_input_embeddings()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.language_model(input_ids=input_ids, attention_mask=attention_mask).logits[:, -1]


def load_language_model(name: str, family: str) -> Any:
    """A decoder with a vocabulary of 120 in float64."""
    import transformers

    folder = GOLDEN / name / "weights_A"
    module = getattr(transformers, family).from_pretrained(folder, dtype=torch.float64)
    classes = [f"v{index}" for index in range(120)]
    return te.wrap(LastPosition(module.eval()), modality="text", classes=classes)


def text_of(golden: Any, row: str) -> tuple[dict[str, Any], int]:
    """A text of the arrays, encoded, and how many of its positions are no padding."""
    mask = golden[f"{row}.attention_mask"]
    return {"input_ids": golden[f"{row}.input_ids"], "attention_mask": mask}, int(mask.sum())


def picture_of(golden: Any, row: str) -> dict[str, Any]:
    """A picture of the arrays, encoded."""
    return {"pixel_values": torch.from_numpy(golden[f"{row}.image"].astype(np.float64))}


# --- the attention-only network of Ali et al. 2022, described by the README of its outputs

HEADS, BLOCKS = 4, 3


class AliNetwork(nn.Module):
    """From embedded tokens (B, T, D) to logits (B, C).

    Three blocks of x <- norm(W_o attention(x) + b_o + x) without a scale on the scores, a mask or a
    feed-forward part; the norm divides by (unbiased std + 1e-12) and has no weights.
    """

    def __init__(self, hidden: int, classes: int) -> None:
        super().__init__()
        self.attention_layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    name: nn.Linear(hidden, hidden)
                    for name in ("query", "key", "value", "output_dense")
                }
            )
            for _ in range(BLOCKS)
        )
        self.pooler, self.classifier = nn.Linear(hidden, hidden), nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.attention_layers:
            q, k, v = (self.heads(block[name](x)) for name in ("query", "key", "value"))
            weights = torch.softmax(q @ k.transpose(-1, -2), dim=-1)
            joined = (weights @ v).transpose(1, 2).flatten(2)
            x = self.norm(block["output_dense"](joined) + x)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))

    @staticmethod
    def heads(x: Tensor) -> Tensor:
        """(B, T, D) -> (B, H, T, D / H)."""
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    @staticmethod
    def norm(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (x.std(-1, keepdim=True) + 1e-12)


def load_ali_network(folder: Path) -> tuple[AliNetwork, dict[str, Tensor]]:
    """The network and all weights (those of the embeddings included), in float64."""
    weights = {
        name: value.double() for name, value in load_file(folder / "model.safetensors").items()
    }
    classes, hidden = weights["classifier.weight"].shape
    network = AliNetwork(hidden, classes).double()
    renamed = {
        name.replace("output.dense", "output_dense").replace("pooler.dense", "pooler"): value
        for name, value in weights.items()
    }
    network.load_state_dict({name: renamed[name] for name in network.state_dict()})
    return network.eval(), weights


def embedded(weights: dict[str, Tensor], ids: Tensor) -> Tensor:
    """Words, type 0 and positions, and an affine layer norm: (T,) -> (1, T, D)."""
    total = (
        weights["embeds.word_embeddings.weight"][ids]
        + weights["embeds.token_type_embeddings.weight"][0]
        + weights["embeds.position_embeddings.weight"][: len(ids)]
    )
    norm = (weights["embeds.LayerNorm.weight"], weights["embeds.LayerNorm.bias"])
    return nn.functional.layer_norm(total, total.shape[-1:], *norm, 1e-12)[None]
