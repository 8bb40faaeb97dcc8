"""From training specification to plan."""

from pathlib import Path

from orchestrator.plan import absolute_model
from orchestrator.training.spec import TrainingSpec
from transexplain.data.snapshot import prepare
from transexplain.errors import ConfigurationError, SpecError
from transexplain.plans import DatasetRef, DatasetSpec
from transexplain.settings import Settings
from transexplain.training.plan import (
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
        fit=FitPlan(**values, precision=spec.precision, seed=spec.seed),
    )


def train_spec(spec: TrainingSpec, settings: Settings, observer: FitObserver) -> Trained:
    """Train what a specification says; see `transexplain.training.train`."""
    check_explainer(spec)
    from transexplain.training import train

    trained: Trained = train(plan_training(spec, settings), observer)
    return trained


def check_explainer(spec: TrainingSpec) -> None:
    """Raise ConfigurationError for an explainer, which cannot be trained yet."""
    if spec.explainer.mode != "none":
        raise ConfigurationError(
            f"explainer.mode is {spec.explainer.mode!r}, which is not available; "
            "set `explainer: none` to train the classifier alone"
        )


def _snapshot(spec: TrainingSpec, source: str | None, settings: Settings) -> DatasetRef:
    data = spec.data.model_dump()
    if source is not None:
        data |= {"source": source, "limit": None, "sample": None}
    return prepare(DatasetSpec(**data), settings.snapshot_dir)
