"""Attention maps over the positions of the result, their relevance, and which row the classifier
reads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from transexplain.engine.attention_parts import AttentionPass, read_attention
from transexplain.engine.propagate import Propagation, propagate
from transexplain.errors import ConfigurationError, EngineError
from transexplain.methods.at_input_layer import as_array
from transexplain.methods.batch_explanation import Array, parts
from transexplain.methods.relevance import chefer_rules
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.models.text_encoder import TextEncoder

#: `token`: the row of the position that the classifier reads; `all`: the sum over all rows
Readout = Literal["token", "all"]


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """Which positions of a padded batch are an item's own, and which of these are special."""

    own: Tensor  #: (B, T) bool
    special: Tensor  #: (B, T) bool

    @classmethod
    def of(cls, batch: Batch, width: int, device: torch.device) -> "Positions":
        """Of B items padded to `width` positions."""
        inputs, special = parts(width, [encoded.features for encoded in batch.encoded])
        for row, encoded in enumerate(batch.encoded):
            special[row, encoded.length :] = False
        own = torch.from_numpy(inputs | special).to(device)
        return cls(own, torch.from_numpy(special).to(device))


@dataclass(frozen=True, slots=True, eq=False)
class GlobalMaps:
    """The attention maps of one forward pass, each over all positions of the result."""

    passed: AttentionPass
    logits: Array  #: (B, C)
    positions: Positions

    @classmethod
    def of(cls, model: LoadedModel, batch: Batch) -> "GlobalMaps":
        """One forward pass that keeps the attention maps; see `check_maps` for errors."""
        passed = read_attention(lambda taps: model.run(batch, at=model.default_at, taps=taps))
        check_maps(model, batch, passed.maps)
        positions = Positions.of(batch, width_of(batch), passed.logits.device)
        return cls(passed, as_array(passed.logits), positions)

    @property
    def layers(self) -> int:
        """L."""
        return len(self.passed.maps)

    def weights(self, layer: int) -> Tensor:
        """(B, H, T, T) the attention of one layer, out of the graph."""
        return heads_apart(self.passed.maps[layer].detach(), self.passed.logits)

    def gradients(self, seed: Array, layers: Sequence[int], *, last: bool) -> list[Tensor]:
        """The gradient of the seeded logits at the maps of `layers`, each (B, H, T, T)."""
        maps = [self.passed.maps[layer] for layer in layers]
        found = self.passed.gradients(torch.from_numpy(seed), maps, last=last)
        return [heads_apart(gradient, self.passed.logits) for gradient in found]

    def rows_read(self) -> Tensor:
        """(B, T) the rows of the last map that the classifier reads, each row's share.

        They are found by the gradient, which reaches no others. See `shares_of_rows`.
        """
        classes = self.logits.shape[1]
        seed = np.tile(np.arange(1.0, classes + 1), (len(self.logits), 1))
        (gradient,) = self.gradients(seed, [self.layers - 1], last=False)
        return shares_of_rows(gradient, self.positions)


def shares_of_rows(gradient: Tensor, positions: Positions) -> Tensor:
    """(B, T) equal shares of the rows that a gradient (B, H, T, T) of the last map reaches.

    Several rows are taken where all of them are special (a class and a distillation token).
    Raises EngineError where the classifier reads more, as after mean pooling.
    """
    reached = gradient.abs().sum(dim=(1, 3)).ne(0) & positions.own
    several = reached.sum(dim=1) > 1
    if bool((several & (reached & ~positions.special).any(dim=1)).any()):
        read = int(reached.sum(dim=1).max())
        raise EngineError(
            f"the classifier reads {read} positions of the last block (it pools them), so no row "
            "of an attention map belongs to it alone. Use readout='all' (the sum over all rows) "
            "where the method has it, or a method that needs no map, such as lrp"
        )
    return reached / reached.sum(dim=1, keepdim=True).clamp(min=1)


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


def layers_from(count: int, start: int, stop: int | None = None) -> range:
    """Indices of the layers `start` to `stop` (exclusive) of L; ConfigurationError."""
    end = count if stop is None else stop
    if not 0 <= start < end <= count:
        raise ConfigurationError(
            f"layers {start} to {end} (exclusive) were asked for; the model has {count}, counted "
            "from 0, and the first must come before the end"
        )
    return range(start, end)


