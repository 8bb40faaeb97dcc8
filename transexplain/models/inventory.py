"""Which files a model is made of, without reading any."""

from pathlib import Path

from transexplain.errors import ModelLoadError
from transexplain.models.files import is_digested, weight_names
from transexplain.models.hub import fetch, is_hub_id
from transexplain.models.timm_models import PREFIX, hub_name, named_checkpoint


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
