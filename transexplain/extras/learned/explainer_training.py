"""Trains a learned explainer: after its classifier, or together with it."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from transexplain.errors import ConfigurationError
from transexplain.extras.learned.learned_explainer import (
    NAME,
    Explainer,
    Lesson,
    explanation_loss,
    item_scale,
    relevance_error,
    save,
)
from transexplain.extras.learned.learned_facts import Architecture, Facts
from transexplain.extras.training.classifiers import PreparedFit
from transexplain.extras.training.examples import ExampleBatch, Examples
from transexplain.extras.training.fitting import History, fit
from transexplain.extras.training.optimisation import (
    ClassifierObjective,
    ParameterGroup,
    by_decay,
)
from transexplain.extras.training.training_plans import (
    EXPLAINER_FIT,
    ExplainerSection,
    ExplanationLoss,
    FitObserver,
    FitPlan,
)
from transexplain.methods import bound, unit_of
from transexplain.methods.batch_explanation import BatchExplanation
from transexplain.models.calling import eval_mode
from transexplain.models.hidden_states import States, read_states, readable_layers
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel
from transexplain.rank_correlation import is_constant, rank_similarity
from transexplain.types.items import Attribution, ResolvedTarget, own_positions
from transexplain.types.scores import MethodSpec, TeacherAgreement


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

    def teach(self, batch: Batch, rows: Sequence[int]) -> list[list[Attribution]]:
        """The method's relevance of every item of a batch.

        Raises ConfigurationError where it does not measure the positions of the first layer.
        """

        def resolve(logits: NDArray[np.floating[Any]]) -> list[list[ResolvedTarget]]:
            return [self._targets(row, logit) for row, logit in zip(rows, logits, strict=True)]

        with torch.autocast(batch.lengths.device.type, enabled=False):
            explanation = self._run(self.model, batch, resolve)
        if explanation.attributions[0][0].at != "encoder":
            raise ConfigurationError(
                f"the teacher measures at {explanation.attributions[0][0].at!r} and an explainer "
                "reads the input of the first layer: leave `at` out, or choose a model with layers"
            )
        return list(explanation.attributions)

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
        self._taught: dict[int, list[Attribution]] = {}
        for batch in batches:
            self._taught.update(
                zip(batch.rows, teacher.teach(batch.batch, batch.rows), strict=True)
            )

    def of(self, rows: Sequence[int]) -> Lesson:
        """The lesson of the items `rows`, on the CPU."""
        return assembled([self._taught[row] for row in rows], self._classes)

    def scales_and_constants(self) -> tuple[Tensor, Tensor]:
        """(N, 2) and (N, C) of all items, as an explainer is calibrated by."""
        scales, constants = [], []
        for one in self._taught.values():
            lesson = assembled([one], self._classes)
            positions = lesson.relevance.shape[1]
            own = torch.from_numpy(own_positions(one[0].features, positions))[None]
            mask = torch.ones_like(own)
            scales.append(item_scale(lesson, mask, own))
            constants.append(lesson.constants)
        return torch.cat(scales), torch.cat(constants)


def assembled(taught: Sequence[Sequence[Attribution]], classes: int) -> Lesson:
    """One lesson of B items, padded on the right to the longest."""
    items = [np.stack(list(map(positions_of, of_item))) for of_item in taught]  # (K, T) each
    longest = max(positions.shape[1] for positions in items)
    relevance = torch.zeros(len(taught), longest, classes)
    known = torch.zeros(len(taught), classes, dtype=torch.bool)
    constants = torch.full((len(taught), classes), torch.nan)
    for row, (of_item, positions) in enumerate(zip(taught, items, strict=True)):
        places = [int(attribution.class_index or 0) for attribution in of_item]
        values = torch.from_numpy(positions).float()
        relevance[row, : values.shape[1], places] = values.T
        known[row, places] = True
        logits = torch.tensor([attribution.logit for attribution in of_item], dtype=torch.float32)
        constants[row, places] = logits - values.sum(dim=1)
    return Lesson(relevance, known, constants)


def positions_of(attribution: Attribution) -> NDArray[np.float64]:
    """(T,) the relevance of every position, those of a picture's prefix first."""
    flat = np.asarray(attribution.relevance, dtype=np.float64).reshape(-1)
    return np.concatenate([np.asarray(attribution.prefix_relevance, dtype=np.float64), flat])


