"""Load a classifier by directory, hub id or timm name; nothing of it is ever executed."""

from pathlib import Path

import torch

from transexplain.errors import ModelLoadError
from transexplain.models import huggingface, timm_models
from transexplain.models.configs import read_config
from transexplain.models.hub import fetch, is_hub_id
from transexplain.models.loaded_model import LoadedModel
from transexplain.models.placement import torch_device, torch_dtype
from transexplain.models.timm_models import PREFIX, hub_name, named_checkpoint
from transexplain.models.weight_files import is_digested, weight_names

#: what the source of a wrapped module begins with
WRAPPED = "module:"


def load_model(source: str | Path, *, dtype: str = "float32", device: str = "cpu") -> LoadedModel:
    """The text or image classifier at `source`, in eval mode, with its digest.

    `source` is a directory (transformers, or a config.json with `timm_args`), a hub id
    (`org/name` or `org/name@revision`, recorded with its commit) or
    `timm:NAME?checkpoint=FILE.safetensors`. Files of any number type are loaded as `dtype`
    (float64, float32, bfloat16, float16). Only safetensors are read and no code of a model is
    run. Raises ModelLoadError naming what is wrong and the remedy.
    """
    text = str(source)
    number, place = torch_dtype(dtype), torch_device(device)
    if text.startswith(timm_models.PREFIX):
        return timm_models.load_named(text, dtype=number, device=place)
    if text.startswith(WRAPPED):
        raise ModelLoadError(
            f"{text} is a module that was wrapped in memory (as graph models always are), which "
            "no other process can load: explain it with te.wrap and te.explain; audits need a "
            "directory, a hub id or a timm name"
        )
    folder = Path(text).expanduser()
    if text and folder.is_dir():
        return _from_folder(folder, text, number, place)
    if folder.is_file():
        raise ModelLoadError(
            f"{text} is a file; give the directory that holds it with its config.json, "
            "or timm:NAME?checkpoint=FILE.safetensors"
        )
    if isinstance(source, Path) or not is_hub_id(text):
        raise ModelLoadError(f"there is no model directory {text!r}")
    fetched = fetch(text, remedy="download it elsewhere and give its directory")
    return _from_folder(fetched.folder, fetched.source, number, place)


def _from_folder(
    folder: Path, source: str, dtype: torch.dtype, device: torch.device
) -> LoadedModel:
    config = read_config(folder)
    is_timm = timm_models.is_timm_config(config) and "model_type" not in config
    loader = timm_models.load_folder if is_timm else huggingface.load_folder
    return loader(folder, config, source=source, dtype=dtype, device=device)


def present_files(source: str) -> dict[str, Path]:
    """What a digest of the model at `source` would cover, by the names that the digest knows.

    `source` is as `load.load_model` takes it. Raises ModelLoadError where it names no model.
    """
    if source.startswith(PREFIX):
        name, checkpoint = named_checkpoint(source)
        if checkpoint is not None:
            return {f"{name}/{checkpoint.name}": checkpoint} if checkpoint.is_file() else {}
        folder = fetch(hub_name(name), remedy="give a checkpoint file").folder
    elif Path(source).expanduser().is_dir():
        folder = Path(source).expanduser()
    elif is_hub_id(source) and not Path(source).is_absolute():
        folder = fetch(source, remedy="give its directory").folder
    else:
        raise ModelLoadError(f"there is no model directory {source!r}")
    found = [path for path in folder.iterdir() if is_digested(path.name)]
    found += [folder / name for name in weight_names(folder)]
    return {path.name: path for path in found if path.is_file()}
