"""What a tensor is a function of: elementwise functions of one carrier, gates and reductions.

The mode sees operators, not modules, so an activation written out (`x * 0.5 * (1 + tanh(...))`) is
known by where its parts come from: everything computed elementwise from one *root* and constants
is one function f(root), and gets the rule of one (design, section 4). A *probe* carries f along at
three points around 0, which gives f(0) and f'(0) however f was spelled.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

_TAG = "_transexplain_function"
_REDUCED = "_transexplain_reduced"
_GATE = "_transexplain_gate"
_STEP = 1e-6
#: constants with more elements (masks, rotations) are not folded into a function of one carrier
_MOST = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """An elementwise function of `root`."""

    root: Tensor
    probe: Tensor  #: f(-h), f(0), f(h) along the first axis, float64, broadcastable behind it
    gate: bool = False  #: a sigmoid: as a factor of another carrier it only lets through

    def at_zero(self) -> Tensor | float:
        """f(0): a number, or a tensor where the constants of f differ along an axis."""
        value = self.probe[1]
        return float(value) if value.numel() == 1 else value

    def slope_at_zero(self) -> Tensor | float:
        """f'(0), the mean of both one-sided slopes where f has a kink."""
        value = (self.probe[2] - self.probe[0]) / (2 * _STEP)
        return float(value) if value.numel() == 1 else value

    @property
    def finite(self) -> bool:
        """Whether f can be told from its value at 0."""
        return bool(self.probe.isfinite().all())

    def then(self, function: Callable[[Tensor], Tensor], *, gate: bool = False) -> "Function":
        """`function` applied to this one."""
        return Function(self.root, function(self.probe), gate)

    def joined(self, other: "Function", join: Callable[[Tensor, Tensor], Tensor]) -> "Function":
        """Two functions of one root, combined elementwise."""
        return Function(self.root, join(self.probe, other.probe))

    def with_constant(
        self, constant: Any, join: Callable[[Tensor, Any], Tensor]
    ) -> "Function | None":
        """This function combined with a constant; None where the constant is large."""
        if not isinstance(constant, Tensor):
            return Function(self.root, join(self.probe, constant))
        too_large = constant.numel() > _MOST or constant.dim() > self.root.dim()
        if too_large or constant.is_complex():
            return None
        value = constant.detach().to(self.probe)
        return Function(self.root, join(self.probe, value))


def function_of(tensor: Tensor) -> Function:
    """What `tensor` is a function of: what it was tagged with, else of itself."""
    tag: Function | None = getattr(tensor, _TAG, None)
    if tag is not None:
        return tag
    return Function(tensor, _points(tensor.dim()))


@cache
def _points(dims: int) -> Tensor:
    """-h, 0, h before `dims` axes; on the CPU, where reading a number waits for no device."""
    points = torch.tensor([-_STEP, 0.0, _STEP], dtype=torch.float64)
    return points.view(3, *[1] * dims)


def tag(tensor: Tensor, function: Function | None) -> Tensor:
    """Note that `tensor` is `function` of a root; None: of itself. Returns the tensor."""
    if function is not None and function.root is not tensor:  # the root was not written over
        setattr(tensor, _TAG, function)
    elif hasattr(tensor, _TAG):
        delattr(tensor, _TAG)  # written in place with something else
    return tensor


def untag(tensor: Tensor) -> None:
    """Forget what `tensor` was a function of: something else was written into it."""
    for name in (_TAG, _REDUCED, _GATE):
        if hasattr(tensor, name):
            delattr(tensor, name)


def mark_reduced(value: Any, source: Tensor | None = None) -> Any:
    """Note that `value` came from a sum, mean or norm over (a function of) `source`."""
    if isinstance(value, Tensor):
        setattr(value, _REDUCED, None if source is None else function_of(source).root)
    return value


def is_reduced(tensor: Tensor) -> bool:
    """Whether `tensor` is an elementwise function of a reduction: a scale in the making."""
    return hasattr(function_of(tensor).root, _REDUCED)


def is_reduced_from(tensor: Tensor, other: Tensor) -> bool:
    """Whether `tensor` is a reduction over what `other` is a function of."""
    root = function_of(tensor).root
    return getattr(root, _REDUCED, None) is function_of(other).root


def mark_gate(tensor: Tensor) -> Tensor:
    """Note that `tensor` only lets through what it is multiplied with. Returns it."""
    setattr(tensor, _GATE, True)
    return tensor


def is_gate(tensor: Any) -> bool:
    """Whether `tensor` is a sigmoid, or a reshaped or scaled one."""
    return isinstance(tensor, Tensor) and (hasattr(tensor, _GATE) or function_of(tensor).gate)


def inherit_marks(source: Tensor, out: Any) -> None:
    """A gate or a reduction is still one after a reshape or a cast."""
    reduced, gate = is_reduced(source), is_gate(source)
    if not (reduced or gate):
        return
    for tensor in [out] if isinstance(out, Tensor) else out:
        if reduced:
            setattr(tensor, _REDUCED, getattr(function_of(source).root, _REDUCED))
        if gate:
            mark_gate(tensor)
