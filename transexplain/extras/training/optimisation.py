"""The optimiser's steps: learning rates, and the step from which each parameter is trained."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from transexplain.errors import ConfigurationError
from transexplain.extras.training.examples import ExampleBatch, Examples
from transexplain.extras.training.training_plans import (
    FitPlan,
    Optimisation,
    Precision,
    Schedule,
    Stages,
    digest_of,
)
from transexplain.models.calling import eval_mode
from transexplain.models.hidden_states import blocks_of
from transexplain.models.hub import digest_of_module
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.models.variants import parameters_from_the_top, word_table


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ParameterGroup:
    """Parameters that are trained from one step on, at one rate."""

    name: str
    parameters: Mapping[str, nn.Parameter]  #: by their names in what is trained
    learning_rate: float  #: greatest; the schedule begins at `starts`
    weight_decay: float
    starts: int = 0  #: first step, counted from 0, at which they are trained


class Objective(Protocol):
    """Something that a fit can minimise."""

    module: nn.Module  #: everything whose weights and buffers are trained and checkpointed
    groups: list[ParameterGroup]  #: all that is ever trained; a parameter is in one at most
    monitor: str  #: the key of `validate` that early stopping and the best weights go by
    higher_is_better: bool  #: of the monitor
    identity: Mapping[str, Any]  #: JSON values that decide the losses, besides module and examples

    def losses(self, batch: ExampleBatch, step: int) -> dict[str, Tensor]:
        """`loss` is minimised, other keys are parts that curves show; scalars.

        Called in train mode, under autocast, with torch's generator seeded for this step.
        """

    def validate(self) -> dict[str, float]:
        """Measures on the validation examples, in eval mode; empty where there are none."""


class ClassifierObjective:
    """Cross-entropy of a classifier's logits, with label smoothing (Szegedy et al. 2016)."""

    monitor = "accuracy"
    higher_is_better = True

    def __init__(
        self,
        model: LoadedModel,
        groups: list[ParameterGroup],
        validation: Examples,
        *,
        optimisation: Optimisation,
        batch_size: int,
    ) -> None:
        self.model, self.module, self.groups = model, model.module, groups
        self.validation = validation
        self.identity: Mapping[str, Any] = optimisation.model_dump()
        self._optimisation, self._batch_size = optimisation, batch_size

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


@torch.no_grad()
def classified(model: LoadedModel, examples: Examples, batch_size: int) -> dict[str, float]:
    """`accuracy` (share) and `loss` (nats per example) of a model over examples."""
    right, losses = 0, []
    for batch in examples.in_order(batch_size):
        logits = model.logits(batch.batch)
        right += int((logits.argmax(dim=1) == batch.labels).sum())
        # by items, so that the sum does not depend on how they were batched
        losses.extend(cross_entropy(logits.double(), batch.labels, reduction="none").tolist())
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


HEAD, EMBEDDINGS, ALL = "head", "embeddings", "all"


def parameter_groups(
    model: LoadedModel,
    sample: Batch,
    *,
    stages: Stages | None,
    optimisation: Optimisation,
    epoch_steps: int,
) -> list[ParameterGroup]:
    """The groups of a classifier by stage, matrices and vectors apart, the word table alone.

    Args:
        model: the classifier.
        sample: any batch: it shows which parameters come after the last layer.
        stages: None: everything from the first step.
        optimisation: rates and decays.
        epoch_steps: steps of one epoch.
    """
    words = word_table(model) if optimisation.embedding_weight_decay is not None else None
    named = dict(model.module.named_parameters())
    groups: list[ParameterGroup] = []
    for number, (name, names) in enumerate(stages_of(model, sample, stages)):
        rate = optimisation.learning_rate
        starts = 0
        if number == 0 and name == HEAD:
            rate = optimisation.head_learning_rate or rate
        elif stages is not None:
            rate *= stages.decay ** (number - 1 + stages.decays_first)
            epochs = stages.head_epochs + (number - 1) * stages.interval_epochs
            starts = epochs * epoch_steps
        parameters = {key: named[key] for key in names if key != words}
        groups += by_decay(
            name, parameters, rate=rate, weight_decay=optimisation.weight_decay, starts=starts
        )
        if words in names:
            groups.append(
                ParameterGroup(
                    name=f"{name}, words",
                    parameters={words: named[words]},
                    learning_rate=rate,
                    weight_decay=optimisation.embedding_weight_decay or 0.0,
                    starts=starts,
                )
            )
    return groups


