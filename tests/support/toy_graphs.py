"""Small graph transformers with random weights, and random connected graphs for them."""

from typing import Any

import numpy as np
import torch
from scipy.sparse.csgraph import shortest_path
from torch import Tensor, nn
from torch.nn import functional as F
from toy_networks import seeded

FAR = 6  # distances from here on are one


class Layer(nn.Module):
    """Attention with a bias on its scores, then an MLP; norms first."""

    def __init__(self, hidden: int, heads: int, *, fused: bool = True) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)
        self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        batch, nodes, hidden = x.shape
        shape = (batch, nodes, 3, self.heads, hidden // self.heads)
        q, k, v = self.qkv(self.first(x)).view(shape).permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        else:
            scores = q @ k.transpose(-1, -2) / (q.shape[-1] ** 0.5)
            mixed = (scores if bias is None else scores + bias).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, nodes, hidden))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Biased(nn.Module):
    """Reads an optional bias on the attention scores; the mean over nodes is classified."""

    def __init__(self, *, width: int = 5, hidden: int = 12, heads: int = 3, fused: bool = True):
        super().__init__()
        self.embed = nn.Linear(width, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, fused=fused) for _ in range(2))
        self.head = nn.Linear(hidden, 3)

    def forward(
        self,
        node_features: Tensor,
        attention_bias: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        bias = None
        if attention_bias is not None:
            bias = attention_bias if attention_bias.ndim == 4 else attention_bias[:, None]
        if attention_mask is not None:
            hidden = torch.zeros_like(attention_mask, dtype=node_features.dtype)
            hidden = hidden.masked_fill(attention_mask == 0, -torch.inf)[:, None, None]
            bias = hidden if bias is None else bias + hidden
        x = self.embed(node_features)
        for layer in self.layers:
            x = layer(x, bias)
        return self.head(self.pooled(x, attention_mask))

    def pooled(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return x.mean(1)
        weights = mask.to(x.dtype)[..., None]
        return (x * weights).sum(1) / weights.sum(1)


class Unmasked(Biased):
    """Takes no mask, so graphs of several sizes cannot share a batch."""

    def forward(self, node_features: Tensor, attention_bias: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return super().forward(node_features, attention_bias)


class Graphormer(nn.Module):
    """Looks its bias up by distance, adds an embedding of degrees and a virtual node in front."""

    def __init__(self, *, width: int = 5, hidden: int = 12, heads: int = 3, fused: bool = True):
        super().__init__()
        self.embed, self.centrality = nn.Linear(width, hidden), nn.Embedding(8, hidden)
        self.spatial = nn.Embedding(FAR + 2, heads)
        self.virtual = nn.Parameter(torch.zeros(1, 1, hidden))
        self.layers = nn.ModuleList(Layer(hidden, heads, fused=fused) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, 3)

    def forward(
        self, x: Tensor, distances: Tensor, degrees: Tensor, attention_mask: Tensor
    ) -> Tensor:
        nodes = self.embed(x) + self.centrality(degrees)
        h = torch.cat([self.virtual.expand(len(x), -1, -1), nodes], dim=1)
        places = F.pad(distances.clamp(max=FAR), (1, 0, 1, 0), value=FAR + 1)
        hidden = F.pad(attention_mask, (1, 0), value=1)[:, None, None] == 0
        bias = self.spatial(places).permute(0, 3, 1, 2).masked_fill(hidden, -torch.inf)
        for layer in self.layers:
            h = layer(h, bias)
        return self.head(self.norm(h)[:, 0])


def toy(kind: type[nn.Module], **options: Any) -> nn.Module:
    return seeded(kind(**options))


def graph(nodes: int, *, seed: int = 0, width: int = 5) -> dict[str, Any]:
    """A random connected graph: features, adjacency, distances and degrees as numpy arrays."""
    random = np.random.default_rng([seed, nodes])
    joined = random.random((nodes, nodes)) < 0.2
    joined |= np.eye(nodes, k=1, dtype=bool)
    joined |= joined.T
    np.fill_diagonal(joined, False)
    return {
        "features": random.normal(size=(nodes, width)),
        "adjacency": joined,
        "distances": shortest_path(joined, unweighted=True).astype(np.int64),
        "degrees": joined.sum(axis=1).clip(max=7),
    }


def biased_item(nodes: int, *, seed: int = 0, heads: int = 0) -> dict[str, Any]:
    """An item of `Biased`: bias (T, T), or (H, T, T) with `heads`."""
    made = graph(nodes, seed=seed)
    bias = -0.5 * made["distances"]
    if heads:
        bias = np.stack([bias * (head + 1) for head in range(heads)])
    return {"node_features": made["features"], "attention_bias": bias}


def graphormer_item(nodes: int, *, seed: int = 0) -> dict[str, Any]:
    made = graph(nodes, seed=seed)
    return {"x": made["features"], "distances": made["distances"], "degrees": made["degrees"]}
