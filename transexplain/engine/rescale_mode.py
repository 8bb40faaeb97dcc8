"""DeepLIFT on any model: a mode that runs every operator on the item and on the reference."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from transexplain.engine.operator_call import Call, RefusalError
from transexplain.engine.operators import KINDS, operator_name, operator_of, rules_of_form
from transexplain.engine.tensor_record import (
    cast_shadows,
    function_name,
    is_foreign,
    record,
    recorded,
    tensors_in,
)
from transexplain.errors import EngineError


def reference_of(tensor: Tensor) -> Tensor | None:
    """The value of `tensor` at the reference; None where it does not depend on the input layer."""
    return recorded(tensor).reference


def pair(out: Any, reference: Any) -> Any:
    """Note what each tensor of `out` is at the reference; returns `out`.

    What has no graph and is the same at the reference is a constant, and stays unmarked (it may
    belong to the model).
    """
    for tensor, other in zip(tensors_in(out), tensors_in(reference), strict=True):
        if tensor.requires_grad or not (tensor is other or torch.equal(tensor, other)):
            record(tensor).reference = other
    return out


def at_reference(call: Call) -> Call:
    """The same call on what its tensors are at the reference."""
    carriers = tensors_in((call.args, dict(call.kwargs)))
    return call.substituted({id(t): r for t in carriers if (r := reference_of(t)) is not None})


def make_writable(call: Call) -> None:
    """Give the constant that a call writes into, and what it is a view of, a reference value.

    A model may fill a buffer of zeros piece by piece; what it holds is a carrier from then on.
    """
    target = call.args[0] if call.args else call.argument(0, "input", None)
    if not isinstance(target, Tensor) or reference_of(target) is not None:
        return
    base = target._base
    if base is None:
        record(target).reference = target.detach().clone()
        return
    if reference_of(base) is None:
        kept = base.detach().clone(memory_format=torch.preserve_format)
        record(base).reference = kept
    whole: Any = reference_of(base)
    # otherwise the memory layout differs, and the view has no counterpart in the copy
    if whole.stride() == base.stride():
        start = target.storage_offset() - base.storage_offset()
        part = whole.as_strided(target.shape, target.stride(), start)
        record(target).reference = part


class RescaleMode(TorchFunctionMode):
    """Carry a reference beside everything computed from the input layer, and multipliers backwards.

    `input_layer` is called from inside the model's forward, and puts `values` (N, ...) there, with
    `reference` (N, ...) beside them.
    """

    def __init__(
        self,
        rules: Mapping[str, Callable[..., Any]],
        values: Tensor,
        reference: Tensor,
        method: str,
    ) -> None:
        super().__init__()
        self.rules = rules  #: by kind
        self.values, self.reference, self.method = values, reference, method
        self.input_tensor: Tensor | None = None

    def input_layer(self, tensor: Tensor) -> Tensor:
        """Return what stands at the input layer; the model may write into it."""
        input_layer = self.values.detach().to(tensor.dtype, copy=True).requires_grad_(True)
        self.input_tensor = input_layer  # first: any other tensor that begins a graph is detached
        pair(input_layer, self.reference.detach().to(tensor.dtype))
        return input_layer.clone()

    def encoder_begins(self) -> None:
        """Constants take nothing, wherever they are added."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        call = self._owned(Call(func, operator_name(func), args, kwargs or {}, ()))
        if self.input_tensor is None:
            return call.run()
        given = list(tensors_in((call.args, dict(call.kwargs))))
        if not any(t.requires_grad or reference_of(t) is not None for t in given):
            return call.run()
        if torch.is_grad_enabled():
            return self._met(call)
        # cut off by the model, or inside an autograd function of its own: both are only values
        with torch.enable_grad():
            return cast_shadows(self._met(call))

    def _owned(self, call: Call) -> Call:
        """The call without parameters' graphs, and with what stands for tensors cut off."""
        swaps = {}
        for tensor in tensors_in((call.args, dict(call.kwargs))):
            shadow = recorded(tensor).shadow
            if shadow is not None:
                swaps[id(tensor)] = shadow
            elif tensor.requires_grad and tensor.is_leaf and tensor is not self.input_tensor:
                swaps[id(tensor)] = tensor.detach()
        call = call.substituted(swaps)
        given = tensors_in((call.args, dict(call.kwargs)))
        carriers = {id(tensor): tensor for tensor in given if tensor.requires_grad}
        return replace(call, carriers=tuple(carriers.values()))

    def _met(self, call: Call) -> Any:
        operator = operator_of(call.name)
        if operator.shape_only:
            return call.run()
        if operator.detaches:  # what is explained are values, not the model's gradient
            call = replace(call, func=torch.Tensor.view_as, args=(call.args[0], call.args[0]))
            return pair(call.run(), at_reference(call).run())
        kind = operator.kind
        writes = call.in_place or (kind is not None and KINDS[kind].writes)
        written = call.args[:1] if writes else ()
        if written:
            make_writable(call)
        if kind is None or not call.carriers:
            return self._without_rule(call)
        self._check(call, written)
        return self.rules[kind](self, call, at_reference(call))

    def _without_rule(self, call: Call) -> Any:
        """A call whose result carries no relevance (indices, masks, sizes), but may differ at
        the reference.
        """
        out = call.run()
        tensors = list(tensors_in(out))
        if any(tensor.requires_grad for tensor in tensors):
            raise self.refusal(call, "no rescale rule knows it")
        return pair(out, at_reference(call).run()) if tensors else out

    def _check(self, call: Call, written: tuple[Any, ...]) -> None:
        """Raise EngineError where a call reads what has no reference, or what must not differ."""
        for tensor in tensors_in((call.args, dict(call.kwargs))):
            reference = reference_of(tensor)
            if tensor.requires_grad and is_foreign(tensor):
                why = f"it follows the autograd function {function_name(tensor)!r}, which the "
                raise self.refusal(call, why + "engine cannot see into")
            if tensor.requires_grad and reference is None:
                why = "what it reads was computed by scripted or compiled code"
                raise self.refusal(call, why)
            fixed = not tensor.requires_grad and not any(tensor is target for target in written)
            if fixed and reference is not None:
                why = "a mask, an index or a constant that it reads differs at the reference"
                raise self.refusal(call, why)

    def again(self, function: Any, call: Call) -> Any:
        """Run `function` in the place of a call, with the mode on: it is seen from inside."""
        with self:
            return function(*call.args, **call.kwargs)

    def refusal(self, call: Call, why: str) -> EngineError:
        """The error for a call that no rule covers."""
        return RefusalError(call.name, call.carriers, self.method, why)