def stages_of(
    model: LoadedModel, sample: Batch, stages: Stages | None
) -> list[tuple[str, tuple[str, ...]]]:
    """Name and parameters of every stage, in the order in which they are unfrozen."""
    named = tuple(name for name, _ in model.module.named_parameters())
    if stages is None:
        return [(ALL, named)]
    head, layers, below = parts_of(model, sample)
    groups = [(HEAD, head)]
    step, top = stages.layers_per_interval, len(layers)
    for upper in range(top, 0, -step):
        lower = max(upper - step, 0)
        names = tuple(name for layer in layers[lower:upper] for name in layer)
        label = f"layers {lower}-{upper - 1}" if upper - lower > 1 else f"layer {lower}"
        groups.append((label, names))
    if stages.embeddings and below:
        groups.append((EMBEDDINGS, below))
    return groups


def parts_of(
    model: LoadedModel, sample: Batch
) -> tuple[tuple[str, ...], list[tuple[str, ...]], tuple[str, ...]]:
    """Names of the parameters of the head, of each layer from the bottom, and of the rest.

    The head is what the logits reach through after the last layer: poolers and final norms are
    part of it. Without a repeated layer list all but the head are the rest.
    """
    if model.sites.block is None:
        head, *others = parameters_from_the_top(model)
        return head, [], tuple(name for names in others for name in names)
    layers = layers_of(model)
    named = dict(model.module.named_parameters())
    place: dict[int, int] = {}
    for number, layer in enumerate(layers):
        for parameter in layer.parameters():
            place.setdefault(id(parameter), number)
    reached = _after(model, sample, layers[-1])
    by_layer: list[list[str]] = [[] for _ in layers]
    above: list[str] = []
    below: list[str] = []
    for name, parameter in named.items():
        if id(parameter) in place:
            by_layer[place[id(parameter)]].append(name)
        elif id(parameter) in reached:
            above.append(name)
        else:
            below.append(name)
    return tuple(above), [tuple(names) for names in by_layer if names], tuple(below)


def layers_of(model: LoadedModel) -> tuple[nn.Module, ...]:
    """The repeated layers; of a model in steps of several blocks (Swin, ConvNeXt) the steps."""
    name, outermost = model.sites.block_name, None
    while name:
        name = name.rpartition(".")[0]
        parent = model.module.get_submodule(name)
        alike = len({type(child) for child in parent.children()}) == 1
        if isinstance(parent, nn.ModuleList | nn.Sequential) and len(parent) > 1 and alike:
            outermost = parent
    return tuple(outermost.children()) if outermost is not None else blocks_of(model)


def rate_at(
    group: ParameterGroup, step: int, steps: int, warmup: float, schedule: Schedule = "stage"
) -> float:
    """Rate at `step` of `steps`: a linear rise, then half a cosine; 0 before the group's start.

    Cosine without restarts (Loshchilov & Hutter 2017, eq. 5) down to 0; the rise ends after the
    share `warmup` of the schedule, which begins at the group's own start, or, `whole`, at step 0
    for every group.
    """
    if step < group.starts:
        return 0.0
    begins = 0 if schedule == "whole" else group.starts
    span, passed = steps - begins, step - begins
    if span <= 0:
        return 0.0
    rise = round(warmup * span)
    if passed < rise:
        return group.learning_rate * (passed + 1) / rise
    return group.learning_rate * 0.5 * (1 + math.cos(math.pi * (passed - rise) / (span - rise)))


def by_decay(
    name: str,
    parameters: Mapping[str, nn.Parameter],
    *,
    rate: float,
    weight_decay: float,
    starts: int = 0,
) -> list[ParameterGroup]:
    """Matrices, and vectors apart: biases and norms do not decay."""
    matrices = {key: parameter for key, parameter in parameters.items() if parameter.dim() > 1}
    vectors = {key: parameter for key, parameter in parameters.items() if parameter.dim() <= 1}
    kinds = ((name, matrices, weight_decay), (f"{name}, vectors", vectors, 0.0))
    return [
        ParameterGroup(
            name=kind, parameters=some, learning_rate=rate, weight_decay=decay, starts=starts
        )
        for kind, some, decay in kinds
        if some
    ]


def _after(model: LoadedModel, sample: Batch, last: nn.Module) -> set[int]:
    """Identities of the parameters through which the logits depend on what `last` gave."""
    parameters: Mapping[str, nn.Parameter] = dict(model.module.named_parameters())
    trainable = {name: parameter.requires_grad for name, parameter in parameters.items()}
    handle = last.register_forward_hook(lambda _m, _a, output: _cut(output))
    try:
        for one in parameters.values():
            one.requires_grad_(one.is_floating_point())
        with eval_mode(model.module), torch.enable_grad():
            logits = model.caller(model.module, sample.inputs)
        floats = [parameter for parameter in parameters.values() if parameter.requires_grad]
        gradients = torch.autograd.grad(logits.square().sum(), floats, allow_unused=True)
    finally:
        handle.remove()
        for name, one in parameters.items():
            one.requires_grad_(trainable[name])
    return {
        id(float_) for float_, slope in zip(floats, gradients, strict=True) if slope is not None
    }