#: positions below which a rank correlation is mostly chance
MIN_POSITIONS = 3
#: an example batch, and its lesson
Taught = tuple[ExampleBatch, Lesson]


@torch.no_grad()
def agreement_of(
    model: LoadedModel, explainer: Explainer, taught: Iterable[Taught]
) -> TeacherAgreement | None:
    """Agreement over every item and class that the teacher explained; None where there is none.

    Items with fewer than three positions of their own are left out, and so are maps of the
    teacher that are constant and rank nothing.
    """
    ranks: list[tuple[int, float]] = []
    errors: list[float] = []
    items = 0
    with eval_mode(explainer):
        for batch, lesson in taught:
            states = read_states(model, batch.batch, explainer.architecture.layers)
            said = explainer(states.hidden, states.mask, states.own, states.logits)
            predicted = said.relevance.double().cpu().numpy()
            for row, encoded in enumerate(batch.batch.encoded):
                agreement = list(_compared(predicted[row], lesson, row, encoded))
                items += bool(agreement)
                ranks += [(index, rank) for index, rank, _ in agreement]
                errors += [error for *_, error in agreement]
    if not ranks:
        return None
    return TeacherAgreement(
        items=items,
        rank_correlation=float(np.mean([rank for _, rank in ranks])),
        relative_error=float(np.median(errors)),
        by_class={
            name: float(np.mean([rank for index, rank in ranks if index == place]))
            for place, name in enumerate(model.classes)
            if any(index == place for index, _ in ranks)
        },
    )


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


#: of the running scales of a joint training, for one step
MOMENTUM = 0.05


class SeparateObjective:
    """The explanation loss of a classifier that does not move (FastSHAP's setting, with LRP)."""

    monitor = "rank_correlation"
    higher_is_better = True

    def __init__(
        self,
        model: LoadedModel,
        explainer: Explainer,
        lessons: Lessons,
        held: Sequence[Taught],
        plan: ExplainerSection,
    ) -> None:
        self.model, self.explainer, self.plan = model, explainer, plan
        self.module: nn.Module = explainer
        self.groups = explainer_groups(explainer, plan)
        self.identity: Mapping[str, Any] = {
            "explainer": plan.model_dump(),
            "base": model.ref.digest,
        }
        self._lessons, self._held = lessons, held

    def losses(self, batch: ExampleBatch, step: int) -> dict[str, Tensor]:
        """The explanation loss of a batch."""
        del step
        with torch.no_grad():
            states = read_states(self.model, batch.batch, self.explainer.architecture.layers)
        lesson = self._lessons.of(batch.rows).to(states.logits.device)
        return {"loss": _explained(self.explainer, states, lesson, self.plan.loss)}

    def validate(self) -> dict[str, float]:
        """Rank correlation with the teacher, and the explanation loss, on examples held out."""
        return measured(self.model, self.explainer, self._held, self.plan.loss)


class JointObjective:
    """Cross-entropy plus lambda times the explanation loss, with fresh targets at every step."""

    monitor = "loss"
    higher_is_better = False

    def __init__(
        self,
        classifier: ClassifierObjective,
        explainer: Explainer,
        teacher: Teacher,
        held: Sequence[ExampleBatch],
        plan: ExplainerSection,
    ) -> None:
        self.classifier, self.explainer, self.plan = classifier, explainer, plan
        self.module: nn.Module = nn.ModuleDict({"base": classifier.module, "explainer": explainer})
        self.groups = [*classifier.groups, *explainer_groups(explainer, plan)]
        self.identity: Mapping[str, Any] = {
            "explainer": plan.model_dump(),
            **classifier.identity,
        }
        self._teacher, self._held = teacher, held

    def losses(self, batch: ExampleBatch, step: int) -> dict[str, Tensor]:
        """`loss`, and its parts `classification` and `explanation`."""
        model = self.classifier.model
        seen = self.classifier.seen(batch)
        lesson = self._teacher.lesson(seen.batch, seen.rows)
        states = read_states(model, seen.batch, self.explainer.architecture.layers, training=True)
        scale = item_scale(lesson, states.mask, states.own)
        self.explainer.calibrate(scale, lesson.constants, 1.0 if step == 0 else MOMENTUM)
        explanation = _explained(self.explainer, states, lesson, self.plan.loss)
        classification = self.classifier.loss(states.logits, seen.labels)
        return {
            "loss": classification + self.plan.weight * explanation,
            "classification": classification,
            "explanation": explanation,
        }

    def validate(self) -> dict[str, float]:
        """The classifier's measures and the explainer's, on examples held out."""
        scores = self.classifier.validate()
        if not scores:
            return {}
        taught = [(held, self._teacher.lesson(held.batch, held.rows)) for held in self._held]
        of_explainer = measured(self.classifier.model, self.explainer, taught, self.plan.loss)
        explanation = of_explainer.pop("loss")
        return {
            **scores,
            **of_explainer,
            "loss": scores["loss"] + self.plan.weight * explanation,
            "classification": scores["loss"],
            "explanation": explanation,
        }

    def write_explainer(
        self, prepared: PreparedFit, output: Path, *, seed: int
    ) -> tuple[Path, TeacherAgreement | None]:
        """Measure the explainer against the classifier as it was saved, and write its file."""
        plan = self.plan
        teacher = Teacher(plan.teacher, prepared.model, classes=plan.classes, seed=seed)
        taught = taught_by(teacher, prepared.validation)
        return _saved(self.explainer, prepared, plan, taught, output)


