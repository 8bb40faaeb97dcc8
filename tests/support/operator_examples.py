"""An example of every torch function that the engine knows: (B, 4, 6) -> (B, ...).

The name of an example is the name under which the engine meets the function; other operators may
stand around it. Constants are the same for every item.
"""

from collections.abc import Callable

import torch
from operator_examples_functions import FUNCTIONS
from operator_examples_moves import MOVES
from torch import Tensor
from torch.nn import functional as F
from toy_networks import inputs

Example = Callable[[Tensor], Tensor]
MASK = inputs(4, 6, seed=2) > 0
ROW, FULL = inputs(6, seed=3), inputs(4, 6, seed=4)


def fresh(x: Tensor) -> Tensor:
    """A carrier that may be written into."""
    return torch.tanh(x) + x


def written(name: str, *args: object) -> Example:
    """The in-place method `name` on a carrier of its own."""
    return lambda x: getattr(fresh(x), name)(*args)


def assigned(x: Tensor) -> Tensor:
    y = fresh(x)
    y[:, 1] = FULL[1]
    z = torch.ones_like(x)
    z[:, :2] = x[:, 2:]
    return y + z


def copied(x: Tensor) -> Tensor:
    return torch.empty_like(x).copy_(x)


SUMS: dict[str, Example] = {
    "add": lambda x: torch.add(x, FULL, alpha=2.0) + x.add(other=1.0),
    "add_": written("add_", FULL),
    "__add__": lambda x: x.__add__(FULL),
    "__radd__": lambda x: 1.5 + x,
    "__iadd__": written("__iadd__", 0.5),
    "sub": lambda x: torch.sub(FULL, x, alpha=0.5) + torch.sub(x, x.roll(1, 1)),
    "sub_": written("sub_", FULL),
    "subtract": lambda x: x.subtract(FULL),
    "__sub__": lambda x: x - FULL,
    "__rsub__": lambda x: 2.0 - x,
    "__isub__": written("__isub__", 0.5),
    "rsub": lambda x: torch.rsub(x, FULL, alpha=2.0),
    "neg": torch.neg,
    "neg_": written("neg_"),
    "__neg__": lambda x: -x,
    "negative": torch.negative,
    "negative_": written("negative_"),
}
PRODUCTS: dict[str, Example] = {
    "mul": lambda x: torch.mul(x, other=FULL) + torch.mul(input=x, other=x),
    "mul_": written("mul_", ROW),
    "multiply": lambda x: x.multiply(FULL),
    "__mul__": lambda x: x * x.roll(1, -1),
    "__rmul__": lambda x: 2.0 * x,
    "__imul__": written("__imul__", 0.5),
    "matmul": lambda x: torch.matmul(x, other=inputs(6, 3)) + torch.matmul(x, inputs(6, 3, seed=5)),
    "__matmul__": lambda x: x @ x.transpose(1, 2),
    "__rmatmul__": lambda x: inputs(3, 4).__matmul__(x) + x.__rmatmul__(inputs(3, 4)),
    "bmm": lambda x: torch.bmm(x, x.transpose(1, 2)),
    "mm": lambda x: torch.mm(x.reshape(-1, 6), inputs(6, 3)).view(-1, 4, 3),
    "mv": lambda x: torch.mv(x.reshape(-1, 6), ROW).view(-1, 4),
    "dot": lambda x: torch.stack([torch.dot(row.flatten(), FULL.flatten()) for row in x])[:, None],
    "inner": lambda x: torch.inner(x, inputs(3, 6)),
    "outer": lambda x: torch.outer(x.flatten(), inputs(2)).view(len(x), -1),
    "outer second": lambda x: torch.stack([inputs(2).outer(row.flatten()) for row in x]),
    "inner second": lambda x: torch.inner(inputs(3, 6), x).permute(1, 0, 2),
    "inner of an item": lambda x: torch.stack([torch.inner(row, row.roll(1, 0)) for row in x]),
    "dot of an item": lambda x: (
        torch.stack([row[0].dot(row[1]) * row[2, 3] for row in x])[:, None]
        + torch.cat([torch.outer(row[0], row[1])[None] for row in x]).sum(2)
    ),
    "tensordot": lambda x: torch.tensordot(x, inputs(6, 3), dims=1),
    "tensordot second": lambda x: torch.tensordot(inputs(3, 4), x, dims=([1], [1])).transpose(0, 1),
    "linalg_solve_triangular": lambda x: torch.linalg.solve_triangular(
        x[..., :4], x[..., 4:], upper=False, unitriangular=True
    ),
    "linalg_solve_triangular right": lambda x: torch.linalg.solve_triangular(
        3.0 * torch.eye(4) + torch.tanh(x[..., :4]), x.mT[:, :3], upper=True, left=False
    ),
    "linalg_solve_triangular constant": lambda x: (
        torch.linalg.solve_triangular(inputs(4, 4) + 3.0 * torch.eye(4), x, upper=True)
        + torch.linalg.solve_triangular(x[..., :4], FULL, upper=False, unitriangular=True)
    ),
    "einsum": lambda x: torch.einsum("bij,bkj->bik", x, x) + torch.einsum("bij,jk->bik", x, FULL.T),
    "baddbmm": lambda x: torch.baddbmm(x, x[..., :4], x, beta=0.5, alpha=2.0),
    "addcmul": lambda x: torch.addcmul(x, x, FULL, value=0.5),
    "div": lambda x: torch.div(x, FULL) + torch.div(x, other=3.0),
    "div_": written("div_", ROW),
    "divide": lambda x: torch.divide(x, 2.0),
    "true_divide": lambda x: x.true_divide(2.0),
    "__div__": lambda x: x.__div__(2.0),
    "__idiv__": written("__idiv__", 2.0),
    "__rdiv__": lambda x: (1.0 + torch.exp(x)).__rdiv__(2.0),
    "__truediv__": lambda x: x / (1.0 + torch.exp(-x)),
    "__itruediv__": written("__itruediv__", 2.0),
    "__rtruediv__": lambda x: 1.0 / (1.0 + x.exp()),
}
REDUCTIONS: dict[str, Example] = {
    "mean": lambda x: x.mean(1) + torch.mean(x, dim=-2, keepdim=True)[:, 0],
    "sum": lambda x: torch.sum(x, dim=(1, 2), keepdim=True) + x.sum(axis=-1, keepdims=True),
    "rsqrt": lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 0.1),
    "rsqrt_": lambda x: x * x.square().mean(-1, keepdim=True).add(0.1).rsqrt_(),
    "sqrt": lambda x: x / torch.sqrt(x.square().sum(-1, keepdim=True) + 0.1),
    "sqrt_": lambda x: x / x.square().sum(-1, keepdim=True).add(0.1).sqrt_(),
    "reciprocal": lambda x: x * torch.reciprocal(x.square().sum(-1, keepdim=True) + 0.1),
    "reciprocal_": lambda x: x * x.square().sum(-1, keepdim=True).add(0.1).reciprocal_(),
    "std": lambda x: x / (x.std(-1, keepdim=True, unbiased=False) + 0.1),
    "var": lambda x: x / torch.var(x, dim=-1, keepdim=True, correction=0).add(0.1).sqrt(),
    "norm": lambda x: x / (x.norm(dim=-1, keepdim=True) + 0.1),
    "linalg_vector_norm": lambda x: x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + 0.1),
    "vector_norm": lambda x: x / (torch.linalg.vector_norm(x, 2, -1, True) + 0.1),
    "normalize": lambda x: F.normalize(x, dim=-1, eps=0.1),
}
FILLS: dict[str, Example] = {
    "masked_fill": lambda x: x.masked_fill(MASK, 2.0),
    "masked_fill_": lambda x: fresh(x).masked_fill_(mask=MASK, value=0.5),
    "masked_scatter": lambda x: (
        x.masked_scatter(MASK, 2 * x[:, MASK].flip(1))
        + x.masked_scatter(MASK, FULL.expand(x.shape)[:, MASK])
        + FULL.expand(x.shape).masked_scatter(MASK, 2 * x[:, MASK])
    ),
    "where": lambda x: torch.where(MASK, x, FULL) + x.where(MASK, 1.5 * x) + FULL.where(MASK, x),
    "__setitem__": assigned,
    "copy_": copied,
    "scatter": lambda x: (
        x.scatter(1, torch.tensor([[[2], [0]]]).expand(len(x), 2, 6), 0.5)
        + torch.scatter(
            FULL.expand(x.shape), 2, torch.tensor([3, 1]).expand(len(x), 4, 2), x[..., 1:3]
        )
    ),
    "scatter_": lambda x: fresh(x).scatter_(
        1, torch.tensor([[[2], [0]]]).expand(len(x), 2, 6), FULL[:2].expand(len(x), 2, 6)
    ),
    "index_add": lambda x: x.index_add(1, torch.tensor([0, 0, 3]), x[:, :3]),
    "index_add_": lambda x: fresh(x).index_add_(
        1, torch.tensor([2]), FULL[:1].expand(len(x), 1, 6)
    ),
    "scatter_add": lambda x: torch.scatter_add(
        torch.ones_like(x), 2, torch.tensor([0, 1, 1, 2, 3, 0]).expand(x.shape), x
    ),
    "scatter_add_": lambda x: torch.zeros_like(x).scatter_add_(
        2, torch.tensor([0, 1, 1, 2, 3, 0]).expand(x.shape), x
    ),
    "cat": lambda x: torch.cat([x, FULL.expand(x.shape)], dim=-1),
    "concat": lambda x: torch.concat((FULL.expand(x.shape), x, x), axis=1),
    "concatenate": lambda x: torch.concatenate((x, x), dim=1),
    "stack": lambda x: torch.stack([x, FULL.expand(x.shape), x], dim=-2),
    "pad": lambda x: F.pad(x, (1, 2), value=0.5) + F.pad(x, (2, 1), mode="reflect"),
}
WITH_WEIGHTS: dict[str, Example] = {
    "linear": lambda x: F.linear(input=x, weight=inputs(5, 6), bias=inputs(5, seed=6)),
    "addmm": lambda x: torch.addmm(inputs(3), x.reshape(-1, 6), inputs(6, 3)).view(-1, 4, 3),
    "conv1d": lambda x: F.conv1d(x, inputs(3, 4, 3), bias=inputs(3), stride=2, padding=1),
    "conv2d": lambda x: F.conv2d(x.unflatten(2, (2, 3)), inputs(4, 1, 2, 2), inputs(4), groups=4),
    "conv3d": lambda x: F.conv3d(x.view(-1, 1, 4, 2, 3), inputs(2, 1, 1, 1, 3), padding="same"),
    "conv_transpose1d": lambda x: F.conv_transpose1d(x, inputs(4, 2, 3), inputs(2), stride=2),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x.view(-1, 2, 4, 3), inputs(2, 2, 2, 2)),
    "conv_transpose3d": lambda x: F.conv_transpose3d(x.view(-1, 2, 2, 2, 3), inputs(2, 1, 2, 2, 1)),
    "layer_norm": lambda x: F.layer_norm(x, (6,), ROW, bias=inputs(6), eps=0.1),
    "rms_norm": lambda x: F.rms_norm(x, (6,), weight=ROW, eps=0.1),
    "group_norm": lambda x: F.group_norm(x, 2, inputs(4), bias=inputs(4, seed=3), eps=0.1),
    "batch_norm": lambda x: F.batch_norm(x, inputs(4), inputs(4).square(), bias=inputs(4)),
    "instance_norm": lambda x: F.instance_norm(x, weight=inputs(4), bias=inputs(4), eps=0.1),
    "dropout": lambda x: F.dropout(x, 0.5, training=False),
    "dropout1d": lambda x: F.dropout1d(x, 0.5, training=False),
    "dropout2d": lambda x: F.dropout2d(x.unflatten(2, (2, 3)), 0.5, training=False),
    "dropout3d": lambda x: F.dropout3d(x.view(-1, 1, 4, 2, 3), training=False),
    "alpha_dropout": lambda x: F.alpha_dropout(x, training=False),
    "feature_dropout": lambda x: torch.feature_dropout(x, 0.5, False),
}
EXAMPLES: dict[str, Example] = {
    **SUMS,
    **PRODUCTS,
    **REDUCTIONS,
    **FILLS,
    **WITH_WEIGHTS,
    **MOVES,
    **FUNCTIONS,
}
#: what this release of torch hands over under another name
ARRIVES_AS = {
    **{f"__{sign}{name}__": name for name in ("add", "sub", "mul") for sign in ("", "r")},
    **{f"__i{name}__": f"{name}_" for name in ("add", "sub", "mul", "div")},
    "__rsub__": "__rsub__",
    "__neg__": "neg",
    "__pow__": "pow",
    "logsigmoid": "log_sigmoid",
    "__pos__": "positive",
    "__matmul__": "matmul",
    "__div__": "div",
    "__truediv__": "div",
    "__itruediv__": "div_",
    "__rtruediv__": "__rdiv__",
    "vector_norm": "linalg_vector_norm",
    "im2col": "unfold",
    "col2im": "fold",
    "upsample": "interpolate",
}
