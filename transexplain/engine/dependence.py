"""What was computed from the leaf but carries no relevance any more, and why.

Such a tensor is no constant of the model. What a rule holds constant (attention weights) is lost
by that rule; what the model itself detached must show in the gap.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from transexplain.engine.operators import KIND

_MARK = "_transexplain_depends_on_leaf"
_HELD = "held"
#: kinds that a rule may hold constant
_HOLDING = frozenset(("softmax", "scale", "attention"))
#: what takes a shape and a type, and no value
SHAPED = frozenset(
    (
        *("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like"),
        *("new_zeros", "new_ones", "new_full", "new_empty", "new_tensor"),
    )
)


def mark_output(
    name: str, args: Sequence[Any], given: Sequence[Tensor], out: Any, *, carried: bool
) -> None:
    """Mark what the function `name` gave, from `given` tensors; `carried`: one of them carries."""
    first = args[0] if args else None
    fitted = name.endswith("_as") and isinstance(first, Tensor) and not first.requires_grad
    dependent = [tensor for tensor in given if depends_on_leaf(tensor)]
    if name in SHAPED or (fitted and not depends_on_leaf(first)):
        return  # the leaf gave no more than a shape or a type
    if carried or dependent:
        held = KIND.get(name) in _HOLDING if carried else True
        mark_dependent(out, held=held and all(map(is_held, dependent)))


def depends_on_leaf(tensor: Any) -> bool:
    """Whether a tensor without relevance was computed from the leaf."""
    return hasattr(tensor, _MARK)


def is_held(tensor: Any) -> bool:
    """Whether a rule, not the model, took the relevance off a tensor."""
    return getattr(tensor, _MARK, False) == _HELD


def mark_dependent(value: Any, *, held: bool) -> None:
    """Mark what was computed from the leaf but carries no relevance any more.

    `held`: only because a rule holds it constant. Whole numbers and booleans (indices, masks) do
    not change with the leaf but in steps, and what they choose among is constant.
    """
    for tensor in tensors_in(value):
        if not tensor.requires_grad and (tensor.is_floating_point() or tensor.is_complex()):
            setattr(tensor, _MARK, _HELD if held else True)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor of nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))
