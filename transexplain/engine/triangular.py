"""A triangular solve, as the forward substitution that it is.

x_i = (b_i - sum_j a_ij x_j) / a_ii is made of sums, of products of two signals, and of a division
of a whole row by one number. So a_ij and x_j get half of what their product gets, as the factors
of every product of two carriers do, and a_ii is a scale. With D and N the diagonal and the rest
of A, and g what arrives at X, that recursion has the closed form

    (D + N / 2)^T u = g,    dB = u,    dA = -1/2 u X^T at the entries of N,

and <B, dB> + <A, dA> = u^T (D + N / 2) X = <X, g>: nothing is lost. For a constant A the factor
is 1 in the place of 1/2, and u the gradient.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from transexplain.engine.linear_functions import Booking
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.operator_call import Call
from transexplain.engine.relevance_functions import ToGradient, ToRelevance


class Substitution(Function):
    """X = A^-1 B, or B A^-1, of a triangular A; the backward is that of the substitution."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, settings: dict[str, bool], share: float, to: Booking | None
    ) -> Tensor:
        """a (..., n, n), b (..., n, k) -> (..., n, k); `share` of a product goes to a factor."""
        x: Tensor = torch.linalg.solve_triangular(a, b, **settings)
        ctx.save_for_backward(a, b, x)
        ctx.rest = (settings, share, to)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """dA and dB; what a constant B takes is booked."""
        a, b, x = ctx.saved_tensors
        settings, share, to = ctx.rest
        upper, left = settings["upper"], settings.get("left", True)
        scaled = torch.diag_embed(a.diagonal(dim1=-2, dim2=-1)) + share * _beside(a, upper)
        transposed = {**settings, "upper": not upper}
        u = torch.linalg.solve_triangular(scaled.mT, gradients[0], **transposed)
        if to is not None and not ctx.needs_input_grad[1]:
            to.bias(u * b)
        to_a = _beside(u @ x.mT if left else x.mT @ u, upper) * -share
        return to_a.sum_to_size(a.shape), u.sum_to_size(b.shape), None, None, None


def _beside(a: Tensor, upper: bool) -> Tensor:
    """The part of a triangular matrix beside its diagonal."""
    return a.triu(1) if upper else a.tril(-1)


def gradient_rule(mode: RelevanceMode, call: Call) -> Any:
    """Half to each factor of every product of the substitution, or the measured plain gradient."""
    a = call.argument(0, "A", None)
    if not mode.carries(a):
        return call.run()
    if mode.composite.product == "gradient":
        return mode.books.measured("product", call)
    to = mode.books.at("product", None)
    out = _solved(mode, call, to)
    to.locate(out)
    return out


def relevance_rule(mode: RelevanceMode, call: Call) -> Any:
    """The same between converters: g = R / x above, R = a g and R = b g below."""
    below = {
        id(one): ToRelevance.apply(one, 1.0, mode.books.at(call.name, mode.books.axis_of(one)))
        for one in call.carriers
    }
    out = _solved(mode, call.substituted(below), None)
    above = mode.books.at(call.name, mode.books.axis_after(out))
    return ToGradient.apply(out, mode.chefer, above)


def _solved(mode: RelevanceMode, call: Call, to: Booking | None) -> Tensor:
    a, b = call.argument(0, "A", None), call.argument(1, "B", None)
    settings = {key: value for key, value in call.kwargs.items() if key not in ("A", "B")}
    out: Tensor = Substitution.apply(a, b, settings, 0.5 if mode.carries(a) else 1.0, to)
    return out
