"""Fetches models from a hub: plain data files only, pinned to a commit."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from transexplain.errors import ModelLoadError
from transexplain.files.local_copies import local_folder
from transexplain.files.paths import local_path
from transexplain.files.remote_files import check_url, hub_file, is_url, pinned
from transexplain.interpreter import shared
from transexplain.models.configs import read_json
from transexplain.types.plans import SourceFile


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """A panic in the Rust code of a tokenizer becomes a RuntimeError.

    It is raised as a BaseException, which would end the process like Ctrl-C.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RuntimeError(f"the tokenizer broke: {error}") from error


@shared
@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no advice below errors inside; the user's settings are back after."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


_ID = re.compile(r"(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
#: no pickle, no Python file ever leaves the hub, or a folder at a URL
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.model"]


def fetchable(source: str) -> bool:
    """Return whether `source` is a URL, or spelt like `org/name` or `org/name@revision`."""
    if is_url(source):
        return True
    return _ID.fullmatch(source) is not None and not source.startswith(".")


def fetch(source: str, *, remedy: str) -> tuple[Path, str]:
    """A folder here with the files of a hub id (cached or fetched) or URL; `org/name@commit`, or
    the URL.

    Raises ModelLoadError, which ends with `remedy`; RemoteFileError, ObjectStoreError.
    """
    if is_url(source):
        return _fetch_url(source)
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError, RevisionNotFoundError

    match = _ID.fullmatch(source)
    if match is None:
        raise ModelLoadError(f"{source!r} is no hub id (org/name or org/name@revision); {remedy}")
    repo, revision = match["repo"], match["revision"]
    try:
        with quiet():
            folder = Path(
                huggingface_hub.snapshot_download(
                    repo, revision=revision, allow_patterns=_WANTED, ignore_patterns=["*/*"]
                )
            )
    except RevisionNotFoundError as error:
        raise ModelLoadError(f"{repo} has no revision {revision!r} on the hub") from error
    except (HFValidationError, OSError, RuntimeError) as error:
        first_line = str(error).partition("\n")[0]
        raise ModelLoadError(
            f"{source!r} is no directory here, no model in the hub cache, and cannot be fetched "
            f"({type(error).__name__}: {first_line}); {remedy}"
        ) from error
    commit = folder.name if _COMMIT.fullmatch(folder.name) else revision
    return folder, f"{repo}@{commit}" if commit else repo


def folder_of(source: str | Path) -> tuple[Path, str]:
    """The folder of a directory or hub id, and the name of the source.

    Raises ModelLoadError where there is no such directory and nothing to fetch.
    """
    folder = local_path(source)
    if str(source) and folder.is_dir():
        return folder, str(source)
    if isinstance(source, Path) or not fetchable(source):
        raise ModelLoadError.nowhere(str(source))
    return fetch(source, remedy="download it elsewhere and give its directory")


def _fetch_url(url: str) -> tuple[Path, str]:
    check_url(url)
    if url.startswith("hf://"):
        there = hub_file(url)
        if there.kind == "model" and not there.path:
            revision = f"@{there.revision}" if there.revision else ""
            return fetch(f"{there.repository}{revision}", remedy="download it elsewhere")
    place = pinned(url)
    return local_folder(place, _WANTED), place


_INDEX = "model.safetensors.index.json"
_WEIGHTS = "model.safetensors"
#: pieces of a distributed checkpoint: transformers reads them beside the files above
_PIECES = re.compile(r"shard-\d+-model-\d+-of-\d+\.safetensors")
_PICKLES = re.compile(r".*\.(bin|pt|pth|pkl|pickle|ckpt|h5|msgpack)$")
#: beside the weights, what a digest covers
_DIGESTED = re.compile(
    r"(config|tokenizer.*|preprocessor_config|processor_config|special_tokens_map|added_tokens"
    r"|vocab)\.json|vocab\.txt|merges\.txt|.*\.model"
)
_CHUNK = 1 << 20


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a model directory, their headers checked.

    Raises ModelLoadError where there are only pickles, none at all, or a broken one.
    """
    pieces = sorted(path.name for path in folder.iterdir() if _PIECES.match(path.name))
    if pieces:
        raise ModelLoadError(
            f"{folder} holds a piece of a distributed checkpoint ({pieces[0]}), which would be "
            f"read beside {_WEIGHTS}: save the whole model with save_pretrained"
        )
    single, index = folder / _WEIGHTS, folder / _INDEX
    if single.is_file():
        files = [single]
    elif index.is_file():
        files = _indexed(folder, index)
    else:
        raise _no_weights(folder)
    for path in files:
        check_header(path)
    return tuple(files)


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
    shards = sorted({folder / str(name) for name in names.values()})
    for path in shards:
        if path.parent != folder or path.suffix != ".safetensors":
            raise ModelLoadError(f"{index} names {path.name!r}, which is no file beside it")
        if not path.is_file():
            raise ModelLoadError(f"{folder} lacks {path.name}, which {_INDEX} names")
    return shards


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
    wrong = mismatches(
        (name, weights[name].shape, own[name].shape) for name in own.keys() & weights.keys()
    )
    check_keys(own.keys() - weights.keys(), weights.keys() - own.keys(), wrong, where)
    module.load_state_dict(weights)


def mismatches(
    entries: Iterable[tuple[str, torch.Size, torch.Size]], classes: int | None = None
) -> list[str]:
    """Both shapes of each weight whose saved and built shape differ, for `check_keys`.

    Where a weight is built for as many `classes` as the configuration names, that is said too.
    """
    differ = sorted(entry for entry in entries if entry[1] != entry[2])
    wrong = [f"{name} has shape {tuple(a)}, the configuration {tuple(b)}" for name, a, b in differ]
    if any(built[:1] == (classes,) != saved[:1] for _, saved, built in differ):
        wrong[-1] += f": id2label names {classes} classes"
    return wrong


def check_keys(
    missing: Iterable[str], unexpected: Iterable[str], wrong: Iterable[str], where: str
) -> None:
    """Raise ModelLoadError unless all three lists of weight names are empty."""
    faults = [
        f"{what}: {', '.join(names[:8])}" + (f" and {len(names) - 8} more" if names[8:] else "")
        for what, names in (
            ("missing, so they would be random", sorted(missing)),
            ("not of this model", sorted(unexpected)),
            ("of another shape", sorted(wrong)),
        )
        if names
    ]
    if faults:
        raise ModelLoadError(
            f"the weights of {where} do not fit its configuration ({'; '.join(faults)}); "
            "audit a fine-tuned classifier, saved whole"
        )


def digests_of_folder(folder: Path) -> tuple[str, tuple[SourceFile, ...]]:
    """Of weights, config, tokenizer and preprocessor files."""
    return digests_of_files(digested_files(folder))


def digested_files(folder: Path) -> dict[str, Path]:
    """The files in `folder` that a digest of its model covers, by name."""
    files = [path for path in folder.iterdir() if is_digested(path.name)]
    files += [folder / name for name in weight_names(folder)]
    return {path.name: path for path in files if path.is_file()}


def is_digested(name: str) -> bool:
    """Return whether a file of this name, beside the weights, is part of a model's digest."""
    return _DIGESTED.fullmatch(name) is not None


def digests_of_files(files: Mapping[str, Path]) -> tuple[str, tuple[SourceFile, ...]]:
    """Sha256 over the sorted names and the contents of `files`, and of each by itself, by name."""
    whole, each = hashlib.sha256(), []
    for name in sorted(files):
        digest = hashlib.sha256()
        whole.update(f"{name}\0{files[name].stat().st_size}\0".encode())
        with files[name].open("rb") as file:
            while chunk := file.read(_CHUNK):
                whole.update(chunk)
                digest.update(chunk)
        each.append(SourceFile(path=name, sha256=digest.hexdigest()))
    return whole.hexdigest(), tuple(each)


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
            digest.update(_bytes_of(name, tensor))
    return digest.hexdigest()


def _bytes_of(name: str, tensor: Tensor) -> bytes:
    try:
        flat = tensor.detach().cpu().contiguous().flatten()
        return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    except (RuntimeError, TypeError) as error:  # of a class with operators of its own
        raise ModelLoadError(
            f"the weights {name} are a {type(tensor).__name__}, whose numbers cannot be read: "
            "load the model with plain tensors, without quantisation"
        ) from error
