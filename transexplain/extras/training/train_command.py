"""The verb `train`, its specification, and the plan that this becomes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer
from pydantic import AfterValidator, BeforeValidator, Field

from orchestrator.cli import options as opt
from orchestrator.spec.audit_spec import Labels, NameOption
from orchestrator.spec.data_section import DataSection, absolute_model
from orchestrator.spec.spec_document import (
    SpecSection,
    apply_overrides,
    from_text,
    read_document,
    validated,
)
from transexplain.data.dataset_plan import plan_dataset
from transexplain.errors import SpecError
from transexplain.extras.training.training_plans import (
    ExplainerSection,
    FitObserver,
    FitPlan,
    FitSection,
    Optimisation,
    Precision,
    Stages,
    Trained,
    TrainingPlan,
)
from transexplain.files.paths import local_path
from transexplain.settings import Settings
from transexplain.types.plans import SPREAD, DatasetRef, DatasetSpec

if TYPE_CHECKING:
    from rich.progress import Progress

_TEXT: dict[str, Any] = {
    "stages": {"head_epochs": 1, "interval_epochs": 1, "layers_per_interval": 3, "decay": 0.7},
    "optimisation": {
        "epochs": 8,
        "batch_size": 16,
        "learning_rate": 3e-5,
        "head_learning_rate": 1e-3,
        "weight_decay": 0.01,
        "clip": 1.0,
        "warmup": 0.1,
        "patience": 3,
    },
}
_VISION: dict[str, Any] = {
    "stages": {"head_epochs": 2, "interval_epochs": 2, "layers_per_interval": 3, "decay": 0.7},
    "optimisation": {
        "epochs": 20,
        "batch_size": 32,
        "learning_rate": 1e-4,
        "head_learning_rate": 1e-3,
        "weight_decay": 0.05,
        "label_smoothing": 0.1,
        "augment": True,
        "clip": 1.0,
        "warmup": 0.1,
        "patience": 5,
    },
}

#: what the columns of Table 2 share: of the base, and of the explanation (XAI) module
_BASE: dict[str, Any] = {
    "weight_decay": 0.01,
    "dropout": 0.1,
    "clip": 1.0,
    "warmup": 0.1,
    "schedule": "whole",
    "patience": 5,
    "patience_from": "start",
}
_XAI: dict[str, Any] = {
    "loss": "mse",
    "learning_rate": 1e-4,
    "weight_decay": 0.01,
    "dropout": 0.1,
    "patience": 5,
}
#: section 4.1: the top 2 to 3 layers every 5 epochs; its lower rate has no figure, so a half
_GRADUAL: dict[str, Any] = {
    "head_epochs": 5,
    "interval_epochs": 5,
    "layers_per_interval": 3,
    "decay": 0.5,
    "decays_first": True,
}


def _joint(epochs: int, weight: float) -> dict[str, Any]:
    return {
        "precision": "mixed",
        "stages": _GRADUAL,
        "optimisation": {**_BASE, "epochs": epochs, "batch_size": 32, "learning_rate": 1e-4},
        "explainer": {**_XAI, "mode": "joint", "weight": weight},
    }


def _separate(epochs: int) -> dict[str, Any]:
    """`epochs`: of the explainer, once the base is trained and frozen."""
    return {
        "precision": "mixed",
        "stages": "none",
        "optimisation": {**_BASE, "epochs": 10, "batch_size": 16, "learning_rate": 2e-5},
        "explainer": {**_XAI, "mode": "separate", "epochs": epochs, "batch_size": 16},
    }


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "joint-text": _joint(25, 0.3),
    "joint-vision": _joint(30, 0.2),
    "separate-text": _separate(15),
    "separate-vision": _separate(20),
    "quick-joint-text": {**_TEXT, "explainer": {"mode": "joint"}},
    "quick-joint-vision": {**_VISION, "explainer": {"mode": "joint"}},
    "quick-separate-text": {**_TEXT, "explainer": {"mode": "separate"}},
    "quick-separate-vision": {**_VISION, "explainer": {"mode": "separate"}},
}
PresetName = Literal[
    "joint-text",
    "joint-vision",
    "separate-text",
    "separate-vision",
    "quick-joint-text",
    "quick-joint-vision",
    "quick-separate-text",
    "quick-separate-vision",
]


_BEGINS = "a training starts with `model:` and `data:`"


def _as_names(value: Any) -> Any:
    """YAML reads `[0, 1]` and `[no, yes]` as numbers and truths; class names are texts."""
    return [_class_name(entry) for entry in value] if isinstance(value, list | tuple) else value


def _class_name(entry: Any) -> Any:
    if isinstance(entry, bool):
        raise ValueError(f"YAML reads this name as {entry}; put it into quotes")
    return str(entry) if isinstance(entry, int) else entry


class OptimisationSection(Optimisation, FitSection):
    """AdamW, its schedule and its end."""


class ValidationSection(SpecSection):
    """The data of early stopping and the best weights: a share of the data, or a source."""

    shorthand: ClassVar[str] = "source"

    share: float | None = Field(default=None, ge=0, lt=1, description="of the data; default 0.1")
    source: str | None = Field(default=None, description="as data.source, with the same columns")


def _one_device(name: str) -> str:
    if name == SPREAD:
        raise ValueError(f"a training runs on one device, and {SPREAD} stands for several")
    return name


class TrainingSpec(SpecSection):
    """One training, as a person writes it."""

    name: str = Field(
        default="training",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="of the training, and of its folder",
    )
    preset: PresetName | None = Field(
        default=None, description="values for the keys that are not given"
    )
    model: str = Field(description="directory, hub id, or timm:NAME?checkpoint=FILE to start from")
    classes: Annotated[tuple[str, ...] | None, BeforeValidator(_as_names)] = Field(
        default=None, description="names by index; default: the model's own"
    )
    data: Annotated[DataSection, from_text(DataSection)]
    validation: Annotated[ValidationSection, from_text(ValidationSection)] = ValidationSection()
    labels: Labels = Field(
        default_factory=dict,
        description="dataset label -> class, or by-index: label i is the model's class i; default: "
        "by name",
    )
    output: str | None = Field(default=None, description="folder; default: trainings/NAME")
    seed: int = Field(default=0, description="of weights, order and dropout")
    device: Annotated[str, AfterValidator(_one_device)] = Field(
        default="cpu", description="torch device, e.g. cuda:0"
    )
    precision: Precision = Field(
        default="auto",
        description="of the passes; auto: bfloat16 or float16 on a GPU, else float32; mixed: "
        "bfloat16 there too",
    )
    max_length: int | None = Field(default=None, ge=3, description="positions per text")
    stages: Annotated[
        Stages | None, BeforeValidator(lambda value: None if value == "none" else value)
    ] = Stages()
    optimisation: OptimisationSection = OptimisationSection()
    explainer: Annotated[ExplainerSection, from_text(ExplainerSection)] = ExplainerSection()


SECTIONS: Mapping[str, type[SpecSection]] = {
    "data": DataSection,
    "validation": ValidationSection,
    "stages": Stages,
    "optimisation": OptimisationSection,
    "explainer": ExplainerSection,
}


def load_training(
    path: Path, overrides: Mapping[str, Any] | None = None, settings: Sequence[str] = ()
) -> TrainingSpec:
    """Read a specification; its keys win over those of its preset.

    Args:
        path: YAML file.
        overrides: keys from command-line options; None values are ignored.
        settings: `a.b=c` texts (`--set`); the value is read as YAML.

    Raises SpecError: unreadable file, unknown key, preset or wrong value, each named.
    """
    document = read_document(path, "training", _BEGINS)
    apply_overrides(document, overrides or {}, settings, SECTIONS)
    preset = document.get("preset")
    if preset is not None:
        if not isinstance(preset, str) or preset not in PRESETS:
            raise SpecError(f"there is no preset {preset!r}; known: {', '.join(PRESETS)}")
        if isinstance(document.get("explainer"), str):
            document["explainer"] = {"mode": document["explainer"]}
        document = with_preset(document, PRESETS[preset])
    return validated(TrainingSpec, document, f"the training of {path}", SECTIONS)


def with_preset(document: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    """`document` with what it leaves open from `preset`, section by section."""
    merged = dict(document)
    for key, default in preset.items():
        value = merged.get(key)
        if key not in merged:
            merged[key] = default
        elif isinstance(default, Mapping) and isinstance(value, Mapping):
            merged[key] = with_preset(value, default)
    return merged


def plan_training(spec: TrainingSpec, settings: Settings) -> TrainingPlan:
    """The plan of a specification, its data read into snapshots.

    Raises ConfigurationError: the data cannot be read, or two keys contradict each other.
    """
    validation, explainer = spec.validation, spec.explainer
    if validation.source is not None and validation.share is not None:
        raise SpecError("validation has a source and a share; give one of them")
    share = 0.1 if validation.share is None else validation.share
    shared: dict[str, Any] = {"precision": spec.precision, "seed": spec.seed}
    classifier = spec.optimisation.model_dump(include={*FitSection.model_fields})
    rates = spec.optimisation.model_dump(include={*Optimisation.model_fields})
    return TrainingPlan(
        source=absolute_model(spec.model),
        classes=spec.classes,
        dataset=_snapshot(spec, None, settings),
        validation=_snapshot(spec, validation.source, settings) if validation.source else None,
        share=share if validation.source is None else 0.0,
        labels=spec.labels,
        output=local_path(spec.output or f"trainings/{spec.name}"),
        device=spec.device,
        max_length=spec.max_length,
        stages=spec.stages,
        optimisation=Optimisation(**rates),
        fit=FitPlan(**classifier, **shared) if spec.optimisation.epochs else None,
        explainer=None if explainer.mode == "none" else explainer,
        explainer_fit=FitPlan(
            epochs=explainer.epochs,
            batch_size=explainer.batch_size,
            patience=explainer.patience,
            **shared,
        ),
        seed=spec.seed,
    )


def train_spec(spec: TrainingSpec, settings: Settings, observer: FitObserver) -> Trained:
    """Train what a specification says; see `training_runs.train`."""
    from transexplain.extras.training.training_runs import train

    return train(plan_training(spec, settings), observer)


def _snapshot(spec: TrainingSpec, source: str | None, settings: Settings) -> DatasetRef:
    data = spec.data.model_dump()
    if source is not None:
        data |= {"source": source, "limit": None, "sample": None}
    return plan_dataset(DatasetSpec(**data), settings.snapshot_dir)


_INTERRUPTED = 130
SpecPath = Annotated[Path, typer.Argument(help="training specification (YAML)")]
Output = Annotated[
    str | None, typer.Option("--output", "-o", help="folder; default: trainings/NAME")
]
Restart = Annotated[
    bool, typer.Option("--restart", help="forget the checkpoints of the output and begin again")
]


def train(
    spec: SpecPath,
    *,
    output: Output = None,
    name: NameOption = None,
    set_: opt.Set = None,
    restart: Restart = False,
    as_json: opt.AsJson = False,
) -> None:
    """Fine-tune a classifier in stages; run again after an interruption to go on."""
    from orchestrator.dispatch.stopping import stopping

    overrides = {"output": output, "name": name}
    read = load_training(spec, overrides, set_ or ())
    if restart:
        from transexplain.extras.training.training_runs import forget

        forget(local_path(read.output or f"trainings/{read.name}"))
    try:
        with stopping() as stop, _shown(read.name, stop) as observer:
            trained = train_spec(read, Settings.from_environment(), observer)
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command goes on with the training", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    _print(trained, as_json=as_json)


class _Bar(FitObserver):
    """Shows a fit as a progress bar with its losses; ends it when a stop is requested."""

    def __init__(self, bar: "Progress", label: str, stop: Event) -> None:
        self.bar, self.stop, self.label = bar, stop, label
        self.task = bar.add_task(label, total=None, note="")
        self.metrics = ""

    def began(self, what: str) -> None:
        """Another part of the training; the bar begins again."""
        self.metrics = ""
        self.bar.reset(self.task, total=None, description=f"{self.label}: {what}", note="")
        typer.echo(f"{self.label}: {what}", err=True)

    def stepped(self, step: int, steps: int, losses: Mapping[str, float]) -> None:
        """One step further."""
        note = f"loss {losses['loss']:.4f}" if "loss" in losses else ""
        self.bar.update(self.task, completed=step, total=steps, note=f"{note}{self.metrics}")

    def validated(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """One epoch further; written on a line of its own."""
        self.metrics = "".join(f", {name} {value:.4f}" for name, value in metrics.items())
        typer.echo(f"{self.label}: epoch {epoch}{self.metrics}", err=True)

    def should_stop(self) -> bool:
        """Return whether Ctrl-C or SIGTERM came."""
        return self.stop.is_set()


@contextmanager
def _shown(label: str, stop: Event) -> Iterator[_Bar]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Left

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Left(),
        TextColumn("{task.fields[note]}"),
        console=console,
        disable=not console.is_terminal,
    )
    with bar:
        yield _Bar(bar, label, stop)


def _print(trained: Trained, *, as_json: bool) -> None:
    if as_json:
        import json

        document: dict[str, Any] = asdict(trained)
        typer.echo(json.dumps(document, indent=1, default=str))
        return
    for failure in trained.failures[:5]:
        typer.echo(f"left out {failure.item_id}: {failure.kind}: {failure.message}", err=True)
    if trained.failures:
        typer.echo(f"left out {len(trained.failures)} items in all", err=True)
    if trained.epochs:
        measured = "nothing was held out"
        if trained.metrics:
            of = f"{trained.validation_examples} held-out items"
            measured = f"accuracy {trained.metrics['accuracy']:.4f} over {of}"
        ended = ", ended early" if trained.stopped_early else ""
        typer.echo(f"{trained.examples} items, {trained.epochs} epochs{ended}: {measured}")
    typer.echo(f"model      {trained.model}")
    if trained.explainer is not None:
        typer.echo(f"explainer  {trained.explainer}")
    typer.echo(f"history    {', '.join(str(path) for path in trained.histories)}")
    typer.echo(f"curves     {', '.join(str(path) for path in trained.curves)}")
    agreement = trained.agreement
    if agreement is not None:
        typer.echo(
            f"the explainer ranks positions as its teacher does with a rank correlation of "
            f"{agreement.rank_correlation:.3f} (relative error {agreement.relative_error:.3f}) "
            f"over {agreement.items} held-out items"
        )
    by = ""
    if trained.explainer is not None:
        by = f" --method learned --set method.params.explainer={trained.explainer}"
    typer.echo(f"next: transexplain run --model {trained.model} --data DATA{by}")
