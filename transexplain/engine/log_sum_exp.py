"""The logarithm of a sum of exponentials, and the softmax that is written out with it."""

from typing import Any

import torch
from torch import Tensor

from transexplain.engine.mode import RelevanceMode
from transexplain.engine.operator_call import Call
from transexplain.engine.operators import operator_of
from transexplain.engine.tensor_record import SoftmaxOf, record, recorded


def log_sum_exp(mode: RelevanceMode, call: Call) -> Any:
    """Gradient x input, R_i = s_i x_i R / z with s = softmax(x); the rest is booked.

    logsumexp(x) = sum_i s_i x_i + H(s): the entropy H is what the gradient leaves out, exactly as
    for a log-softmax, which is x - logsumexp(x).
    """
    out = mode.books.measured("softmax", call)
    note(call, out)
    return out


def shared(_: RelevanceMode, call: Call) -> Any:
    """Relevance form: R_i = s_i R, the gradient itself, whose shares s = softmax(x) sum to 1.

    Max-take-most, the soft form of winner-takes-all (Kauffmann et al. 2020, Towards explaining
    anomalies: a deep Taylor decomposition of one-class models).
    """
    out = call.run()
    note(call, out)
    return out


def note(call: Call, out: Tensor) -> None:
    """Remember of which tensor `out` is the logsumexp, in case a softmax is being written out."""
    x, dims = call.argument(0, "input", None), call.argument(1, "dim", None)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if len(dims) == 1 and out.dim() == x.dim():
        record(out).summed_exp = SoftmaxOf(x, int(dims[0]), (x._version, out._version))


def note_difference(call: Call, out: Tensor) -> None:
    """Remember that x - logsumexp(x) is the log-softmax of x."""
    x, other = call.argument(0, "input", None), call.argument(1, "other", None)
    if not isinstance(other, Tensor) or call.in_place or "sub" not in call.name:
        return
    known = recorded(other).summed_exp
    plain = not operator_of(call.name).reflected and call.kwargs.get("alpha", 1) == 1
    if known is not None and plain and known.tensor is x and known.holds(other):
        record(out).log_softmax = SoftmaxOf(x, known.dim, (x._version, out._version))


def softmax_written_out(mode: RelevanceMode, call: Call) -> Any:
    """exp(x - logsumexp(x)) by the rule for the softmax that it is; None for anything else."""
    if call.name != "exp":
        return None
    known = recorded(call.carriers[0]).log_softmax
    if known is None or not known.holds(call.carriers[0]):
        return None
    with mode:
        return torch.softmax(known.tensor, known.dim)