def layer_at(count: int, layer: int) -> int:
    """The index of one layer of L, counted from the end where negative; ConfigurationError."""
    if not -count <= layer < count:
        raise ConfigurationError(f"layer {layer} was asked for; the model has 0 to {count - 1}")
    return layer % count


def read(matrix: Tensor, rows: Tensor) -> Array:
    """(B, T) the rows of a matrix (B, T, T), weighted by `rows` (B, T)."""
    found: Array = torch.einsum("bq,bqk->bk", rows.to(matrix), matrix).double().cpu().numpy()
    return found


def rows_of(maps: GlobalMaps, readout: str) -> Tensor:
    """(B, T) the weight of every row, by a readout; raises ConfigurationError, EngineError."""
    if readout == "all":
        return maps.positions.own
    if readout != "token":
        raise ConfigurationError(f"readout is 'token' or 'all', not {readout!r}")
    return maps.rows_read()


Variant = Literal["paper", "authors"]
#: row of the batch, and its length with padding -> (T,)
OfItem = Callable[[int, int], Tensor]


def padded(model: LoadedModel, batch: Batch, length: int | None, variant: str) -> Batch:
    """The batch, at least `length` positions wide.

    Raises ConfigurationError for a variant that does not exist, and where a length is given to
    the paper's variant, to pictures, or is too small.
    """
    if variant not in ("paper", "authors"):
        raise ConfigurationError(f"variant is 'paper' or 'authors', not {variant!r}")
    if length is None:
        return batch
    if variant != "authors":
        raise ConfigurationError("padded_length changes the result of variant='authors' only")
    if not isinstance(model.encoder, TextEncoder):
        raise ConfigurationError("padded_length is for texts; nothing else is padded")
    longest = int(batch.lengths.max())
    if length < longest:
        raise ConfigurationError(
            f"padded_length {length} is less than the {longest} positions of an item"
        )
    return model.encoder.widened(batch, length)


def item_by_item(batch: Batch, length: int | None, width: int, compute: OfItem) -> Array:
    """(B, T) from one computation for each item at its own length, or at `length`."""
    found = np.zeros((len(batch.encoded), width))
    for row, encoded in enumerate(batch.encoded):
        size = encoded.length if length is None else length
        values = compute(row, size).double().cpu().numpy()
        found[row, :size] = values
    return found


def min_max(values: Tensor) -> Tensor:
    """Values from 0 to 1, as the authors scale; zeros where all are equal (they have NaN)."""
    span = values.max() - values.min()
    return torch.zeros_like(values) if span == 0 else (values - values.min()) / span


@dataclass(frozen=True, slots=True, eq=False)
class RelevanceMaps:
    """A forward pass in relevance form whose backward passes end at the attention maps."""

    passes: Propagation
    logits: Array  #: (B, C)

    @classmethod
    def of(
        cls,
        model: LoadedModel,
        batch: Batch,
        plain: GlobalMaps,
        *,
        variant: Variant,
        baseline: bool,
    ) -> "RelevanceMaps":
        """A forward pass that takes the values of linear layers from the plain one.

        `baseline` is the LRP that the authors compare with.
        """
        input_layer = model.default_at
        rules = chefer_rules("chefer-lrp", input_layer, variant=variant, baseline=baseline)
        passes = propagate(
            lambda taps: model.run(batch, at=input_layer, taps=taps),
            rules,
            len(batch.encoded),
            module=model.module,
            record_attention=True,
            known_values=plain.passed.values,
        )
        check_maps(model, batch, passes.attention)
        return cls(passes, as_array(passes.logits))

    @property
    def layers(self) -> int:
        """L."""
        return len(self.passes.attention)

    def relevance(self, seed: Array, layers: Sequence[int], *, last: bool) -> list[Tensor]:
        """Relevance (B, H, T, T) of the maps of `layers` for seeds (B, C); no deeper than these."""
        maps = [self.passes.attention[layer] for layer in layers]
        found = self.passes.relevance_of(torch.from_numpy(seed), maps, last=last)
        return [heads_apart(arrived, self.passes.logits) for arrived in found]
