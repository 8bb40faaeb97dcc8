"""Examples of elementwise functions, softmax and attention; see `operator_examples`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from toy_networks import inputs, seeded

Example = Callable[[Tensor], Tensor]
MASK = inputs(4, 6, seed=2) > 0
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
