"""A graph transformer (Graphormer, Ying et al. 2021) that is saved to a directory and loaded again.

Any other graph model in memory is explained through `wrap`; this one also serves the command line
and workers, which load a model by its directory.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from transexplain.errors import ModelLoadError
from transexplain.extras.graphs.graph_encoder import assemble_nodes
from transexplain.models.assemble import Origin, unique_names
from transexplain.models.configs import Budget, size_of
from transexplain.models.hub import digests_of_folder, fill, read_weights, weight_files
from transexplain.models.loaded_model import LoadedModel

#: degrees from the last of these on count as one
DEGREES = 16
_ARGUMENTS = "graph_args"
#: the arguments in a file and the largest value of each; all are whole numbers of at least 1
_LARGEST = {
    "width": 1 << 16,
    "hidden": 1 << 14,
    "heads": 1 << 8,
    "layers": 1 << 8,
    "far": 1 << 12,
}
#: those that may also be 0
_OPTIONAL = {"edge_kinds": 1 << 12}


class GraphLayer(nn.Module):
    """Attention whose scores get a bias (Eq. 6), then an MLP; norms come first (Eq. 8, 9)."""

    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.project, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 2 * hidden), nn.GELU(), nn.Linear(2 * hidden, hidden)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D), under a bias (B, H, T, T)."""
        batch, nodes, hidden = x.shape
        split = (batch, nodes, 3, self.heads, hidden // self.heads)
        q, k, v = self.project(self.first(x)).view(split).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.drop(self.out(mixed.transpose(1, 2).reshape(batch, nodes, hidden)))
        result: Tensor = x + self.drop(self.mlp(self.second(x)))
        return result


class GraphTransformer(nn.Module):
    """Reads nodes, their degrees (Eq. 5), distances (Eq. 6) and edges; a virtual node answers.

    Ying et al. 2021, section 3. The kind of the edge between two nodes is a bias like their
    distance; the paper averages over the edges of the shortest path instead.
    """

    def __init__(
        self,
        *,
        width: int,
        classes: int,
        hidden: int = 64,
        heads: int = 4,
        layers: int = 4,
        far: int = 8,
        edge_kinds: int = 0,
        dropout: float = 0.0,
    ) -> None:
        """Random weights; `save` writes what `load_model` reads.

        Args:
            width: F, features of a node.
            classes: C.
            hidden: D, a multiple of `heads`.
            heads: H.
            layers: L.
            far: distances from here on count as one, also those of nodes that no path joins.
            edge_kinds: kinds of edges, counted from 1; 0: `edge_kinds` is no input.
            dropout: in training only, and not saved.
        """
        super().__init__()
        if hidden % heads:
            raise ValueError(f"hidden={hidden} is no multiple of heads={heads}")
        self.arguments = {
            "width": width,
            "hidden": hidden,
            "heads": heads,
            "layers": layers,
            "far": far,
            "edge_kinds": edge_kinds,
        }
        self.embed = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.centrality = nn.Embedding(DEGREES, hidden)
        self.spatial = nn.Embedding(far + 2, heads)  # the last: to and from the virtual node
        self.edges = nn.Embedding(edge_kinds + 1, heads) if edge_kinds else None  # 0: no edge
        self.virtual = nn.Parameter(0.02 * torch.randn(1, 1, hidden))
        self.layers = nn.ModuleList(GraphLayer(hidden, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, classes)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)  # small beside what the features say

    def forward(
        self,
        node_features: Tensor,
        distances: Tensor,
        degrees: Tensor,
        edge_kinds: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, C).

        Args:
            node_features: (B, T, F).
            distances: (B, T, T) edges on the shortest path between two nodes, whole numbers.
            degrees: (B, T) edges of each node.
            edge_kinds: (B, T, T) the kind of the edge between two nodes, 0: none; only for a
                network that was built with kinds.
            attention_mask: (B, T) 1: a node, 0: padding; default: all are nodes.
        """
        arguments = self.arguments
        if (edge_kinds is None) != (self.edges is None):
            kinds = arguments["edge_kinds"]
            wanted = f"needs edge_kinds, of {kinds} kinds" if kinds else "takes no edge_kinds"
            raise ValueError(f"this graph transformer {wanted}")
        rank = degrees.clamp(max=DEGREES - 1)
        nodes = self.embed(node_features) + self.centrality(rank)
        x = torch.cat([self.virtual.expand(len(nodes), -1, -1), nodes], dim=1)
        # one row and one column more, for the virtual node
        far = arguments["far"]
        bias = self.spatial(F.pad(distances.clamp(max=far), (1, 0, 1, 0), value=far + 1))
        if self.edges is not None and edge_kinds is not None:
            bias = bias + self.edges(F.pad(edge_kinds, (1, 0, 1, 0)))
        bias = bias.permute(0, 3, 1, 2)
        if attention_mask is not None:
            padding = F.pad(attention_mask, (1, 0), value=1)[:, None, None] == 0
            bias = bias.masked_fill(padding, -torch.inf)
        for layer in self.layers:
            x = layer(x, bias)
        logits: Tensor = self.head(self.norm(x)[:, 0])
        return logits

    def save(self, folder: str | Path, classes: Sequence[str], **facts: Any) -> None:
        """Write `config.json` and `model.safetensors` to a directory, which is made.

        Args:
            folder: that `load_model` then takes.
            classes: (C,) names by index; ValueError where they are not as many as the logits.
            facts: further entries of config.json, such as the accuracy.
        """
        names = [str(name) for name in classes]
        if len(names) != self.head.out_features:
            raise ValueError(f"{len(names)} class names for {self.head.out_features} classes")
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        weights = {
            name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()
        }
        (place / "model.safetensors").write_bytes(save(weights))
        config = {**facts, _ARGUMENTS: self.arguments, "classes": names}
        text = json.dumps(config, indent=1, sort_keys=True) + "\n"
        (place / "config.json").write_text(text, encoding="utf-8")


def load_folder(
    folder: Path,
    config: Mapping[str, Any],
    *,
    source: str,
    dtype: torch.dtype,
    device: torch.device | None,
) -> LoadedModel:
    """The graph transformer that `GraphTransformer.save` wrote to a directory.

    Raises ModelLoadError for what config.json lacks or asks, and for weights that do not fit it.
    """
    if device is None:
        raise ModelLoadError(
            f"{source} is a graph transformer, which lies on one device; give device='cuda:0' or "
            "'cpu'"
        )
    where = str(folder / "config.json")
    arguments, classes = _checked(config, where)
    files = weight_files(folder)
    weights = read_weights(files)
    # initial weights must not move the user's random state
    with torch.random.fork_rng(devices=[]), Budget(size_of(weights), where):
        module = GraphTransformer(classes=len(classes), **arguments)
    fill(module, weights, str(folder))
    digest, digested = digests_of_folder(folder)
    origin = Origin(source=source, digest=digest, device=str(device), files=digested)
    return assemble_nodes(
        module.to(device=device, dtype=dtype).eval(), classes=unique_names(classes), origin=origin
    )


def _checked(config: Mapping[str, Any], where: str) -> tuple[dict[str, int], list[str]]:
    """The arguments and the class names; ModelLoadError names the first that may not be there."""
    given, classes = config[_ARGUMENTS], config.get("classes")
    if not isinstance(given, Mapping):
        raise ModelLoadError(f"{where}: {_ARGUMENTS} is no object")
    if not isinstance(classes, list) or not classes:
        raise ModelLoadError(f"{where}: classes is no list of class names, by index")
    if "width" not in given:
        raise ModelLoadError(f"{where}: {_ARGUMENTS} lacks width, the features of a node")
    for name, value in given.items():
        least = 0 if name in _OPTIONAL else 1
        most = {**_LARGEST, **_OPTIONAL}.get(name)
        if most is None:
            known = ", ".join((*_LARGEST, *_OPTIONAL))
            raise ModelLoadError(f"{where}: {_ARGUMENTS} has no {name!r}; it has: {known}")
        if type(value) is not int or not least <= value <= most:
            raise ModelLoadError(
                f"{where}: {name} is {str(value)[:60]}; it is a whole number from {least} to "
                f"{most:,}"
            )
    if given.get("hidden", 64) % given.get("heads", 4):
        raise ModelLoadError(f"{where}: hidden is no multiple of heads")
    return dict(given), [str(name) for name in classes]
