"""The input layer, where relevance is measured: found by structure, without names of model
families.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeGuard

import torch
from torch import Tensor, nn

from transexplain.errors import EngineError
from transexplain.models.calling import Caller, eval_mode, unwrapped

#: (B, T, D), (T, B, D), (B, H, W, D), (B, D, H, W)
Layout = Literal["sequence", "positions_first", "channels_last", "channels_first"]


class Taps(Protocol):
    """The functions that the engine runs at the input layer of one forward pass."""

    def input_layer(self, tensor: Tensor) -> Tensor:
        """Take the tensor at the input layer and give what the model shall use in its place.

        Shape (B, T, D) at `encoder` and `words`, (B, 3, H, W) at `pixels`, (B, T, F) at `nodes`;
        same shape back.
        """

    def encoder_begins(self) -> None:
        """The first block of the model is entered (before `input_layer` where both are one)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sites:
    """The places of one module that an input layer can be at."""

    block: nn.Module | None  #: first module of the repeated layer list
    block_name: str = ""
    layout: Layout = "sequence"  #: of the block's input
    embeddings: tuple[nn.Module, ...] = ()  #: word embedding, and what shares its table
    words_layout: Layout = "sequence"  #: of the embedding's output
    whole: bool = True  #: the logits follow from the block's input alone


