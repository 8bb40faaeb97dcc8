"""A small Graphormer (Ying et al. 2021) in plain torch, as a user would write it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FAR = 8  # distances from here on count as one
DEGREES = 16


class Layer(nn.Module):
    """Attention whose scores get a bias (Eq. 6), then an MLP; norms come first (Eq. 8, 9)."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.project, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 2 * hidden), nn.GELU(), nn.Linear(2 * hidden, hidden)
        )

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D), under a bias (B, H, T, T)."""
        batch, nodes, hidden = x.shape
        split = (batch, nodes, 3, self.heads, hidden // self.heads)
        q, k, v = self.project(self.first(x)).view(split).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, nodes, hidden))
        return x + self.mlp(self.second(x))


class Graphormer(nn.Module):
    """Reads nodes, their degrees (Eq. 5) and their distances (Eq. 6); a virtual node answers."""

    def __init__(
        self, *, width: int, classes: int, hidden: int = 48, heads: int = 4, layers: int = 2
    ) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.centrality = nn.Embedding(DEGREES, hidden)
        self.spatial = nn.Embedding(FAR + 2, heads)  # the last: to and from the virtual node
        self.virtual = nn.Parameter(0.02 * torch.randn(1, 1, hidden))
        self.layers = nn.ModuleList(Layer(hidden, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, classes)

    def forward(
        self, node_features: Tensor, distances: Tensor, degrees: Tensor, attention_mask: Tensor
    ) -> Tensor:
        """Logits (B, C) of graphs (B, T, F), distances (B, T, T), degrees and mask (B, T)."""
        nodes = self.embed(node_features) + self.centrality(degrees.clamp(max=DEGREES - 1))
        x = torch.cat([self.virtual.expand(len(nodes), -1, -1), nodes], dim=1)
        # one row and one column more, for the virtual node
        places = F.pad(distances.clamp(max=FAR), (1, 0, 1, 0), value=FAR + 1)
        padding = F.pad(attention_mask, (1, 0), value=1)[:, None, None] == 0
        bias = self.spatial(places).permute(0, 3, 1, 2).masked_fill(padding, -torch.inf)
        for layer in self.layers:
            x = layer(x, bias)
        return self.head(self.norm(x)[:, 0])
