"""Rules for values that are put at chosen places of a tensor."""

from typing import Any

import torch

from transexplain.engine.mode import RelevanceMode
from transexplain.engine.operator_call import Call
from transexplain.engine.tensor_record import forget_function


def placed(mode: RelevanceMode, call: Call) -> Any:
    """`x.scatter(dim, index, values)`: what stays of x, and the values, are booked if constant."""
    if call.argument(4, "reduce", None) is not None:
        raise mode.refusal(call, "it combines what it puts in with what was there")
    x, dim, index = (call.argument(i, n, None) for i, n in enumerate(("input", "dim", "index")))
    values = call.argument(3, "src", call.kwargs.get("value"))
    base = None if mode.carries(x) else x.detach().clone()
    out = call.run()
    forget_function(out)
    kept = torch.ones_like(x, dtype=torch.bool).scatter_(dim, index, False)
    mode.books.constant(out, base, "fill", where=kept)
    if not mode.carries(values):
        mode.books.constant(out, out.detach().clone(), "fill", where=~kept)
    return out


def masked_scatter(mode: RelevanceMode, call: Call) -> Any:
    """Places take another tensor's values in order; what stays or comes is booked if constant."""
    x, mask, source = call.argument(0, "input", None), *call.args[1:3]
    stays = None if mode.carries(x) else x.detach()
    comes = None if mode.carries(source) else torch.zeros_like(x).masked_scatter(mask, source)
    out = call.run()
    taken = mask.expand_as(out)
    mode.books.constant(out, stays, "fill", where=~taken)
    mode.books.constant(out, comes, "fill", where=taken)
    return out
