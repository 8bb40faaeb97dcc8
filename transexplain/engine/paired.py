"""Tensors that travel with their value at a reference input, for rules that compare the two.

The record of a tensor computed from the input layer holds what the same operators give at the
reference. Views of a pair are a pair of views, so what a model writes in place stays together.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from transexplain.engine.call import Call
from transexplain.engine.tensor_record import record, recorded, tensors_in


def reference_of(tensor: Tensor) -> Tensor | None:
    """The value of `tensor` at the reference; None where it does not depend on the input layer."""
    return recorded(tensor).reference


def pair(out: Any, reference: Any) -> Any:
    """Note what each tensor of `out` is at the reference; returns `out`.

    What has no graph and is the same at the reference is a constant, and stays unmarked (it may
    belong to the model).
    """
    for one, other in zip(tensors_in(out), tensors_in(reference), strict=True):
        if one.requires_grad or not (one is other or torch.equal(one, other)):
            record(one).reference = other
    return out


def at_reference(call: Call) -> Call:
    """The same call on what its tensors are at the reference."""
    return call.substituted(_references(call))


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
    # else memory lies otherwise, and the view has no counterpart in the copy
    if whole.stride() == base.stride():
        start = target.storage_offset() - base.storage_offset()
        part = whole.as_strided(target.shape, target.stride(), start)
        record(target).reference = part


def _references(call: Call) -> Mapping[int, Tensor]:
    found = {}
    for tensor in tensors_in((call.args, dict(call.kwargs))):
        reference = reference_of(tensor)
        if reference is not None:
            found[id(tensor)] = reference
    return found
