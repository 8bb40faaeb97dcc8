"""Load a classifier by directory, hub id or timm name; nothing of it is ever executed."""

from pathlib import Path

import torch

from transexplain.errors import ModelLoadError
from transexplain.models import huggingface, timm_models
from transexplain.models.base import LoadedModel
from transexplain.models.configs import read_config
from transexplain.models.hub import fetch, is_hub_id
from transexplain.models.placement import torch_device, torch_dtype

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
