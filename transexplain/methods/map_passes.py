"""Passes over one batch that keep the attention maps, for methods that compute something of them.

They run eagerly, or are traced and replayed as one function of the inputs and the seed.
"""

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
from torch import Tensor

from transexplain.engine.composites import Composite
from transexplain.engine.operator_parts import AttentionPass, read_attention
from transexplain.engine.propagate import Propagation, propagate
from transexplain.engine.replay import TensorFunction
from transexplain.engine.traced import Begun
from transexplain.errors import EngineError
from transexplain.methods.at_input_layer import as_array, filled, in_bucket, is_double, steps_of
from transexplain.methods.batch_explanation import Array, parts
from transexplain.models.loaded_model import Batch, LoadedModel


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """The attention of the chosen layers, and what a seed brings to it; each (B, H, T, T)."""

    weights: Sequence[Tensor]
    gradients: Sequence[Tensor]  #: of the seeded logits; empty where they are not needed
    relevance: Sequence[Tensor]  #: empty where it is not needed
    own: Tensor  #: (B, T) bool, which positions are an item's own


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MapMethod:
    """What a method computes of attention maps."""

    key: Hashable  #: equal for methods that compute the same
    layers: Callable[[int], range]  #: L -> the layers whose maps it needs; ConfigurationError
    compute: Callable[[Maps], Sequence[Tensor]]  #: tensors (B, ...)
    gradients: bool = False  #: whether it needs the gradient of the maps
    rules: Composite | None = None  #: of the relevance of the maps, where it needs that
    reads: bool = True  #: whether it needs the rows that the classifier reads
    #: results, the row of an item and its length -> its relevance (T,), in place of a readout
    of_item: Callable[[Sequence[Tensor], int, int], Tensor] | None = None
    length: int | None = None  #: of every item for `of_item`; None: its own


@dataclass(frozen=True, slots=True, eq=False)
class _EagerPasses:
    """A forward pass that keeps the attention maps, and a second one for their relevance."""

    passed: AttentionPass
    relevance: Propagation | None
    method: MapMethod
    own: Tensor  #: (B, T)

    @classmethod
    def of(cls, model: LoadedModel, batch: Batch, method: MapMethod, own: Tensor) -> Self:
        """See `check_maps` for errors."""
        passed = read_attention(lambda taps: model.run(batch, at=model.default_at, taps=taps))
        check_maps(model, batch, passed.maps)
        method.layers(len(passed.maps))
        if method.rules is None:
            return cls(passed, None, method, own)
        relevance = propagate(
            lambda taps: model.run(batch, at=model.default_at, taps=taps),
            method.rules,
            len(batch.encoded),
            module=model.module,
            record_attention=True,
            known_values=passed.values,
        )
        check_maps(model, batch, relevance.attention)
        return cls(passed, relevance, method, own)

    @property
    def logits(self) -> Tensor:
        """(B, C)."""
        return self.passed.logits

    @property
    def reached(self) -> Tensor:
        """(B, T) which rows of the last map are read: the gradient reaches no others."""
        items, classes = self.logits.shape
        seed = torch.arange(1.0, classes + 1).expand(items, -1)
        (gradient,) = self._at(self.passed.maps[-1:], self.passed.gradients, seed, last=False)
        return gradient.abs().sum(dim=(1, 3)).ne(0)

    def results(self, seed: Tensor, last: bool) -> Sequence[Tensor]:
        """What the method computes for seeds (B, C); `last` frees the graph."""
        chosen = self.method.layers(len(self.passed.maps))
        maps = [self.passed.maps[layer] for layer in chosen]
        relevance: list[Tensor] = []
        if self.relevance is not None:
            ends = [self.relevance.attention[layer] for layer in chosen]
            relevance = self._at(ends, self.relevance.relevance_of, seed, last=last)
        gradients = self.passed.gradients if self.method.gradients else None
        return self.method.compute(
            Maps(
                [heads_apart(map_.detach(), self.logits) for map_ in maps],
                [] if gradients is None else self._at(maps, gradients, seed, last=last),
                relevance,
                self.own,
            )
        )

    def _at(
        self,
        maps: Sequence[Tensor],
        arriving: Callable[..., list[Tensor]],
        seed: Tensor,
        *,
        last: bool,
    ) -> list[Tensor]:
        """Return what a backward pass of `seed` brings to `maps`; it goes no deeper than these."""
        return [heads_apart(map_, self.logits) for map_ in arriving(seed, maps, last=last)]


