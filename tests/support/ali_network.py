"""The attention-only network of Ali et al. 2022, described by the README of its outputs.

Three blocks of x <- norm(W_o attention(x) + b_o + x) without a scale on the scores, a mask or a
feed-forward part; the norm divides by (unbiased std + 1e-12) and has no weights.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

HEADS, BLOCKS = 4, 3


class AliNetwork(nn.Module):
    """From embedded tokens (B, T, D) to logits (B, C)."""

    def __init__(self, hidden: int, classes: int) -> None:
        super().__init__()
        self.attention_layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    name: nn.Linear(hidden, hidden)
                    for name in ("query", "key", "value", "output_dense")
                }
            )
            for _ in range(BLOCKS)
        )
        self.pooler, self.classifier = nn.Linear(hidden, hidden), nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.attention_layers:
            q, k, v = (self.heads(block[name](x)) for name in ("query", "key", "value"))
            weights = torch.softmax(q @ k.transpose(-1, -2), dim=-1)
            joined = (weights @ v).transpose(1, 2).flatten(2)
            x = self.norm(block["output_dense"](joined) + x)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))

    @staticmethod
    def heads(x: Tensor) -> Tensor:
        """(B, T, D) -> (B, H, T, D / H)."""
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    @staticmethod
    def norm(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (x.std(-1, keepdim=True) + 1e-12)


def load_ali_network(folder: Path) -> tuple[AliNetwork, dict[str, Tensor]]:
    """The network and all weights (those of the embeddings included), in float64."""
    weights = {
        name: value.double() for name, value in load_file(folder / "model.safetensors").items()
    }
    classes, hidden = weights["classifier.weight"].shape
    network = AliNetwork(hidden, classes).double()
    renamed = {
        name.replace("output.dense", "output_dense").replace("pooler.dense", "pooler"): value
        for name, value in weights.items()
    }
    network.load_state_dict({name: renamed[name] for name in network.state_dict()})
    return network.eval(), weights


def embedded(weights: dict[str, Tensor], ids: Tensor) -> Tensor:
    """Words, type 0 and positions, and an affine layer norm: (T,) -> (1, T, D)."""
    total = (
        weights["embeds.word_embeddings.weight"][ids]
        + weights["embeds.token_type_embeddings.weight"][0]
        + weights["embeds.position_embeddings.weight"][: len(ids)]
    )
    norm = (weights["embeds.LayerNorm.weight"], weights["embeds.LayerNorm.bias"])
    return nn.functional.layer_norm(total, total.shape[-1:], *norm, 1e-12)[None]
