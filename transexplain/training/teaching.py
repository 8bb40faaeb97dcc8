"""Computes the relevance of training examples by a method: the targets of a learned explainer."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transexplain.errors import ConfigurationError
from transexplain.methods import bound, unit_of
from transexplain.methods.batch_explanation import BatchExplanation
from transexplain.methods.learned_explainer import Explainer, item_scale
from transexplain.methods.learned_facts import Agreement
from transexplain.models.calling import eval_mode
from transexplain.models.hidden_states import read_states
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel
from transexplain.rank_correlation import is_constant, rank_similarity
from transexplain.training.examples import ExampleBatch
from transexplain.types.items import Attribution, ResolvedTarget, own_positions
from transexplain.types.scores import MethodSpec

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """The teacher's relevance of a batch."""

    relevance: Tensor  #: (B, T, C) in logits; 0 where it is not known
    known: Tensor  #: (B, C) classes that were explained
    constants: Tensor  #: (B, C) logit minus the sum over positions; NaN where it is not known

    def to(self, device: torch.device) -> "Lesson":
        """The same on another device."""
        parts = (self.relevance, self.known, self.constants)
        return Lesson(*(part.to(device) for part in parts))


@dataclass(frozen=True, slots=True, eq=False)
class _Taught:
    """The teacher's relevance of one item."""

    classes: tuple[int, ...]
    relevance: Array  #: (K, T)
    logits: Array  #: (K,)
    own: NDArray[np.bool_]  #: (T,) positions that are not special


class Teacher:
    """A relevance method in logits, which explains the predicted class and some of the others.

    The predicted class leads and the others are sampled by the item, so that an explainer sees all
    classes and the cost does not grow with their number.
    """

    def __init__(
        self, method: MethodSpec, model: LoadedModel, *, classes: int | None = 2, seed: int = 0
    ) -> None:
        if unit_of(method.name) != "logits" or method.name == "learned":
            raise ConfigurationError(
                f"an explainer learns relevance in logits, and method {method.name!r} does not "
                "measure that; choose `lrp` or another method in logits"
            )
        count = len(model.classes)
        self.model, self.method = model, method
        self.classes = count if classes is None else min(classes, count)
        self._run: Callable[..., BatchExplanation] = bound(method)
        self._seed = seed

    def lesson(self, batch: Batch, rows: Sequence[int]) -> Lesson:
        """The lesson of a batch whose items are `rows` of the examples."""
        return assembled(self.teach(batch, rows), len(self.model.classes)).to(batch.lengths.device)

    def teach(self, batch: Batch, rows: Sequence[int]) -> list[_Taught]:
        """The method's relevance of every item of a batch.

        Raises ConfigurationError where it does not measure the positions of the first layer.
        """

        def resolve(logits: NDArray[np.floating[Any]]) -> list[list[ResolvedTarget]]:
            return [self._targets(row, one) for row, one in zip(rows, logits, strict=True)]

        with torch.autocast(batch.lengths.device.type, enabled=False):
            found = self._run(self.model, batch, resolve)
        if found.attributions[0][0].at != "encoder":
            raise ConfigurationError(
                f"the teacher measures at {found.attributions[0][0].at!r} and an explainer reads "
                "the input of the first layer: leave `at` out, or choose a model with layers"
            )
        return [_taught(one) for one in found.attributions]

    def _targets(self, row: int, logits: NDArray[np.floating[Any]]) -> list[ResolvedTarget]:
        predicted = int(np.argmax(logits))
        others = [index for index in range(len(logits)) if index != predicted]
        drawn = random.Random(f"classes {self._seed} {row}").sample(others, self.classes - 1)
        return [
            ResolvedTarget(
                spec=f"class:{self.model.classes[index]}",
                rank=0,
                class_index=index,
                class_name=self.model.classes[index],
                coefficients=((index, 1.0),),
            )
            for index in (predicted, *sorted(drawn))
        ]


class Lessons:
    """The lessons of all examples, computed once from a model that does not change."""

    def __init__(self, teacher: Teacher, batches: Iterable[ExampleBatch]) -> None:
        self._classes = len(teacher.model.classes)
        self._taught: dict[int, _Taught] = {}
        for one in batches:
            self._taught.update(zip(one.rows, teacher.teach(one.batch, one.rows), strict=True))

    def of(self, rows: Sequence[int]) -> Lesson:
        """The lesson of the items `rows`, on the CPU."""
        return assembled([self._taught[row] for row in rows], self._classes)

    def scales_and_constants(self) -> tuple[Tensor, Tensor]:
        """(N, 2) and (N, C) of all items, as an explainer is calibrated by."""
        scales, constants = [], []
        for one in self._taught.values():
            lesson = assembled([one], self._classes)
            own = torch.from_numpy(one.own)[None]
            mask = torch.ones_like(own)
            scales.append(item_scale(lesson.relevance, lesson.known, mask, own))
            constants.append(lesson.constants)
        return torch.cat(scales), torch.cat(constants)


def assembled(taught: Sequence[_Taught], classes: int) -> Lesson:
    """One lesson of B items, padded on the right to the longest."""
    longest = max(one.relevance.shape[1] for one in taught)
    relevance = torch.zeros(len(taught), longest, classes)
    known = torch.zeros(len(taught), classes, dtype=torch.bool)
    constants = torch.full((len(taught), classes), torch.nan)
    for row, one in enumerate(taught):
        places = list(one.classes)
        values = torch.from_numpy(one.relevance)
        relevance[row, : values.shape[1], places] = values.T
        known[row, places] = True
        constants[row, places] = torch.from_numpy(one.logits) - values.sum(dim=1)
    return Lesson(relevance, known, constants)


def positions_of(attribution: Attribution) -> NDArray[np.float64]:
    """(T,) the relevance of every position, those of a picture's prefix first."""
    flat = np.asarray(attribution.relevance, dtype=np.float64).reshape(-1)
    return np.concatenate([np.asarray(attribution.prefix_relevance, dtype=np.float64), flat])


def _taught(attributions: Sequence[Attribution]) -> _Taught:
    indices = tuple(int(one.class_index or 0) for one in attributions)
    relevance = np.stack([positions_of(one) for one in attributions]).astype(np.float32)
    logits = np.array([one.logit for one in attributions], dtype=np.float32)
    own = own_positions(attributions[0].features, relevance.shape[1])
    return _Taught(indices, relevance, logits, own)


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
