"""The objective that a fit minimises: its interface, and that of a classifier."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from transexplain.models.loaded_model import LoadedModel
from transexplain.training.examples import ExampleBatch, Examples
from transexplain.training.training_plans import Optimisation, identity_of_fields


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ParameterGroup:
    """Parameters that are trained from one step on, at one rate."""

    name: str
    parameters: Mapping[str, nn.Parameter]  #: by their names in the objective's module
    learning_rate: float  #: greatest; the schedule begins at `starts`
    weight_decay: float
    starts: int = 0  #: first step, counted from 0, at which they are trained


class Objective(Protocol):
    """Something that a fit can minimise."""

    @property
    def module(self) -> nn.Module:
        """Everything whose weights and buffers are trained and checkpointed."""

    @property
    def monitor(self) -> str:
        """The key of `validate` that early stopping and the best weights go by."""

    @property
    def higher_is_better(self) -> bool:
        """Which way `monitor` is good."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """The JSON values that decide the losses, besides the module and the examples."""

    def parameter_groups(self) -> list[ParameterGroup]:
        """All that is ever trained; a parameter is in one group at most."""

    def losses(self, batch: ExampleBatch, step: int) -> dict[str, Tensor]:
        """`loss` is minimised, other keys are parts that curves show; scalars.

        Called in train mode, under autocast, with torch's generator seeded for this step.
        """

    def validate(self) -> dict[str, float]:
        """Measures on the validation examples, in eval mode; empty where there are none."""

    def epoch_started(self, epoch: int) -> None:
        """Epoch `epoch`, counted from 0, begins, or goes on after a resume."""


class ClassifierObjective:
    """Cross-entropy of a classifier's logits, with label smoothing (Szegedy et al. 2016)."""

    monitor = "accuracy"
    higher_is_better = True

    def __init__(
        self,
        model: LoadedModel,
        groups: Sequence[ParameterGroup],
        validation: "Examples",
        *,
        optimisation: Optimisation,
        batch_size: int,
    ) -> None:
        self.model, self.validation = model, validation
        self._groups, self._optimisation = list(groups), optimisation
        self._batch_size = batch_size

    @property
    def module(self) -> nn.Module:
        """The classifier."""
        return self.model.module

    @property
    def identity(self) -> Mapping[str, Any]:
        """The rates, the smoothing, the dropout and what is done to pictures."""
        return identity_of_fields(self._optimisation)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Head, layers and embeddings; see `stages`."""
        return self._groups

    def losses(self, batch: ExampleBatch, step: int) -> dict[str, Tensor]:
        """Mean cross-entropy over the batch, in nats."""
        del step
        seen = self.seen(batch)
        logits = self.model.caller(self.model.module, seen.batch.inputs)
        return {"loss": self.loss(logits, seen.labels)}

    def seen(self, batch: ExampleBatch) -> ExampleBatch:
        """The batch as the model sees it in training: pictures augmented where requested."""
        if not self._optimisation.augment or self.model.modality != "image":
            return batch
        changed = replace(batch.batch, inputs=augmented(batch.batch.inputs))
        return replace(batch, batch=changed)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean smoothed cross-entropy of logits (B, C) and labels (B,), in nats."""
        smoothing = self._optimisation.label_smoothing
        return cross_entropy(logits.float(), labels, label_smoothing=smoothing)

    def validate(self) -> dict[str, float]:
        """Accuracy and mean cross-entropy without smoothing; empty where nothing is held out."""
        return classified(self.model, self.validation, self._batch_size)

    def epoch_started(self, epoch: int) -> None:
        """Nothing depends on the epoch."""


@torch.no_grad()
def classified(model: LoadedModel, examples: Examples, batch_size: int) -> dict[str, float]:
    """`accuracy` (share) and `loss` (nats per example) of a model over examples."""
    right, losses = 0, []
    for one in examples.in_order(batch_size):
        logits = model.logits(one.batch)
        right += int((logits.argmax(dim=1) == one.labels).sum())
        # by items, so that the sum does not depend on how they were batched
        losses.extend(cross_entropy(logits.double(), one.labels, reduction="none").tolist())
    if not losses:
        return {}
    return {"accuracy": right / len(losses), "loss": math.fsum(losses) / len(losses)}


def augmented(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Pictures (B, 3, H, W), each mirrored by chance and cropped from a frame of 1/8 more."""
    from torchvision.transforms import v2

    changed = dict(inputs)
    for name, pictures in inputs.items():
        if pictures.dim() != 4:
            continue
        height, width = pictures.shape[2:]
        padding = [width // 8, height // 8]
        change = v2.Compose(
            [v2.RandomHorizontalFlip(), v2.RandomCrop((height, width), padding=padding)]
        )
        changed[name] = torch.stack([change(picture) for picture in pictures])
    return changed
