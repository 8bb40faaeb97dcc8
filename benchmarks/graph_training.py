"""Trains a graph transformer on graphs: two layers, AdamW (Ali et al. 2022, appendix C)."""

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch.nn import functional as F

import transexplain as te
from benchmarks.graph_sets import Graph, GraphSet, inputs_of, labels_of
from transexplain.extras.graphs.graph_transformer import GraphTransformer
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.items import Item

BATCH = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How long and how fast to train."""

    epochs: int
    rate: float
    hidden: int = 64
    layers: int = 2
    dropout: float = 0.1
    decay: float = 0.01


RECIPES = {
    "superpixels": Recipe(epochs=14, rate=1e-3),
    "bace": Recipe(epochs=25, rate=1e-3, dropout=0.2, decay=0.05),
}


def train(given: GraphSet, recipe: Recipe, folder: Path, seed: int = 0) -> None:
    """Train and save the network of the epoch that was best on `valid`, and how good it is."""
    torch.manual_seed(seed)
    network = GraphTransformer(
        width=given.parts["train"][0]["node_features"].shape[1],
        classes=len(given.classes),
        hidden=recipe.hidden,
        layers=recipe.layers,
        edge_kinds=given.edge_kinds,
        dropout=recipe.dropout,
    )
    model = te.wrap(network, modality="nodes", classes=given.classes)
    encoded = {name: _encoded(model, part, given.edge_kinds) for name, part in given.parts.items()}
    labels = {name: labels_of(part, given.classes) for name, part in given.parts.items()}
    begun, best, kept, epoch_kept = time.perf_counter(), -np.inf, network.state_dict(), 0
    for epoch in _epochs(model, encoded["train"], labels["train"], recipe, seed):
        score = quality(logits_of(model, encoded["valid"]), labels["valid"])
        print(
            f"  epoch {epoch}: valid {_named(score)}, {time.perf_counter() - begun:.0f} s",
            flush=True,
        )
        if _first(score) > best:
            best, kept = _first(score), copy.deepcopy(network.state_dict())
            epoch_kept = epoch
    network.load_state_dict(kept)
    found = {name: quality(logits_of(model, one), labels[name]) for name, one in encoded.items()}
    facts = {name: {**one, "graphs": len(labels[name])} for name, one in found.items()}
    network.save(folder, given.classes, quality=facts, epoch=epoch_kept, epochs=recipe.epochs)


def quality(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, float]:
    """ROC AUC of two classes (absent where only one is there), and accuracy."""
    accuracy = float((logits.argmax(axis=1) == labels).mean())
    if logits.shape[1] > 2 or len(set(labels.tolist())) < 2:
        return {"accuracy": accuracy}
    scores = logits[:, 1] - logits[:, 0]
    return {"roc_auc": float(roc_auc_score(labels, scores)), "accuracy": accuracy}


def _first(score: dict[str, float]) -> float:
    return next(iter(score.values()))


def _named(score: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in score.items())


def _encoded(model: LoadedModel, part: Sequence[Graph], edge_kinds: int) -> list[Encoded]:
    items = [
        Item(id=one["id"], index=row, content=inputs_of(one, edge_kinds))
        for row, one in enumerate(part)
    ]
    found = model.encode(items)
    assert all(isinstance(one, Encoded) for one in found), found
    return found  # type: ignore[return-value]


def logits_of(model: LoadedModel, encoded: Sequence[Encoded]) -> NDArray[np.float64]:
    """(N, C) logits."""
    rows = np.argsort([one.length for one in encoded], kind="stable")  # little padding
    found = np.zeros((len(encoded), len(model.classes)))
    with torch.no_grad():
        for begin in range(0, len(rows), 4 * BATCH):
            some = rows[begin : begin + 4 * BATCH]
            batch = model.collate([encoded[row] for row in some])
            found[some] = model.logits(batch).double().numpy()
    return found


def _epochs(
    model: LoadedModel,
    encoded: Sequence[Encoded],
    labels: NDArray[np.int64],
    recipe: Recipe,
    seed: int,
) -> Iterator[int]:
    """Yield the number of every epoch when it is over."""
    random = np.random.default_rng(seed)
    size = min(BATCH, len(encoded))
    optimizer = torch.optim.AdamW(
        model.module.parameters(), lr=recipe.rate, weight_decay=recipe.decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=recipe.rate, total_steps=recipe.epochs * (len(encoded) // size)
    )
    for epoch in range(1, recipe.epochs + 1):
        model.module.train()
        order = random.permutation(len(encoded))
        for begin in range(0, len(order) - size + 1, size):
            some = order[begin : begin + size]
            batch = model.collate([encoded[row] for row in some])
            loss = F.cross_entropy(
                model.caller(model.module, batch.inputs), torch.from_numpy(labels[some])
            )
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.module.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.module.eval()
        yield epoch
