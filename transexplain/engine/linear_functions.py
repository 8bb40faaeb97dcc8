"""Autograd functions of the rules for linear operators, in gradient form."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from transexplain.engine.composites import LinearRule
from transexplain.engine.ledger import Booking
from transexplain.engine.traced import shapes_are_fixed


@dataclass(frozen=True, slots=True, eq=False)
class NonZero:
    """Rows (N,) and columns of a gradient (..., O) that hold something; None: all rows."""

    rows: Tensor | None
    columns: slice

    def of(self, tensor: Tensor, *, columns: bool = True) -> Tensor:
        """These rows (and columns) of a tensor (..., O) -> (n, o)."""
        flat = tensor.reshape(-1, tensor.shape[-1])
        if self.rows is not None:
            flat = flat[self.rows]
        return flat[:, self.columns] if columns else flat

    def back(self, values: Tensor, like: Tensor) -> Tensor:
        """Values (n, I) of these rows to the shape of `like` (..., I), 0 elsewhere."""
        if self.rows is None:
            return values.view(like.shape)
        full = values.new_zeros(like.shape)
        full.view(-1, like.shape[-1])[self.rows] = values
        return full

    def sums(self, values: Tensor, like: Tensor) -> Tensor:
        """One number per row (n,) to the shape (...) of the rows of `like` (..., O)."""
        if self.rows is None:
            return values.view(like.shape[:-1])
        full = values.new_zeros(like.shape[:-1].numel())
        full[self.rows] = values
        return full.view(like.shape[:-1])

    def same(self, other: "NonZero") -> bool:
        """Return whether both select the same rows and columns."""
        if self.columns != other.columns or (self.rows is None) != (other.rows is None):
            return False
        return self.rows is None or other.rows is None or torch.equal(self.rows, other.rows)


def nonzero_part(gradient: Tensor) -> NonZero:
    """What of a gradient (..., O) is not zero; on a device all of it, as looking would wait."""
    if gradient.device.type != "cpu" or gradient.dim() < 2 or shapes_are_fixed():
        return NonZero(None, slice(None))
    flat = gradient.reshape(-1, gradient.shape[-1])
    rows = _nonzero_rows(flat)
    return NonZero(rows, _nonzero_columns(flat if rows is None else flat[rows]))


def _nonzero_rows(flat: Tensor) -> Tensor | None:
    # one column is cheap to read and nearly always shows a difference
    if 2 * int(flat[:, 0].count_nonzero()) > flat.shape[0]:
        return None
    nonzero = flat.count_nonzero(dim=1).nonzero().flatten()
    return None if 2 * nonzero.shape[0] > flat.shape[0] else nonzero


def _nonzero_columns(rows: Tensor) -> slice:
    few = rows[:: max(1, rows.shape[0] // 8)]
    seen = few.count_nonzero(dim=0).nonzero().flatten()
    if not seen.numel():
        return slice(None)
    low, high = int(seen[0]), int(seen[-1]) + 1
    if 2 * (high - low) > rows.shape[1]:
        return slice(None)
    outside = rows[:, :low].count_nonzero() + rows[:, high:].count_nonzero()
    return slice(None) if int(outside) else slice(low, high)


@dataclass(frozen=True, slots=True, eq=False)
class LinearMap:
    """z = apply(x, weight) + bias, and its transpose."""

    weight: Tensor
    bias: Tensor | None  #: broadcastable to z
    apply: Callable[[Tensor, Tensor], Tensor]  #: (x, w) -> z without bias
    pull: Callable[[Tensor, Tensor, Tensor], Tensor]  #: (s, w, like) -> shape of like
    rowwise: bool = False  #: a linear layer: weight (O, I), every row of x by itself

    def part(self, columns: slice) -> "LinearMap":
        """The same for some outputs of a linear layer."""
        if columns == slice(None):
            return self
        bias = None if self.bias is None else self.bias[columns]
        return replace(self, weight=self.weight[columns], bias=bias)


class LinearZero(Function):
    """LRP-0 of a linear layer: the gradient, without products with zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Callable[[], Tensor], at: LinearMap) -> Tensor:
        """z, by the operator itself."""
        ctx.at, ctx.shape = at, x.shape
        return value()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """W^T g where there is a g."""
        at, g = ctx.at, gradients[0]
        nonzero = nonzero_part(g)
        if nonzero.rows is None and nonzero.columns == slice(None):
            return g @ at.weight, None, None
        # `back` reads no more than the shape of what stands for x
        pulled = nonzero.of(g) @ at.weight[nonzero.columns]
        return nonzero.back(pulled, pulled.new_empty(()).expand(ctx.shape)), None, None


