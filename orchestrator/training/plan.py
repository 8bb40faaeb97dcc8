"""From training specification to plan."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.plan import absolute_model
from orchestrator.training.spec import ExplainerSection, TrainingSpec
from transexplain.data.snapshot import prepare
from transexplain.errors import SpecError
from transexplain.evaluations import MethodSpec
from transexplain.plans import DatasetRef, DatasetSpec
from transexplain.settings import Settings
from transexplain.training.plan import (
    ExplainerPlan,
    FitObserver,
    FitPlan,
    Optimisation,
    Stages,
    Trained,
    TrainingPlan,
)

_RATES = (
    "learning_rate",
    "head_learning_rate",
    "weight_decay",
    "embedding_weight_decay",
    "label_smoothing",
    "augment",
)


def plan_training(spec: TrainingSpec, settings: Settings) -> TrainingPlan:
    """The plan of a specification, its data read into snapshots.

    Raises ConfigurationError: the data cannot be read, or two keys contradict each other.
    """
    given, values = spec.validation, spec.optimisation.model_dump()
    if given.source is not None and given.share is not None:
        raise SpecError("validation has a source and a share; give one of them")
    share = 0.0 if given.source is not None else 0.1 if given.share is None else given.share
    shared: dict[str, Any] = {"precision": spec.precision, "seed": spec.seed}
    optimisation = Optimisation(**{name: values.pop(name) for name in _RATES})
    return TrainingPlan(
        source=absolute_model(spec.model),
        classes=spec.classes,
        dataset=_snapshot(spec, None, settings),
        validation=_snapshot(spec, given.source, settings) if given.source else None,
        share=share,
        labels=spec.labels,
        output=Path(spec.output or f"trainings/{spec.name}").expanduser(),
        device=spec.device,
        max_length=spec.max_length,
        stages=None if spec.stages is None else Stages(**spec.stages.model_dump()),
        optimisation=optimisation,
        fit=FitPlan(**values, **shared) if values["epochs"] else None,
        explainer=None if spec.explainer.mode == "none" else _explainer(spec.explainer, shared),
        seed=spec.seed,
    )


def _explainer(asked: ExplainerSection, shared: Mapping[str, Any]) -> ExplainerPlan:
    """The plan of an explainer; `shared`: seed and precision of every fit."""
    own = asked.model_dump(exclude={"method", "params", "epochs", "batch_size", "patience"})
    return ExplainerPlan(
        **own,
        teacher=MethodSpec(name=asked.method, params=asked.params),
        fit=FitPlan(
            epochs=asked.epochs, batch_size=asked.batch_size, patience=asked.patience, **shared
        ),
    )


def train_spec(spec: TrainingSpec, settings: Settings, observer: FitObserver) -> Trained:
    """Train what a specification says; see `transexplain.training.train`."""
    from transexplain.training import train

    trained: Trained = train(plan_training(spec, settings), observer)
    return trained


def _snapshot(spec: TrainingSpec, source: str | None, settings: Settings) -> DatasetRef:
    data = spec.data.model_dump()
    if source is not None:
        data |= {"source": source, "limit": None, "sample": None}
    return prepare(DatasetSpec(**data), settings.snapshot_dir)