def explainer_groups(explainer: Explainer, plan: ExplainerSection) -> list[ParameterGroup]:
    """The weights of an explainer, trained from the first step."""
    return by_decay(
        "explainer",
        dict(explainer.named_parameters()),
        rate=plan.learning_rate,
        weight_decay=plan.weight_decay,
    )


@torch.no_grad()
def measured(
    model: LoadedModel, explainer: Explainer, taught: Sequence[Taught], loss: ExplanationLoss
) -> dict[str, float]:
    """`rank_correlation`, `relative_error` and `loss` of an explainer; empty without examples."""
    losses, items = 0.0, 0
    with eval_mode(explainer):
        agreement = agreement_of(model, explainer, taught)
        for batch, lesson in taught:
            states = read_states(model, batch.batch, explainer.architecture.layers)
            here = lesson.to(states.logits.device)
            losses += len(batch.rows) * float(_explained(explainer, states, here, loss))
            items += len(batch.rows)
    if agreement is None or not items:
        return {}
    return {
        "rank_correlation": agreement.rank_correlation,
        "relative_error": agreement.relative_error,
        "loss": losses / items,
    }


def _explained(
    explainer: Explainer, states: States, lesson: Lesson, loss: ExplanationLoss
) -> Tensor:
    """The loss of what an explainer says: given the true scales, or plainly (`mse`)."""
    if loss == "mse":
        predicted = explainer(states.hidden, states.mask, states.own, states.logits)
        return relevance_error(predicted, lesson)
    scale = item_scale(lesson, states.mask, states.own)
    predicted = explainer(states.hidden, states.mask, states.own, states.logits, scale)
    return explanation_loss(explainer, predicted, lesson, scale)


#: examples held out that agreement is measured on
MEASURED = 1000
#: of them, those that a joint training is watched by after every epoch
WATCHED = 256
_BATCH = 64  #: examples that the teacher explains together
_HEADS = 4


def train_explainer(
    prepared: PreparedFit,
    plan: ExplainerSection,
    fit_plan: FitPlan,
    *,
    output: Path,
    observer: FitObserver,
) -> tuple[Path, TeacherAgreement | None, History]:
    """Train an explainer of a classifier that stays as it is; its file, in `output`.

    Args:
        prepared: the classifier, whose digest is written into the file, and examples; the teacher
            explains each of them once.
        plan: with mode `separate`.
        fit_plan: how long and how it is trained.
        output: folder; the fit's checkpoints go below it, and a fit that was interrupted goes on.
        observer: hears of the fit.

    Raises ConfigurationError for a model without layers that can be read, and a teacher that does
    not measure logits.
    """
    model, seed = prepared.model, fit_plan.seed
    teacher = Teacher(plan.teacher, model, classes=plan.classes, seed=seed)
    first = prepared.training.batch([0]).batch
    explainer = fresh_explainer(model, first, plan, seed=seed)
    observer.began(f"explaining every example by {plan.teacher.name}")
    lessons = Lessons(teacher, _watched(prepared.training, observer))
    scales, constants = lessons.scales_and_constants()
    device = first.lengths.device
    explainer.calibrate(scales.to(device), constants.to(device))
    taught = taught_by(teacher, prepared.validation)
    observer.began("training the explainer")
    objective = SeparateObjective(model, explainer, lessons, taught, plan)
    history = fit(
        objective,
        fit_plan,
        output / EXPLAINER_FIT,
        examples=prepared.training,
        observer=observer,
    )
    return *_saved(explainer, prepared, plan, taught, output), history


