"""Write a trained classifier as a directory that `load_model` takes."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from transexplain.atomic_write import atomic_folder
from transexplain.errors import ConfigurationError
from transexplain.models import timm_models
from transexplain.models.base import LoadedModel
from transexplain.models.files import is_digested
from transexplain.models.quiet import quiet
from transexplain.training.heads import folder_of, timm_recipe


def save_model(model: LoadedModel, source: str, folder: Path) -> None:
    """Write weights, configuration and the tokenizer or processor files of `source`.

    `folder` is there whole or not at all; an earlier one is replaced. Raises ConfigurationError
    for a module that is neither of transformers nor of timm.
    """
    with atomic_folder(folder) as temporary:
        if hasattr(model.module, "save_pretrained") and hasattr(model.module, "config"):
            _transformers(model.module, folder_of(source), temporary)
        else:
            _timm(model, source, temporary)


def _transformers(module: Any, source: Path, folder: Path) -> None:
    for path in sorted(source.iterdir()):
        if path.is_file() and is_digested(path.name) and path.name != "config.json":
            shutil.copyfile(path, folder / path.name)
    with quiet():
        module.save_pretrained(folder)


def _timm(model: LoadedModel, source: str, folder: Path) -> None:
    recipe, _ = timm_recipe(source)
    data = timm_models.data_config(model.module, recipe.data)
    args = {**recipe.args, "num_classes": len(model.classes)}
    config = {
        "architecture": recipe.architecture,
        "timm_args": args,
        **{name: _plain(data[name]) for name in ("input_size", "mean", "std", "interpolation")},
        "crop_pct": data["crop_pct"],
        "classes": list(model.classes),
    }
    try:
        text = json.dumps(config, indent=1)
    except TypeError as error:
        raise ConfigurationError(f"{source}: its timm_args are no JSON: {error}") from error
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    weights = {
        name: value.detach().cpu().contiguous().clone()
        for name, value in model.module.state_dict().items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
