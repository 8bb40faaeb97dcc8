"""Loads causal, masked and encoder-decoder language models."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from transexplain.errors import ModelLoadError
from transexplain.extras.language.generated_answers import generating
from transexplain.extras.language.language_model import LanguageModel, assemble_language, kind_of
from transexplain.models import huggingface
from transexplain.models.assemble import Origin
from transexplain.models.calling import place_of, torch_dtype, unwrapped
from transexplain.models.configs import LanguageKind, kind_of_class, read_config
from transexplain.models.hub import folder_of
from transexplain.models.loaded_model import LoadedModel

#: what the source of a classifier over words that may come next begins with
PREFIX = "lm:"
_FORM = f"{PREFIX}FOLDER?answers=WORD,WORD, or {PREFIX}FOLDER?generate=NUMBER"
_MOST = 1024  #: tokens of a generated answer


@torch.inference_mode(False)
def load_language_model(
    source: Any,
    tokenizer: Any = None,
    *,
    kind: LanguageKind | None = None,
    processor: Any = None,
    dtype: Any = None,
    device: str | None = None,
) -> LanguageModel:
    """The language model at `source`, or the one that is in memory already.

    Args:
        source: a directory with config.json and safetensors, a hub id, or a module of
            transformers with a language-model head; it stays as it is.
        tokenizer: of a module in memory, a fast one; without one prompts are token numbers.
        processor: of a module in memory that reads pictures in prompts (LLaVA): an image processor,
            or a function from an RGB picture to (3, H, W).
        kind: `causal`, `masked` or `encoder-decoder`; default: what the configuration, or the
            class of the module, says.
        dtype: that files are loaded as: float32 (the default), float64, bfloat16 or float16.
        device: torch device that files are loaded to; default: cpu.

    Raises ModelLoadError naming what is wrong and the remedy.
    """
    if kind not in (None, "causal", "masked", "encoder-decoder"):
        raise ModelLoadError(f"kind is causal, masked or encoder-decoder, not {kind!r:.80}")
    if isinstance(source, nn.Module):
        module = unwrapped(source)
        transform = huggingface.transform_of(processor)
        return assemble_language(
            module.eval(),
            kind=kind or ("causal" if transform is not None else kind_of(module)),
            tokenizer=tokenizer,
            origin=Origin.in_memory(module),
            transform=transform,
        )
    if not isinstance(source, str | Path) or tokenizer is not None or processor is not None:
        raise ModelLoadError(
            "a language model is a directory, a hub id, or a module of transformers with its "
            f"tokenizer, not {source!r:.80}"
        )
    folder, text = folder_of(source)
    config = read_config(folder)
    pictures = kind is None and _has_pictures(config)
    named = "pictures" if pictures else kind or _kind_of_config(config)
    if named is None:
        raise ModelLoadError(
            f"{text}: the architectures of its config.json, {config.get('architectures')!r:.80}, "
            "have no language-model head; give the directory of a model that was saved with one, "
            "or say kind="
        )
    given, read, origin = huggingface.read_language_model(
        folder,
        named,
        source=text,
        dtype=torch_dtype(str(dtype or "float32").removeprefix("torch.")),
        device=place_of(str(device or "cpu")),
    )
    transform = huggingface.read_transform(folder) if pictures else None
    head = "causal" if pictures else kind or kind_of(given)
    return assemble_language(given, kind=head, tokenizer=read, origin=origin, transform=transform)


def load_answers(source: str, *, dtype: Any = None, device: str | None = None) -> LoadedModel:
    """The language model of `lm:FOLDER?answers=he,she` as a classifier over these words.

    See `LanguageModel.as_classifier`; that of `lm:FOLDER?generate=8` answers with what it
    generates, see `generating`. Raises ModelLoadError.
    """
    folder, asked = answers_of(source)
    model = load_language_model(folder, dtype=dtype, device=device)
    if isinstance(asked, int):
        return generating(model, asked, source)
    return model.as_classifier(asked, source)


def answers_of(source: str) -> tuple[str, tuple[str, ...] | int]:
    """The folder or hub id of an `lm:` source, and the words, or how many tokens are generated.

    Raises ModelLoadError.
    """
    folder, mark, query = source.removeprefix(PREFIX).partition("?")
    key, _, value = query.partition("=")
    words = tuple(word.strip() for word in value.split(","))
    if folder and mark and key == "answers" and all(words):
        return folder, words
    if folder and key == "generate" and value.isdecimal() and 0 < int(value[:5]) <= _MOST:
        return folder, int(value)
    raise ModelLoadError(f"cannot read {source!r:.80}; the form is {_FORM} (1 to {_MOST})")


def language_kind(source: str) -> LanguageKind | None:
    """The kind of language model at a directory or hub id; None: none, or none is known.

    Reads its config.json alone.
    """
    try:
        config = read_config(folder_of(source)[0])
    except ModelLoadError:  # whoever loads it says what is wrong
        return None
    if _has_pictures(config):
        return "causal"
    return _kind_of_config(config)


def _has_pictures(config: dict[str, Any]) -> bool:
    """Return whether a configuration is of a model that puts pictures in the place of a token.

    One that transformers knows as a language model too (Gemma 3) is loaded as that.
    """
    from transformers.models.auto import modeling_auto

    known = {*map(str, modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values())}
    named = {*map(str, config.get("architectures") or ())}
    if any(kind_of_class(name) for name in named):
        return False
    return bool(known & named) and bool({"image_token_id", "image_token_index"} & {*config})


def _kind_of_config(config: dict[str, Any]) -> LanguageKind | None:
    names = config.get("architectures")
    known = names if isinstance(names, list) else []
    return next((kind for name in known if (kind := kind_of_class(str(name)))), None)