def find_blocks(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Name and first module of every repeated layer list of `module`, most likely first.

    Such a list is the `ModuleList` or `Sequential` whose children share one class and are made of
    further modules. It begins with the first that holds at least half the parameters of the
    largest (an encoder goes before its decoder, an outer list before its parts); a list of one
    child begins only where there is no longer one (depth 1, or one layer used many times).
    """
    lists = [(name, found) for name, found in module.named_modules() if _is_layer_list(found)]
    longer = [pair for pair in lists if len(pair[1]) > 1]
    single = [pair for pair in lists if len(pair[1]) == 1 and pair[0]]
    candidates = longer or single
    if not candidates:
        return []
    enough = max(_parameters(found) for _, found in candidates) / 2
    first = next(pair for pair in candidates if _parameters(pair[1]) >= enough)
    others = [pair for pair in (*longer, *single) if pair is not first]
    return [_first_child(*pair) for pair in (first, *others)]


def _first_child(name: str, found: nn.ModuleList | nn.Sequential) -> tuple[str, nn.Module]:
    first: nn.Module = found
    while isinstance(first, nn.ModuleList) or first is found:
        name, first = f"{name}.0".lstrip("."), next(iter(first.children()))
    return name, first


def _is_layer_list(module: nn.Module) -> TypeGuard[nn.ModuleList | nn.Sequential]:
    if not isinstance(module, nn.ModuleList | nn.Sequential) or len(module) == 0:
        return False
    children = [unwrapped(child) for child in module]
    first = children[0]
    same = all(type(child) is type(first) for child in children)
    return same and next(first.children(), None) is not None


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def find_embeddings(module: nn.Module) -> tuple[nn.Module, ...]:
    """The word embedding and every module that shares its table (encoder-decoder models do).

    It is what the model names as its input embedding, else its embedding with most rows.
    """
    found = _named_embedding(module)
    if found is None:
        return ()
    table = getattr(found, "weight", None)
    sharing = (part for part in module.modules() if isinstance(part, nn.Embedding))
    return (found, *(part for part in sharing if part.weight is table and part is not found))


def _named_embedding(module: nn.Module) -> nn.Module | None:
    named = getattr(module, "get_input_embeddings", None)
    if callable(named):
        try:
            found = named()
        except (NotImplementedError, AttributeError):
            found = None
        if isinstance(found, nn.Module):
            return found
    tables = [found for found in module.modules() if isinstance(found, nn.Embedding)]
    return max(tables, key=lambda table: table.num_embeddings, default=None)


def tapped(
    module: nn.Module,
    caller: Caller,
    sites: Sites,
    inputs: Mapping[str, Tensor],
    *,
    at: str,
    taps: Taps,
) -> Tensor:
    """Logits (B, C) of one forward pass with `taps` at the input layer `at`.

    The hooks exist for this call only, answer only in the calling thread and, at a layer, only
    the first time (a model may use one layer many times).
    """
    hooks = _Hooks(sites, at, taps)
    if at in ("pixels", "nodes"):
        inputs = {**inputs, caller.main: hooks.input_layer(inputs[caller.main])}
    with eval_mode(module), hooks.placed():
        logits = caller(module, inputs)
    if not hooks.reached:
        where = sites.block_name if at == "encoder" else "the input embedding"
        raise EngineError(
            f"the forward pass never called {where}, so the input layer {at!r} was not reached; "
            "measure at another input layer of the model"
        )
    return logits


class _Hooks:
    """The hooks of one forward pass, in one thread."""

    def __init__(self, sites: Sites, at: str, taps: Taps) -> None:
        self.sites, self.at, self.taps = sites, at, taps
        self.thread = threading.get_ident()
        self.begun = self.reached = False
        self.embedded: tuple[Tensor, Tensor] | None = None  # before and after the tap

    @contextmanager
    def placed(self) -> Iterator[None]:
        handles = []
        try:
            if self.sites.block is not None:
                handles.append(
                    self.sites.block.register_forward_pre_hook(self.on_block, with_kwargs=True)
                )
            if self.at == "words":
                handles.extend(
                    table.register_forward_hook(self.on_embedding)
                    for table in self.sites.embeddings
                )
            yield
        finally:
            for handle in handles:
                handle.remove()

    def input_layer(self, tensor: Tensor) -> Tensor:
        self.reached = True
        replaced = self.taps.input_layer(tensor)
        if replaced.shape != tensor.shape:
            raise EngineError(
                f"the tap gave shape {tuple(replaced.shape)} for {tuple(tensor.shape)}"
            )
        return replaced

    def on_block(
        self, _block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self.begun or threading.get_ident() != self.thread:
            return None
        self.begun = True
        self.taps.encoder_begins()
        if self.at != "encoder":
            return None
        found = next(
            (value for value in args if isinstance(value, Tensor) and value.is_floating_point()),
            kwargs.get("hidden_states"),
        )
        if isinstance(found, Tensor) and found.is_floating_point():
            input_layer = self.as_sequence(found, self.sites.layout)
            # one tensor may be several arguments: query, key and value of an attention layer
            return (
                tuple(input_layer if value is found else value for value in args),
                {name: input_layer if value is found else value for name, value in kwargs.items()},
            )
        raise EngineError(
            f"{self.sites.block_name} ({type(self.sites.block).__name__}) is called without a "
            "float tensor, so there is no input layer 'encoder'; measure before it"
        )

    def on_embedding(self, _module: nn.Module, _args: Any, output: Any) -> Tensor | None:
        if threading.get_ident() != self.thread:
            return None
        if self.embedded is not None:
            return self.embedded_again(output, *self.embedded)
        if not isinstance(output, Tensor):
            raise EngineError("the input embedding returned no tensor; measure at 'encoder'")
        self.embedded = (output, self.as_sequence(output, self.sites.words_layout))
        return self.embedded[1]

    def embedded_again(self, output: Any, before: Tensor, after: Tensor) -> Tensor | None:
        """The same values where a decoder reads the tokens again, most often one position on.

        What is no copy of them (special tokens that begin, other ids) stays as it is.
        """
        if not isinstance(output, Tensor) or output.shape != before.shape:
            return None
        for shift in (0, 1):
            kept = before.shape[1] - shift
            if torch.equal(output[:, shift:], before[:, :kept]):
                return torch.cat([output[:, :shift], after[:, :kept]], dim=1)
        return None

    def as_sequence(self, tensor: Tensor, layout: Layout) -> Tensor:
        there, back = _REARRANGED[layout]
        return back(self.input_layer(there(tensor)), tensor)


def sequence_of(tensor: Tensor, layout: Layout) -> Tensor:
    """A tensor in the layout of the blocks as (B, T, D)."""
    return _REARRANGED[layout][0](tensor)


def _channels_first_back(sequence: Tensor, like: Tensor) -> Tensor:
    return sequence.transpose(1, 2).reshape(like.shape)


#: layout of the block's input -> (to (B, T, D), back to the shape of the original)
_REARRANGED: dict[Layout, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "sequence": (lambda tensor: tensor, lambda sequence, _like: sequence),
    "positions_first": (
        lambda tensor: tensor.transpose(0, 1),
        lambda sequence, _like: sequence.transpose(0, 1),
    ),
    "channels_last": (
        lambda tensor: tensor.flatten(1, 2),
        lambda sequence, like: sequence.reshape(like.shape),
    ),
    "channels_first": (lambda tensor: tensor.flatten(2).transpose(1, 2), _channels_first_back),
}
