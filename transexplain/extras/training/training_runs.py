"""Runs a training from plan to files, for the command line, the demo and the library."""

import shutil
from dataclasses import replace
from pathlib import Path

from pydantic_core import to_json

from transexplain.errors import ConfigurationError
from transexplain.extras.training import EXPLAINERS
from transexplain.extras.training.classifiers import PreparedFit, objective_of, prepare, save_model
from transexplain.extras.training.fitting import draw_curves, fit, write_history
from transexplain.extras.training.optimisation import Objective
from transexplain.extras.training.training_plans import (
    EXPLAINER_FIT,
    FIT,
    FitObserver,
    FitPlan,
    Trained,
    TrainingPlan,
)
from transexplain.models.load import load_model

#: below `output`
MODEL, RECORD = "model", "training.json"
_MEASURES = ("accuracy", "rank_correlation")


def train(plan: TrainingPlan, observer: FitObserver | None = None) -> Trained:
    """Train, or go on where a training was interrupted, and write what came of it.

    Below `plan.output` come `model/` (what `load_model` takes), `explainer.safetensors` where one
    was requested, `curves.svg|png`, `history.json|csv`, `training.json` (the plan and its
    measures) and `fit/` (checkpoints).

    Raises ConfigurationError for a model, data or output that does not fit the plan, and
    KeyboardInterrupt, with a checkpoint written, where the observer ends it.
    """
    check_output(plan.output)
    watch, prepared = observer or FitObserver(), prepare(plan)
    trained = Trained(
        model=plan.source,
        examples=len(prepared.training),
        validation_examples=len(prepared.validation),
        failures=prepared.training.failures + prepared.validation.failures,
    )
    if plan.explainer is not None and plan.explainer.mode == "joint":
        trained = _jointly(plan, trained, prepared, watch)
    else:
        if plan.fit is not None:
            watch.began("training the classifier")
            objective = objective_of(plan, plan.fit, prepared)
            trained = _fitted(objective, plan, plan.fit, trained, prepared, watch)
        if plan.explainer is not None:
            trained = _explained(plan, trained, prepared, watch)
    record = to_json({"plan": plan, "trained": trained}, indent=1)
    (plan.output / RECORD).write_bytes(record + b"\n")
    return trained


def train_afresh(plan: TrainingPlan) -> Path:
    """Train, whatever checkpoints the output holds; the directory of the model."""
    forget(plan.output)
    return Path(train(plan).model)


def check_output(output: Path) -> None:
    """Raise ConfigurationError where `output` holds something that is no training."""
    if output.exists() and not output.is_dir():
        raise ConfigurationError(f"the output {output} is a file; name a folder")
    if output.is_dir() and any(output.iterdir()) and not (output / FIT).is_dir():
        raise ConfigurationError(
            f"the output {output} is not empty and holds no training; name another folder"
        )
    (output / FIT).mkdir(parents=True, exist_ok=True)


def forget(output: Path) -> None:
    """Remove the checkpoints below `output`, so that a training begins again."""
    for name in (FIT, EXPLAINER_FIT):
        shutil.rmtree(output / name, ignore_errors=True)
    if output.is_dir():
        (output / FIT).mkdir(exist_ok=True)


def _fitted(
    objective: Objective,
    plan: TrainingPlan,
    fit_plan: FitPlan,
    trained: Trained,
    prepared: PreparedFit,
    watch: FitObserver,
) -> Trained:
    """Fit the classifier, and write it, its curves and its history."""
    history = fit(
        objective, fit_plan, plan.output / FIT, examples=prepared.training, observer=watch
    )
    save_model(prepared.model, plan.source, plan.output / MODEL)
    return replace(
        trained,
        model=str(plan.output / MODEL),
        histories=(write_history(history, plan.output),),
        curves=draw_curves(history, plan.output, _MEASURES),
        metrics=history.metrics,
        epochs=history.epochs,
        best_epoch=history.best_epoch,
        stopped_early=history.stopped_early,
    )


def _explained(
    plan: TrainingPlan, trained: Trained, prepared: PreparedFit, watch: FitObserver
) -> Trained:
    """Train an explainer for the classifier as it is now."""
    assert plan.explainer is not None
    ready = prepared.on(load_model(trained.model, device=plan.device))
    path, agreement, history = EXPLAINERS.load("separate")(
        ready, plan.explainer, plan.explainer_fit, output=plan.output, observer=watch
    )
    curves = draw_curves(history, plan.output, _MEASURES, "explainer-")
    return replace(
        trained,
        histories=(*trained.histories, write_history(history, plan.output, "explainer-")),
        curves=(*trained.curves, *curves),
        explainer=path,
        agreement=agreement,
    )


def _jointly(
    plan: TrainingPlan, trained: Trained, prepared: PreparedFit, watch: FitObserver
) -> Trained:
    """Train classifier and explainer together."""
    assert plan.explainer is not None and plan.fit is not None
    watch.began("training classifier and explainer")
    classifier = objective_of(plan, plan.fit, prepared)
    objective = EXPLAINERS.load("joint")(classifier, plan.explainer, prepared, seed=plan.seed)
    trained = _fitted(objective, plan, plan.fit, trained, prepared, watch)
    ready = prepared.on(load_model(trained.model, device=plan.device))
    path, agreement = objective.write_explainer(ready, plan.output, seed=plan.seed)
    return replace(trained, explainer=path, agreement=agreement)
