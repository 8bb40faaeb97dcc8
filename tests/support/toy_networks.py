"""Small networks with every bias non-zero, and a runner that taps their input."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transexplain.engine.composites import composite
from transexplain.engine.propagate import Propagation, explained_sums, propagate

DTYPE = torch.float64


class TinyEncoder(nn.Module):
    """One attention block with norm, residuals and a gated or plain MLP, and a pooled head."""

    def __init__(self, *, hidden: int = 12, heads: int = 3, classes: int = 4, fused: bool = True):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.query, self.key, self.value, self.output = (
            nn.Linear(hidden, hidden) for _ in range(4)
        )
        self.up, self.down = nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)
        self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.pooler, self.head = nn.Linear(hidden, hidden), nn.Linear(hidden, classes)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.output(self.attend(self.first(x), mask))
        x = x + self.down(F.gelu(self.up(self.second(x))))
        return self.head(torch.tanh(self.pooler(x[:, 0])))

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, hidden = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        bias = None if mask is None else mask[:, None, None, :]
        if self.fused:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        else:
            scores = q @ k.transpose(-1, -2) / (q.shape[-1] ** 0.5)
            if bias is not None:
                scores = scores.masked_fill(~bias, torch.finfo(scores.dtype).min)
            out = scores.softmax(-1) @ v
        return out.transpose(1, 2).reshape(batch, length, hidden)


def seeded(module: nn.Module, seed: int = 0, dtype: torch.dtype = DTYPE) -> nn.Module:
    """The module in evaluation mode with random weights and no zero bias."""
    generator = torch.Generator().manual_seed(seed)
    module = module.to(dtype).eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            shift = 1.0 if parameter.dim() == 1 and name.endswith("weight") else 0.0
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(0.4 * noise + shift)
    return module


def inputs(*shape: int, seed: int = 1, dtype: torch.dtype = DTYPE) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def run(
    function: Callable[[Tensor], Tensor], x: Tensor, name: str, *, in_encoder: bool = True
) -> Propagation:
    """Propagate through `function` with `x` as the input layer."""

    def forward(taps):
        h = taps.input_layer(x)
        if in_encoder:
            taps.encoder_begins()
        return function(h)

    return propagate(forward, composite(name), items=x.shape[0])


def close(passes: Propagation, relevance: Tensor, seed: Tensor):
    """The ledgers of the latest pass, with every position counted as an input."""
    flat = relevance.flatten(1).numpy()
    explained = explained_sums(passes.composite, passes.logits, seed.double().numpy())
    return passes.book.close(flat, 0 * flat[:, :1], explained)


def one_hot(logits: Tensor, index: int) -> Tensor:
    seed = torch.zeros_like(logits)
    seed[:, index] = 1.0
    return seed
