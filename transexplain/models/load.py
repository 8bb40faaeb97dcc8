"""A classifier as the engine needs it: loaded by directory, hub id or timm name, or wrapped."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import nn

from transexplain.errors import EngineError, ModelLoadError
from transexplain.files.paths import local_path
from transexplain.models import huggingface
from transexplain.models.assemble import (
    IN_MEMORY,
    Origin,
    assemble_image,
    assemble_text,
    count_classes,
    placed,
    unique_names,
)
from transexplain.models.calling import Caller, place_of, torch_dtype, unwrapped
from transexplain.models.configs import kind_of_class, read_config
from transexplain.models.hub import digested_files, fetch, fetchable, folder_of
from transexplain.models.huggingface import names_of_config
from transexplain.models.loaded_model import OTHER_MODELS, LoadedModel, checked_model
from transexplain.registry import Registry

if TYPE_CHECKING:
    from transexplain.models.image_encoder import Transform

#: loaders of sources with a prefix
PREFIXED = Registry(
    "prefix",
    {
        "lm:": "transexplain.extras.language.load_language:load_answers",
        "timm:": "transexplain.models.timm_models:load_named",
        "towers:": "transexplain.extras.towers.two_towers:load_texts",
    },
)
#: readers of the folder in such a source
FOLDERS = Registry(
    "prefix",
    {
        "lm:": "transexplain.extras.language.load_language:answers_of",
        "towers:": "transexplain.extras.towers.two_towers:texts_of",
    },
)
#: listings of the files of such a source that names no folder
FILES = Registry("prefix", {"timm:": "transexplain.models.timm_models:named_files"})
#: loaders of a folder, by the key of its config.json that tells its models from transformers'
CONFIGURED = Registry(
    "model",
    {
        "graph_args": "transexplain.extras.graphs.graph_transformer:load_folder",
        "timm_args": "transexplain.models.timm_models:load_folder",
        "architecture": "transexplain.models.timm_models:load_folder",
    },
)
#: assemblers of a module in memory, by modality
ASSEMBLERS = Registry(
    "modality", {"nodes": "transexplain.extras.graphs.graph_encoder:assemble_nodes"}
)
#: what says whether a directory or hub id holds a model that is no classifier
KINDS = Registry(
    "kind of model",
    {
        "language": "transexplain.extras.language.load_language:language_kind",
        "towers": "transexplain.extras.towers.two_towers:holds_two_towers",
    },
)


def _prefix(source: str) -> str | None:
    return next((prefix for prefix in PREFIXED if source.startswith(prefix)), None)


@torch.inference_mode(False)
def load_model(
    source: Any, reader: Any = None, *, dtype: Any = None, device: str | None = None
) -> LoadedModel:
    """The text, image or graph classifier at `source`, or the one that is in memory already.

    Args:
        source: a directory (transformers, a config.json with `timm_args`, or what
            `models.graph_transformer.GraphTransformer.save` wrote), a hub id
            (`org/name` or `org/name@revision`, recorded with its commit) or
            `timm:NAME?checkpoint=FILE.safetensors`; directory and file may be URLs; or
            `lm:FOLDER?answers=he,she` or `lm:FOLDER?generate=8`, a language model; or
            `towers:FOLDER?texts=a cat;a dog`, see `TwoTowers.as_classifier`. Or an object: a
            transformers classifier, a timm model, or a pipeline for text- or image-classification.
        reader: of a transformers classifier in memory: its tokenizer or image processor, or a
            function from an RGB picture to (3, H, W).
        dtype: that files are loaded as: float32 (the default), float64, bfloat16 or float16.
        device: torch device that files are loaded to; default: cpu. `spread` puts the blocks of a
            transformers model that is too large for one on all CUDA devices, explained eagerly.

    Of files only safetensors are read and no code of a model is run. Texts are cut where the saved
    tokenizer says or the model ends. For a model in memory of half precision on the CPU a Python
    warning says that it is slow. Raises ModelLoadError, ConfigurationError without accelerate.
    """
    if not isinstance(source, str | Path):
        return _in_memory(source, reader, dtype=dtype, device=device)
    text = str(source)
    if reader is not None:
        raise ModelLoadError(
            f"{text!r} brings the tokenizer or image processor that was saved with it: give "
            f"load_model({text!r}) alone, or both as objects"
        )
    if (prefix := _prefix(text)) is not None:
        classifier: LoadedModel = PREFIXED.load(prefix)(text, dtype=dtype, device=device)
        return classifier
    number = torch_dtype(str(dtype or "float32").removeprefix("torch."))
    place = place_of(str(device or "cpu"))
    if text.startswith(IN_MEMORY):
        raise ModelLoadError(
            f"{text} is a module that was in memory only, which no other process can load: "
            "explain and audit it where it is; the command line and workers need a directory, a "
            "hub id or a timm name (save it with save_pretrained, its tokenizer beside it; of "
            "graph models a GraphTransformer can be saved)"
        )
    if local_path(text).is_file():
        raise ModelLoadError(
            f"{text} is a file; give the directory that holds it with its config.json, "
            "or timm:NAME?checkpoint=FILE.safetensors"
        )
    folder, name = folder_of(source)
    return _from_folder(folder, name, number, place)


def _from_folder(
    folder: Path, source: str, dtype: torch.dtype, device: torch.device | None
) -> LoadedModel:
    config = read_config(folder)
    key = next((key for key in CONFIGURED if key in config), None)
    configured = key is not None and "model_type" not in config
    loader = CONFIGURED.load(str(key)) if configured else huggingface.load_folder
    model: LoadedModel = loader(folder, config, source=source, dtype=dtype, device=device)
    return model


def present_files(source: str) -> dict[str, Path]:
    """What a digest of the model at `source` would cover, by the names that the digest knows.

    `source` is as `load.load_model` takes it. Raises ModelLoadError where it names no model.
    """
    prefix = _prefix(source)
    if prefix in FILES:
        listed: dict[str, Path] = FILES.load(str(prefix))(source)
        return listed
    if prefix is not None:
        return present_files(FOLDERS.load(prefix)(source)[0])
    if local_path(source).is_dir():
        folder = local_path(source)
    elif fetchable(source) and not Path(source).is_absolute():
        folder = fetch(source, remedy="give its directory")[0]
    else:
        raise ModelLoadError.nowhere(source)
    return digested_files(folder)


_Shape = tuple[int, int, int]


@torch.inference_mode(False)
def wrap(
    module: nn.Module,
    *,
    modality: str | None = None,
    tokenizer: Any | None = None,
    transform: Any | None = None,
    classes: Sequence[str] | None = None,
    input_size: _Shape | None = None,
) -> LoadedModel:
    """`module` as a LoadedModel; its weights, mode and hooks stay as they are.

    Args:
        module: a classifier in memory.
        modality: `text`, `image` or `nodes` (the module's first input holds the features of the
            nodes (B, T, F); items are graphs, mappings by the names of its inputs). Default: what
            `tokenizer` or `transform` says, else what a transformers or timm model says of itself.
        tokenizer: of a text model, a fast one of transformers; without one only encoded items
            can be explained.
        transform: of an image model, maps an RGB picture to (3, H, W): a function, or an image
            processor of transformers. timm models bring their own; without one only
            `pixel_values` items can be explained.
        classes: the names by index; default: the config's, else the indices. Graph models need
            them.
        input_size: (3, H, W), needed only where the module does not tell.

    Raises ModelLoadError.
    """
    if not isinstance(module, nn.Module):
        raise ModelLoadError(f"wrap takes a torch module, not {type(module).__name__}")
    if isinstance(classes, str):
        raise ModelLoadError(f"classes is the text {classes!r}; give a list of names, by index")
    module = unwrapped(module)
    kind = type(module).__name__
    if modality != "image" and kind_of_class(kind) is not None:
        raise ModelLoadError(
            f"{kind} is a language model and no classifier: load it with te.load_language_model"
            "(model, tokenizer), and explain prompts with te.explain_answers, or make a classifier "
            "of it with as_classifier"
        )
    modality = modality or _modality(module, tokenizer, transform)
    origin = Origin.in_memory(module)
    if modality == "text":
        names = _names(module, classes, "text", None)
        return assemble_text(module, tokenizer=tokenizer, classes=names, origin=origin)
    if modality == "image":
        if _is_a("ImageProcessingMixin", transform):
            transform = huggingface.processor_transform(transform)
        transform, shape = _pictures(module, transform, input_size)
        names = _names(module, classes, "image", shape)
        return assemble_image(
            module, transform=transform, shape=shape, classes=names, origin=origin
        )
    if modality in ASSEMBLERS:
        names = _given_names(module, classes)
        model: LoadedModel = ASSEMBLERS.load(modality)(module, classes=names, origin=origin)
        return model
    raise ModelLoadError(f"unknown modality {modality!r}; known: text, image, nodes")


#: what transformers calls the main input of a model, and what such a model reads
_MAIN_INPUTS = {"input_ids": "text", "pixel_values": "image"}
_READ = {"text": "texts", "image": "pictures"}
#: pipelines of transformers that end in a classifier's logits, by their task
_TEXTS = ("text-classification", "token-classification", "question-answering")
_PIPELINES = dict.fromkeys(_TEXTS, "tokenizer")
_PIPELINES["image-classification"] = "image_processor"


def _declared_modality(module: Any) -> str | None:
    """The modality that a transformers or timm model declares; None: it is neither."""
    if getattr(module, "pretrained_cfg", None):
        return "image"
    return _MAIN_INPUTS.get(str(getattr(module, "main_input_name", None)))


def _modality(module: nn.Module, tokenizer: Any, transform: Any) -> str:
    """The modality of a module, by its readers or by its own declaration."""
    if tokenizer is not None and transform is not None:
        raise ModelLoadError("a tokenizer is for texts and a transform for pictures: give one")
    declared = _declared_modality(module)
    given = "text" if tokenizer is not None else "image" if transform is not None else declared
    if given is None:
        raise ModelLoadError(
            f"{type(module).__name__} does not say what it reads: give modality='text', 'image' "
            "or 'nodes'"
        )
    if declared is not None and given != declared:
        raise ModelLoadError(
            f"{type(module).__name__} reads {_READ[declared]}, and what was given with it reads "
            f"{_READ[given]}"
        )
    return given


def _is_a(name: str, value: Any) -> bool:
    """Return whether `value` is of a class of transformers of this name."""
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] == "transformers"
        for base in type(value).__mro__
    )


def _in_memory(source: Any, reader: Any, *, dtype: Any, device: Any) -> LoadedModel:
    """The classifier that an object is or holds."""
    if dtype is not None or device is not None:
        raise ModelLoadError(
            "a model in memory keeps its number type and its device; change them with model.to() "
            "before, and leave dtype and device out"
        )
    if isinstance(source, LoadedModel) and reader is None:
        return source
    if any(base.__name__ in OTHER_MODELS for base in type(source).__mro__):
        checked_model(LoadedModel, source)
    if reader is None and _is_a("Pipeline", source):
        task = str(source.task)
        if task not in _PIPELINES:
            raise ModelLoadError(
                f"a pipeline for {task} gives no logits; pipelines for {', '.join(_PIPELINES)} do"
            )
        source, reader = source.model, getattr(source, _PIPELINES[task])
    if not isinstance(source, nn.Module):
        raise ModelLoadError(_no_model(source))
    source = unwrapped(source)
    number, place = placed(source)
    if place.type == "cpu" and number in (torch.float16, torch.bfloat16):
        # transformers loads the number type of the file unless another is given
        warnings.warn(
            f"{type(source).__name__} is {str(number).removeprefix('torch.')}, which is slow and "
            "coarse on the CPU: model.float() makes it float32",
            stacklevel=4,
        )
    try:
        return wrap(source, **_readers(source, reader))
    except EngineError as error:
        raise ModelLoadError(
            f"{type(source).__name__} is no classifier: {error}. Load it with a classification "
            "head, for example by AutoModelForSequenceClassification"
        ) from error


def _no_model(source: Any) -> str:
    kind = type(source).__name__
    if _is_a("PreTrainedTokenizerBase", source) or _is_a("ImageProcessingMixin", source):
        return f"{kind} is no model: the model comes first, load_model(model, {kind})"
    hint = ""
    if isinstance(source, dict) and any(
        isinstance(tensor, torch.Tensor) for tensor in source.values()
    ):
        hint = " (weights alone: load them into their module first)"
    return (
        f"load_model cannot load {source!r:.80} ({kind}){hint}; it takes a directory, a hub id, "
        "timm:NAME, a transformers model with its tokenizer or image processor, a pipeline, or a "
        "timm model"
    )


def _readers(module: nn.Module, reader: Any) -> dict[str, Any]:
    """What stands beside a module as the arguments of `wrap`; ModelLoadError where it is none."""
    kind, declared = type(module).__name__, _declared_modality(module)
    if reader is None:
        if getattr(module, "pretrained_cfg", None):
            return {}
        if declared is None:
            raise ModelLoadError(
                f"{kind} is of no library that says what it reads: use wrap(module, modality=...)"
            )
        what = "tokenizer" if declared == "text" else "image processor"
        raise ModelLoadError(
            f"{kind} reads {_READ[declared]}, so its {what} is needed: load_model(model, "
            f"{what.replace(' ', '_')}); for encoded items alone use wrap(model)"
        )
    if _is_a("ProcessorMixin", reader):
        reader = getattr(reader, "tokenizer" if declared == "text" else "image_processor", reader)
    if _is_a("PreTrainedTokenizerBase", reader):
        return {"tokenizer": reader}
    if _is_a("ImageProcessingMixin", reader) or (callable(reader) and declared != "text"):
        return {"transform": reader}
    raise ModelLoadError(
        f"{type(reader).__name__} is neither a tokenizer nor an image processor of transformers; "
        f"{kind} reads {_READ.get(declared or '', 'neither texts nor pictures that it tells of')}"
    )


def _given_names(module: nn.Module, classes: Sequence[str] | None) -> tuple[str, ...]:
    names = tuple(classes) if classes is not None else names_of_config(module)
    if not names:
        raise ModelLoadError(
            f"{type(module).__name__} does not say what its classes are, and without a graph they "
            "cannot be counted: pass classes= (the class names by index)"
        )
    return unique_names(names)


def _names(
    module: nn.Module, classes: Sequence[str] | None, modality: Any, shape: _Shape | None
) -> tuple[str, ...]:
    names = tuple(classes) if classes is not None else names_of_config(module)
    if names:
        return unique_names(names)
    dtype, device = placed(module)
    caller = Caller.of(module, modality)
    if shape is not None:
        inputs = {caller.main: torch.zeros(1, *shape, dtype=dtype, device=device)}
    else:
        ids = torch.ones(1, 4, dtype=torch.long, device=device)
        inputs = {caller.main: ids, "attention_mask": torch.ones_like(ids)}
    return tuple(str(index) for index in range(count_classes(module, caller, inputs)))


def _pictures(
    module: nn.Module, transform: "Transform | None", given: _Shape | None
) -> "tuple[Transform | None, _Shape]":
    if transform is None and getattr(module, "pretrained_cfg", None):
        from transexplain.models.timm_models import data_config, eval_transform

        data = data_config(module, {"input_size": given} if given else {})
        return eval_transform(data), data["input_size"]
    shape = given or _shape_of(transform) or _configured(module)
    if shape is None:
        raise ModelLoadError(
            f"the picture size of {type(module).__name__} is unknown: pass "
            "input_size=(3, H, W) or transform="
        )
    return transform, shape


def _shape_of(transform: "Transform | None") -> _Shape | None:
    if transform is None:
        return None
    pixels = transform(Image.new("RGB", (96, 64), (128, 128, 128)))
    if not isinstance(pixels, torch.Tensor) or pixels.ndim != 3:
        raise ModelLoadError("transform must map an RGB picture to a tensor (3, H, W)")
    return (pixels.shape[0], pixels.shape[1], pixels.shape[2])


def _configured(module: nn.Module) -> _Shape | None:
    config = getattr(module, "config", None)
    size = getattr(config, "image_size", None)
    if size is None:
        size = getattr(getattr(module, "patch_embed", None), "img_size", None)
    sides = (size, size) if isinstance(size, int) else tuple(size or ())
    if len(sides) != 2:
        return None
    return (int(getattr(config, "num_channels", 3)), int(sides[0]), int(sides[1]))
