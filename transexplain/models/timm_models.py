"""Loads image classifiers of timm: by name with a checkpoint, or from a directory."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transexplain.errors import ModelLoadError
from transexplain.local_copies import local_file
from transexplain.local_paths import local_path
from transexplain.models.assemble import Origin, assemble_image, unique_names
from transexplain.models.configs import Budget, WeightSize, read_config
from transexplain.models.hub import (
    check_header,
    digests_of_files,
    digests_of_folder,
    fetch,
    fill,
    read_weights,
    weight_files,
)
from transexplain.models.loaded_model import LoadedModel
from transexplain.models.pixel_bytes import Transform
from transexplain.models.timm_arguments import checked_arguments, plain_name
from transexplain.remote_files import check_url
from transexplain.remote_stores import is_url

PREFIX = "timm:"
_DEFAULT_CLASS = "timm.models.vision_transformer.VisionTransformer"
_SIDE = 4096  #: pixels
#: what timm raises for arguments that do not fit its model
_BUILD_ERRORS = (
    TypeError, ValueError, AssertionError, RuntimeError, LookupError, AttributeError,
    ArithmeticError, MemoryError, ImportError, OSError,
)  # fmt: skip


def _is_shape(value: Any) -> bool:
    sides = value if isinstance(value, list | tuple) else ()
    whole = [one for one in sides if type(one) is int and 0 < one <= _SIDE]
    return len(whole) == len(sides) == 3


def _is_channels(value: Any) -> bool:
    given = value if isinstance(value, list | tuple) else ()
    return 1 <= len(given) <= 3 and all(type(one) in (int, float) for one in given)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier()


#: what of timm's data configuration is taken from a file, and what it has to be
_DATA_KEYS: dict[str, Callable[[Any], bool]] = {
    "input_size": _is_shape,
    "interpolation": _is_word,
    "mean": _is_channels,
    "std": _is_channels,
    "crop_pct": lambda value: type(value) in (int, float) and 0.1 <= value <= 10,
    "crop_mode": _is_word,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How to build one timm model and what its pictures look like."""

    architecture: str  #: registered name, or class path under timm.models
    args: dict[str, Any]
    data: dict[str, Any] = field(default_factory=dict)  #: timm's data config
    classes: Sequence[str] | None = None


def load_named(source: str, *, dtype: torch.dtype, device: torch.device | None) -> LoadedModel:
    """`timm:NAME?checkpoint=FILE.safetensors`; without a checkpoint, timm's weights on the hub."""
    device = _one(device, source)
    name, checkpoint = named_checkpoint(source)
    if checkpoint is None:
        remedy = f"name a file here: {PREFIX}{name}?checkpoint=FILE.safetensors"
        fetched = fetch(hub_name(name), remedy=remedy)
        return load_folder(
            fetched.folder,
            read_config(fetched.folder),
            source=f"{PREFIX}{name}",
            dtype=dtype,
            device=device,
        )
    weights = read_weights(checked_checkpoint(checkpoint))
    recipe = Recipe(architecture=name, args=head_size(name, weights))
    found = digests_of_files({f"{name}/{checkpoint.name}": checkpoint})
    origin = Origin(source=source, digest=found.whole, device=str(device), files=found.files)
    return _load(recipe, weights, str(checkpoint), origin=origin, dtype=dtype, device=device)


def load_folder(
    folder: Path,
    config: dict[str, Any],
    *,
    source: str,
    dtype: torch.dtype,
    device: torch.device | None,
) -> LoadedModel:
    """A directory whose config.json holds `timm_args` (or timm's own hub configuration)."""
    device = _one(device, source)
    files = weight_files(folder)
    recipe = recipe_of(folder, config)
    found = digests_of_folder(folder, files)
    origin = Origin(source=source, digest=found.whole, device=str(device), files=found.files)
    return _load(
        recipe, read_weights(files), str(folder), origin=origin, dtype=dtype, device=device
    )


