"""From weights of features to attributions: the last step of every perturbation method."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from transexplain.errors import ConfigurationError
from transexplain.methods.at_input_layer import as_array, is_double
from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Resolve,
    SeedRelevance,
    explain_targets,
    seed_of,
)
from transexplain.methods.presence import Baseline, Over, Presence
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.types.items import ResolvedTarget


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """What a method found for one item."""

    weights: Array  #: (F, K) of every feature for every logit that a target reads, see `Presence`
    nothing: Array | None = None  #: (K,) the logits with every feature absent, where they count
    note: str = ""


#: the model as a function of presence -> an Estimate for each of B items
Estimator = Callable[[Presence], Sequence[Estimate]]


def explain_presence(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    estimator: Estimator,
    *,
    method: str,
    baseline: Baseline,
    over: Over,
) -> BatchExplanation:
    """Explain every target from one estimate over the logits: targets cost no forward pass.

    Args:
        model, batch, resolve, method: B items, and the name in the registry.
        estimator: linear in the logits that it is given.
        baseline: see `absence.absence`.
        over: see `presence.Over`.

    Returns relevance in logits; 0 at special positions, which are never absent. Raises
    ConfigurationError over pixels: relevance is of positions.
    """
    if over == "pixels":
        raise ConfigurationError(
            f"over='pixels' is for curves of an evaluation; {method} explains tokens: the patches "
            "of a picture"
        )
    with torch.no_grad():
        logits = model.logits(batch)
    numbers = as_array(logits)
    targets = resolve(numbers)
    read = _read(targets, numbers.shape)
    presence = Presence.of(model, batch, numbers, read, baseline=baseline, over=over)
    take = partial(_of_seed, presence, estimator(presence))
    mark = CommonFields(method=method, at="inputs", unit="logits", double=is_double(logits))
    return explain_targets(batch, numbers, lambda _logits: targets, take, mark)


def _of_seed(
    presence: Presence, estimates: Sequence[Estimate], seed: Array, _last: bool
) -> SeedRelevance:
    width = max(encoded.length for encoded in presence.batch.encoded)
    coefficients = seed.reshape(len(seed), -1)[:, presence.classes]
    pairs = list(zip(estimates, coefficients, strict=True))
    positions = [
        presence.spread(row, one.weights @ wanted, width) for row, (one, wanted) in enumerate(pairs)
    ]
    notes = [_notes(presence.absent.note, one, wanted) for one, wanted in pairs]
    return SeedRelevance(np.stack(positions), notes=notes)


def _read(targets: Sequence[Sequence[ResolvedTarget]], shape: tuple[int, ...]) -> list[int]:
    """Which logits of an item some target reads, in order; they are numbered row by row."""
    seed = np.zeros(shape[1:])
    for target in (target for of_item in targets for target in of_item):
        seed += np.abs(seed_of([target], (1, *shape[1:])))[0]
    return np.flatnonzero(seed).tolist()


def _notes(absent: str, estimate: Estimate, coefficients: Array) -> tuple[str, ...]:
    notes = [absent]
    if estimate.nothing is not None:
        base = float(estimate.nothing @ coefficients)
        notes.append(f"with every position absent the logit is {base:.6g}")
    return (*notes, estimate.note) if estimate.note else tuple(notes)
