"""Image classifiers of timm: by name with a checkpoint, or from a directory."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transexplain.errors import ModelLoadError
from transexplain.models.assemble import Origin, assemble_image, unique_names
from transexplain.models.base import LoadedModel
from transexplain.models.files import (
    digests_of_files,
    digests_of_folder,
    fill,
    read_config,
    read_weights,
    weight_files,
)
from transexplain.models.hub import fetch
from transexplain.models.transform import Transform

PREFIX = "timm:"
_DEFAULT_CLASS = "timm.models.vision_transformer.VisionTransformer"
_DATA_KEYS = ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How to build one timm model and what its pictures look like."""

    architecture: str  #: registered name, or class path under timm.models
    args: dict[str, Any]
    data: dict[str, Any] = field(default_factory=dict)  #: timm's data config
    classes: Sequence[str] | None = None


def load_named(source: str, *, dtype: torch.dtype, device: torch.device) -> LoadedModel:
    """`timm:NAME?checkpoint=FILE.safetensors`; without a checkpoint, timm's weights on the hub."""
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
    folder: Path, config: dict[str, Any], *, source: str, dtype: torch.dtype, device: torch.device
) -> LoadedModel:
    """A directory whose config.json holds `timm_args` (or timm's own hub configuration)."""
    files = weight_files(folder)
    recipe = recipe_of(folder, config)
    found = digests_of_folder(folder, files)
    origin = Origin(source=source, digest=found.whole, device=str(device), files=found.files)
    return _load(
        recipe, read_weights(files), str(folder), origin=origin, dtype=dtype, device=device
    )


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
    module = built(recipe, where)
    fill(module, weights, where)
    module = module.to(device=device, dtype=dtype).eval()
    data = data_config(module, recipe.data)
    return assemble_image(
        module,
        transform=eval_transform(data),
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
    return name, Path(value).expanduser() if value else None


def checked_checkpoint(path: Path) -> list[Path]:
    """`path` when it is a whole safetensors file; ModelLoadError otherwise."""
    if not path.is_file():
        raise ModelLoadError(f"the checkpoint {path} is not there")
    if path.suffix != ".safetensors":
        raise ModelLoadError(
            f"the checkpoint {path} is no .safetensors file; other formats can run code when read: "
            "convert it with safetensors.torch.save_file where you trust it"
        )
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
    """How the model of a directory is built; ModelLoadError for what its config.json lacks."""
    if "timm_args" in config:
        args, data, classes = config["timm_args"], config, config.get("classes")
        architecture = config.get("architecture", _DEFAULT_CLASS)
        missing = [key for key in ("mean", "std", "input_size") if key not in config]
        if missing or not isinstance(args, dict):
            wrong = f"lacks {', '.join(missing)}" if missing else "timm_args is no object"
            raise ModelLoadError(f"{folder / 'config.json'}: {wrong}")
        data = {"crop_pct": 1.0, "interpolation": "bicubic", **config}
    else:
        args = {**config.get("model_args", {}), "num_classes": config.get("num_classes", 1000)}
        data = config["pretrained_cfg"]
        classes = config.get("label_names", data.get("label_names"))
        architecture = config["architecture"]
    chosen = {key: data[key] for key in _DATA_KEYS if data.get(key) is not None}
    return Recipe(architecture=str(architecture), args=args, data=chosen, classes=classes)


def built(recipe: Recipe, where: str) -> nn.Module:
    """The module with weights drawn from a copy of the random state; ModelLoadError."""
    import timm

    name = recipe.architecture
    with torch.random.fork_rng(devices=[]):  # initial weights must not move the user's random state
        try:
            if ":" not in name and "/" not in name and timm.is_model(name):
                made = timm.create_model(name, pretrained=False, **recipe.args)
            else:
                made = _timm_class(name, where)(**recipe.args)
        except (TypeError, ValueError, AssertionError, RuntimeError) as error:
            raise ModelLoadError(f"{where}: {name} cannot be built: {error}") from error
    module: nn.Module = made
    return module


def _timm_class(path: str, where: str) -> type[nn.Module]:
    module, _, name = path.rpartition(".")
    found = None
    if module.startswith("timm.models."):  # nothing else is ever imported by a config's word
        try:
            found = getattr(import_module(module), name, None)
        except ModuleNotFoundError:
            found = None
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
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