class SharesOfOutput(Function):
    """A rule whose shares are computed in the backward pass, from the input x and the output z."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        value: Callable[[], Tensor],
        rule: LinearRule,
        at: LinearMap,
        how: Any,
    ) -> Tensor:
        """z, by the operator itself; `how` is for the backward pass."""
        z = value()
        ctx.save_for_backward(x, z.clone())  # the model may write into z
        ctx.rest, ctx.seen = (rule, at, how), None
        return z


class SignedShares(SharesOfOutput):
    """LRP-epsilon and generalised LRP-gamma in one: one more product above, two transposed.

    For z_j > 0 contributions count c + gamma c^+, for z_j < 0 they count c + gamma c^-; with
    A_j = sum_i |c_ij| + |b_j| both denominators are sign(z) (|z| + gamma (|z| + A) / 2), which
    cannot cross zero. Transposed: g_x = (1 + gamma/2) W^T s + gamma/2 sign(x) |W|^T (sign(z) s).
    A is computed in the backward pass, where it is known for which outputs it is wanted.
    """

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Both transposed products, with the bias' and epsilon's shares booked."""
        x, z = ctx.saved_tensors
        rule, at, to = ctx.rest
        g = gradients[0]
        if at.rowwise:
            nonzero = nonzero_part(g)
            part = at.part(nonzero.columns)
            rows, z = nonzero.of(x, columns=False), nonzero.of(z)
            # the next target most often has its gradient in the same rows
            if ctx.seen is None or not ctx.seen[0].same(nonzero):
                ctx.seen = (nonzero, _signed_share(rows, z, rule, part))
            out, taken, lost = _signed_pull(rows, nonzero.of(g), ctx.seen[1], rule, part)
            out = nonzero.back(out, x)
            taken, lost = (t if t is None else nonzero.sums(t.sum(-1), g) for t in (taken, lost))
        else:
            out, taken, lost = _signed_pull(x, g, _signed_share(x, z, rule, at), rule, at)
        if taken is not None:
            to.bias(taken)
        if lost is not None:
            to.rule(lost)
        return out, None, None, None, None


def _signed_share(x: Tensor, z: Tensor, rule: LinearRule, at: LinearMap) -> Tensor:
    """z / (|z| + gamma (|z| + A) / 2 + epsilon), 0 where nothing contributes."""
    # contributions with the sign of z count 1 + gamma times; (|z| + A) / 2 is their sum
    denominator = z.abs()
    if rule.gamma:
        spread = at.apply(x.abs(), at.weight.abs())
        if at.bias is not None:
            spread = spread + at.bias.abs()
        spread = spread.add_(denominator).mul_(rule.gamma / 2)
        denominator = denominator.add_(spread)
    if rule.epsilon:
        denominator = denominator.add_(rule.epsilon)
    return torch.where(denominator == 0, 0, z / denominator)


