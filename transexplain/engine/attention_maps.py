"""Attention weights as they were met, with the relevance that arrives at them."""

from dataclasses import dataclass

from torch import Tensor

from transexplain.engine.booking import when_arrives


@dataclass(slots=True, eq=False)
class AttentionMap:
    """One softmax over keys, and what arrives at it in the latest pass."""

    weights: Tensor  #: (B, H, T, T)
    relevance: Tensor | None = None  #: same shape


def recorded(weights: Tensor) -> AttentionMap:
    """A map that takes the relevance of its weights (in the graph) in every backward pass."""
    kept = AttentionMap(weights.detach())

    def keep(relevance: Tensor) -> None:
        kept.relevance = relevance.detach()

    when_arrives(weights, keep)
    return kept
