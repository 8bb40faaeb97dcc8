"""An example of every torch function that the engine knows: (B, 4, 6) -> (B, ...).

The name of an example is the name under which the engine meets the function; other operators may
stand around it. Constants are the same for every item.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from toy_networks import inputs, seeded

Example = Callable[[Tensor], Tensor]
MASK = inputs(4, 6, seed=2) > 0
ROW, FULL = inputs(6, seed=3), inputs(4, 6, seed=4)


PLACES = torch.tensor([2, 0, 3])


def square(x: Tensor) -> Tensor:
    """(B, 4, 6) -> (B, 2, 4, 3) for operators over pictures."""
    return x.view(-1, 2, 4, 3)


def box(x: Tensor) -> Tensor:
    """(B, 4, 6) -> (B, 1, 2, 4, 3) for operators over volumes."""
    return x.view(-1, 1, 2, 4, 3)


def mixed(transform: Callable[[Tensor], Tensor]) -> Example:
    """The real part of a Fourier transform."""
    return lambda x: transform(x).real


def sampled(x: Tensor) -> Tensor:
    grid = torch.tanh(inputs(1, 3, 3, 2)).expand(len(x), -1, -1, -1)
    return F.grid_sample(square(x), grid, align_corners=False)


SHAPES: dict[str, Example] = {
    "reshape": lambda x: torch.reshape(x, (len(x), -1)),
    "reshape_as": lambda x: x.reshape_as(torch.zeros(len(x), 24)),
    "view": lambda x: x.view(-1, 24),
    "view_as": lambda x: x.view_as(torch.zeros(len(x), 24)),
    "contiguous": lambda x: x.transpose(1, 2).contiguous(),
    "clone": lambda x: x.clone(),
    "flatten": lambda x: torch.flatten(x, start_dim=1),
    "unflatten": lambda x: x.unflatten(2, (2, 3)),
    "ravel": lambda x: x.ravel().view(len(x), -1),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "unsqueeze": lambda x: x.unsqueeze(dim=2),
    "transpose": lambda x: torch.transpose(x, 0, 1).transpose(0, 1),
    "permute": lambda x: x.permute(1, 2, 0).permute((2, 0, 1)),
    "movedim": lambda x: x.movedim(0, 2).movedim(2, 0),
    "moveaxis": lambda x: x.moveaxis(1, 2),
    "swapaxes": lambda x: x.swapaxes(1, 2),
    "swapdims": lambda x: x.swapdims(0, 1).swapdims(0, 1),
    "t": lambda x: x.reshape(-1, 6).t().t().reshape(len(x), -1),
    "adjoint": lambda x: x.adjoint(),
    "T": lambda x: x.reshape(-1, 6).T.T.reshape(len(x), -1),
    "mT": lambda x: x.mT,
    "H": lambda x: x.reshape(-1, 6).H.H.reshape(len(x), -1),
    "mH": lambda x: x.mH,
    "__getitem__": lambda x: x[:, PLACES] + x[:, [1, 0, 1]] + x[:, 1:, None, ..., :][:, :, 0],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(1, 2),
    "index_select": lambda x: torch.index_select(x, 1, PLACES),
    "gather": lambda x: x.gather(1, PLACES.view(1, 3, 1).expand(len(x), 3, 6)),
    "take_along_dim": lambda x: x.take_along_dim(PLACES.view(1, 3, 1), dim=1),
    "split": lambda x: x.split(3, dim=-1)[1],
    "split_with_sizes": lambda x: x.split_with_sizes((2, 4), 2)[1],
    "tensor_split": lambda x: x.tensor_split(3, dim=2)[2],
    "chunk": lambda x: x.chunk(2, -1)[0] + torch.chunk(x, chunks=2, dim=-1)[1],
    "unbind": lambda x: x.unbind(1)[3],
    "unfold": lambda x: x.unfold(2, 3, 2),
    "expand": lambda x: x[:, None].expand(-1, 2, -1, -1),
    "expand_as": lambda x: x[:, :1].expand_as(x),
    "broadcast_to": lambda x: x[:, :, :1].broadcast_to(x.shape),
    "repeat": lambda x: x.repeat(1, 2, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, dim=1),
    "tile": lambda x: x.tile((1, 1, 2)),
    "roll": lambda x: torch.roll(x, shifts=(1, -2), dims=(1, 2)),
    "flip": lambda x: x.flip((1, 2)),
    "fliplr": lambda x: x.fliplr(),
    "flipud": lambda x: x.permute(1, 0, 2).flipud().permute(1, 0, 2),
    "rot90": lambda x: x.rot90(1, (1, 2)),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "diagonal": lambda x: x.diagonal(dim1=1, dim2=2),
    "as_strided": lambda x: x.contiguous().as_strided((len(x), 3, 2, 6), (24, 6, 6, 1)),
    "to": lambda x: x.to(torch.float64).to(device="cpu"),
    "type": lambda x: x.type(torch.float64),
    "type_as": lambda x: x.type_as(torch.zeros(1).double()),
    "float": lambda x: x.float(),
    "double": lambda x: x.double(),
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "cpu": lambda x: x.cpu(),
    "positive": torch.positive,
    "__pos__": lambda x: +x,
    "cuda": lambda x: x.cuda().cpu(),
    "detach_": lambda x: x + 0.0 * torch.tanh(x).detach_(),
    "requires_grad_": lambda x: x.clone().requires_grad_(),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.view(-1, 4, 2, 3), 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x.view(-1, 1, 4, 6), 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x.view(-1, 4, 2, 3), 2),
    "view_as_complex": lambda x: torch.view_as_real(torch.view_as_complex(x.view(-1, 12, 2))),
    "view_as_real": lambda x: torch.view_as_real(torch.fft.fft(x)),
    "real": lambda x: torch.fft.fft(x).real + torch.real(torch.fft.fft(x, dim=1)),
}


CHOICES: dict[str, Example] = {
    "max_pool1d": lambda x: F.max_pool1d(x, 2) + torch.max_pool1d(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(square(x), 2, stride=1, padding=1),
    "max_pool3d": lambda x: F.max_pool3d(box(x), kernel_size=(1, 2, 2)),
    "max_pool1d_with_indices": lambda x: F.max_pool1d(x, 2, return_indices=True)[0],
    "max_pool2d_with_indices": lambda x: F.max_pool2d(square(x), 2, return_indices=True)[0],
    "max_pool3d_with_indices": lambda x: F.max_pool3d(box(x), 2, return_indices=True)[0],
    "adaptive_max_pool1d": lambda x: torch.adaptive_max_pool1d(x, 2)[0],
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(square(x), 2),
    "adaptive_max_pool3d": lambda x: F.adaptive_max_pool3d(box(x), (1, 2, 2)),
    "adaptive_max_pool1d_with_indices": lambda x: F.adaptive_max_pool1d(x, 2, True)[0],
    "adaptive_max_pool2d_with_indices": lambda x: F.adaptive_max_pool2d(square(x), 2, True)[0],
    "adaptive_max_pool3d_with_indices": lambda x: F.adaptive_max_pool3d(box(x), 2, True)[0],
    "topk": lambda x: x.topk(2, dim=1).values + torch.topk(x, 2, 1, largest=False)[0],
    "sort": lambda x: x.sort(dim=-1, descending=True).values,
    "amax": lambda x: x.amax((1, 2), keepdim=True)[:, 0],
    "amin": lambda x: torch.amin(x, dim=-1),
    "max": lambda x: x.max(1).values[:, None] + torch.max(x, x.flip(1)) + torch.max(x, inputs(6)),
    "min": lambda x: x.min(dim=1)[0][:, None] + torch.min(inputs(6), x),
    "maximum": lambda x: torch.maximum(x, inputs(6)) + x.maximum(x.roll(1, 1)),
    "minimum": lambda x: torch.minimum(x, x.roll(1, 1)),
}


MIXTURES: dict[str, Example] = {
    "avg_pool1d": lambda x: F.avg_pool1d(x, 3, 2, 1),
    "avg_pool2d": lambda x: F.avg_pool2d(square(x), 2, ceil_mode=True),
    "avg_pool3d": lambda x: F.avg_pool3d(box(x), 2),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x, 4),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(square(x), (1, 2)),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(box(x), 2),
    "interpolate": lambda x: F.interpolate(square(x), scale_factor=2, mode="bicubic"),
    "grid_sample": sampled,
    "cumsum": lambda x: x.cumsum(1),
    "diff": lambda x: torch.diff(x, dim=-1),
    "fft_fft": mixed(torch.fft.fft),
    "fft_ifft": mixed(torch.fft.ifft),
    "fft_fft2": mixed(torch.fft.fft2),
    "fft_ifft2": mixed(torch.fft.ifft2),
    "fft_fftn": mixed(lambda x: torch.fft.fftn(x, dim=(1, 2))),
    "fft_ifftn": mixed(lambda x: torch.fft.ifftn(x, dim=(1, 2))),
    "fft_rfft": mixed(torch.fft.rfft),
    "fft_irfft": lambda x: torch.fft.irfft(torch.fft.rfft(x)),
    "fft_rfft2": mixed(torch.fft.rfft2),
    "fft_irfft2": lambda x: torch.fft.irfft2(torch.fft.rfft2(x)),
    "fft_rfftn": mixed(lambda x: torch.fft.rfftn(x, dim=(1, 2))),
    "fft_irfftn": lambda x: torch.fft.irfftn(torch.fft.rfftn(x, dim=(1, 2)), dim=(1, 2)),
    "fft_fftshift": lambda x: torch.fft.fftshift(x, dim=2),
    "fft_ifftshift": lambda x: torch.fft.ifftshift(x, dim=2),
    "im2col": lambda x: F.unfold(square(x), 2, padding=1),
    "upsample": lambda x: F.upsample(square(x), scale_factor=2),
    "col2im": lambda x: F.fold(x.view(-1, 4, 6), (3, 4), (2, 2), stride=1),
    "fold": lambda x: F.fold(x.view(-1, 4, 6), (3, 4), (2, 2)),
}


MOVES: dict[str, Example] = {**SHAPES, **CHOICES, **MIXTURES}


CAUSAL = torch.ones(4, 4, dtype=torch.bool).tril()


#: the third query sees nothing
BLIND = CAUSAL & (torch.arange(4) != 2)[:, None]


LAYER = seeded(nn.Linear(6, 18), 5)


def in_place(name: str, *args: object) -> Example:
    """The in-place method `name` on a carrier of its own."""
    return lambda x: getattr(torch.tanh(x) + x, name)(*args)


ACTIVATIONS: dict[str, Example] = {
    "gelu": lambda x: F.gelu(x) + F.gelu(x, approximate="tanh"),
    "relu": lambda x: F.relu(x) + torch.relu(x) + F.relu(2.0 * x, inplace=True),
    "relu_": in_place("relu_"),
    "relu6": lambda x: F.relu6(4.0 * x),
    "silu": lambda x: F.silu(x) + F.silu(2.0 * x, True),
    "silu_": lambda x: torch._C._nn.silu_(torch.tanh(x) + x),
    "tanh": torch.tanh,
    "tanh_": in_place("tanh_"),
    "sigmoid": torch.sigmoid,
    "sigmoid_": in_place("sigmoid_"),
    "elu": lambda x: F.elu(x, alpha=0.5),
    "elu_": lambda x: F.elu_(torch.tanh(x) + x),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.5),
    "mish": F.mish,
    "hardswish": lambda x: F.hardswish(3.0 * x),
    "hardswish_": lambda x: torch._C._nn.hardswish_(3.0 * x) + F.hardswish(2.0 * x, True),
    "hardsigmoid": lambda x: F.hardsigmoid(3.0 * x),
    "hardtanh": lambda x: F.hardtanh(x, min_val=-0.5),
    "hardtanh_": lambda x: F.hardtanh_(torch.tanh(x) + x),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "leaky_relu_": lambda x: F.leaky_relu_(torch.tanh(x) + x),
    "prelu": lambda x: F.prelu(x, inputs(4)) + F.prelu(x, torch.tensor([0.2]).double()),
    "softplus": F.softplus,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "logsigmoid": F.logsigmoid,
    "log_sigmoid": F.logsigmoid,
    "erf": torch.erf,
    "_threshold": lambda x: F.threshold(x, 0.1, 0.3),
    "threshold": lambda x: torch.threshold(x, 0.1, 0.2),
    "acos": lambda x: torch.acos(0.9 * torch.tanh(x)),
    "asin": lambda x: torch.asin(0.9 * torch.tanh(x)),
    "atan": torch.atan,
    "pow": lambda x: torch.pow(x, 3) + x.pow(exponent=2),
    "pow_": in_place("pow_", 2),
    "__pow__": lambda x: x**2 + 1.0,
    "square": torch.square,
    "square_": in_place("square_"),
    "exp": torch.exp,
    "exp_": in_place("exp_"),
    "expm1": torch.expm1,
    "log": lambda x: torch.log(1.5 + x.square()),
    "log1p": lambda x: torch.log1p(x.square()),
    "abs": torch.abs,
    "sin": torch.sin,
    "cos": torch.cos,
    "clamp": lambda x: x.clamp(-0.5, max=0.7) + torch.clamp(x, min=inputs(6)),
    "clamp carried": lambda x: (
        torch.clamp(x, x.roll(1, 1) - 0.5, max=x.mean(1, keepdim=True))
        + x.abs().clamp(min=x.amax(-1, keepdim=True))
    ),
    "clamp_ carried": lambda x: (torch.tanh(x) + x).clamp_(x.roll(1, -1), torch.ones(6)),
    "clamp_max carried": lambda x: torch.clamp_max(x, x.roll(1, 1)) + x.clip(x.flip(1)),
    "clamp_": in_place("clamp_", -0.5, 0.5),
    "clamp_min": lambda x: x.clamp_min(0.1),
    "clamp_max": lambda x: torch.clamp_max(x, 0.1),
    "clip": lambda x: x.clip(max=0.2),
    "float_power": lambda x: torch.float_power(x, 2),
    "glu": lambda x: F.glu(x, dim=-1) + F.glu(x),
    "softmax": lambda x: torch.softmax(x @ inputs(6, 4), dim=-1) @ x + x.softmax(-1) * x,
    "logsumexp": lambda x: (
        torch.logsumexp(x, (1, 2))[:, None]
        + x.logsumexp(-1)
        + torch.logsumexp(x.masked_fill(MASK, -torch.inf), dim=1, keepdim=True)[:, 0, :4]
    ),
    "special_logsumexp": lambda x: torch.special.logsumexp(x, -1, keepdim=True) * x,
    "exp of a softmax": lambda x: torch.exp(x - torch.logsumexp(x, -1, keepdim=True)) * x,
    "log_softmax": lambda x: F.log_softmax(x, -1) * x,
}


def attended(**arguments: Any) -> Example:
    """Fused attention of two heads with the keys' mask, scale or causality given by name."""

    def function(x: Tensor) -> Tensor:
        q, k, v = LAYER(x).view(-1, 4, 3, 2, 3).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, **arguments).transpose(1, 2).flatten(2)

    return function


