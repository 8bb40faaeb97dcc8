"""Checkpoints as one safetensors file, written whole or not at all; never a pickle."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ignite.handlers.checkpoint import BaseSaveHandler
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from transexplain.atomic_write import atomic_file
from transexplain.errors import ConfigurationError

_TREE = "tree"  #: the entry of the file's metadata that holds all but the tensors
_TENSOR, _PAIRS = "$tensor", "$pairs"


class SafetensorsSaver(BaseSaveHandler):
    """Saves what ignite's Checkpoint hands it into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        checkpoint: Mapping[str, Any],
        filename: str,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace `filename` by `checkpoint` in one step."""
        del metadata
        write_tree(self.folder / filename, checkpoint)

    def remove(self, filename: str) -> None:
        """Remove a checkpoint that a newer one has replaced."""
        (self.folder / filename).unlink(missing_ok=True)


def write_tree(path: Path, tree: Mapping[str, Any]) -> None:
    """Write nested mappings and lists of tensors and JSON values, atomically.

    The old file stays until the new one is on the disk: a kill at any moment leaves a whole one.
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_flat(tree, "", tensors))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        save_file(tensors, temporary, metadata={_TREE: text})


def read_tree(path: Path, device: str = "cpu") -> dict[str, Any]:
    """What `write_tree` wrote; ConfigurationError where the file is damaged."""
    try:
        with safe_open(path, framework="pt", device=device) as file:
            tree = json.loads((file.metadata() or {})[_TREE])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        found: dict[str, Any] = _nested(tree, tensors)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ConfigurationError(
            f"the checkpoint {path} cannot be read ({error}); begin anew with --restart"
        ) from error
    return found


def _flat(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        # a copy: weights that share memory are one file's entries twice
        tensors[place] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: place}
    if isinstance(value, Mapping):
        pairs = [[key, _flat(entry, f"{place}/{key}", tensors)] for key, entry in value.items()]
        return {_PAIRS: pairs}
    if isinstance(value, list | tuple):
        return [_flat(entry, f"{place}/{row}", tensors) for row, entry in enumerate(value)]
    return value


def _nested(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_nested(entry, tensors) for entry in value]
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        return {key: _nested(entry, tensors) for key, entry in value[_PAIRS]}
    return value
