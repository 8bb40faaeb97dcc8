"""The record that the engine keeps of a tensor: its item axis, its origin and its dependence on the
input.

A mode sees tensors, not modules, and a tensor cannot say by itself where it came from. So each
tensor that the engine meets may hold a `TensorRecord`, in one attribute. It lives and dies with
the tensor; a tensor without one has the record of defaults.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from transexplain.engine.operators import KINDS, OPERATORS

_ATTRIBUTE = "_transexplain"
_OWN_PACKAGE = "transexplain.engine"
_STEP = 1e-6
#: constants with more elements (masks, rotations) are not folded into a function of one carrier
_MOST = 65_536


@dataclass(frozen=True, slots=True)
class ItemAxis:
    """Element i of axis `axis` belongs to item (i // inner) % B, or to item `index[i]`."""

    axis: int = 0
    inner: int = 1
    #: items of picked rows, -1 where a row is of none
    index: Tensor | None = field(default=None, compare=False)

    def moved(self, axis: int) -> "ItemAxis":
        """The same items on another axis."""
        return ItemAxis(axis, self.inner, self.index)

    def fits(self, size: int, items: int) -> bool:
        """Return whether an axis of `size` can hold the items so."""
        if self.index is not None:
            return size == len(self.index)
        return size % (items * self.inner) == 0

    def numbers(self, size: int, items: int, device: torch.device) -> Tensor:
        """The item of each of `size` elements."""
        if self.index is not None:
            return self.index
        return torch.arange(size, device=device).div(self.inner, rounding_mode="floor") % items


FIRST = ItemAxis()


@dataclass(slots=True, eq=False)
class TensorRecord:
    """All that the engine notes about one tensor."""

    axis: ItemAxis | None = FIRST  #: which axis counts the items; None: not known
    placed: bool = False  #: whether `axis` was worked out, and is not the default
    function: "Function | None" = None  #: of which root it is an elementwise function
    reduced: bool = False  #: it came from a sum, mean or norm: a scale in the making
    reduced_from: Tensor | None = None  #: the root of what was reduced
    gate: bool = False  #: it only lets through what it is multiplied with
    dependent: bool = False  #: computed from the input layer, and carries no relevance any more
    held: bool = False  #: `dependent` only because a rule holds it constant
    seen: bool = False  #: the mode saw it being computed
    shadow: Tensor | None = None  #: stands for it in the rules' graph
    sink: Tensor | None = None  #: takes the relevance of rules for the input layer itself
    reference: Tensor | None = None  #: its value at the reference input (rescale rule)
    summed_exp: "SoftmaxOf | None" = None  #: it is the logsumexp of a tensor
    log_softmax: "SoftmaxOf | None" = None  #: it is that tensor less its logsumexp
    unruled: Exception | None = None  #: the refusal of the operator that made it, gradients off


@dataclass(frozen=True, slots=True, eq=False)
class SoftmaxOf:
    """A tensor and the axis over which a softmax of it is being written out."""

    tensor: Tensor
    dim: int
    versions: tuple[int, int]  #: of the tensor and of the noted one; either may be written over

    def holds(self, noted: Tensor) -> bool:
        """Return whether the tensor and the `noted` one still have the values that they had."""
        return self.versions == (self.tensor._version, noted._version)


_EMPTY = TensorRecord()  # the record of tensors without a record; read only


def recorded(tensor: Tensor) -> TensorRecord:
    """Return what is known of `tensor`, for reading."""
    record: TensorRecord = getattr(tensor, _ATTRIBUTE, _EMPTY)
    return record


def record(tensor: Tensor) -> TensorRecord:
    """The record of `tensor`, for writing; made where there is none."""
    tensor_record: TensorRecord | None = getattr(tensor, _ATTRIBUTE, None)
    if tensor_record is None:
        tensor_record = TensorRecord()
        setattr(tensor, _ATTRIBUTE, tensor_record)
    return tensor_record


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor of nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))


# Elementwise functions. The mode sees operators, so an activation written out, such as
# x * 0.5 * (1 + tanh(...)), is known by where its parts come from: what is computed elementwise
# from one root and constants is one function f(root), and gets the rule of one (design, section 4).


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """An elementwise function of `root`; a probe carries it along at three points around 0."""

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
        """Return whether f and its slope have values at 0."""
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
    """Return what `tensor` is a function of: what was noted, else of itself."""
    function = recorded(tensor).function
    return Function(tensor, _points(tensor.dim())) if function is None else function


@cache
def _points(dims: int) -> Tensor:
    """-h, 0, h before `dims` axes; on the CPU, where reading a number waits for no device."""
    points = torch.tensor([-_STEP, 0.0, _STEP], dtype=torch.float64)
    return points.view(3, *[1] * dims)


def mark_function(tensor: Tensor, function: Function | None) -> Tensor:
    """Note that `tensor` is `function` of a root; None: of itself. Returns the tensor."""
    if function is not None and function.root is not tensor:  # the root was not written over
        record(tensor).function = function
    elif recorded(tensor).function is not None:
        record(tensor).function = None  # written in place with something else
    return tensor


def forget_function(tensor: Tensor) -> None:
    """Forget what `tensor` was a function of: something else was written into it."""
    known = recorded(tensor)
    if known is not _EMPTY:
        known.function, known.reduced, known.reduced_from, known.gate = None, False, None, False
        known.summed_exp = known.log_softmax = None


def mark_reduced(value: Any, source: Tensor | None = None) -> Any:
    """Note that `value` came from a sum, mean or norm over (a function of) `source`."""
    if isinstance(value, Tensor):
        known = record(value)
        known.reduced = True
        known.reduced_from = None if source is None else function_of(source).root
    return value