@dataclass(frozen=True, slots=True, eq=False)
class Rescaled:
    """One pass over N items and their references; every call of `relevance` is one backward."""

    logits: Tensor  #: (N, C), in the graph of multipliers
    reference_logits: Tensor  #: (N, C)
    input_layer: Tensor  #: (N, ...)
    difference: Tensor  #: (N, ...) from the reference, float64

    def relevance(self, seed: Tensor) -> Tensor:
        """Contribution (N, ...) of every element of the input layer, in float64.

        For a seed (N, C) it sums to sum_c seed_c (logit_c - logit_c at the reference), per item.
        """
        seeded = seed.to(self.logits)
        (gradient,) = torch.autograd.grad(self.logits, self.input_layer, seeded, retain_graph=True)
        return gradient.double() * self.difference


def rescaled(
    forward: Callable[[RescaleMode], Tensor], values: Tensor, reference: Tensor, *, method: str
) -> Rescaled:
    """DeepLIFT's rescale rule through `forward` (Shrikumar et al. 2017, Eq. 1-3).

    Args:
        forward: runs the model, which calls `taps.input_layer(tensor)`; gives logits (N, C).
        values: (N, ...) what stands at the input layer.
        reference: (N, ...) what it is compared with.
        method: named in refusals.

    Raises:
        EngineError: an operator without a rule, or logits that do not depend on the input layer.
    """
    mode = RescaleMode(rules_of_form("rescale"), values, reference, method)
    with torch.enable_grad(), mode:
        outputs = forward(mode)
    if mode.input_tensor is None:
        raise EngineError("the model's forward never reached the input layer; choose another `at`")
    shadow = recorded(outputs).shadow
    logits = outputs if shadow is None else shadow
    there = reference_of(logits)
    if not logits.requires_grad:
        raise EngineError(
            "the logits do not depend on the input layer: the model detaches its path"
        )
    if there is None or is_foreign(logits):
        raise EngineError("the logits were computed by scripted or compiled code, unseen")
    input_layer = mode.input_tensor
    difference = input_layer.detach().double() - reference.to(input_layer.dtype).double()
    return Rescaled(logits, there, input_layer, difference)
