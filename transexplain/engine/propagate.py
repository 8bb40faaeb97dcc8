"""Forward once, then one backward pass per explained target."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from transexplain.engine.composites import Composite
from transexplain.engine.ledger import LedgerBook
from transexplain.engine.mode import RelevanceMode
from transexplain.errors import EngineError


class Forward(Protocol):
    """Runs the model and lets the engine tap it; returns logits (B, C)."""

    def __call__(self, taps: RelevanceMode) -> Tensor:
        """Call `taps.leaf(tensor)` at the leaf and `taps.encoder_begins()` at the first block."""


@dataclass(frozen=True, slots=True)
class Propagation:
    """A forward pass whose graph holds the composite's rules; each call of `relevance` is one
    backward pass through it."""

    logits: Tensor  #: (B, C), in the graph
    leaf: Tensor  #: (B, ...), what relevance is measured at
    book: LedgerBook  #: constants and losses of the latest pass

    def relevance(self, seed: Tensor, *, last: bool = False) -> Tensor:
        """Relevance of every element of the leaf for sum_c seed[:, c] * logit_c.

        Args:
            seed: (B, C) coefficients.
            last: free the graph afterwards.

        Returns:
            leaf * gradient, shape of the leaf, float64, in logits.
        """
        self.book.start()
        (gradient,) = torch.autograd.grad(
            self.logits, self.leaf, seed.to(self.logits), retain_graph=not last
        )
        return self.leaf.detach().double() * gradient.double()


def propagate(forward: Forward, composite: Composite, items: int) -> Propagation:
    """Run `forward` under `composite` for a batch of `items` (B).

    Raises:
        EngineError: an operator without a rule, or logits that do not depend on the leaf.
    """
    mode = RelevanceMode(composite, items)
    with torch.enable_grad(), mode:
        logits = forward(mode)
    if mode.leaf_tensor is None:
        raise EngineError("the model's forward never reached the leaf; choose another `at`")
    if not logits.requires_grad:
        raise EngineError(
            "the logits do not depend on the leaf: the model detaches its path, or ends in a "
            "softmax. Return logits, not probabilities"
        )
    return Propagation(logits, mode.leaf_tensor, mode.book)
