"""Explain a module that is already in memory, as it is."""

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import nn

from transexplain.errors import ModelLoadError
from transexplain.models.assemble import (
    Origin,
    assemble_image,
    assemble_nodes,
    assemble_text,
    count_classes,
    placed,
    unique_names,
)
from transexplain.models.calling import Caller
from transexplain.models.huggingface import names_of_config
from transexplain.models.image_encoder import Transform
from transexplain.models.loaded_model import LoadedModel
from transexplain.models.weight_files import digest_of_module

_Shape = tuple[int, int, int]


def wrap(
    module: nn.Module,
    *,
    modality: str,
    tokenizer: Any | None = None,
    transform: Transform | None = None,
    classes: Sequence[str] | None = None,
    input_size: _Shape | None = None,
) -> LoadedModel:
    """`module` as a LoadedModel; its weights, mode and hooks stay as they are.

    `modality="text"`: `tokenizer` is a fast transformers tokenizer; without one only encoded
    items can be explained. `modality="image"`: `transform` maps an RGB picture to (3, H, W);
    timm models bring their own, else only `pixel_values` items can be explained.
    `modality="nodes"`: the module's first input holds the features of the nodes (B, T, F); items
    are graphs, mappings by the names of its inputs. `classes` are the names by index (default: the
    config's, else the indices; graph models need them), `input_size` = (3, H, W) is needed
    only where the module does not tell. Raises ModelLoadError.
    """
    if not isinstance(module, nn.Module):
        raise ModelLoadError(f"wrap takes a torch module, not {type(module).__name__}")
    kind = f"{type(module).__module__}.{type(module).__qualname__}"
    _, device = placed(module)
    origin = Origin(source=f"module:{kind}", digest=digest_of_module(module), device=str(device))
    if modality == "text":
        names = _names(module, classes, "text", None)
        return assemble_text(module, tokenizer=tokenizer, classes=names, origin=origin)
    if modality == "image":
        transform, shape = _pictures(module, transform, input_size)
        names = _names(module, classes, "image", shape)
        return assemble_image(
            module, transform=transform, shape=shape, classes=names, origin=origin
        )
    if modality == "nodes":
        return assemble_nodes(module, classes=_given_names(module, classes), origin=origin)
    raise ModelLoadError(f"unknown modality {modality!r}; known: text, image, nodes")


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
    module: nn.Module, transform: Transform | None, given: _Shape | None
) -> tuple[Transform | None, _Shape]:
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


def _shape_of(transform: Transform | None) -> _Shape | None:
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
