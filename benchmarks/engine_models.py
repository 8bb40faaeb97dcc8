"""Models of known shape with random weights, and batches that are encoded beforehand."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import transformers
from torch import nn

import transexplain as te
from transexplain.models.calling import torch_dtype
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel
from transexplain.types.items import Item

MODELS = ("bert-base", "vit-b16")
LLAMA = "llama-1b"  #: a shape that only a card computes in seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What every measurement of one call of the benchmark shares."""

    device: str = "cpu"
    dtype: str = "float32"
    classes: int = 10
    batch: int = 8
    tokens: int = 128  #: T of the text model
    quick: bool = False  #: toy widths and depths, to see that everything runs


def build(name: str, setting: Setting, *, attention: str = "sdpa") -> LoadedModel:
    """The model called `name`, with random weights and biases, ready to be explained.

    `attention` is BERT's implementation; the others run fused.
    """
    torch.manual_seed(0)
    with torch.device(setting.device):  # where a model of 10^9 weights is made in seconds
        module = _MADE[name](setting, attention)
    with torch.no_grad():
        for label, parameter in module.named_parameters():
            if label.endswith("bias"):
                parameter.normal_(std=0.02)
    module = module.to(torch_dtype(setting.dtype)).to(setting.device).eval().requires_grad_(False)
    names = tuple(str(index) for index in range(setting.classes))
    modality = "image" if name == "vit-b16" else "text"
    return te.wrap(module, modality=modality, classes=names)


def _bert(setting: Setting, attention: str) -> nn.Module:
    quick: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "vocab_size": 100,
    }
    config = transformers.BertConfig(
        num_labels=setting.classes,
        max_position_embeddings=max(512, setting.tokens),
        attn_implementation=attention,
        **(quick if setting.quick else {}),
    )
    module: nn.Module = transformers.BertForSequenceClassification(config)
    return module


def _llama(setting: Setting, _attention: str) -> nn.Module:
    sizes = {"hidden": 2048, "layers": 16, "heads": 32, "shared": 8, "inner": 8192, "words": 32000}
    if setting.quick:
        sizes = {"hidden": 32, "layers": 2, "heads": 4, "shared": 2, "inner": 64, "words": 100}
    config = transformers.LlamaConfig(
        hidden_size=sizes["hidden"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["shared"],
        intermediate_size=sizes["inner"],
        vocab_size=sizes["words"],
        num_labels=setting.classes,
        max_position_embeddings=max(512, setting.tokens),
        pad_token_id=0,
        use_cache=False,
    )
    module: nn.Module = transformers.LlamaForSequenceClassification(config)
    return module


def _vit(setting: Setting, _attention: str) -> nn.Module:
    quick: dict[str, Any] = {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2}
    module: nn.Module = _timm().create_model(
        "vit_base_patch16_224",
        pretrained=False,
        num_classes=setting.classes,
        **(quick if setting.quick else {}),
    )
    return module


_MADE: Mapping[str, Callable[[Setting, str], nn.Module]] = {
    "bert-base": _bert,
    "vit-b16": _vit,
    LLAMA: _llama,
}


@cache
def _timm() -> Any:
    import timm  # seconds of import that the text model does not need

    return timm


def batch_of(model: LoadedModel, setting: Setting, *, items: int | None = None) -> Batch:
    """`items` (default: the setting's batch) random items, collated on the model's device."""
    generator = torch.Generator().manual_seed(1)
    encoded = model.encode(
        [
            Item(id=str(index), index=index, content=_content(model, setting, generator))
            for index in range(items or setting.batch)
        ]
    )
    return model.collate([one for one in encoded if isinstance(one, Encoded)])


def _content(model: LoadedModel, setting: Setting, generator: torch.Generator) -> dict[str, Any]:
    if model.modality == "text":
        ids = torch.randint(5, 100, (setting.tokens,), generator=generator)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    side = 32 if setting.quick else 224
    return {"pixel_values": torch.randn(3, side, side, generator=generator)}
