"""Which parameters are trained, from which step on and at which rate."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from transexplain.errors import ConfigurationError
from transexplain.models.base import Batch, LoadedModel
from transexplain.models.blocks import blocks_of
from transexplain.models.call import eval_mode
from transexplain.models.variants import parameters_from_the_top, word_table
from transexplain.training.objective import ParameterGroup
from transexplain.training.plan import Optimisation, Stages

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
    groups: list[ParameterGroup] = []
    for number, (name, names) in enumerate(stages_of(model, sample, stages)):
        rate = optimisation.learning_rate
        starts = 0
        if number == 0 and name == HEAD:
            rate = optimisation.head_learning_rate or rate
        elif stages is not None:
            rate *= stages.decay ** (number - 1)
            epochs = stages.head_epochs + (number - 1) * stages.interval_epochs
            starts = epochs * epoch_steps
        groups += _by_decay(model, name, names, rate, starts, optimisation)
    return groups


def stages_of(
    model: LoadedModel, sample: Batch, stages: Stages | None
) -> list[tuple[str, tuple[str, ...]]]:
    """Name and parameters of every stage, in the order in which they are unfrozen."""
    named = tuple(name for name, _ in model.module.named_parameters())
    if stages is None:
        return [(ALL, named)]
    if stages.layers_per_interval < 1 or stages.head_epochs < 0 or stages.interval_epochs < 1:
        raise ConfigurationError(
            "stages need layers_per_interval >= 1, interval_epochs >= 1 and head_epochs >= 0"
        )
    head, layers, below = parts_of(model, sample)
    found = [(HEAD, head)]
    step, top = stages.layers_per_interval, len(layers)
    for upper in range(top, 0, -step):
        lower = max(upper - step, 0)
        names = tuple(name for layer in layers[lower:upper] for name in layer)
        label = f"layers {lower}-{upper - 1}" if upper - lower > 1 else f"layer {lower}"
        found.append((label, names))
    if stages.embeddings and below:
        found.append((EMBEDDINGS, below))
    return found


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


def rate_at(group: ParameterGroup, step: int, steps: int, warmup: float) -> float:
    """Rate at `step` of `steps`: a linear rise, then half a cosine, from the group's own start.

    Cosine without restarts (Loshchilov & Hutter 2017, eq. 5) down to 0; the rise ends after the
    share `warmup` of the group's own steps.
    """
    span, passed = steps - group.starts, step - group.starts
    if passed < 0 or span <= 0:
        return 0.0
    rise = round(warmup * span)
    if passed < rise:
        return group.learning_rate * (passed + 1) / rise
    return group.learning_rate * 0.5 * (1 + math.cos(math.pi * (passed - rise) / (span - rise)))


def _by_decay(
    model: LoadedModel,
    name: str,
    names: Iterable[str],
    rate: float,
    starts: int,
    optimisation: Optimisation,
) -> list[ParameterGroup]:
    words = word_table(model) if optimisation.embedding_weight_decay is not None else None
    named = dict(model.module.named_parameters())
    kinds: dict[str, tuple[float, Callable[[str], bool]]] = {
        "": (optimisation.weight_decay, lambda one: one != words and named[one].dim() > 1),
        ", vectors": (0.0, lambda one: one != words and named[one].dim() <= 1),
        ", words": (optimisation.embedding_weight_decay or 0.0, lambda one: one == words),
    }
    found = []
    for suffix, (decay, belongs) in kinds.items():
        chosen = {one: named[one] for one in names if belongs(one)}
        if chosen:
            found.append(
                ParameterGroup(
                    name=name + suffix,
                    parameters=chosen,
                    learning_rate=rate,
                    weight_decay=decay,
                    starts=starts,
                )
            )
    return found


def _after(model: LoadedModel, sample: Batch, last: nn.Module) -> set[int]:
    """Identities of the parameters through which the logits depend on what `last` gave."""
    parameters: Mapping[str, nn.Parameter] = dict(model.module.named_parameters())
    asked = {name: one.requires_grad for name, one in parameters.items()}
    handle = last.register_forward_hook(lambda _m, _a, output: _cut(output))
    try:
        for one in parameters.values():
            one.requires_grad_(one.is_floating_point())
        with eval_mode(model.module), torch.enable_grad():
            logits = model.caller(model.module, sample.inputs)
        floats = [one for one in parameters.values() if one.requires_grad]
        found = torch.autograd.grad(logits.square().sum(), floats, allow_unused=True)
    finally:
        handle.remove()
        for name, one in parameters.items():
            one.requires_grad_(asked[name])
    return {id(one) for one, slope in zip(floats, found, strict=True) if slope is not None}


def _cut(output: Any) -> Any:
    """`output` of a layer without its history."""
    if isinstance(output, Tensor):
        return output.detach()
    if isinstance(output, tuple) and not hasattr(output, "_fields"):
        return tuple(_cut(value) for value in output)
    return output