def _one(device: torch.device | None, source: str) -> torch.device:
    if device is None:
        raise ModelLoadError(
            f"{source} is a timm model, which lies on one device; give device='cuda:0' or 'cpu'"
        )
    return device


def is_timm_config(config: dict[str, Any]) -> bool:
    """Whether a config.json is for `load_folder` of this module."""
    return "timm_args" in config or ("architecture" in config and "pretrained_cfg" in config)


def _load(
    recipe: Recipe,
    weights: dict[str, torch.Tensor],
    where: str,
    *,
    origin: Origin,
    dtype: torch.dtype,
    device: torch.device,
) -> LoadedModel:
    module = built(recipe, weights, where)
    fill(module, weights, where)
    module = module.to(device=device, dtype=dtype).eval()
    try:
        data = data_config(module, recipe.data)
        transform = eval_transform(data)
    except _BUILD_ERRORS as error:
        raise ModelLoadError(f"{where}: timm makes no pictures of its data: {error}") from error
    return assemble_image(
        module,
        transform=transform,
        shape=data["input_size"],
        classes=_class_names(module, recipe, where),
        origin=origin,
    )


def data_config(module: nn.Module, given: dict[str, Any]) -> dict[str, Any]:
    """timm's data configuration of `module`, with `given` before the model's own."""
    import timm.data

    built = getattr(getattr(module, "patch_embed", None), "img_size", None)
    if "input_size" not in given and isinstance(built, tuple) and len(built) == 2:
        given = {**given, "input_size": (3, *built)}  # built for another size than its weights
    resolved: dict[str, Any] = dict(timm.data.resolve_data_config(given, model=module))
    resolved["input_size"] = tuple(int(side) for side in resolved["input_size"])
    return resolved


def eval_transform(data: dict[str, Any]) -> Transform:
    """timm's evaluation transform: resize, crop, scale and normalise one picture."""
    import timm.data

    transform: Transform = timm.data.create_transform(**data, is_training=False)
    return transform


def named_checkpoint(source: str) -> tuple[str, Path | None]:
    """The name and the checkpoint of a `timm:` source; raises ModelLoadError."""
    import timm

    name, mark, query = source.removeprefix(PREFIX).partition("?")
    if ":" in name or "/" in name or not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ModelLoadError(f"timm {timm.__version__} has no model {name!r}{hint}")
    key, _, value = query.partition("=")
    if mark and (key != "checkpoint" or not value):
        raise ModelLoadError(
            f"cannot read {source!r}; the form is {PREFIX}NAME?checkpoint=FILE.safetensors"
        )
    if is_url(value):
        check_url(value)
        return name, local_file(value)
    return name, local_path(value) if value else None


def checked_checkpoint(path: Path) -> list[Path]:
    """`path` when it is a whole safetensors file; ModelLoadError otherwise."""
    if not path.is_file():
        raise ModelLoadError(f"the checkpoint {path} is not there")
    if path.suffix != ".safetensors":
        raise ModelLoadError(
            f"the checkpoint {path} is no .safetensors file; other formats can run code when read: "
            "convert it with safetensors.torch.save_file where you trust it"
        )
    check_header(path)
    return [path]


def hub_name(name: str) -> str:
    """Where the hub has timm's weights of this name."""
    return f"timm/{_with_tag(name)}"


def _with_tag(name: str) -> str:
    import timm

    if "." in name:
        return name
    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    tag = getattr(config, "tag", "")
    return f"{name}.{tag}" if tag else name


