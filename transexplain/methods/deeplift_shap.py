"""DeepLIFT's rescale rule on every operator, averaged over references."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transexplain.engine.rescale_mode import Rescaled, rescaled
from transexplain.errors import EngineError
from transexplain.methods.at_input_layer import (
    InputLayerForward,
    add_rows,
    as_array,
    check_count,
    check_share,
    explain_at_input_layer,
    like_rows,
    repeated,
    several,
)
from transexplain.methods.baselines import Noise, baseline_of, value_range
from transexplain.methods.batch_explanation import Array, BatchExplanation, Resolve
from transexplain.methods.relevance import InputLayer
from transexplain.models.invariance import tolerance_of
from transexplain.models.loaded_model import Batch, LoadedModel

#: how far the logits of both passes may lie apart, as a share of the largest
_APART = 1e-3


def explain(  # noqa: PLR0913 - each parameter of a method is a keyword
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: InputLayer | None = None,
    references: int = 4,
    baseline: str | None = None,
    sigma: float = 0.05,
    seed: int = 0,
) -> BatchExplanation:
    """DeepLIFT with several references (Shrikumar et al. 2017; Lundberg and Lee 2017, section 4.2).

    Every operator gives its difference to its inputs (`engine.rescale_rules`), so all positions,
    special ones too, sum to f(x) minus the mean of f over the references, whatever the operators.

    Args:
        model, batch, resolve, method: B items, and the name in the registry.
        at: the input layer; default: the input of the first block, where there is one.
        references: how many are averaged; 1 is plain DeepLIFT.
        baseline: the first reference; see `baseline_of`; default: what the model can make.
        sigma: the others have normal noise on it, of this share of the range of an item's values.
        seed: with the item's id it decides the noise, whatever the batch.

    Returns signed relevance (T,) or (rows, cols) in `logits`. Raises ConfigurationError for wrong
    parameters and a baseline that the model cannot make, EngineError for what has no rule.
    """
    check_count("references", references)
    check_share("sigma", sigma)
    passed = InputLayerForward.of(model, batch, at)
    around = _Around(passed, baseline_of(passed, baseline), sigma, references, seed)
    with torch.no_grad():
        logits = np.concatenate([as_array(passed(there, rows)) for rows, there in around])

    def relevance(target: Tensor) -> Tensor:
        begin, total = 0, torch.zeros_like(passed.start, dtype=torch.float64)
        for rows, reference in around:
            end = begin + len(rows)
            passes = _checked(passed, rows, reference, logits[begin:end], method)
            add_rows(total, rows, passes.relevance(target[rows]))
            begin = end
        return total / references

    difference = passed.logits - logits.reshape(references, *passed.logits.shape).mean(axis=0)
    return explain_at_input_layer(passed, resolve, relevance, method=method, difference=difference)


@dataclass(frozen=True, slots=True, eq=False)
class _Around:
    """References of every item, a chunk at a time, the same ones in every iteration."""

    passed: InputLayerForward
    base: Tensor  #: (B, ...), the first reference of every item
    sigma: float
    count: int
    seed: int

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Items (N,) of the batch and one reference (N, ...) for each."""
        rows, items = several(self.passed, self.count), len(self.base)
        noise = Noise(self.passed, self.seed, "references")
        deviation = self.sigma * value_range(self.passed)
        for part in self.passed.chunks(rows):
            own, noisy = rows[part], torch.arange(part.start, part.stop) >= items
            away = like_rows(noisy, self.passed) * deviation[own] * noise.normal(own)
            yield own, self.base[own] + away


def _checked(
    passed: InputLayerForward, rows: Tensor, reference: Tensor, expected: Array, method: str
) -> Rescaled:
    """The pass over items `rows` (N,) and their references, whose logits are `expected` (N, C).

    Raises EngineError where the logits are others: values then reached them past every operator.
    """
    batch = repeated(passed.batch, rows)
    passes = rescaled(
        lambda taps: passed.model.run(batch, at=passed.at, taps=taps),
        passed.start[rows],
        reference,
        method=method,
    )
    own = passed.logits[rows.cpu().numpy()]
    tolerance = max(_APART, 10 * tolerance_of(passed.model))
    for logits, wanted in ((passes.logits, own), (passes.reference_logits, expected)):
        if np.abs(as_array(logits) - wanted).max() > tolerance * np.abs(wanted).max():
            raise EngineError(
                f"{passed.model.ref.source} decides in Python by the values of its tensors, and "
                f"otherwise at the reference than at the item, so {method!r} has no multipliers; "
                "use 'integrated-gradients'"
            )
    return passes
