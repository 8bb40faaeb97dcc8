"""How well an explainer agrees with its teacher on held-out examples."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from transexplain.learned.facts import Agreement
from transexplain.learned.network import Explainer
from transexplain.models.base import Encoded, LoadedModel
from transexplain.models.call import eval_mode
from transexplain.models.states import read_states
from transexplain.rank_correlation import is_constant, rank_similarity
from transexplain.training.examples import ExampleBatch
from transexplain.training.teaching import Lesson
from transexplain.types import own_positions

#: positions below which a rank correlation is mostly chance
MIN_POSITIONS = 3
#: an example batch, and its lesson
Taught = tuple[ExampleBatch, Lesson]


def agreement_of(
    model: LoadedModel, explainer: Explainer, taught: Iterable[Taught]
) -> Agreement | None:
    """Agreement over every item and class that the teacher explained; None where there is none.

    Items with fewer than three positions of their own are left out, and so are maps of the
    teacher that are constant and rank nothing.
    """
    ranks: list[tuple[int, float]] = []
    errors: list[float] = []
    items = 0
    with eval_mode(explainer):
        for batch, lesson in taught:
            predicted = predict(model, explainer, batch)
            for row, encoded in enumerate(batch.batch.encoded):
                found = list(_compared(predicted[row], lesson, row, encoded))
                items += bool(found)
                ranks += [(index, rank) for index, rank, _ in found]
                errors += [error for *_, error in found]
    if not ranks:
        return None
    return Agreement(
        items=items,
        rank_correlation=_mean([rank for _, rank in ranks]),
        relative_error=float(np.median(errors)),
        by_class={
            name: _mean([rank for index, rank in ranks if index == place])
            for place, name in enumerate(model.classes)
            if any(index == place for index, _ in ranks)
        },
    )


@torch.no_grad()
def predict(model: LoadedModel, explainer: Explainer, batch: ExampleBatch) -> NDArray[np.float64]:
    """(B, T, C) the relevance that an explainer in eval mode predicts, in logits."""
    states = read_states(model, batch.batch, explainer.architecture.layers)
    predicted = explainer(states.hidden, states.mask, states.own, states.logits)
    found: NDArray[np.float64] = predicted.relevance.double().cpu().numpy()
    return found


def _compared(
    predicted: NDArray[np.float64], lesson: Lesson, row: int, encoded: Encoded
) -> Iterable[tuple[int, float, float]]:
    """Class, rank correlation and relative error for every class that is known of one item."""
    own = own_positions(encoded.features, encoded.length)
    if own.sum() < MIN_POSITIONS:
        return
    for index in torch.nonzero(lesson.known[row]).flatten().tolist():
        taught = lesson.relevance[row, : len(own), index].double().cpu().numpy()[own]
        if is_constant(taught):
            continue
        learnt = predicted[: len(own), index][own]
        error = float(np.linalg.norm(learnt - taught) / np.linalg.norm(taught))
        yield index, rank_similarity(learnt, taught), error


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
