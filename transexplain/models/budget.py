"""A bound on what a configuration may build: its weights are there, and tell how large it is."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from transexplain.errors import ModelLoadError

#: a model is built, read and filled, so each of its weights may be made this often
_TIMES = 8
#: beside the weights: masks, tables of positions, weights that two modules share in the file
_SPARE_TENSORS, _SPARE_NUMBERS = 1 << 10, 1 << 28


@dataclass(frozen=True, slots=True)
class WeightSize:
    """What the headers of weight files say that they hold."""

    tensors: int
    numbers: int

    @classmethod
    def of(cls, files: Iterable[Path]) -> "WeightSize":
        """Of safetensors `files` whose headers were checked; no tensor is read."""
        tensors = numbers = 0
        for path in files:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118
                    tensors += 1
                    numbers += prod(file.get_slice(name).get_shape())
        return cls(tensors, numbers)


class Budget(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, more or larger tensors than the weights can fill are not made.

    What a call would make is worked out before it runs. Raises ModelLoadError there.
    """

    def __init__(self, size: WeightSize, where: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._where = where
        self._tensors = _TIMES * size.tensors + _SPARE_TENSORS
        self._numbers = _TIMES * size.numbers + _SPARE_NUMBERS
        self._size = size

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run `func` where there is room for what it makes."""
        given = kwargs or {}
        if not func._schema.is_mutable:
            if any(isinstance(one, Tensor) for one in _flat((*args, *given.values()))):
                self._check(_made(func, *tree_map_only(Tensor, _on_meta, (args, given))))
            else:
                self._take(_new(func, args, given))
        return func(*args, **given)

    def _take(self, made: list[int]) -> None:
        self._check(made)
        self._tensors -= len(made)
        self._numbers -= sum(made)

    def _check(self, made: list[int]) -> None:
        if len(made) > self._tensors or sum(made) > self._numbers:
            raise ModelLoadError(
                f"{self._where}: the configuration asks for a far larger model than its weights "
                f"are ({self._size.tensors:,} tensors of {self._size.numbers:,} numbers); "
                "compare the numbers of layers, widths and positions with the model's own"
            )


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for one in values:
        if isinstance(one, list | tuple):
            yield from one
        else:
            yield one


def _new(func: Any, args: Any, kwargs: Mapping[str, Any]) -> list[int]:
    """How many numbers are in each tensor that a call without tensors would make."""
    if args and isinstance(args[0], list | tuple) and all(type(one) is int for one in args[0]):
        return [prod(args[0])]  # empty, zeros, full: nearly all of them
    return _made(func, args, {**kwargs, "device": "meta"})


def _made(func: Any, args: Any, kwargs: Mapping[str, Any]) -> list[int]:
    """How many numbers are in each tensor that a call would make; none where torch cannot say."""
    try:
        found = func(*args, **kwargs)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return []  # the call itself says what is wrong
    return [one.numel() for one in tree_leaves(found) if isinstance(one, Tensor)]


def _on_meta(one: Tensor) -> Tensor:
    return torch.empty_strided(one.size(), one.stride(), dtype=one.dtype, device="meta")
