"""DeepLIFT's rescale rule on every operator, averaged over references."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from transexplain.engine.rescale import Rescaled, rescaled
from transexplain.errors import EngineError
from transexplain.methods.at_leaf import (
    add_rows,
    check_count,
    check_share,
    explain_at_leaf,
    like_rows,
    several,
)
from transexplain.methods.base import BatchExplanation, Resolve
from transexplain.methods.baselines import Noise, baseline_of, value_range
from transexplain.methods.leaf_forward import LeafForward, as_array, repeated
from transexplain.methods.records import Array
from transexplain.methods.relevance import Leaf
from transexplain.models.base import Batch, LoadedModel
from transexplain.models.invariance import tolerance_of

#: how far the logits of both passes may lie apart, as a share of the largest
_APART = 1e-3


def explain(  # noqa: PLR0913 - each parameter of a method is a keyword
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    at: Leaf | None = None,
    references: int = 4,
    baseline: str | None = None,
    sigma: float = 0.05,
    seed: int = 0,
) -> BatchExplanation:
    """DeepLIFT with several references (Shrikumar et al. 2017; Lundberg and Lee 2017, section 4.2).

    Every operator gives its difference from the reference to its inputs (`engine.rescale_rules`),
    so the relevance of all positions sums to f(x) minus the mean of f over the references,
    whatever the model's activations, norms and attention are. The first reference is the baseline
    (`references=1` is plain DeepLIFT), the others have normal noise of `sigma` times the range of
    the item's own values on it.

    Args:
        model: any loaded model whose operators have a rule.
        batch: B items.
        resolve: (B, C) logits -> targets per item.
        method: name in the registry.
        at: the leaf; default: the input of the first block, where there is one.
        references: how many are averaged.
        baseline: texts: `mask`, `pad`, `unk`; pictures: `mean`, `black`, `blur`; both: `zero`;
            default: the first that the model can make; see `baseline_of`.
        sigma: the noise on the baseline, as a share of the range of an item's values.
        seed: with the item's id it decides the noise, whatever the batch.

    Returns:
        Signed relevance (T,) or (rows, cols) in `logits`.

    Raises:
        ConfigurationError: `references` below 1, a negative `sigma`, or a baseline that the model
            cannot make.
        EngineError: an operator without a rule, or a model that decides by its values in Python.
    """
    check_count("references", references)
    check_share("sigma", sigma)
    passed = LeafForward.of(model, batch, at)
    base, deviation = baseline_of(passed, baseline), sigma * value_range(passed)
    rows = several(passed, references)

    def drawn() -> Iterator[tuple[slice, Tensor]]:
        noise = Noise(passed, seed, method)
        for part in passed.chunks(rows):
            own, noisy = rows[part], torch.arange(part.start, part.stop) >= len(batch.encoded)
            away = like_rows(noisy, passed) * deviation[own] * noise.normal(own)
            yield part, base[own] + away

    with torch.no_grad():
        there = [as_array(passed(reference, rows[part])) for part, reference in drawn()]
    expected = np.concatenate(there)

    def relevance(target: Tensor) -> Tensor:
        total = torch.zeros_like(passed.start, dtype=torch.float64)
        for part, reference in drawn():
            passes = _checked(passed, rows[part], reference, expected[part], method)
            add_rows(total, rows[part], passes.relevance(target[rows[part]]) / references)
        return total

    mean = expected.reshape(references, *passed.logits.shape).mean(axis=0)
    difference = passed.logits - mean
    return explain_at_leaf(passed, resolve, relevance, method=method, difference=difference)


def _checked(
    passed: LeafForward, rows: Tensor, reference: Tensor, expected: Array, method: str
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
    tolerance = max(_APART, tolerance_of(passed.model))
    for found, wanted in ((passes.logits, own), (passes.reference_logits, expected)):
        if np.abs(as_array(found) - wanted).max() > tolerance * np.abs(wanted).max():
            raise EngineError(
                f"{passed.model.ref.source} decides in Python by the values of its tensors, and "
                f"otherwise at the reference than at the item, so {method!r} has no multipliers; "
                "use 'integrated-gradients'"
            )
    return passes
