"""One step of a fit: forward in mixed precision, backward, clipping, AdamW at scheduled rates."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from transexplain.errors import ConfigurationError
from transexplain.models.files import digest_of_module
from transexplain.training.examples import ExampleBatch, Examples
from transexplain.training.objective import Objective, ParameterGroup
from transexplain.training.plan import FitPlan, Precision, digest_of
from transexplain.training.stages import rate_at

_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Stepper:
    """The optimizer with its schedule; built once, whatever is frozen still."""

    def __init__(
        self, objective: Objective, groups: Sequence[ParameterGroup], plan: FitPlan, steps: int
    ) -> None:
        self.objective, self.groups, self.plan, self.steps = objective, groups, plan, steps
        device = next(objective.module.parameters()).device
        self.device = device.type
        self.number = precision_of(plan.precision, device)
        # AdamW (Loshchilov & Hutter 2019); parameters without a gradient are passed over
        self.optimizer = AdamW(
            [
                {
                    "params": list(group.parameters.items()),
                    "lr": 0.0,
                    "weight_decay": group.weight_decay,
                }
                for group in groups
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
            slot["lr"] = rate_at(group, step, self.steps, self.plan.warmup)
        started = sum(group.starts <= step for group in self.groups)
        if self._trained is None or started != self._started:
            self._trained = self._unfreeze(step)
            self._started = started
        return self._trained

    def _unfreeze(self, step: int) -> list[nn.Parameter]:
        module = self.objective.module
        trained = [
            one
            for group in self.groups
            if group.starts <= step
            for one in group.parameters.values()
        ]
        module.requires_grad_(False)
        for one in trained:
            one.requires_grad_(True)
        module.train()
        for part in module.modules():
            # running statistics are no parameters, but they are part of a frozen layer
            frozen = not any(one.requires_grad for one in part.parameters(recurse=False))
            if isinstance(part, _BatchNorm) and frozen:
                part.eval()
        return trained


def precision_of(precision: Precision, device: torch.device) -> torch.dtype | None:
    """The type of autocast; None: everything in the weights' own type.

    `auto` is bfloat16 on a CUDA device that computes in it, float16 on another, else float32.
    """
    if precision == "auto":
        if device.type != "cuda":
            return None
        major, _ = torch.cuda.get_device_capability(device)
        return torch.bfloat16 if major >= 8 else torch.float16
    return _TYPES.get(precision)


def identity_of(
    objective: Objective, groups: Sequence[ParameterGroup], plan: FitPlan, examples: Examples
) -> str:
    """Sha256 over all that decides the weights of a fit; ConfigurationError for doubled weights."""
    ids = [id(one) for group in groups for one in group.parameters.values()]
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
