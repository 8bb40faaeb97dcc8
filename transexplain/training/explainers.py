"""Train an explainer for a classifier, and write it with what was measured of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from transexplain.errors import ConfigurationError
from transexplain.learned.checkpoint import NAME, save
from transexplain.learned.facts import Agreement, Architecture, Facts
from transexplain.learned.network import Explainer
from transexplain.models.base import Batch, LoadedModel
from transexplain.models.states import read_states, readable_layers
from transexplain.training.agreement import Taught, agreement_of
from transexplain.training.classifier import Prepared
from transexplain.training.examples import ExampleBatch, Examples
from transexplain.training.explainer_objectives import JointObjective, SeparateObjective
from transexplain.training.fitting import fit
from transexplain.training.history import FitResult
from transexplain.training.objective import ClassifierObjective
from transexplain.training.plan import ExplainerPlan, FitObserver
from transexplain.training.teaching import Lessons, Teacher

EXPLAINER_FIT = "explainer-fit"  #: checkpoints, below the output
#: examples held out that agreement is measured on
MEASURED = 1000
#: of them, those that a joint training is watched by after every epoch
WATCHED = 256
_BATCH = 64  #: examples that the teacher explains together
_HEADS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedExplainer:
    """An explainer on disk, with what was measured."""

    path: Path
    facts: Facts


def train_explainer(
    prepared: Prepared, plan: ExplainerPlan, *, output: Path, observer: FitObserver
) -> tuple[TrainedExplainer, FitResult]:
    """Train an explainer of a classifier that stays as it is; `output` gets its file.

    Args:
        prepared: the classifier, whose digest is written into the file, and examples; the teacher
            explains each of them once.
        plan: with mode `separate`.
        output: folder; the fit's checkpoints go below it, and a fit that was interrupted goes on.
        observer: hears of the fit.

    Raises ConfigurationError for a model without layers that can be read, and a teacher that does
    not measure logits.
    """
    model, seed = prepared.model, plan.fit.seed
    teacher = Teacher(plan.teacher, model, classes=plan.classes, seed=seed)
    first = prepared.training.batch([0]).batch
    explainer = fresh_explainer(model, first, plan, seed=seed)
    observer.began(f"asking {plan.teacher.name} about every example")
    lessons = Lessons(teacher, _watched(prepared.training, observer))
    scales, constants = lessons.scales_and_constants()
    device = first.lengths.device
    explainer.calibrate(scales.to(device), constants.to(device))
    taught = taught_by(teacher, prepared.validation)
    observer.began("training the explainer")
    objective = SeparateObjective(model, explainer, lessons, taught, plan)
    result = fit(
        objective,
        plan.fit,
        output / EXPLAINER_FIT,
        examples=prepared.training,
        observer=observer,
    )
    return _saved(explainer, prepared, plan, taught, output), result


def joint_objective(
    classifier: ClassifierObjective, plan: ExplainerPlan, prepared: Prepared, *, seed: int
) -> JointObjective:
    """The objective of a classifier and a fresh explainer that are trained together."""
    model = prepared.model
    teacher = Teacher(plan.teacher, model, classes=plan.classes, seed=seed)
    explainer = fresh_explainer(model, prepared.training.batch([0]).batch, plan, seed=seed)
    held = list(measured_on(prepared.validation, WATCHED))
    return JointObjective(classifier, explainer, teacher, held, plan)


def write_explainer(
    explainer: Explainer, prepared: Prepared, plan: ExplainerPlan, *, output: Path, seed: int
) -> TrainedExplainer:
    """Measure an explainer against the classifier as it was saved, and write its file."""
    teacher = Teacher(plan.teacher, prepared.model, classes=plan.classes, seed=seed)
    return _saved(explainer, prepared, plan, taught_by(teacher, prepared.validation), output)


def taught_by(teacher: Teacher, validation: Examples) -> list[Taught]:
    """Batches of held-out examples, with their lessons."""
    return [(one, teacher.lesson(one.batch, one.rows)) for one in measured_on(validation, MEASURED)]


def fresh_explainer(
    model: LoadedModel, batch: Batch, plan: ExplainerPlan, *, seed: int
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
        explainer = Explainer(architecture)
    return explainer.to(batch.lengths.device)


def measured_on(validation: Examples, most: int) -> Iterator[ExampleBatch]:
    """Batches of the first `most` validation examples."""
    rows = range(min(len(validation), most))
    return (validation.batch(rows[start : start + _BATCH]) for start in rows[::_BATCH])


def _watched(training: Examples, observer: FitObserver) -> Iterator[ExampleBatch]:
    """All examples in batches, as the observer hears and allows."""
    steps = training.steps(_BATCH)
    for step, batch in enumerate(training.in_order(_BATCH), start=1):
        if observer.should_stop():
            raise KeyboardInterrupt
        yield batch
        observer.stepped(step, steps, {})


def _saved(
    explainer: Explainer,
    prepared: Prepared,
    plan: ExplainerPlan,
    taught: Sequence[Taught],
    output: Path,
) -> TrainedExplainer:
    agreement = agreement_of(prepared.model, explainer, taught)
    facts = facts_of(prepared.model, explainer, plan, taught[0][0].batch, agreement)
    save(explainer, facts, output / NAME)
    return TrainedExplainer(path=output / NAME, facts=facts)


def facts_of(
    model: LoadedModel,
    explainer: Explainer,
    plan: ExplainerPlan,
    batch: Batch,
    agreement: Agreement | None,
) -> Facts:
    """The facts in the file of an explainer; `batch` is what operations are counted on."""
    return Facts(
        architecture=explainer.architecture,
        base=model.ref.digest,
        base_name=model.ref.source,
        classes=model.classes,
        teacher=plan.teacher,
        at="encoder",
        mode=plan.mode,
        forwards=forwards_of(model, explainer, batch),
        agreement=agreement,
    )


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