def floating(mask: Tensor, value: float) -> Tensor:
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, value)


def grouped(x: Tensor) -> Tensor:
    q, k, v = (part.unflatten(-1, (-1, 1)).transpose(1, 2) for part in x.split((4, 1, 1), -1))
    return F.scaled_dot_product_attention(q, k, v, None, 0.0, True, enable_gqa=True)


def written_out(x: Tensor) -> Tensor:
    """Eager attention whose third query sees nothing but the lowest number there is."""
    q, k, v = LAYER(x).chunk(3, -1)
    scores = (q @ k.transpose(1, 2) / 6**0.5).masked_fill(~BLIND, torch.finfo(x.dtype).min)
    return torch.softmax(scores, -1) @ v


HEADS = {
    first: seeded(nn.MultiheadAttention(6, 2, batch_first=first), 5) for first in (True, False)
}


def own_heads(*, batch_first: bool, padded: bool = False, **arguments: Any) -> Example:
    """`nn.MultiheadAttention` of the input to itself, with two keys hidden where `padded`."""

    def function(x: Tensor) -> Tensor:
        hidden = torch.tensor([[False, False, True, True]]).expand(len(x), -1)
        x = x if batch_first else x.transpose(0, 1)
        mask = hidden if padded else None
        out = HEADS[batch_first](x, x, x, key_padding_mask=mask, **arguments)[0]
        return out if batch_first else out.transpose(0, 1)

    return function


