"""The plan of a training, and its result; without torch. `train_command` checks its values."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

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
ExplainerMode = Literal["separate", "joint"]
#: checkpoints of the classifier, and of an explainer that is trained after it, below the output
FIT, EXPLAINER_FIT = "fit", "explainer-fit"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
    """Layer-wise unfreezing: the head alone first, then layers from the top, at lower rates."""

    head_epochs: int = 1  #: epochs in which only the head is trained
    interval_epochs: int = 1  #: epochs from one unfreezing to the next
    layers_per_interval: int = 2  #: layers that are unfrozen together, from the top
    decay: float = 0.5  #: rate of a stage over that of the stage before it
    decays_first: bool = False  #: the first layers too have `decay` times the rate, not all of it
    embeddings: bool = True  #: unfreeze what lies below the first layer too, at the very end


@dataclass(frozen=True, kw_only=True, slots=True)
class FitPlan:
    """How long and how one fit runs."""

    epochs: int
    batch_size: int = 32
    clip: float | None = 1.0  #: greatest norm of the gradient; None: not clipped
    warmup: float = 0.1  #: share of the steps of the schedule in which rates rise
    schedule: Schedule = "stage"
    precision: Precision = "auto"
    patience: int | None = None  #: epochs without a better validation before the end; None: never
    patience_from: PatienceFrom = "unfrozen"
    keep: Keep = "best"
    seed: int = 0
    checkpoint_seconds: float = 30.0  #: between checkpoints inside of an epoch
    checkpoint_steps: int | None = None  #: instead of seconds

    @property
    def identity(self) -> dict[str, Any]:
        """All fields that have to agree when a fit goes on; those of checkpoints need not."""
        return {
            name: value
            for name, value in asdict(self).items()
            if not name.startswith("checkpoint_")
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimisation:
    """What is minimised and at which rates."""

    learning_rate: float = 2e-5
    head_learning_rate: float | None = None  #: None: as `learning_rate`
    weight_decay: float = 0.01  #: of matrices; biases and norms do not decay
    embedding_weight_decay: float | None = None  #: of the word embedding; None: as `weight_decay`
    label_smoothing: float = 0.0
    augment: bool = False  #: pictures: mirrored at random and cropped from a padded frame
    dropout: float | None = None  #: of every dropout of the classifier; None: its own rates


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainerPlan:
    """An explainer: taught by which method, of which form, and how long.

    `separate`: the classifier is trained first, or not at all, and then does not move; its
    relevance is computed once. `joint`: both are trained together on cross-entropy plus `weight`
    times the explanation loss, and the relevance is that of the classifier as it is at each step.
    """

    mode: ExplainerMode = "separate"
    teacher: MethodSpec = field(default_factory=MethodSpec)
    weight: float = 0.1  #: lambda of a joint training
    classes: int | None = 2  #: explained of each item: the predicted one and others; None: all
    layers: tuple[int, ...] | None = None  #: hidden states that are read; None: first, middle, last
    width: int | None = None  #: of its hidden vectors; None: a quarter of the model's
    depth: int = 2  #: attention layers of its own
    conserve: bool = True  #: positions sum to the logit minus predicted constants
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    dropout: float | None = None  #: of what its layers add; None: 0
    loss: ExplanationLoss = "scaled"
    fit: FitPlan = field(default_factory=lambda: FitPlan(epochs=10))  #: of a separate training


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
    explainer: ExplainerPlan | None = None
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
    histories: tuple[Path, ...]  #: JSON; the same as CSV beside each
    curves: tuple[Path, ...]  #: pictures: SVG and PNG
    metrics: Mapping[str, float]  #: validation of the kept weights; empty: nothing was held out
    epochs: int  #: of the classifier that were run
    best_epoch: int | None  #: counted from 1; None: nothing was held out, or no epoch was run
    stopped_early: bool
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
