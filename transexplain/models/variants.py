"""A variant of a model with some parameters replaced, which shares all other parameters."""

import copy
import hashlib
import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from transexplain.errors import EngineError
from transexplain.models.hidden_states import blocks_of
from transexplain.models.input_layer import find_embeddings
from transexplain.models.loaded_model import LoadedModel

_LOCK = threading.RLock()


def variant(model: LoadedModel, replaced: Mapping[str, Tensor]) -> LoadedModel:
    """`model` with the parameters in `replaced`, by name, in the place of its own.

    The modules are copied and the tensors are not: what is not replaced lies in the memory of the
    audited model, and a replacement on the model's device lies where it was given. Weights that
    were tied stay tied: one name replaces all of them. The input layers are where the model's are
    now, so a graph model should have seen a graph. Raises EngineError for an unknown name or shape.
    """
    # a deep copy takes every tensor in the memo for its own copy
    held = [value for part in model.module.modules() for value in vars(part).values()]
    tensors = [*model.module.parameters(), *model.module.buffers(), *held]
    memo: dict[int, Any] = {id(value): value for value in tensors if isinstance(value, Tensor)}
    parameters = dict(model.module.named_parameters(remove_duplicate=False))
    for name, tensor in replaced.items():
        old = parameters.get(name)
        if old is None or old.shape != tensor.shape:
            known = "no such parameter" if old is None else f"one of shape {tuple(old.shape)}"
            raise EngineError(
                f"parameter {name!r} cannot be replaced by a tensor of shape "
                f"{tuple(tensor.shape)}: {model.ref.source} has {known}"
            )
        new = tensor.detach().to(old.device, old.dtype)
        memo[id(old)] = nn.Parameter(new, requires_grad=old.requires_grad)
    module = copy.deepcopy(model.module, memo)
    block = model.sites.block
    sites = replace(
        model.sites,
        block=None if block is None else memo[id(block)],
        embeddings=tuple(memo[id(part)] for part in model.sites.embeddings),
    )
    digest = hashlib.sha256(model.ref.digest.encode())
    for name, tensor in sorted(replaced.items()):
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        if flat.numel():
            digest.update(flat.view(torch.uint8).numpy().data)
    return LoadedModel(
        module=module,
        modality=model.modality,
        classes=model.classes,
        ref=replace(model.ref, digest=digest.hexdigest()),
        encoder=model.encoder,
        caller=model.caller,
        located=lambda: sites,
    )


def kept(model: LoadedModel, kind: str, key: Hashable, make: Callable[[], Any]) -> Any:
    """The result of `make`, computed once for `model` and kept as long; one `key` of every kind."""
    with _LOCK:
        variant = model.variants.get(kind)
        if variant is None or variant[0] != key:
            model.variants.pop(kind, None)  # its memory is free before the next is made
            variant = model.variants[kind] = (key, make())
        return variant[1]


def parameters_from_the_top(model: LoadedModel) -> tuple[tuple[str, ...], ...]:
    """The names of all parameters in steps, from the classifier down to the embeddings.

    A step is one layer of the repeated list that holds the input layer `encoder`. What is outside
    of the base model or registered behind the list is the step above it, what is registered before
    the list the step below; what lies between two layers goes with the lower one. Without such a
    list there are two steps: what is outside of the base model (else the last module that holds
    parameters), and the rest. Tied parameters have the place of the first.
    """
    layers = _layers(model)
    above = _outside_base(model.module)
    named = list(model.module.named_parameters())
    last = max((row for row, (_, layer) in enumerate(named) if id(layer) in layers), default=-1)
    top = max(layers.values(), default=0) + 1
    steps: dict[int, list[str]] = {}
    place = -1  # below the first layer
    for row, (name, parameter) in enumerate(named):
        if row > last or id(parameter) in above:
            steps.setdefault(top, []).append(name)
            continue
        place = layers.get(id(parameter), place)
        steps.setdefault(place, []).append(name)
    return tuple(tuple(steps[place]) for place in sorted(steps, reverse=True))


def word_table(model: LoadedModel) -> str | None:
    """The name of the parameter that is the word embedding's table; None: there is none."""
    tables = [getattr(part, "weight", None) for part in find_embeddings(model.module)[:1]]
    named = model.module.named_parameters()
    return next((name for name, tensor in named if any(tensor is table for table in tables)), None)


def _layers(model: LoadedModel) -> dict[int, int]:
    """Parameter identity -> number of its layer; without a layer list all but the head are one."""
    if model.sites.block is None:
        head = _outside_base(model.module)
        parts = [list(part.parameters(recurse=False)) for part in model.module.modules()]
        held = [part for part in parts if part]
        if not head and len(held) > 1:
            head = {id(parameter) for parameter in held[-1]}
        return {
            id(parameter): 0 for parameter in model.module.parameters() if id(parameter) not in head
        }
    layers: dict[int, int] = {}
    for number, block in enumerate(blocks_of(model)):
        for parameter in block.parameters():
            layers.setdefault(id(parameter), number)
    return layers


def _outside_base(module: nn.Module) -> set[int]:
    """Identities of the parameters that a classifier has beside its encoder, where it names one."""
    base = getattr(module, "base_model", None)  # as transformers calls the encoder of a model
    if not isinstance(base, nn.Module) or base is module:
        return set()
    inside = {id(parameter) for parameter in base.parameters()}
    return {id(parameter) for parameter in module.parameters()} - inside
