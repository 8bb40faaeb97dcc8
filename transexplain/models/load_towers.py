"""Loads models of two towers, of pictures and of texts."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from transexplain.errors import ModelLoadError
from transexplain.models import huggingface
from transexplain.models.assemble import Origin
from transexplain.models.calling import place_of, torch_dtype, unwrapped
from transexplain.models.configs import read_config
from transexplain.models.hub import folder_of
from transexplain.models.loaded_model import LoadedModel
from transexplain.models.tower_sides import checked_sides
from transexplain.models.two_towers import TwoTowers, assemble_towers

#: what the source of a classifier of pictures whose classes are texts begins with
PREFIX = "towers:"


@torch.inference_mode(False)
def load_two_towers(
    source: Any,
    tokenizer: Any = None,
    processor: Any = None,
    *,
    dtype: Any = None,
    device: str | None = None,
) -> TwoTowers:
    """The model of two towers (CLIP, SigLIP, AltCLIP, ChineseCLIP, ...) at `source`, or in memory.

    Args:
        source: a directory with config.json and safetensors, a hub id, or a module of
            transformers with `get_image_features` and `get_text_features`; it stays as it is.
        tokenizer: of a module in memory, a fast tokenizer.
        processor: of a module in memory, an image processor or a function from an RGB picture to
            (3, H, W).
        dtype: that files are loaded as: float32 (the default), float64, bfloat16 or float16.
        device: torch device that files are loaded to; default: cpu.

    Raises ModelLoadError naming what is wrong and the remedy.
    """
    if isinstance(source, nn.Module):
        return _in_memory(source, tokenizer, processor)
    if not isinstance(source, str | Path) or tokenizer is not None or processor is not None:
        raise ModelLoadError(
            "a model of two towers is a directory, a hub id, or a module of transformers with its "
            f"tokenizer and image processor, not {source!r:.80}"
        )
    folder, text = folder_of(source)
    check_towers(read_config(folder), text)
    module, read, transform, origin = huggingface.read_two_towers(
        folder,
        source=text,
        dtype=torch_dtype(str(dtype or "float32").removeprefix("torch.")),
        device=place_of(str(device or "cpu")),
    )
    return assemble_towers(module, tokenizer=read, transform=transform, origin=origin)


def load_texts(source: str, *, dtype: Any = None, device: str | None = None) -> LoadedModel:
    """The two towers of `towers:FOLDER?texts=a cat;a dog` as a classifier of pictures.

    See `TwoTowers.as_classifier`. Raises ModelLoadError.
    """
    folder, texts = texts_of(source)
    return load_two_towers(folder, dtype=dtype, device=device).as_classifier(texts, source)


def texts_of(source: str) -> tuple[str, tuple[str, ...]]:
    """The folder or hub id, and the texts, of a `towers:` source; raises ModelLoadError."""
    folder, mark, query = source.removeprefix(PREFIX).partition("?")
    key, _, value = query.partition("=")
    texts = tuple(text.strip() for text in value.split(";"))
    if not folder or not mark or key != "texts" or not all(texts):
        raise ModelLoadError(
            f"cannot read {source!r:.80}; the form is {PREFIX}FOLDER?texts=A TEXT;ANOTHER TEXT"
        )
    return folder, texts


def _in_memory(module: nn.Module, tokenizer: Any, processor: Any) -> TwoTowers:
    module = unwrapped(module)
    checked_sides(module)
    if tokenizer is None or processor is None:
        raise ModelLoadError(
            f"{type(module).__name__} reads pictures and texts: give its tokenizer and its image "
            "processor, load_two_towers(model, tokenizer, processor)"
        )
    origin = Origin.in_memory(module)
    transform = huggingface.transform_of(processor)
    return assemble_towers(module.eval(), tokenizer=tokenizer, transform=transform, origin=origin)


def check_towers(config: dict[str, Any], source: str) -> None:
    """Raise ModelLoadError for a configuration of no two towers, before weights are read."""
    if not huggingface.is_two_towers(config):
        raise ModelLoadError(
            f"{source}: model_type {config.get('model_type')!r} with the architectures "
            f"{config.get('architectures')!r:.80} is no model of two towers that compares pictures "
            "with texts (CLIPModel, SiglipModel, AltCLIPModel, ChineseCLIPModel, ...); load a "
            "classifier with load_model, a language model with load_language_model"
        )


def holds_two_towers(source: str) -> bool:
    """Whether a directory or hub id is a model of two towers, by its config.json alone."""
    try:
        return huggingface.is_two_towers(read_config(folder_of(source)[0]))
    except ModelLoadError:  # whoever loads it says what is wrong
        return False