def _cut(output: Any) -> Any:
    """`output` of a layer without its history."""
    if isinstance(output, Tensor):
        return output.detach()
    if isinstance(output, tuple) and not hasattr(output, "_fields"):
        return tuple(_cut(value) for value in output)
    return output


#: names under which layers of transformers keep a rate of dropout as a number
_RATES = ("dropout", "dropout_prob", "attention_dropout", "activation_dropout", "hidden_dropout")


def set_dropout(module: nn.Module, rate: float) -> None:
    """Give every dropout of a module one rate, that of attention weights included."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = rate
        for name in _RATES:
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, rate)


_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Stepper:
    """The optimizer with its schedule; built once, whatever is frozen still."""

    def __init__(self, objective: Objective, plan: FitPlan, steps: int) -> None:
        self.objective, self.plan, self.steps = objective, plan, steps
        self.groups = objective.groups
        device = next(objective.module.parameters()).device
        self.device = device.type
        self.number = precision_of(plan.precision, device)
        # AdamW (Loshchilov & Hutter 2019); parameters without a gradient are passed over
        self.optimizer = AdamW(
            [
                {
                    "params": list(group.parameters.values()),
                    "lr": 0.0,
                    "weight_decay": group.weight_decay,
                }
                for group in self.groups
            ],
            lr=0.0,
        )
        scaled = self.number is torch.float16
        self.scaler = torch.amp.GradScaler(self.device, enabled=scaled)
        self._trained: list[nn.Parameter] | None = None
        self._started = -1

    @property
    def unfrozen(self) -> list[tuple[int, str]]:
        """First step and name of every stage."""
        firsts: dict[int, str] = {}
        for group in self.groups:
            firsts.setdefault(group.starts, group.name)
        return sorted((start, name) for start, name in firsts.items() if start < self.steps)

    @property
    def last_start(self) -> int:
        """The first step at which everything is trained that will be."""
        return max(start for start, _ in self.unfrozen)

    def step(self, batch: ExampleBatch, step: int) -> dict[str, float]:
        """Train on one batch; its losses."""
        trained = self._prepare(step)
        with torch.autocast(self.device, dtype=self.number, enabled=self.number is not None):
            losses = self.objective.losses(batch, step)
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(self.scaler.scale(losses["loss"]))
        if self.plan.clip is not None:
            self.scaler.unscale_(self.optimizer)
            clip_grad_norm_(trained, self.plan.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return {name: float(value.detach()) for name, value in losses.items()}

    def _prepare(self, step: int) -> list[nn.Parameter]:
        """Set the rates, and at the first step of a stage what is frozen; what is trained."""
        for group, slot in zip(self.groups, self.optimizer.param_groups, strict=True):
            slot["lr"] = rate_at(group, step, self.steps, self.plan.warmup, self.plan.schedule)
        started = sum(group.starts <= step for group in self.groups)
        if self._trained is None or started != self._started:
            module = self.objective.module
            trained = [
                parameter
                for group in self.groups
                if group.starts <= step
                for parameter in group.parameters.values()
            ]
            module.requires_grad_(False)
            for one in trained:
                one.requires_grad_(True)
            module.train()
            for part in module.modules():
                # running statistics are no parameters, but they are part of a frozen layer
                frozen = not any(
                    parameter.requires_grad for parameter in part.parameters(recurse=False)
                )
                if isinstance(part, _BatchNorm) and frozen:
                    part.eval()
            self._trained = trained
            self._started = started
        return self._trained


def precision_of(precision: Precision, device: torch.device) -> torch.dtype | None:
    """The type of autocast; None: everything in the weights' own type.

    `auto` is bfloat16 on a CUDA device that computes in it, float16 on another, else float32;
    `mixed` is the same, and bfloat16 where there is no CUDA device.
    """
    if precision in ("auto", "mixed"):
        if device.type != "cuda":
            return torch.bfloat16 if precision == "mixed" else None
        major, _ = torch.cuda.get_device_capability(device)
        return torch.bfloat16 if major >= 8 else torch.float16
    return _TYPES.get(precision)


def identity_of(objective: Objective, plan: FitPlan, examples: Examples) -> str:
    """Sha256 over all that decides the weights of a fit; ConfigurationError for doubled weights."""
    groups = objective.groups
    ids = [id(parameter) for group in groups for parameter in group.parameters.values()]
    if len(ids) != len(set(ids)):
        raise ConfigurationError("a parameter is in two groups; put it into one")
    if not groups or min(group.starts for group in groups) > 0:
        raise ConfigurationError("nothing is trained at the first step; start a group at 0")
    described = [
        [group.name, list(group.parameters), group.learning_rate, group.weight_decay, group.starts]
        for group in groups
    ]
    parts = (plan.identity, described, dict(objective.identity), examples.digest)
    return digest_of(*parts, digest_of_module(objective.module))