@dataclass(frozen=True, slots=True, eq=False)
class GlobalMaps:
    """A method of attention maps on one batch."""

    #: seeds (B, C) and whether they are the last -> what the method computes, which the next call
    #: may write over
    of_seed: Callable[[Tensor, bool], Sequence[Tensor]]
    reached: Callable[[], Tensor]  #: (B, T) which rows of the last map are read
    logits: Array  #: (B, C)
    own: Tensor  #: (B, T) bool, which positions are an item's own
    special: Tensor  #: (B, T) bool, which of these are special
    double: bool  #: whether the model computes in float64

    def results(self, seed: Array, *, last: bool) -> Sequence[Tensor]:
        """Return what the method computes for seeds (B, C)."""
        return self.of_seed(torch.from_numpy(seed), last)

    def rows_read(self) -> Tensor:
        """(B, T) equal shares of the rows of the last map that the classifier reads.

        Several rows are taken where all of them are special (a class and a distillation token).
        Raises EngineError where the classifier reads more, as after mean pooling.
        """
        reached = self.reached() & self.own
        several = reached.sum(dim=1) > 1
        if bool((several & (reached & ~self.special).any(dim=1)).any()):
            read = int(reached.sum(dim=1).max())
            raise EngineError(
                f"the classifier reads {read} positions of the last block (it pools them), so no "
                "row of an attention map belongs to it alone. Use readout='all' (the sum over all "
                "rows) where the method has it, or a method that needs no map, such as lrp"
            )
        return reached / reached.sum(dim=1, keepdim=True).clamp(min=1)


@contextmanager
def global_maps(model: LoadedModel, batch: Batch, method: MapMethod) -> Iterator[GlobalMaps]:
    """Return what `method` needs of a batch, replayed where that is ready; it ends with the block.

    Raises EngineError for a model without maps over all positions; see `check_maps`.
    """
    batch, rows = in_bucket(model, batch)
    whole, items = filled(batch, rows), len(batch.encoded)
    inputs, special = parts(width_of(whole), [encoded.features for encoded in whole.encoded])
    for row, encoded in enumerate(whole.encoded):
        special[row, encoded.length :] = False
    of_whole = torch.from_numpy(inputs | special).to(whole.lengths.device)
    work, own = _recurring(model, whole, method, of_whole), of_whole[:items]
    with steps_of(model).begun(work) as begun:
        if begun is None:
            passes = _EagerPasses.of(model, batch, method, own)
            logits, results, reached = passes.logits, passes.results, lambda: passes.reached
        else:
            logits, read = (begun.outputs[place][:items] for place in (0, 1))
            results, reached = partial(_replayed, begun, items, work), lambda: read
        of_special = torch.from_numpy(special[:items]).to(own.device)
        yield GlobalMaps(results, reached, as_array(logits), own, of_special, is_double(logits))


def _replayed(
    begun: Begun, items: int, work: TensorFunction, seed: Tensor, last: bool
) -> Sequence[Tensor]:
    """What the replayed function computes for seeds (B, C), without the rows that fill it up."""
    del last
    whole = torch.zeros_like(work.examples[-1])
    whole[:items] = seed.to(whole.device)
    return [output[:items] for output in begun.end(whole)[2:]]


def _recurring(model: LoadedModel, batch: Batch, method: MapMethod, own: Tensor) -> TensorFunction:
    names = list(batch.inputs)

    def function(*tensors: Tensor) -> list[Tensor]:
        *inputs, own, seed = tensors
        given = dataclasses.replace(batch, inputs=dict(zip(names, inputs, strict=True)))
        passes = _EagerPasses.of(model, given, method, own)
        reached = passes.reached if method.reads else own
        return [passes.logits.detach(), reached, *passes.results(seed, True)]

    seed = torch.ones(len(batch.encoded), len(model.classes), dtype=torch.float64)
    return TensorFunction(
        function=function,
        examples=[*batch.inputs.values(), own, seed.to(own.device)],
        module=model.module,
        at=("attention maps", method.key, *names),
    )


def width_of(batch: Batch) -> int:
    """T of a batch, padding included."""
    widths = [tensor.shape[1] for tensor in batch.inputs.values() if tensor.dim() == 2]
    longest = max(encoded.length for encoded in batch.encoded)
    return max([*widths, longest])


def check_maps(model: LoadedModel, batch: Batch, maps: Sequence[Tensor]) -> None:
    """Raise EngineError where these are not maps (B, H, T, T) of all positions."""
    if getattr(getattr(model.module, "config", None), "is_encoder_decoder", False):
        raise EngineError(
            f"{model.ref.source} is an encoder-decoder: its attention is of several kinds, and "
            "no single map goes over all positions. Choose a method that needs none, such as lrp"
        )
    items, width = len(batch.encoded), width_of(batch)
    for weights in maps:
        batched = weights.dim() == 4 and weights.shape[0] == items
        flat = weights.dim() == 3 and weights.shape[0] % items == 0
        if not (batched or flat) or tuple(weights.shape[-2:]) != (width, width):
            raise EngineError(
                f"{model.ref.source} attends by a map of shape {tuple(weights.shape)} where "
                f"({items}, heads, {width}, {width}) was expected: attention in windows, over "
                "pooled positions or by a query of its own gives no map of all positions. Choose "
                "a method that needs none, such as lrp"
            )


def heads_apart(values: Tensor, logits: Tensor) -> Tensor:
    """(B * H, T, T) as (B, H, T, T), on the device of the logits: layers may lie on several."""
    apart = values if values.dim() == 4 else values.view(len(logits), -1, *values.shape[1:])
    return apart.to(logits.device)
