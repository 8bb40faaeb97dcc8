"""The hidden states of some layers of one forward pass, as (B, T, D) each."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transexplain.errors import ConfigurationError
from transexplain.models.base import Batch, LoadedModel
from transexplain.models.blocks import blocks_of, first_float
from transexplain.models.call import eval_mode
from transexplain.models.leaves import sequence_of
from transexplain.types import own_positions


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """One forward pass, with what some of its layers gave."""

    logits: Tensor  #: (B, C)
    hidden: tuple[Tensor, ...]  #: (B, T, D) for each layer that was asked for
    mask: Tensor  #: (B, T) true where an item has a position
    own: Tensor  #: (B, T) true where that is its own content: no special position


def read_states(
    model: LoadedModel, batch: Batch, layers: Sequence[int], *, training: bool = False
) -> States:
    """One forward pass that keeps the hidden states of `layers`.

    Args:
        model: one with a repeated list of layers.
        batch: B items.
        layers: 0 is the input of the first layer (the input layer `encoder`), l the output of layer
            l.
        training: run the module as it is, in train mode; else in eval mode.

    The graph is recorded where the caller has gradients on. Raises ConfigurationError where a
    layer does not give one vector for each position of the first.
    """
    hooks = _Hooks()
    with hooks.placed(model):
        logits = model.caller(model.module, batch.inputs) if training else model.logits(batch)
    found = [_sequence(model, hooks.states, layer) for layer in (0, *layers)]
    width, device = found[0].shape[1], logits.device
    own = np.stack([own_positions(one.features, width) for one in batch.encoded])
    mask = positions_of(batch, width)
    return States(logits, tuple(found[1:]), mask, torch.from_numpy(own).to(device) & mask)


def readable_layers(model: LoadedModel, batch: Batch) -> dict[int, int]:
    """Layer -> D of every layer that `read_states` can read, by one forward pass over `batch`."""
    hooks = _Hooks()
    with torch.no_grad(), eval_mode(model.module), hooks.placed(model):
        model.caller(model.module, batch.inputs)
    found = {}
    for layer in range(len(hooks.states)):
        try:
            found[layer] = _sequence(model, hooks.states, layer).shape[-1]
        except ConfigurationError:
            continue
    return found


def positions_of(batch: Batch, width: int) -> Tensor:
    """(B, T) which of `width` positions each item of the batch has."""
    return torch.arange(width, device=batch.lengths.device)[None] < batch.lengths[:, None]


def _sequence(model: LoadedModel, states: Sequence[Tensor | None], layer: int) -> Tensor:
    found = states[layer] if layer < len(states) else None
    first = states[0] if states else None
    if found is not None and layer:
        try:
            found = sequence_of(found, model.sites.layout)
        except (IndexError, RuntimeError):
            found = None
    if found is None or first is None or found.dim() != 3 or found.shape[:2] != first.shape[:2]:
        raise ConfigurationError(
            f"layer {layer} of {model.ref.source} does not give one vector for each position of "
            "its first layer (layers that merge or split positions do not); read other layers"
        )
    return found


class _Hooks:
    """The hooks of one forward pass, in one thread."""

    def __init__(self) -> None:
        self.states: list[Any] = []
        self.thread = threading.get_ident()

    @contextmanager
    def placed(self, model: LoadedModel) -> Iterator[None]:
        blocks, layout = blocks_of(model), model.sites.layout

        def on_entry(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if threading.get_ident() != self.thread or self.states:
                return
            found = first_float((*args, kwargs.get("hidden_states")))
            self.states.append(None if found is None else sequence_of(found, layout).clone())

        def on_layer(_block: nn.Module, _args: Any, output: Any) -> None:
            if threading.get_ident() == self.thread:
                found = first_float(output)
                # a copy, so that no operator in place changes what is kept
                self.states.append(None if found is None else found.clone())

        handles = [blocks[0].register_forward_pre_hook(on_entry, with_kwargs=True)]
        handles += [block.register_forward_hook(on_layer) for block in dict.fromkeys(blocks)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