def joint_objective(
    classifier: ClassifierObjective, plan: ExplainerSection, prepared: PreparedFit, *, seed: int
) -> JointObjective:
    """The objective of a classifier and a fresh explainer that are trained together."""
    model = prepared.model
    teacher = Teacher(plan.teacher, model, classes=plan.classes, seed=seed)
    explainer = fresh_explainer(model, prepared.training.batch([0]).batch, plan, seed=seed)
    held = list(measured_on(prepared.validation, WATCHED))
    return JointObjective(classifier, explainer, teacher, held, plan)


def taught_by(teacher: Teacher, validation: Examples) -> list[Taught]:
    """Batches of held-out examples, with their lessons."""
    return [
        (measured, teacher.lesson(measured.batch, measured.rows))
        for measured in measured_on(validation, MEASURED)
    ]


def fresh_explainer(
    model: LoadedModel, batch: Batch, plan: ExplainerSection, *, seed: int
) -> Explainer:
    """An explainer that has learned nothing, on the model's device; the seed decides its weights.

    Raises ConfigurationError where a wanted layer cannot be read.
    """
    widths = readable_layers(model, batch)
    layers = _default_layers(sorted(widths)) if plan.layers is None else plan.layers
    for layer in layers:
        if layer not in widths:
            raise ConfigurationError(
                f"an explainer of {model.ref.source} cannot read layer {layer}; it can read "
                f"{', '.join(map(str, sorted(widths))) or 'none'}"
            )
    width = plan.width or min(max(32, max(widths.values()) // 4), 256)
    architecture = Architecture(
        layers=layers,
        widths=tuple(widths[layer] for layer in layers),
        classes=len(model.classes),
        width=-(-width // (2 * _HEADS)) * 2 * _HEADS,
        depth=plan.depth,
        heads=_HEADS,
        conserve=plan.conserve,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        explainer = Explainer(architecture, dropout=plan.dropout or 0.0)
    return explainer.to(batch.lengths.device)


def measured_on(validation: Examples, most: int) -> Iterator[ExampleBatch]:
    """Batches of the first `most` validation examples."""
    rows = range(min(len(validation), most))
    return (validation.batch(rows[start : start + _BATCH]) for start in rows[::_BATCH])


def _watched(training: Examples, observer: FitObserver) -> Iterator[ExampleBatch]:
    """All examples in batches; the observer sees each and may stop."""
    steps = training.steps(_BATCH)
    for step, batch in enumerate(training.in_order(_BATCH), start=1):
        if observer.should_stop():
            raise KeyboardInterrupt
        yield batch
        observer.stepped(step, steps, {})


def _saved(
    explainer: Explainer,
    prepared: PreparedFit,
    plan: ExplainerSection,
    taught: Sequence[Taught],
    output: Path,
) -> tuple[Path, TeacherAgreement | None]:
    model = prepared.model
    agreement = agreement_of(model, explainer, taught)
    facts = Facts(
        architecture=explainer.architecture,
        base=model.ref.digest,
        base_name=model.ref.source,
        classes=model.classes,
        teacher=plan.teacher,
        at="encoder",
        mode=plan.mode,
        forwards=forwards_of(model, explainer, taught[0][0].batch),
        agreement=agreement,
    )
    save(explainer, facts, output / NAME)
    return output / NAME, agreement


@torch.no_grad()
def forwards_of(model: LoadedModel, explainer: Explainer, batch: Batch) -> float:
    """Operations (multiplications of matrices) of an explanation over those of a forward pass."""
    layers = explainer.architecture.layers
    with FlopCounterMode(display=False) as plain:
        states = read_states(model, batch, layers)
    with FlopCounterMode(display=False) as added:
        explainer.eval()(states.hidden, states.mask, states.own, states.logits)
    share: float = added.get_total_flops() / plain.get_total_flops()
    return round(1 + share, 4)


def _default_layers(readable: Sequence[int]) -> tuple[int, ...]:
    """The first, the middle and the last of the layers that can be read."""
    last = len(readable) - 1
    return tuple(sorted({readable[0], readable[(last + 1) // 2], readable[last]}))
