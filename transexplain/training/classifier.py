"""Train a classifier from a plan: the way of the command line, the demo and the library."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from transexplain.errors import ConfigurationError
from transexplain.models.base import LoadedModel
from transexplain.training.curves import draw_curves, write_history
from transexplain.training.examples import Examples, read_examples
from transexplain.training.fitting import fit
from transexplain.training.heads import load_for_training
from transexplain.training.history import FitResult
from transexplain.training.objective import ClassifierObjective
from transexplain.training.plan import FitObserver, Trained, TrainingPlan, Unobserved
from transexplain.training.saving import save_model
from transexplain.training.stages import parameter_groups

#: below `output`
MODEL, FIT, RECORD = "model", "fit", "training.json"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Prepared:
    """What a fit needs: the model in memory and its examples."""

    model: LoadedModel
    training: Examples
    validation: Examples


def train(plan: TrainingPlan, observer: FitObserver | None = None) -> Trained:
    """Train, or go on where a training was interrupted, and write model, history and curves.

    Below `plan.output` come `model/` (what `load_model` takes), `curves.svg|png`,
    `history.json|csv`, `training.json` (the plan and its measures) and `fit/` (checkpoints).

    Raises ConfigurationError for a model, data or output that does not fit the plan, and
    KeyboardInterrupt, with a checkpoint written, where the observer ends it.
    """
    check_output(plan.output)
    prepared = prepare(plan)
    groups = parameter_groups(
        prepared.model,
        prepared.training.batch([0]).batch,
        stages=plan.stages,
        optimisation=plan.optimisation,
        epoch_steps=prepared.training.steps(plan.fit.batch_size),
    )
    objective = ClassifierObjective(
        prepared.model,
        groups,
        prepared.validation,
        optimisation=plan.optimisation,
        batch_size=plan.fit.batch_size,
    )
    result = fit(
        objective,
        plan.fit,
        plan.output / FIT,
        examples=prepared.training,
        observer=observer or Unobserved(),
    )
    return finish(plan, prepared, result)


def prepare(plan: TrainingPlan) -> Prepared:
    """Load the model, read the examples and part them; raises as `train`."""
    model = load_for_training(plan.source, plan.classes, device=plan.device, seed=plan.fit.seed)
    examples = read_examples(model, plan.dataset, labels=plan.labels, max_length=plan.max_length)
    if plan.validation is None:
        training, validation = examples.split(plan.share, plan.fit.seed)
    else:
        training = examples
        validation = read_examples(
            model, plan.validation, labels=plan.labels, max_length=plan.max_length
        )
    if not validation and plan.fit.patience is not None:
        raise ConfigurationError(
            "patience needs validation examples; give validation.source or validation.share, "
            "or set patience to null"
        )
    return Prepared(model=model, training=training, validation=validation)


def finish(plan: TrainingPlan, prepared: Prepared, result: FitResult) -> Trained:
    """Write the trained model and what is to be seen of its training."""
    save_model(prepared.model, plan.source, plan.output / MODEL)
    history, _ = write_history(result.history, plan.output)
    curves = draw_curves(result.history, plan.output, ClassifierObjective.monitor)
    trained = Trained(
        model_dir=plan.output / MODEL,
        history=history,
        curves=curves,
        metrics=result.metrics,
        epochs=result.epochs,
        best_epoch=result.best_epoch,
        stopped_early=result.stopped_early,
        examples=len(prepared.training),
        validation_examples=len(prepared.validation),
        failures=prepared.training.failures + prepared.validation.failures,
    )
    record = {"plan": asdict(plan), "trained": asdict(trained)}
    text = json.dumps(record, indent=1, default=str)
    (plan.output / RECORD).write_text(text + "\n", encoding="utf-8")
    return trained


def check_output(output: Path) -> None:
    """Raise ConfigurationError where `output` holds something that is no training."""
    if output.exists() and not output.is_dir():
        raise ConfigurationError(f"the output {output} is a file; name a folder")
    if output.is_dir() and any(output.iterdir()) and not (output / FIT).is_dir():
        raise ConfigurationError(
            f"the output {output} is not empty and holds no training; name another folder"
        )


def forget(output: Path) -> None:
    """Remove the checkpoints below `output`, so that a training begins anew."""
    shutil.rmtree(output / FIT, ignore_errors=True)
    if output.is_dir():
        (output / FIT).mkdir(exist_ok=True)
