"""What a loaded model offers: encode items, make batches, run with a tap at the leaf."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from transexplain.errors import EngineError, ItemError
from transexplain.models.call import Caller, eval_mode
from transexplain.models.invariance import Invariance, InvarianceTest
from transexplain.models.leaves import Sites, tapped
from transexplain.plans import Modality, ModelRef
from transexplain.types import Item, ItemFailure, PatchGrid, Token


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """Long texts are read in windows, each of `max_length` positions."""

    stride: int | None = None  #: positions of text from window to window; None: no overlap


LongText = Literal["truncate", "error"] | Windows
#: the leaf before everything else, by modality
_INPUT_LEAF: Mapping[Modality, str] = {"text": "words", "image": "pixels", "nodes": "nodes"}


class Taps(Protocol):
    """What the engine does at the leaf of one forward pass."""

    def leaf(self, tensor: Tensor) -> Tensor:
        """Take the tensor at the leaf and give what the model shall use in its place.

        Shape (B, T, D) at `encoder` and `words`, (B, 3, H, W) at `pixels`, (B, T, F) at `nodes`;
        same shape back.
        """

    def encoder_begins(self) -> None:
        """The first block of the model is entered (before `leaf` when that is the leaf)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Encoded:
    """One item as the model takes it, and what its positions are."""

    item: Item
    inputs: Mapping[str, Tensor]  #: without batch dimension, on the CPU
    features: tuple[Token, ...] | PatchGrid
    length: int  #: T: positions, special ones included, padding never
    truncated: bool
    windows: "tuple[Window, ...]" = ()  #: of an item that is too long for one pass


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A part of a long text, framed by the special positions of the whole."""

    encoded: Encoded
    places: NDArray[np.intp]  #: (T,) of every position: which one of the whole text it is


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """Encoded items padded on the right to the longest, on the model's device."""

    encoded: tuple[Encoded, ...]
    inputs: dict[str, Tensor]
    lengths: Tensor  #: (B,) positions without padding


class Encoder(Protocol):
    """Turns items into model inputs: one each in `text`, `image` and `nodes`."""

    def encode(
        self, items: Sequence[Item], *, long_text: LongText, max_length: int | None
    ) -> list[Encoded | ItemFailure]:
        """One result per item, in order; what cannot be encoded becomes its failure."""

    def collate(self, encoded: Sequence[Encoded]) -> Batch:
        """Pad on the right and move to the device."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LoadedModel:
    """A classifier ready to be explained; the module itself is never changed."""

    module: nn.Module
    modality: Modality
    classes: tuple[str, ...]  #: class names by index, all different
    ref: ModelRef  #: with its digest filled in
    encoder: Encoder
    caller: Caller
    #: where its leaves are; a graph model knows that after its first graph only
    located: Callable[[], Sites]
    _invariance: InvarianceTest = field(default_factory=InvarianceTest, init=False, repr=False)
    #: language-model heads read for this model, by where they are from
    heads: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    #: changed copies of this model, by what they are for; see `variants.kept`
    variants: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def sites(self) -> Sites:
        """Where the leaves of this model are."""
        return self.located()

    @property
    def default_at(self) -> str:
        """`encoder`, or the input where the model has no repeated layer list."""
        return "encoder" if self.sites.block is not None else _INPUT_LEAF[self.modality]

    @property
    def leaves(self) -> tuple[str, ...]:
        """The values of `at` that `run` takes for this model."""
        sites = self.sites
        names = ["encoder"] if sites.block is not None else []
        if self.modality != "text" or sites.embeddings:
            names.append(_INPUT_LEAF[self.modality])
        return tuple(names)

    def encode(
        self,
        items: Sequence[Item],
        *,
        long_text: LongText = "truncate",
        max_length: int | None = None,
    ) -> list[Encoded | ItemFailure]:
        """Model inputs and positions of each item, in order.

        `max_length` counts positions, special ones included; texts beyond it (or beyond what
        the model takes) are cut and flagged, or fail with kind `too-long` under
        `long_text="error"`, or come back whole, with their windows, under `Windows()`. Raises
        ConfigurationError when `max_length` leaves no room for a word, or a window or its stride
        does not fit; everything wrong with one item comes back as its ItemFailure.
        """
        return self.encoder.encode(items, long_text=long_text, max_length=max_length)

    def collate(self, encoded: Sequence[Encoded]) -> Batch:
        """One batch of B items, padded on the right to the longest, on the model's device."""
        return self.encoder.collate(encoded)

    def invariance(self, sample: Encoded, *, ragged: bool = True) -> Invariance:
        """What the logits of an item were measured not to depend on, measured at first asking.

        `sample` is any item of the caller's; with `ragged` padding is tested too. From several
        threads, the first measures and the others wait.
        """
        return self._invariance.of(self, sample, ragged=ragged)

    def run(self, batch: Batch, *, at: str, taps: Taps) -> Tensor:
        """Logits (B, C) of one forward pass in which `taps.leaf` replaces the tensor at `at`.

        The module runs in eval mode (and is left in the mode it was in); whether a graph is
        recorded is the caller's choice. Raises EngineError for an unknown `at` and where the
        forward pass never reaches the leaf.
        """
        if at not in self.leaves:
            raise EngineError(
                f"{self.ref.source} has no leaf {at!r}; it has: {', '.join(self.leaves) or 'none'}"
            )
        logits = tapped(self.module, self.caller, self.sites, batch.inputs, at=at, taps=taps)
        return self._checked(logits, batch)

    def logits(self, batch: Batch) -> Tensor:
        """Logits (B, C) of one plain forward pass in eval mode; see `run`."""
        with eval_mode(self.module):
            logits = self.caller(self.module, batch.inputs)
        return self._checked(logits, batch)

    def _checked(self, logits: Tensor, batch: Batch) -> Tensor:
        expected = (len(batch.encoded), len(self.classes))
        if tuple(logits.shape) != expected:
            raise EngineError(
                f"{self.ref.source} gave logits of shape {tuple(logits.shape)} where "
                f"(items, classes) = {expected} was expected"
            )
        return logits


def failure(item: Item, error: ItemError) -> ItemFailure:
    """The error row of `item`."""
    return ItemFailure(item_id=item.id, index=item.index, kind=error.kind, message=str(error))
