"""Hidden states (B, T, D) of layers in one forward pass, with or without gradients."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from transexplain.errors import ConfigurationError, EngineError
from transexplain.models.calling import eval_mode
from transexplain.models.input_layer import Layout, Taps, sequence_of
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.types.items import own_positions

#: the place of what the first layer takes: token, position and segment embeddings, or patches
EMBEDDINGS = -1
#: a layer as parameters name it: 0..L-1, or from the end; `embeddings`; None: the default
LayerName = int | Literal["embeddings"] | None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Layers:
    """One forward pass with what every layer gave, in the order of the calls."""

    model: LoadedModel
    batch: Batch
    logits: Tensor  #: (B, C), in the graph
    inputs: Tensor  #: (B, T, D), in the graph: what the first layer takes
    outputs: tuple[Tensor | None, ...]  #: L entries as the layers gave them; None: no float tensor
    width: tuple[int, ...]  #: (B, T) with padding, of the input of the first layer
    encoded: Tensor | None  #: first output of the base model, where the module has one

    def index(self, layer: LayerName) -> int:
        """The layer 0..L-1 that `layer` means, or EMBEDDINGS; negative numbers count from the end.

        None is the last but one (the first where there is only one): most classifiers read the
        output of the last at their class token alone. Raises ConfigurationError.
        """
        count = len(self.outputs)
        if layer is None:
            return max(count - 2, 0)
        if layer == "embeddings":
            return EMBEDDINGS
        if isinstance(layer, bool) or not isinstance(layer, int):
            raise ConfigurationError(f"layer is a whole number or 'embeddings', not {layer!r}")
        if not -count <= layer < count:
            raise ConfigurationError(
                f"{self.model.ref.source} has {count} layers, so layer is {-count}..{count - 1}, "
                f"not {layer}"
            )
        return layer % count

    def hidden(self, layer: int) -> Tensor:
        """(B, T, D) what `layer` (0..L-1) gave; ConfigurationError where it is not that.

        Of EMBEDDINGS: what the first layer takes.
        """
        if layer == EMBEDDINGS:
            return self.inputs.detach()
        return self._sequence(layer, self._output(layer)).detach()

    def gradient(self, layer: int, seed: Tensor, *, last: bool = False) -> Tensor:
        """(B, T, D) the gradient of sum_c seed[:, c] * logit_c at what `layer` gave.

        The graph is freed where it is the `last`. Raises EngineError where the logits do not depend
        on the layer.
        """
        output = self.inputs if layer == EMBEDDINGS else self._output(layer)
        gradients = torch.autograd.grad(
            self.logits, output, seed.to(self.logits), retain_graph=not last, allow_unused=True
        )[0]
        if gradients is None:
            raise EngineError(
                f"the logits of {self.model.ref.source} do not depend on {named(layer)}; choose "
                "another layer"
            )
        return gradients if layer == EMBEDDINGS else self._sequence(layer, gradients)

    def closed(self, layer: int) -> Tensor:
        """(B, T, D) what the base model would give if its last layer had given `layer`'s output.

        Most encoders end with their last layer; where one goes on (a final norm), a second
        forward pass applies that. Without a base model it is the layer's output itself.
        """
        hidden, final = self.hidden(layer), self.hidden(len(self.outputs) - 1)
        encoded = self.encoded
        if encoded is None:
            return hidden
        if encoded.shape == final.shape and torch.equal(encoded.to(final.device), final):
            return hidden
        hooks = _LayerHooks(replace=(len(self.outputs) - 1, self._output(layer).detach()))
        with torch.no_grad():
            _run(self.model, self.batch, hooks)
        if hooks.encoded is None:
            raise EngineError(f"{self.model.ref.source} ran without its base model")
        return hooks.encoded.detach()

    def _output(self, layer: int) -> Tensor:
        output = self.outputs[layer]
        if output is None:
            raise self._unfit(layer, "no float tensor")
        return output

    def _sequence(self, layer: int, tensor: Tensor) -> Tensor:
        try:
            sequence = sequence_of(tensor, self.model.sites.layout)
        except (IndexError, RuntimeError):
            sequence = tensor
        if sequence.dim() != 3 or tuple(sequence.shape[:2]) != self.width:
            raise self._unfit(layer, f"a tensor of shape {tuple(tensor.shape)}")
        return sequence

    def _unfit(self, layer: int, what: str) -> ConfigurationError:
        items, positions = self.width
        return ConfigurationError(
            f"layer {layer} of {self.model.ref.source} gives {what}, which does not hold one "
            f"vector for each of {positions} positions of {items} items (layers that merge or "
            "split positions do not); choose an earlier layer, or a method that needs no layer"
        )


def named(layer: int) -> str:
    """`layer` (0..L-1, or EMBEDDINGS) in words."""
    return "the embeddings" if layer == EMBEDDINGS else f"layer {layer}"


#: runs a forward pass with taps of its own, and returns its logits
Runner = Callable[[Callable[[Taps], Tensor]], Tensor]


def run_layers(model: LoadedModel, batch: Batch, run: Runner | None = None) -> Layers:
    """One forward pass over a batch that keeps what every layer gave, with gradients.

    The layers are the calls of the modules of the repeated list that begins at the input layer
    `encoder` (one module may be called many times). `run` may run the pass in a way of its own, so
    that other gradients come back. Raises ConfigurationError for a model without such a list.
    """
    hooks = _LayerHooks()

    def forward(taps: Taps) -> Tensor:
        hooks.taps = taps
        return _run(model, batch, hooks)

    with torch.enable_grad():
        logits = _run(model, batch, hooks) if run is None else run(forward)
    if not logits.requires_grad:
        raise EngineError(
            f"the logits of {model.ref.source} do not depend on its first layer: the model "
            "detaches its path"
        )
    return Layers(
        model=model,
        batch=batch,
        logits=logits,
        inputs=hooks.inputs,
        outputs=tuple(hooks.outputs),
        width=hooks.width,
        encoded=None if hooks.encoded is None else hooks.encoded.detach(),
    )


def blocks_of(model: LoadedModel) -> tuple[nn.Module, ...]:
    """The modules of the repeated layer list that begins at the input layer `encoder`, in order.

    Lists inside of the list count as one long list. Raises ConfigurationError where there is none.
    """
    if model.sites.block is None:
        raise ConfigurationError(
            f"{model.ref.source} has no repeated layer list whose layers can be distinguished; "
            "choose a method that needs no layer"
        )
    name, outermost = model.sites.block_name, model.sites.block
    while name:
        name = name.rpartition(".")[0]
        parent = model.module.get_submodule(name)
        if isinstance(parent, nn.Sequential) and outermost is model.sites.block:
            return tuple(parent)  # the container is called as a whole, so it is no list of layers
        if not isinstance(parent, nn.ModuleList):
            break
        # lists of lists alone
        if outermost is not model.sites.block and not all(
            isinstance(child, nn.ModuleList) for child in parent
        ):
            break
        outermost = parent
    return tuple(_flat(outermost))


def _flat(part: nn.Module) -> Iterator[nn.Module]:
    if isinstance(part, nn.ModuleList):
        for child in part:
            yield from _flat(child)
    else:
        yield part


def _run(model: LoadedModel, batch: Batch, hooks: "_LayerHooks") -> Tensor:
    with hooks.placed(model):
        return model.run(batch, at="encoder", taps=hooks)


class _LayerHooks:
    """Taps and hooks of one forward pass, in one thread."""

    def __init__(self, replace: tuple[int, Tensor] | None = None) -> None:
        self.outputs: list[Tensor | None] = []
        self.entry: Tensor | None = None  #: (B, T, D), what the first layer takes
        self.encoded: Tensor | None = None
        self.width: tuple[int, ...] = ()
        self.inputs = torch.empty(0)
        self.replace = replace  #: number of a call, and what it gives instead
        self.taps: Taps | None = None  #: of who runs the pass
        self.thread = threading.get_ident()
        self.begun = False
        self.layout: Layout = "sequence"

    def input_layer(self, tensor: Tensor) -> Tensor:
        """Begin the graph here, whether or not the parameters require gradients."""
        self.width = tuple(tensor.shape[:2])
        if self.taps is not None:
            self.inputs = self.taps.input_layer(tensor)
        else:
            self.inputs = tensor.detach().requires_grad_(torch.is_grad_enabled())
        return self.inputs

    def encoder_begins(self) -> None:
        """Nothing here depends on where the encoder begins."""
        if self.taps is not None:
            self.taps.encoder_begins()

    @contextmanager
    def placed(self, model: LoadedModel) -> Iterator[None]:
        blocks, self.layout = blocks_of(model), model.sites.layout
        handles = [blocks[0].register_forward_pre_hook(self.on_entry, with_kwargs=True)]
        handles += [block.register_forward_hook(self.on_layer) for block in dict.fromkeys(blocks)]
        # as transformers calls the encoder of a model
        base = getattr(model.module, "base_model", None)
        if isinstance(base, nn.Module) and base is not model.module:
            handles.append(base.register_forward_hook(self.on_base))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def on_entry(self, _block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.get_ident() == self.thread and not self.begun:
            self.begun = True
            taken = first_float((*args, kwargs.get("hidden_states")))
            # a copy, so that no operator in place changes what is kept
            self.entry = None if taken is None else sequence_of(taken, self.layout).clone()

    def on_layer(self, _block: nn.Module, _args: Any, output: Any) -> Any:
        if threading.get_ident() != self.thread:
            return None
        tensor = first_float(output)
        number = len(self.outputs)
        self.outputs.append(tensor)
        if tensor is None:
            return None
        if self.replace is not None and self.replace[0] == number:
            return _exchanged(output, tensor, self.replace[1])
        # a copy, so that no operator in place changes what is kept
        return _exchanged(output, tensor, tensor.clone())

    def on_base(self, _base: nn.Module, _args: Any, output: Any) -> None:
        if threading.get_ident() == self.thread:
            self.encoded = first_float(output if isinstance(output, Tensor) else output[0])


def first_float(output: Any) -> Tensor | None:
    """The first float tensor of what a layer takes or gives; None where there is none."""
    values = output if isinstance(output, tuple | list) else (output,)
    floats = (v for v in values if isinstance(v, Tensor) and v.is_floating_point())
    return next(floats, None)


def _exchanged(output: Any, old: Tensor, new: Tensor) -> Any:
    """`output` with `old` replaced by `new`; its other entries and its type stay."""
    if isinstance(output, Tensor):
        return new
    values = [new if value is old else value for value in output]
    kind = type(output)
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """One forward pass, with what some of its layers gave."""

    logits: Tensor  #: (B, C)
    hidden: tuple[Tensor, ...]  #: (B, T, D) for each requested layer
    mask: Tensor  #: (B, T) true where an item has a position
    own: Tensor  #: (B, T) true where that is its own content: no special position


def read_states(
    model: LoadedModel, batch: Batch, layers: Sequence[int], *, training: bool = False
) -> States:
    """One forward pass that keeps the hidden states of `layers`.

    Layer 0 is the input of the first layer (the input layer `encoder`), l the output of layer l.
    For `training` the module runs as it is, in train mode; else in eval mode. The graph is recorded
    where the caller has gradients on. Raises ConfigurationError where a layer does not give one
    vector for each position of the first.
    """
    hooks = _LayerHooks()
    with hooks.placed(model):
        logits = model.caller(model.module, batch.inputs) if training else model.logits(batch)
    sequences = [_sequence(model, hooks, layer) for layer in (0, *layers)]
    width, device = sequences[0].shape[1], logits.device
    # layers may lie on several devices
    hidden = tuple(sequence.to(device) for sequence in sequences[1:])
    return States(logits, hidden, *masks_of(batch, width))


def masks_of(batch: Batch, width: int) -> tuple[Tensor, Tensor]:
    """(B, T) twice: where an item has a position, and where that is its own content."""
    mask = positions_of(batch, width)
    own = np.stack([own_positions(entry.features, width) for entry in batch.encoded])
    return mask, torch.from_numpy(own).to(mask.device) & mask


def readable_layers(model: LoadedModel, batch: Batch) -> dict[int, int]:
    """Layer -> D of every layer that `read_states` can read, by one forward pass over `batch`."""
    hooks = _LayerHooks()
    with torch.no_grad(), eval_mode(model.module), hooks.placed(model):
        model.caller(model.module, batch.inputs)
    lists = {}
    for layer in range(1 + len(hooks.outputs)):
        try:
            lists[layer] = _sequence(model, hooks, layer).shape[-1]
        except ConfigurationError:
            continue
    return lists


def positions_of(batch: Batch, width: int) -> Tensor:
    """(B, T) which of `width` positions each item of the batch has."""
    return torch.arange(width, device=batch.lengths.device)[None] < batch.lengths[:, None]


def _sequence(model: LoadedModel, hooks: "_LayerHooks", layer: int) -> Tensor:
    first, states = hooks.entry, [hooks.entry, *hooks.outputs]
    sequence = states[layer] if layer < len(states) else None
    if sequence is not None and layer:
        try:
            sequence = sequence_of(sequence, model.sites.layout)
        except (IndexError, RuntimeError):
            sequence = None
    if (
        sequence is None
        or first is None
        or sequence.dim() != 3
        or sequence.shape[:2] != first.shape[:2]
    ):
        raise ConfigurationError(
            f"layer {layer} of {model.ref.source} does not give one vector for each position of "
            "its first layer (layers that merge or split positions do not); read other layers"
        )
    return sequence