ATTENTION: dict[str, Example] = {
    "scaled_dot_product_attention": attended(),
    "scaled_dot_product_attention scaled": attended(scale=0.3, is_causal=True),
    "scaled_dot_product_attention boolean": attended(attn_mask=CAUSAL),
    "scaled_dot_product_attention bias": attended(attn_mask=inputs(1, 2, 4, 4)),
    "scaled_dot_product_attention -inf": attended(attn_mask=floating(CAUSAL, -torch.inf)),
    "scaled_dot_product_attention min": attended(
        attn_mask=floating(BLIND, torch.finfo(torch.float64).min)
    ),
    "scaled_dot_product_attention blind": attended(attn_mask=BLIND),
    "scaled_dot_product_attention blind -inf": attended(attn_mask=floating(BLIND, -torch.inf)),
    "scaled_dot_product_attention grouped": grouped,
    "softmax blind": written_out,
    "multi_head_attention_forward": own_heads(batch_first=True),
    "multi_head_attention_forward (T, B, D)": own_heads(batch_first=False, need_weights=False),
    "multi_head_attention_forward masks": own_heads(
        batch_first=True, padded=True, attn_mask=~CAUSAL
    ),
}


RECURRENT = {
    "lstm": nn.LSTM(6, 3, num_layers=2, bidirectional=True, batch_first=True),
    "lstm projected": nn.LSTM(6, 5, proj_size=3, bias=False),
    "gru": nn.GRU(6, 3, bidirectional=True),
    "gru layers": nn.GRU(6, 3, num_layers=2, batch_first=True, bias=False),
}


def recurrent(name: str) -> Example:
    """Outputs at all steps, and the last states, of a recurrent layer."""
    layer = seeded(RECURRENT[name], 5)

    def function(x: Tensor) -> Tensor:
        out, last = layer(x if layer.batch_first else x.transpose(0, 1))
        states = [last] if isinstance(last, Tensor) else last
        ends = torch.cat([state.transpose(0, 1).flatten(1) for state in states], dim=1)
        out = out if layer.batch_first else out.transpose(0, 1)
        return torch.cat([out.flatten(1), ends], dim=1)

    return function


FUNCTIONS: dict[str, Example] = {
    **ACTIVATIONS,
    **ATTENTION,
    **{name: recurrent(name) for name in RECURRENT},
}


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
