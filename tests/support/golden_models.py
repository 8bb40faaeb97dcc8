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
