"""Tiny models of two towers with random weights, their tokenizer and their image processor."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from architectures_record import randomised
from PIL import Image
from tiny_language import byte_pairs
from tiny_models import SIZES
from torch import nn

_PICTURES = {**SIZES, "hidden_size": 20, "image_size": 24, "patch_size": 8}
_WORDS = {**SIZES, "vocab_size": 330, "max_position_embeddings": 32}
_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_BERT = {**_WORDS, "pad_token_id": 0}

#: stem of the class names -> settings
MODELS: dict[str, dict[str, Any]] = {
    "CLIP": {"text_config": {**_WORDS, **_IDS}, "projection_dim": 12},
    "Siglip": {"text_config": {**_WORDS, **_IDS, "projection_size": 20}},
    "AltCLIP": {
        "text_config": {**_WORDS, "project_dim": 16, "max_position_embeddings": 40, **_IDS},
        "projection_dim": 12,
    },
    "ChineseCLIP": {"text_config": _BERT, "projection_dim": 12},
    "MetaClip2": {"text_config": {**_WORDS, **_IDS}, "projection_dim": 12},
    "CLIPSeg": {"text_config": {**_WORDS, **_IDS}, "projection_dim": 12},
    "VisionTextDualEncoder": {"text_config": _BERT, "projection_dim": 12},
}


def towers(stem: str = "CLIP", dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Module:
    """Two towers of two layers each with random weights; pictures are 24 x 24 pixels."""
    settings = dict(MODELS[stem])
    if stem == "VisionTextDualEncoder":  # any two models
        settings["text_config"] = {**_BERT, "model_type": "bert"}
    pictures = {**_PICTURES, **({"model_type": "vit"} if stem == "VisionTextDualEncoder" else {})}
    config = getattr(transformers, f"{stem}Config")(vision_config=pictures, **settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return randomised(getattr(transformers, f"{stem}Model")(config), dtype)


def tokenizer(stem: str = "CLIP") -> Any:
    """A fast tokenizer; that of SigLIP gives no attention mask."""
    made = byte_pairs(begins=stem != "Siglip", ends=True)
    if stem == "Siglip":
        made = transformers.PreTrainedTokenizerFast(
            tokenizer_object=made.backend_tokenizer,
            pad_token="<pad>",
            bos_token="<s>",
            eos_token="</s>",
            model_input_names=["input_ids"],
        )
    return made


def processor() -> Any:
    """Resizes the shorter side to 24 pixels and crops the middle."""
    return transformers.CLIPImageProcessor(
        size={"shortest_edge": 24}, crop_size={"height": 24, "width": 24}
    )


def saved(folder: Path, stem: str = "CLIP", dtype: torch.dtype = torch.float32) -> Path:
    """A folder as `save_pretrained` writes it."""
    towers(stem, dtype).save_pretrained(folder)  # type: ignore[operator]
    tokenizer(stem).save_pretrained(folder)
    processor().save_pretrained(folder)
    return folder


def picture(seed: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
    """Noise, (width, height) pixels."""
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3))
    return Image.fromarray(values.astype(np.uint8))


def llava(language: str = "llama") -> nn.Module:
    """A LLaVA with random weights: CLIP's tower, a language model, and `<mask>` for pictures."""
    words = {**SIZES, "vocab_size": 330, "max_position_embeddings": 64, **_IDS}
    config = transformers.LlavaConfig(
        vision_config={**_PICTURES, "model_type": "clip_vision_model"},
        text_config={**words, "model_type": language},
        image_token_index=3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return randomised(transformers.LlavaForConditionalGeneration(config))
