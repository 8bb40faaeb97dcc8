"""Loads sequence and image classifiers of transformers from a directory of safetensors."""

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub.errors import StrictDataclassError
from PIL import Image
from torch import Tensor, nn

from transexplain.errors import ModelLoadError
from transexplain.models.assemble import (
    Origin,
    assemble_image,
    assemble_text,
    head_of_class,
    unique_names,
)
from transexplain.models.calling import cards
from transexplain.models.configs import Budget, size_in_files
from transexplain.models.hub import (
    check_keys,
    digests_of_folder,
    mismatches,
    panics_as_errors,
    quiet,
    weight_files,
)
from transexplain.models.loaded_model import LoadedModel
from transexplain.models.text_length import check_growth, saved_truncation
from transexplain.types.plans import SPREAD, Head

#: of a card's free memory, for weights; explanations need the rest for what a pass computes
_FOR_WEIGHTS = 0.8
#: the share of a card is raised by so much of an even one until all blocks find a place
_STEP = 0.05
_GIB = 2**30

_Part = tuple[str, Mapping[int, int]]  #: name, and bytes by the identity of a tensor


def card_map(module: nn.Module, memory: Mapping[str, int], where: str) -> dict[str, str]:
    """The device of every part of `module`, by its name, so that cards are about evenly full.

    Args:
        module: may lie on the meta device; its number type is the one that counts. What
            transformers says is no place to cut stays on one card, and so do tied weights.
        memory: free bytes by device, in the order that the blocks shall follow.
        where: of the model, for messages.

    Raises ModelLoadError where transformers does not say where the model may be cut, or where it
    has no room on the devices together.
    """
    whole = getattr(module, "_no_split_modules", None)
    if not whole:
        raise ModelLoadError(
            f"{where}: transformers does not say where a {type(module).__name__} may be cut, so it "
            "cannot lie on several cards; use device='cuda:0' or 'cpu'"
        )
    parts = list(_parts(module, frozenset(whole)))
    size = sum({key: size_ for _, sizes in parts for key, size_ in sizes.items()}.values())
    most = {device: int(_FOR_WEIGHTS * free) for device, free in memory.items()}
    even = max(1, size // len(most))
    share = even
    while (places := _filled(parts, [min(bytes_, share) for bytes_ in most.values()])) is None:
        if share >= max(most.values()):
            raise ModelLoadError(_too_large(module, size, most, where))
        share += max(1, int(_STEP * even))
    names = list(most)
    return {name: names[place] for (name, _), place in zip(parts, places, strict=True)}


def _parts(module: nn.Module, whole: frozenset[str], prefix: str = "") -> Iterator[_Part]:
    """The parts that may lie on a card of their own.

    A module with tensors beside its parts is not cut either: it computes with both.
    """
    for name, child in module.named_children():
        own = (*child.parameters(recurse=False), *child.buffers(recurse=False))
        if own or type(child).__name__ in whole:
            tensors = (*child.parameters(), *child.buffers())
            yield f"{prefix}{name}", {id(tensor): tensor.nbytes for tensor in tensors}
        else:
            yield from _parts(child, whole, f"{prefix}{name}.")


def _filled(parts: Sequence[_Part], room: Sequence[int]) -> list[int] | None:
    """The number of each part's card, cards filled in order; None: there is not enough room."""
    left, card = list(room), 0
    at: dict[int, int] = {}  # tensor -> card
    places = []
    for _, sizes in parts:
        tied = next((at[key] for key in sizes if key in at), None)
        need = sum(size for key, size in sizes.items() if key not in at)
        while tied is None and card < len(left) and need > left[card]:
            card += 1
        place = card if tied is None else tied
        if place == len(left) or need > left[place]:
            return None
        left[place] -= need
        at |= dict.fromkeys(sizes, place)
        places.append(place)
    return places


def _too_large(module: nn.Module, size: int, most: Mapping[str, int], where: str) -> str:
    room = ", ".join(f"{device} {free / _GIB:.3g}" for device, free in most.items())
    return (
        f"{where}: the weights of this {type(module).__name__} are {size / _GIB:.3g} GiB, for "
        f"which there is no room on the cards (GiB for weights: {room}; a block is not cut); use "
        "dtype='bfloat16', more cards, or device='cpu'"
    )


TOWERS = "towers"  #: what a model of two towers is loaded as
_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json")
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
#: transformers patches its classes while it loads a model, and two threads that put their patches
#: back in the wrong order would leave every later model of the process without tied weights
_loading = threading.Lock()
#: what transformers raises on a directory it cannot make a model of
_LOAD_ERRORS = (
    OSError, ValueError, RuntimeError, ImportError, LookupError, TypeError, AttributeError,
    ArithmeticError, AssertionError, MemoryError, StrictDataclassError,
)  # fmt: skip


def load_folder(
    folder: Path,
    config: dict[str, Any],
    *,
    source: str,
    dtype: torch.dtype,
    device: torch.device | None,
) -> LoadedModel:
    """The classifier in `folder`, whose config.json is `config`; without a device on all cards.

    Raises ModelLoadError for a type that the installed transformers does not classify with,
    weights that do not fit, and a missing or slow tokenizer or image processor.
    """
    modality = modality_of(config, str(folder))
    task = head_of_config(config) or modality
    module, origin = _read(folder, task, source, dtype, device)
    return assembled(folder, module, modality, origin)


def _read(
    folder: Path, task: str, source: str, dtype: torch.dtype, device: torch.device | None
) -> tuple[nn.Module, Origin]:
    """The module in `folder`, on all cards without a device, and its origin."""
    if device is None:
        module = _module(folder, task, dtype, device_map=_places(folder, task, dtype))
    else:
        module = _module(folder, task, dtype).to(device)
    digest, digested = digests_of_folder(folder)
    place = str(device or SPREAD)
    origin = Origin(source=source, digest=digest, device=place, files=digested)
    return module.eval(), origin


def read_language_model(
    folder: Path, kind: str, *, source: str, dtype: torch.dtype, device: torch.device | None
) -> tuple[nn.Module, Any, Origin]:
    """The language model in `folder` of a kind (causal, ...), its tokenizer and its origin.

    Without a device it lies on all cards. Raises ModelLoadError as `load_folder`.
    """
    module, origin = _read(folder, kind, source, dtype, device)
    return module, _tokenizer(folder), origin


def read_two_towers(
    folder: Path, *, source: str, dtype: torch.dtype, device: torch.device | None
) -> tuple[nn.Module, Any, Callable[[Image.Image], Tensor], Origin]:
    """The two towers in `folder`, their tokenizer, the transform of pictures and their origin.

    Raises ModelLoadError as `load_folder`.
    """
    if device is None:
        raise ModelLoadError(f"two towers are not spread over cards; use {folder} with device=cuda")
    module, origin = _read(folder, TOWERS, source, dtype, device)
    return module, _tokenizer(folder), read_transform(folder), origin


def assembled(
    folder: Path, module: nn.Module, modality: Literal["text", "image"], origin: Origin
) -> LoadedModel:
    """`module` with the tokenizer or image processor of `folder`; ModelLoadError without one."""
    reader = _tokenizer(folder) if modality == "text" else _processor(folder)
    classes = names_of_config(module)
    if modality == "text":
        return assemble_text(
            module,
            tokenizer=reader,
            classes=classes,
            origin=origin,
            usual=saved_truncation(reader),
        )
    transform = processor_transform(reader)
    blank = Image.new("RGB", (96, 64), (128, 128, 128))
    try:
        shape = tuple(transform(blank).shape)
    except Exception as error:  # numbers of its configuration that fit no picture
        raise ModelLoadError(
            f"the image processor in {folder} cannot read a picture: {error}"
        ) from error
    return assemble_image(
        module,
        transform=transform,
        shape=(shape[0], shape[1], shape[2]),
        classes=classes,
        origin=origin,
    )


def modality_of(config: dict[str, Any], where: str) -> Literal["text", "image"]:
    """Return whether transformers classifies texts or pictures with this model type.

    Looks at the installed release's own tables only: nothing of the model is imported.
    """
    import transformers
    from transformers.models.auto import configuration_auto, modeling_auto

    _check_timm(config, where)
    kind = config.get("model_type")
    known = f"the installed transformers {transformers.__version__}"
    if not isinstance(kind, str) or kind not in configuration_auto.CONFIG_MAPPING_NAMES:
        raise ModelLoadError(
            f"{where}: {known} knows no model_type {kind!r}; install a release that does, "
            "or load the model yourself and use wrap"
        )
    tables = {
        "text": {
            None: modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
            "tokens": modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
            "span": modeling_auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES,
        }[head_of_config(config)],
        "image": modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    }
    text, image = (kind in tables[name] for name in ("text", "image"))
    if is_two_towers(config):
        _refuse_two_towers(where, config)
    if text and image:  # one type for both (Perceiver): the saved class decides
        image = any(name in str(tables["image"][kind]) for name in config.get("architectures", []))
        text = not image
    if not text and not image:
        raise ModelLoadError(
            f"{where}: {known} has no sequence, token or image classifier of model_type {kind!r}"
        )
    return "text" if text else "image"


#: two towers that are made of any two models, and stand in no table of transformers
_DUAL = {"vision-text-dual-encoder": "VisionTextDualEncoderModel"}


def is_two_towers(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration is of a model that compares pictures with texts.

    Looks at the installed release's own tables only.
    """
    from transformers.models.auto import modeling_auto

    known = {**modeling_auto.MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES, **_DUAL}
    name = known.get(str(config.get("model_type")))
    return name is not None and str(name) in map(str, config.get("architectures") or ())


def _refuse_two_towers(where: str, config: Mapping[str, Any]) -> None:
    """Raise ModelLoadError: two towers compare pictures with texts, and classify nothing."""
    raise ModelLoadError(
        f"{where} holds two towers ({config['architectures'][0]}), which compare pictures with "
        "texts, and no classifier: load it with load_two_towers and explain pairs with "
        f"explain_similarity (transexplain explain PICTURE --text TEXT --model {where}). Audits "
        f"take it as a classifier of pictures over texts, towers:{where}?texts=A TEXT;ANOTHER TEXT"
    )


def _check_timm(config: dict[str, Any], where: str) -> None:
    """Refuse what transformers' wrappers of timm would hand on to it, in any part of a config."""
    waiting: list[Any] = [config]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        waiting += part.values()
        if str(part.get("model_type")).startswith("timm_"):
            from transexplain.models.timm_models import checked_arguments, plain_name

            name = str(part.get("architecture", ""))
            if not plain_name(name):
                raise ModelLoadError(f"{where}: architecture {name!r} is no timm model name")
            checked_arguments(part.get("model_args") or {}, where)


def names_of_config(module: nn.Module) -> tuple[str, ...]:
    """Class names by index from the config's `id2label`; empty where there are none."""
    config = getattr(module, "config", None)
    labels = getattr(config, "id2label", None) or {}
    try:
        names = [str(labels[index]) for index in range(len(labels))]
    except KeyError as error:
        raise ModelLoadError(f"id2label of the config has no name for class {error}") from error
    indices = getattr(config, "label2id", None)
    indices = indices if isinstance(indices, Mapping) else {}  # nothing else reads it
    if swapped := [(i, name) for i, name in enumerate(names) if indices.get(name, i) != i]:
        index, name = swapped[0]
        warnings.warn(
            f"the config names class {index} {name!r} by id2label, and gives {name!r} the index "
            f"{indices[name]} by label2id; id2label is used. Check which of them the classes were "
            "trained by, and correct config.json",
            stacklevel=2,
        )
    return unique_names(names)


@dataclass(frozen=True, slots=True)
class _ProcessorTransform:
    """A function that can be sent to another process, as a closure cannot."""

    processor: Any
    options: Mapping[str, bool] = field(default_factory=dict)

    def __call__(self, image: Image.Image) -> Tensor:
        pixels = self.processor(images=image, return_tensors="pt", **self.options)["pixel_values"]
        return torch.as_tensor(pixels)[0]

    def steps(self) -> "tuple[_ProcessorTransform, _ProcessorTransform]":
        """A transform that resizes and crops alone, and one that scales and normalises alone."""
        resizes, scales = (dict.fromkeys(names, False) for names in (_VALUES, _SIZES))
        return replace(self, options=resizes), replace(self, options=scales)


#: steps of processors, by what they change
_VALUES, _SIZES = ("do_rescale", "do_normalize"), ("do_resize", "do_center_crop", "do_pad")


def processor_transform(processor: Any) -> Callable[[Image.Image], Tensor]:
    """A transformers image processor as a function of one picture to (3, H, W)."""
    return _ProcessorTransform(processor)


def transform_of(processor: Any) -> Any:
    """What a user gave to read pictures with, as a function of a picture; None stays None."""
    own = getattr(processor, "image_processor", processor)  # a processor of both sides holds it
    is_library = type(own).__module__.partition(".")[0] == "transformers"
    return processor_transform(own) if is_library else own


def read_transform(folder: Path) -> Callable[[Image.Image], Tensor]:
    """The transform of pictures of a folder; raises ModelLoadError without an image processor."""
    return processor_transform(_processor(folder))


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    _require(folder, _TOKENIZER_FILES, "*.model", "tokenizer")
    check_growth(folder)
    return _loaded(AutoTokenizer, folder, "tokenizer")


def _processor(folder: Path) -> Any:
    from transformers import AutoImageProcessor

    _require(folder, _PROCESSOR_FILES, "", "image processor")
    return _loaded(AutoImageProcessor, folder, "image processor")


def _require(folder: Path, names: tuple[str, ...], pattern: str, what: str) -> None:
    if not any((folder / name).is_file() for name in names) and not (
        pattern and any(folder.glob(pattern))
    ):
        raise ModelLoadError(
            f"{folder} holds no {what}; expected one of {', '.join(names)}: save the model's "
            f"{what} there with save_pretrained"
        )


def _loaded(factory: Any, folder: Path, what: str) -> Any:
    try:
        with quiet(), panics_as_errors():
            return factory.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises no class of its own
        raise ModelLoadError(f"the {what} in {folder} cannot be loaded: {error}") from error


def read_module(
    folder: Path, task: str, dtype: torch.dtype, **options: Any
) -> tuple[nn.Module, dict[str, Any]]:
    """The model of `folder`, and which weights were missing, unexpected or mismatched.

    `task` is what it reads, `text` or `image`, or `tokens`, which it labels. `options` are further
    ones of transformers' `from_pretrained`. Raises ModelLoadError.
    """
    try:
        with _building(folder):
            module, report = _factory(task).from_pretrained(
                folder,
                dtype=dtype,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # the caller says which they are
                **options,
            )
    except _LOAD_ERRORS as error:
        raise ModelLoadError(f"transformers cannot load {folder}: {error}") from error
    return module, report


def _factory(task: str) -> Any:
    import transformers

    return {
        "text": transformers.AutoModelForSequenceClassification,
        "tokens": transformers.AutoModelForTokenClassification,
        "span": transformers.AutoModelForQuestionAnswering,
        "image": transformers.AutoModelForImageClassification,
        "causal": transformers.AutoModelForCausalLM,
        "masked": transformers.AutoModelForMaskedLM,
        "encoder-decoder": transformers.AutoModelForSeq2SeqLM,
        TOWERS: transformers.AutoModel,
        "pictures": transformers.AutoModelForImageTextToText,
    }[task]


def head_of_config(config: Mapping[str, Any]) -> Head | None:
    """The head of a configuration whose model has logits at every position; None: of another."""
    named = map(str, config.get("architectures") or ())
    return next(
        (head for architecture in named if (head := head_of_class(architecture)) is not None), None
    )


@contextmanager
def _building(folder: Path) -> Iterator[None]:
    """Transformers builds a model in here, of no more than the weights of `folder` can fill."""
    budget = Budget(size_in_files(weight_files(folder)), str(folder))
    with quiet(), _loading, budget:
        yield


def _places(folder: Path, task: str, dtype: torch.dtype) -> dict[str, str]:
    """The card of every part of the model in `folder`, found without its weights."""
    from transformers import AutoConfig

    try:
        with _building(folder), torch.device("meta"):
            config = AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            factory = _factory(task)
            module = factory.from_config(config, dtype=dtype, trust_remote_code=False)
    except _LOAD_ERRORS as error:
        raise ModelLoadError(f"transformers cannot load {folder}: {error}") from error
    return card_map(module, cards(), str(folder))


def _module(folder: Path, task: str, dtype: torch.dtype, **options: Any) -> nn.Module:
    module, report = read_module(folder, task, dtype, **options)
    # many encoders are saved with a pooler that their classifier has no use for
    unexpected = [name for name in report["unexpected_keys"] if ".pooler." not in f".{name}"]
    if unexpected and task != "image":  # some keep the head that they were pretrained with
        from transexplain.models.lm_head import head_names

        known = head_names(module.config)
        unexpected = [name for name in unexpected if name not in known]
    wrong = mismatches(report["mismatched_keys"], getattr(module.config, "num_labels", None))
    if report["missing_keys"]:
        _refuse_language_model(folder, getattr(module.config, "architectures", None) or ())
    check_keys(report["missing_keys"], unexpected, wrong, str(folder))
    return module


def _refuse_language_model(folder: Path, architectures: Sequence[str]) -> None:
    """Raise ModelLoadError where a folder without a classifier's head names a language model."""
    for name in architectures:
        if name.endswith(_LANGUAGE):
            raise ModelLoadError(
                f"{folder} holds a language model ({name}) and no classifier: load it with "
                f"load_language_model, audit it as lm:{folder}?answers=WORD,WORD, or fine-tune it"
            )


#: how architectures end that predict tokens
_LANGUAGE = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration")
