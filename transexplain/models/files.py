"""Model directories: what may be read, what must be there, and the digest of it all."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from transexplain.errors import ModelLoadError
from transexplain.plans import SourceFile

_CODE_FILES = (
    "config.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "processor_config.json",
)
_INDEX = "model.safetensors.index.json"
_WEIGHTS = "model.safetensors"
_PICKLES = re.compile(r".*\.(bin|pt|pth|pkl|pickle|ckpt|h5|msgpack)$")
#: beside the weights, what a digest covers
_DIGESTED = re.compile(
    r"(config|tokenizer.*|preprocessor_config|processor_config|special_tokens_map|added_tokens"
    r"|vocab)\.json|vocab\.txt|merges\.txt|.*\.model"
)
_CHUNK = 1 << 20


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json` of a model directory, after every check that it asks for no code.

    Raises ModelLoadError for a missing or unreadable file, `auto_map` in any of the directory's
    configurations, an adapter without its model, and attention code fetched by name.
    """
    if not (folder / "config.json").is_file():
        what = "a PEFT adapter: merge it into its model first" if _is_adapter(folder) else ""
        raise ModelLoadError(
            f"{folder} holds no config.json{f'; it is {what}' if what else ''}. Expected: "
            f"config.json, {_WEIGHTS} and the tokenizer or image processor files"
        )
    if _is_adapter(folder):
        raise ModelLoadError(f"{folder} holds a PEFT adapter: merge it into its model first")
    for name in _CODE_FILES:
        path = folder / name
        if path.is_file() and _mentions(read_json(path), "auto_map"):
            raise ModelLoadError(
                f"{path} asks to run code of its own (auto_map), which is never done; use a model "
                "that the installed transformers knows, or load it yourself and use wrap"
            )
    config = read_json(folder / "config.json")
    for key, value in config.items():
        if key.strip("_").startswith(("attn_impl", "experts_impl")) and "/" in str(value):
            raise ModelLoadError(f"{folder / 'config.json'}: {key} names code to fetch: {value!r}")
    return config


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; ModelLoadError names the file otherwise."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise ModelLoadError(f"{path} holds no JSON object")
    return found


def _is_adapter(folder: Path) -> bool:
    return (folder / "adapter_config.json").is_file()


def _mentions(value: Any, key: str) -> bool:
    if isinstance(value, Mapping):
        return key in value or any(_mentions(inner, key) for inner in value.values())
    return isinstance(value, list) and any(_mentions(inner, key) for inner in value)


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a model directory, their headers checked.

    Raises ModelLoadError where there are only pickles, none at all, or a broken one.
    """
    single, index = folder / _WEIGHTS, folder / _INDEX
    if single.is_file():
        found = [single]
    elif index.is_file():
        found = _indexed(folder, index)
    else:
        raise _no_weights(folder)
    for path in found:
        check_header(path)
    return tuple(found)


def weight_names(folder: Path) -> list[str]:
    """Names of the safetensors files of a model directory, there or not; empty: it has none.

    Raises ModelLoadError where their index cannot be read.
    """
    if (folder / _WEIGHTS).is_file() or not (folder / _INDEX).is_file():
        return [_WEIGHTS]
    names = read_json(folder / _INDEX).get("weight_map")
    return sorted({str(name) for name in names.values()}) if isinstance(names, dict) else []


def _indexed(folder: Path, index: Path) -> list[Path]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelLoadError(f"{index} holds no weight_map")
    found = sorted({folder / str(name) for name in names.values()})
    for path in found:
        if path.parent != folder or path.suffix != ".safetensors":
            raise ModelLoadError(f"{index} names {path.name!r}, which is no file beside it")
        if not path.is_file():
            raise ModelLoadError(f"{folder} lacks {path.name}, which {_INDEX} names")
    return found


def _no_weights(folder: Path) -> ModelLoadError:
    pickles = sorted(path.name for path in folder.iterdir() if _PICKLES.fullmatch(path.name))
    if pickles:
        return ModelLoadError(
            f"{folder} holds its weights only as {', '.join(pickles)}, which can run code when "
            f"read; convert them to {_WEIGHTS} where you trust them: load the model with "
            "transformers and call save_pretrained"
        )
    return ModelLoadError(f"{folder} holds no weights; expected {_WEIGHTS} or {_INDEX}")


def check_header(path: Path) -> None:
    """Raise ModelLoadError unless `path` is a whole safetensors file with a tensor in it."""
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(
            f"{path} is not a whole safetensors file ({error}); fetch it again"
        ) from error
    if not names:
        raise ModelLoadError(f"{path} holds no tensor")


def read_weights(files: Iterable[Path]) -> dict[str, Tensor]:
    """Every tensor of `files` by name."""
    weights: dict[str, Tensor] = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            weights.update({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    return weights


def fill(module: torch.nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Copy `weights` into `module`; ModelLoadError names every key that does not fit."""
    own = module.state_dict()
    wrong = [
        f"{name} has shape {tuple(weights[name].shape)}, the model {tuple(own[name].shape)}"
        for name in own.keys() & weights.keys()
        if weights[name].shape != own[name].shape
    ]
    check_keys(own.keys() - weights.keys(), weights.keys() - own.keys(), sorted(wrong), where)
    module.load_state_dict(weights)


def check_keys(
    missing: Iterable[str], unexpected: Iterable[str], wrong: Iterable[str], where: str
) -> None:
    """Raise ModelLoadError unless all three lists of weight names are empty."""
    told = [
        f"{what}: {_some(sorted(names))}"
        for what, names in (
            ("missing, so they would be random", missing),
            ("not of this model", unexpected),
            ("of another shape", wrong),
        )
        if names
    ]
    if told:
        raise ModelLoadError(
            f"the weights of {where} do not fit its configuration ({'; '.join(told)}); "
            "audit a fine-tuned classifier, saved whole"
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Digests:
    """What says that a model's files are still the same."""

    whole: str  #: sha256 over the sorted names and the contents
    files: tuple[SourceFile, ...]  #: each by itself, by name


def digests_of_folder(folder: Path, weights: Iterable[Path]) -> Digests:
    """Of weights, config, tokenizer and preprocessor files."""
    beside = [path for path in folder.iterdir() if is_digested(path.name)]
    return digests_of_files({path.name: path for path in (*weights, *beside) if path.is_file()})


def is_digested(name: str) -> bool:
    """Whether a file of this name, beside the weights, is part of a model's digest."""
    return _DIGESTED.fullmatch(name) is not None


def digests_of_files(files: Mapping[str, Path]) -> Digests:
    """Of `files` by name; every byte is read once."""
    whole, each = hashlib.sha256(), []
    for name in sorted(files):
        one = hashlib.sha256()
        whole.update(f"{name}\0{files[name].stat().st_size}\0".encode())
        with files[name].open("rb") as file:
            while chunk := file.read(_CHUNK):
                whole.update(chunk)
                one.update(chunk)
        each.append(SourceFile(path=name, sha256=one.hexdigest()))
    return Digests(whole=whole.hexdigest(), files=tuple(each))


def digest_of_module(module: torch.nn.Module) -> str:
    """Sha256 over the classes and the state dict of a module in memory.

    Settings that are in neither (a layer norm's epsilon, say) are not covered.
    """
    digest = hashlib.sha256()
    for name, part in module.named_modules():
        digest.update(f"\0{name}\0{type(part).__module__}.{type(part).__qualname__}".encode())
    for name, tensor in sorted(module.state_dict().items()):
        if isinstance(tensor, Tensor):
            digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
            flat = tensor.detach().cpu().contiguous().flatten()
            digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return digest.hexdigest()