def head_size(name: str, weights: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The number of classes that the checkpoint's head has."""
    import timm

    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    heads = getattr(config, "classifier", None) or ()
    for head in (heads,) if isinstance(heads, str) else heads:
        for kind in ("bias", "weight"):
            if f"{head}.{kind}" in weights:
                return {"num_classes": int(weights[f"{head}.{kind}"].shape[0])}
    return {}


def recipe_of(folder: Path, config: dict[str, Any]) -> Recipe:
    """How the model of a directory is built; ModelLoadError for what config.json lacks or asks."""
    where = str(folder / "config.json")
    if "timm_args" in config:
        given, classes = config["timm_args"], config.get("classes")
        data: Any = {"crop_pct": 1.0, "interpolation": "bicubic", **config}
        missing = [key for key in ("mean", "std", "input_size") if key not in config]
        if missing:
            raise ModelLoadError(f"{where}: lacks {', '.join(missing)}")
    else:
        given = config.get("model_args") or {}
        data = config.get("pretrained_cfg")
        if not isinstance(data, dict):
            raise ModelLoadError(f"{where}: pretrained_cfg is no object")
        classes = config.get("label_names", data.get("label_names"))
    if not (classes is None or isinstance(classes, list)):
        raise ModelLoadError(f"{where}: the class names are no list")
    args = checked_arguments(given, where)
    if "timm_args" not in config:
        args |= checked_arguments({"num_classes": config.get("num_classes", 1000)}, where)
    architecture = str(config.get("architecture", _DEFAULT_CLASS))
    return Recipe(architecture=architecture, args=args, data=_data(data, where), classes=classes)


def _data(given: dict[str, Any], where: str) -> dict[str, Any]:
    """timm's data configuration in a file, its values of the right kind and size."""
    chosen = {key: given[key] for key in _DATA_KEYS if given.get(key) is not None}
    for key, value in chosen.items():
        if not _DATA_KEYS[key](value):
            raise ModelLoadError(f"{where}: {key} is {str(value)[:60]}, which timm has no use for")
    return chosen


def built(recipe: Recipe, weights: Mapping[str, torch.Tensor], where: str) -> nn.Module:
    """The module with weights drawn from a copy of the random state; ModelLoadError.

    One that is far larger than its `weights` is not built.
    """
    import timm

    name = recipe.architecture
    size = WeightSize(len(weights), sum(one.numel() for one in weights.values()))
    make: Callable[..., nn.Module] = partial(timm.create_model, name, pretrained=False)
    if not (plain_name(name) and timm.is_model(name)):
        make = _timm_class(name, where)
    # initial weights must not move the user's random state
    with torch.random.fork_rng(devices=[]), Budget(size, where):
        try:
            module: nn.Module = make(**recipe.args)
        except _BUILD_ERRORS as error:
            raise ModelLoadError(f"{where}: {name} cannot be built: {error}") from error
    return module


def _timm_class(path: str, where: str) -> Callable[..., nn.Module]:
    module, _, name = path.rpartition(".")
    found = None
    if re.fullmatch(r"timm\.models\.[a-z]\w*", module):  # a config may name nothing else
        try:
            found = getattr(import_module(module), name, None)
        except ModuleNotFoundError:
            found = None
    own = str(getattr(found, "__module__", "")).startswith("timm.models.")
    if not (own and isinstance(found, type) and issubclass(found, nn.Module)):
        raise ModelLoadError(
            f"{where}: architecture {path!r} is no timm model name and no class of timm.models"
        )
    return found


def _class_names(module: nn.Module, recipe: Recipe, where: str) -> tuple[str, ...]:
    count = int(getattr(module, "num_classes", 0) or 0)
    if count == 0:
        raise ModelLoadError(f"{where}: the model has no classifier (num_classes is 0)")
    if recipe.classes is not None:
        if len(recipe.classes) != count:
            raise ModelLoadError(f"{where}: {len(recipe.classes)} class names for {count} classes")
        return unique_names([str(name) for name in recipe.classes])
    return default_names(count)


def default_names(count: int) -> tuple[str, ...]:
    """ImageNet's names for 1,000 classes, else the indices."""
    from timm.data import ImageNetInfo

    if count == 1000:
        return unique_names(ImageNetInfo("imagenet-1k").label_descriptions())
    return tuple(str(index) for index in range(count))
