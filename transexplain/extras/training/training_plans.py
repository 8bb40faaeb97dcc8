"""The plan of a training, and its result; without torch. `train_command` checks its values."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, JsonValue

from orchestrator.spec.spec_document import SpecSection
from transexplain.errors import ConfigurationError
from transexplain.randomness import keyed_number
from transexplain.types.items import ItemFailure
from transexplain.types.plans import DatasetRef
from transexplain.types.scores import MethodSpec, TeacherAgreement

Precision = Literal["auto", "mixed", "float32", "bfloat16", "float16"]
#: one warm-up and one cosine for each stage, from its own start, or one of both for the whole fit
Schedule = Literal["stage", "whole"]
#: patience counts from the first epoch, or once everything is trained that will be
PatienceFrom = Literal["start", "unfrozen"]
#: `scaled`: errors over the items' own scales; `mse`: plain mean squared error in logits
ExplanationLoss = Literal["scaled", "mse"]
#: the weights that a fit ends with: of the best validation, or of the last step
Keep = Literal["best", "last"]
#: checkpoints of the classifier, and of an explainer that is trained after it, below the output
FIT, EXPLAINER_FIT = "fit", "explainer-fit"


class Stages(SpecSection):
    """Layer-wise unfreezing; `stages: none` trains everything from the first step."""

    head_epochs: int = Field(default=1, ge=0, description="epochs of the head alone")
    interval_epochs: int = Field(default=1, ge=1, description="epochs between two unfreezings")
    layers_per_interval: int = Field(default=2, ge=1, description="layers unfrozen together")
    decay: float = Field(default=0.5, gt=0, le=1, description="rate over that of the stage before")
    decays_first: bool = Field(
        default=False, description="the first layers unfrozen have the lower rate too"
    )
    embeddings: bool = Field(default=True, description="unfreeze the embeddings too, last")


class FitSection(SpecSection):
    """How long and how a fit runs."""

    epochs: int = Field(default=8, ge=0, description="0: the model stays as it is")
    batch_size: int = Field(default=32, ge=1, description="items per step")
    clip: float | None = Field(default=1.0, gt=0, description="greatest norm of the gradient")
    warmup: float = Field(default=0.1, ge=0, lt=1, description="share of the schedule's steps")
    schedule: Schedule = Field(
        default="stage", description="warm-up and cosine: of each stage, or one of the whole"
    )
    patience: int | None = Field(
        default=None, ge=1, description="epochs without a better validation; null: no early end"
    )
    patience_from: PatienceFrom = Field(
        default="unfrozen", description="patience counts from the start, or once all is unfrozen"
    )
    keep: Keep = Field(default="best", description="weights that are kept")


class FitPlan(FitSection):
    """One fit."""

    precision: Precision = "auto"
    seed: int = 0
    checkpoint_seconds: float = 30.0  #: between checkpoints inside of an epoch
    checkpoint_steps: int | None = None  #: instead of seconds

    @property
    def identity(self) -> dict[str, Any]:
        """All fields that have to agree when a fit goes on; those of checkpoints need not."""
        return self.model_dump(exclude={"checkpoint_seconds", "checkpoint_steps"})


class Optimisation(SpecSection):
    """What is minimised and at which rates."""

    learning_rate: float = Field(
        default=3e-5, gt=0, allow_inf_nan=False, description="the greatest, of the layers"
    )
    head_learning_rate: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="of the head; default: the layers'"
    )
    weight_decay: float = Field(
        default=0.01, ge=0, allow_inf_nan=False, description="AdamW's, decoupled"
    )
    embedding_weight_decay: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="default: weight_decay"
    )
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="share of a target that is spread over all classes"
    )
    augment: bool = Field(default=False, description="pictures: mirror and crop at random")
    dropout: float | None = Field(
        default=None, ge=0, lt=1, description="of the classifier in training; default: its own"
    )


class ExplainerSection(SpecSection):
    """An explainer that learns what a relevance method says.

    `separate`: the classifier is trained first, or not at all, and then does not move; its
    relevance is computed once. `joint`: both are trained together on cross-entropy plus `weight`
    times the explanation loss, and the relevance is that of the classifier as it is at each step.
    """

    shorthand: ClassVar[str] = "mode"

    mode: Literal["none", "separate", "joint"] = "none"
    method: str = Field(default="lrp", description="the teacher; it measures logits")
    params: dict[str, JsonValue] = Field(default_factory=dict, description="of the teacher")
    weight: float = Field(default=0.1, gt=0, description="lambda of its loss, joint")
    loss: ExplanationLoss = Field(
        default="scaled", description="errors on the items' scales, or plain mse in logits"
    )
    epochs: int = Field(default=10, ge=1, description="separate; joint has the classifier's")
    batch_size: int = Field(default=32, ge=1, description="separate")
    patience: int | None = Field(default=None, ge=1, description="separate")
    learning_rate: float = Field(default=2e-3, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    dropout: float | None = Field(default=None, ge=0, lt=1, description="in training; default: 0")
    classes: int | None = Field(
        default=2, ge=1, description="taught for each item: the predicted one and others; null: all"
    )
    layers: tuple[int, ...] | None = Field(
        default=None, min_length=1, description="that are read; default: first, middle, last"
    )
    width: int | None = Field(default=None, ge=1, description="default: a quarter of the model's")
    depth: int = Field(default=2, ge=1, description="attention layers of its own")
    conserve: bool = Field(default=True, description="positions sum to the logit less constants")

    @property
    def teacher(self) -> MethodSpec:
        """The method that is learned."""
        return MethodSpec(name=self.method, params=self.params)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlan:
    """One training of a classifier, with everything that decides its weights."""

    source: str  #: model to start from: directory, hub id, or timm:NAME?checkpoint=FILE
    dataset: DatasetRef
    output: Path
    fit: FitPlan | None  #: of the classifier; None: it stays as it is
    classes: tuple[str, ...] | None = None  #: of the trained model; None: the model's own
    validation: DatasetRef | None = None  #: None: a share of `dataset`
    share: float = 0.1  #: of `dataset` that is held out where `validation` is None; 0: nothing
    #: dataset label -> class; `by-index`: label i is class i
    labels: Mapping[str, str] | Literal["by-index"] = field(default_factory=dict)
    device: str = "cpu"
    max_length: int | None = None  #: positions per text
    stages: Stages | None = field(default_factory=Stages)  #: None: all is trained from the start
    optimisation: Optimisation = field(default_factory=Optimisation)
    explainer: ExplainerSection | None = None
    explainer_fit: FitPlan = field(default_factory=lambda: FitPlan(epochs=10))  #: of a separate one
    seed: int = 0  #: of a fresh head and of the share that is held out

    def __post_init__(self) -> None:
        alone = self.explainer is not None and self.explainer.mode == "separate"
        if self.fit is None and (not alone or self.classes):
            raise ConfigurationError(
                "with 0 epochs the classifier stays as it is: only an explainer of mode "
                "'separate' can be trained then, and it gets no other classes"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """The result of a training."""

    model: str  #: what `load_model` takes
    histories: tuple[Path, ...] = ()  #: JSON; the same as CSV beside each
    curves: tuple[Path, ...] = ()  #: pictures: SVG and PNG
    #: validation of the kept weights; empty: nothing was held out
    metrics: Mapping[str, float] = field(default_factory=dict)
    epochs: int = 0  #: of the classifier that were run
    best_epoch: int | None = None  #: counted from 1; None: nothing was held out, or nothing run
    stopped_early: bool = False
    examples: int
    validation_examples: int
    failures: tuple[ItemFailure, ...]  #: items that could not be used
    explainer: Path | None = None  #: its file
    #: of the explainer with its teacher, on items held out
    agreement: TeacherAgreement | None = None


class FitObserver:
    """Receives the progress of a training and may end it; this one ignores it and never does."""

    def began(self, what: str) -> None:
        """A part of the training begins, such as `training the classifier`."""

    def stepped(self, step: int, steps: int, losses: Mapping[str, float]) -> None:
        """`step` of `steps` is done; `losses` are those of its batch."""

    def validated(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """`epoch`, counted from 1, is over."""

    def should_stop(self) -> bool:
        """Return whether to write a checkpoint and end by KeyboardInterrupt."""
        return False


def digest_of(*parts: Any) -> str:
    """Sha256 over the canonical JSON of `parts`, in hexadecimal."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def seed_of(seed: int, kind: str, number: int) -> int:
    """A seed of 63 bits for one step or epoch."""
    return keyed_number(kind, seed, number, algorithm="sha256", separator=" ") >> 1