def _signed_pull(
    x: Tensor, g: Tensor, share: Tensor, rule: LinearRule, at: LinearMap
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """g_x, what the bias takes and what epsilon takes."""
    signed = share * g
    s = share.abs().mul_(g)
    half = rule.gamma / 2
    out = at.pull(s, at.weight, x)
    if half:
        out = out.mul_(1 + half)
        out = out.add_(at.pull(signed, at.weight.abs(), x).mul_(x.sign()), alpha=half)
    taken = None
    if at.bias is not None:
        taken = at.bias * s * (1 + half)
        if half:
            taken = taken.add_(at.bias.abs() * signed, alpha=half)
    return out, taken, signed * rule.epsilon if rule.epsilon else None


class PaperGamma(Function):
    """LRP-gamma as TransExplain 3.2.4.2 states it: positive contributions count 1 + gamma times.

    R_i = sum_j (c_ij + gamma c_ij^+) / (z_j + gamma P_j + epsilon sign(z_j)) R_j, where
    c_ij = x_i w_ij and P_j is the sum of the positive contributions to z_j; the bias is one
    contribution more. The denominator can cross zero for z_j < 0, and epsilon does not prevent it,
    so that the largest amplification |z / denominator| is booked. Transposed:
    g_x = (1 + gamma/2) W^T s + gamma/2 sign(x) |W|^T s.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        value: Callable[[], Tensor],
        rule: LinearRule,
        at: LinearMap,
        to: Booking,
    ) -> Tensor:
        """z, by the operator itself."""
        z = value()
        stabiliser = torch.full_like(z, rule.epsilon).copysign(z)
        below = z + rule.gamma * contributions(at, x, positive=True) + stabiliser
        share = torch.where(below == 0, 0, z / below)
        to.amplification(share)
        # where the denominator is 0, all that arrives is lost
        lost = torch.where(below == 0, z, share * stabiliser)
        ctx.save_for_backward(x, share, lost)
        ctx.rest = (rule, at, to)
        return z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Two transposed products."""
        x, share, lost = ctx.saved_tensors
        rule, at, to = ctx.rest
        s, half = share * gradients[0], rule.gamma / 2
        if at.bias is not None:
            to.bias((at.bias + rule.gamma * at.bias.clamp(min=0)) * s)
        to.rule(lost * gradients[0])
        out = at.pull(s, at.weight, x).mul_(1 + half)
        raised = at.pull(s, at.weight.abs(), x).mul_(x.sign())
        return out.add_(raised, alpha=half), None, None, None, None


class AlphaBeta(Function):
    """LRP-alpha-beta (z+ where beta is 0): positive and negative contributions apart."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        value: Callable[[], Tensor],
        rule: LinearRule,
        at: LinearMap,
        to: Booking,
    ) -> Tensor:
        """z, by the operator itself."""
        z = value()
        alpha = rule.alpha or 1.0
        positive = contributions(at, x, positive=True)
        shares = [torch.where(positive == 0, 0, z / positive).mul_(alpha)]
        # where no input contributes with a sign, the share of that sign is lost
        kept = torch.where(positive == 0, 0.0, alpha).to(z.dtype)
        if rule.beta:
            negative = contributions(at, x, positive=False)
            shares.append(torch.where(negative == 0, 0, z / negative).mul_(-rule.beta))
            kept = kept - torch.where(negative == 0, 0.0, rule.beta).to(z.dtype)
        ctx.loses = bool((kept != 1).any())
        ctx.save_for_backward(x, *shares, *([z * (1 - kept)] if ctx.loses else []))
        ctx.rest = (rule, at, to)
        return z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Two transposed products, four with beta."""
        x, *shares = ctx.saved_tensors
        rule, at, to = ctx.rest
        if ctx.loses:
            to.rule(shares.pop() * gradients[0])
        above, below = at.weight.clamp(min=0), at.weight.clamp(max=0)
        s = shares[0] * gradients[0]
        of_positive, of_negative = at.pull(s, above, x), at.pull(s, below, x)
        taken = None if at.bias is None else at.bias.clamp(min=0) * s
        if rule.beta:
            s = shares[1] * gradients[0]
            of_positive = of_positive + at.pull(s, below, x)
            of_negative = of_negative + at.pull(s, above, x)
            taken = None if taken is None else taken + at.bias.clamp(max=0) * s
        if taken is not None:
            to.bias(taken)
        return torch.where(x > 0, of_positive, of_negative), None, None, None, None


def contributions(at: LinearMap, x: Tensor, *, positive: bool) -> Tensor:
    """Sum of the contributions x_i w_ij (and b_j) of one sign, shape of z."""
    above, below = at.weight.clamp(min=0), at.weight.clamp(max=0)
    if not positive:
        above, below = below, above
    contributions = at.apply(x.clamp(min=0), above) + at.apply(x.clamp(max=0), below)
    if at.bias is None:
        return contributions
    return contributions + (at.bias.clamp(min=0) if positive else at.bias.clamp(max=0))
