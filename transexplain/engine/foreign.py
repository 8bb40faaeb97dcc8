"""Autograd functions that a model brings along: seen from inside, never by their own backward.

`Function.apply` reaches no torch function mode, but what its `forward` computes does, with
gradients switched off. There the rules are applied all the same, to *shadows*: the value goes on
as the model wants it, and its shadow, which has the rules' graph, hangs on it. An operator that
then receives the output of a foreign function takes the shadow in its place.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.autograd.function import BackwardCFunction

_SHADOW = "_transexplain_shadow"
_SEEN = "_transexplain_seen"
_OWN = "transexplain.engine"


def is_foreign(tensor: Tensor) -> bool:
    """Whether `tensor` came out of an autograd function that is not the engine's."""
    node: Any = tensor.grad_fn
    if not isinstance(node, BackwardCFunction):
        return False
    return not type(node)._forward_cls.__module__.startswith(_OWN)  # type: ignore[attr-defined]


def function_name(tensor: Tensor) -> str:
    """The name of the autograd function that `tensor` came out of."""
    node: Any = type(tensor.grad_fn)
    return str(node._forward_cls.__name__)


def shadow_of(tensor: Tensor) -> Tensor | None:
    """What stands for `tensor` in the rules' graph, where it was computed without gradients."""
    shadow: Tensor | None = getattr(tensor, _SHADOW, None)
    return shadow


def cast_shadows(out: Any) -> Any:
    """`out` without a graph, each tensor with its shadow; for use where gradients are off."""
    if isinstance(out, Tensor):
        if not out.requires_grad:
            return out
        plain = out.detach()
        setattr(plain, _SHADOW, out)
        return plain
    if isinstance(out, list | tuple):
        parts = [cast_shadows(part) for part in out]
        return type(out)(*parts) if hasattr(out, "_fields") else type(out)(parts)
    return out


def substitutes(given: list[Tensor], *, inside: bool) -> dict[int, Tensor]:
    """Shadows by the identity of the tensors that they stand for.

    `inside` a foreign function every tensor with a shadow has it; outside only its outputs.
    """
    found = {}
    for tensor in given:
        if inside or (tensor.requires_grad and is_foreign(tensor)):
            shadow = shadow_of(tensor)
            if shadow is not None:
                found[id(tensor)] = shadow
    return found


def see(leaf: Tensor) -> None:
    """Note that a tensor is the leaf, which nothing computes; asks it for nothing."""
    setattr(leaf, _SEEN, True)


def mark_seen(tensors: Iterable[Tensor]) -> None:
    """Note that the mode saw these being computed (and what they are views of being written)."""
    for tensor in tensors:
        if tensor.requires_grad:
            setattr(tensor, _SEEN, True)
            if tensor._base is not None:
                setattr(tensor._base, _SEEN, True)


def was_seen(tensor: Tensor) -> bool:
    """Whether the mode saw `tensor` being computed; scripted code and custom operators pass it."""
    return hasattr(tensor, _SEEN) or (tensor._base is not None and hasattr(tensor._base, _SEEN))