def is_reduced(tensor: Tensor) -> bool:
    """Return whether `tensor` is an elementwise function of a reduction: a scale in the making."""
    return recorded(function_of(tensor).root).reduced


def is_reduced_from(tensor: Tensor, other: Tensor) -> bool:
    """Return whether `tensor` is a reduction over what `other` is a function of."""
    return recorded(function_of(tensor).root).reduced_from is function_of(other).root


def mark_gate(tensor: Tensor) -> Tensor:
    """Note that `tensor` only lets through what it is multiplied with. Returns it."""
    record(tensor).gate = True
    return tensor


def is_gate(tensor: Any) -> bool:
    """Return whether `tensor` is a sigmoid, or a reshaped or scaled one."""
    return isinstance(tensor, Tensor) and (recorded(tensor).gate or function_of(tensor).gate)


def inherit_marks(source: Tensor, out: Any) -> None:
    """A gate or a reduction is still one after a reshape or a cast."""
    reduced, gate = is_reduced(source), is_gate(source)
    if not (reduced or gate):
        return
    for tensor in [out] if isinstance(out, Tensor) else out:
        if reduced:
            known = record(tensor)
            known.reduced = True
            known.reduced_from = recorded(function_of(source).root).reduced_from
        if gate:
            mark_gate(tensor)


# Tensors that were computed from the input layer but carry no relevance any more. They are no
# constants of the model: what a rule holds constant (attention weights) is lost by that rule, and
# what the model itself detached must show in the gap of the ledger.


def mark_output(
    name: str, args: Sequence[Any], given: Sequence[Tensor], out: Any, *, carried: bool
) -> None:
    """Mark what the operator `name` gave, from `given` tensors; `carried`: one of them carries."""
    first = args[0] if args else None
    fitted = name.endswith("_as") and isinstance(first, Tensor) and not first.requires_grad
    dependent = [tensor for tensor in given if recorded(tensor).dependent]
    operator = OPERATORS.get(name)
    shape_only = operator is not None and operator.shape_only
    if shape_only or (fitted and not any(first is tensor for tensor in dependent)):
        return  # the input layer gave no more than a shape or a type
    if carried or dependent:
        held = operator is not None and operator.kind in KINDS and KINDS[operator.kind].held
        mark_dependent(out, held=(held or not carried) and all(recorded(t).held for t in dependent))


def mark_dependent(value: Any, *, held: bool) -> None:
    """Mark what was computed from the input layer but carries no relevance any more.

    `held`: only because a rule holds it constant. Whole numbers and booleans (indices, masks) do
    not change with the input but in steps, and what they choose among is constant.
    """
    for tensor in tensors_in(value):
        if not tensor.requires_grad and (tensor.is_floating_point() or tensor.is_complex()):
            known = record(tensor)
            known.dependent, known.held = True, held


# Autograd functions that a model brings along: seen from inside, never by their own backward.
# `Function.apply` reaches no torch function mode, but what its `forward` computes does, with
# gradients switched off. There the rules are applied all the same, to shadows: the value goes on
# as the model wants it, and its shadow, which has the rules' graph, is noted in its record. An
# operator that then receives the output of such a function takes the shadow in its place.


def mark_unruled(value: Any, error: Exception | None) -> None:
    """Note that no rule made `value`; whole numbers and booleans carry nothing in any case."""
    for tensor in tensors_in(value) if error is not None else ():
        if tensor.is_floating_point() or tensor.is_complex():
            record(tensor).unruled = error


def is_foreign(tensor: Tensor) -> bool:
    """Return whether `tensor` came out of an autograd function that is not the engine's."""
    node: Any = tensor.grad_fn
    if not isinstance(node, BackwardCFunction):
        return False
    module: str = type(node)._forward_cls.__module__  # type: ignore[attr-defined]
    return not module.startswith(_OWN_PACKAGE)


def function_name(tensor: Tensor) -> str:
    """The name of the autograd function that `tensor` came out of."""
    node: Any = type(tensor.grad_fn)
    return str(node._forward_cls.__name__)


def cast_shadows(out: Any) -> Any:
    """`out` without a graph, each tensor with its shadow; for use where gradients are off."""
    if isinstance(out, Tensor):
        if not out.requires_grad:
            return out
        plain = out.detach()
        record(plain).shadow = out
        return plain
    if isinstance(out, list | tuple):
        parts = [cast_shadows(part) for part in out]
        return type(out)(*parts) if hasattr(out, "_fields") else type(out)(parts)
    return out


def substitutes(given: list[Tensor], *, inside: bool) -> dict[int, Tensor]:
    """Shadows by the identity of the tensors that they stand for.

    `inside` a foreign function every tensor with a shadow has it; outside only its outputs.
    """
    substitutes = {}
    for tensor in given:
        if inside or (tensor.requires_grad and is_foreign(tensor)):
            shadow = recorded(tensor).shadow
            if shadow is not None:
                substitutes[id(tensor)] = shadow
    return substitutes


def mark_seen(tensors: Iterable[Tensor]) -> None:
    """Record that the mode saw these tensors being computed (or what they are views of being
    written).
    """
    for tensor in tensors:
        if tensor.requires_grad:
            record(tensor).seen = True
            if tensor._base is not None:
                record(tensor._base).seen = True


def was_seen(tensor: Tensor) -> bool:
    """Whether the mode saw `tensor` being computed; scripted code and custom operators pass it."""
    if recorded(tensor).seen:
        return True
    return tensor._base is not None and recorded(tensor._base).seen
