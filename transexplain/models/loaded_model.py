"""A loaded model: encodes items, makes batches, and runs with access to the input layer."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transexplain.errors import ConfigurationError, EngineError, ItemError
from transexplain.models.calling import Caller, eval_mode
from transexplain.models.input_layer import Sites, Taps, tapped
from transexplain.text.error_frames import traceback_of
from transexplain.types.items import Item, ItemFailure, PatchGrid
from transexplain.types.plans import AT_POSITIONS, Modality, ModelRef
from transexplain.types.tokens import Token


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """Long texts are read in windows, each of `max_length` positions."""

    stride: int | None = None  #: positions of text from window to window; None: no overlap


Loaded = TypeVar("Loaded")
LongText = Literal["truncate", "error"] | Windows
_NAMED = 6  #: classes in a repr
#: the input layer before everything else, by modality
_INPUT_LAYER: Mapping[Modality, str] = {"text": "words", "image": "pixels", "nodes": "nodes"}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Encoded:
    """One item as the model takes it, and what its positions are."""

    item: Item
    inputs: Mapping[str, Tensor]  #: without batch dimension, on the CPU
    features: Sequence[Token] | PatchGrid
    length: int  #: T: positions, special ones included, padding never
    truncated: bool
    windows: "tuple[Window, ...]" = ()  #: of an item that is too long for one pass


class InputsOfText(Mapping[str, Tensor]):
    """The inputs of one text, cut from the arrays of many when they are asked for."""

    __slots__ = ("_arrays", "begin", "stop")

    def __init__(self, arrays: Mapping[str, NDArray[np.int64]], begin: int, stop: int) -> None:
        """`arrays` (P,) hold the positions of all texts; those from `begin` to `stop` are its."""
        self._arrays, self.begin, self.stop = arrays, begin, stop

    def array(self, name: str) -> NDArray[np.int64]:
        """(T,) one input; it shares the memory of the tensor."""
        return self._arrays[name][self.begin : self.stop]

    @staticmethod
    def joined(several: "Sequence[InputsOfText]") -> dict[str, NDArray[np.int64]]:
        """Each input of one or more texts that have the same, one text after the other."""
        first, last = several[0], several[-1]
        if all(entry._arrays is first._arrays for entry in several) and all(
            entry.stop == after.begin for entry, after in pairwise(several)
        ):
            return {name: whole[first.begin : last.stop] for name, whole in first._arrays.items()}
        return {name: np.concatenate([entry.array(name) for entry in several]) for name in first}

    def __getitem__(self, name: str) -> Tensor:
        return torch.from_numpy(self.array(name))

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        own = {name: self.array(name).copy() for name in self}
        return InputsOfText, (own, 0, self.stop - self.begin)


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


#: a batch in the host's memory; the call moves it to the model's device
Padded = Callable[[], Batch]


class Encoder(Protocol):
    """Turns items into model inputs: one each in `text`, `image` and `nodes`."""

    def encode(
        self, items: Sequence[Item], *, long_text: LongText, max_length: int | None
    ) -> list[Encoded | ItemFailure]:
        """One result per item, in order; what cannot be encoded becomes its failure."""

    def padded(self, encoded: Sequence[Encoded]) -> Padded:
        """Pad on the right, in the host's memory; the call of it moves the batch to the device."""


#: class of a loaded model -> what it is, what loads it, and what explains its items
_KINDS = {
    "LoadedModel": ("a classifier", "load_model", "te.explain(model, items)"),
    "LanguageModel": (
        "a language model",
        "load_language_model",
        "te.explain_answers(model, prompt)",
    ),
    "TwoTowers": (
        "a model of two towers",
        "load_two_towers",
        "te.explain_similarity(model, (picture, text))",
    ),
}
#: kinds that are no classifiers
OTHER_MODELS = frozenset(_KINDS) - {"LoadedModel"}


def checked_model(kind: type[Loaded], model: Any) -> Loaded:
    """`model`, where it is of this kind; ConfigurationError names the function that fits it."""
    if isinstance(model, kind):
        return model
    wanted, loader, _ = _KINDS[kind.__name__]
    if isinstance(model, str | Path):
        call = f"{loader}({str(model)!r})"
        raise ConfigurationError(
            f"the model is the text {str(model)!r}: load it first, with {call}"
        )
    name = type(model).__name__
    if name in _KINDS:
        other, _, function = _KINDS[name]
        raise ConfigurationError(f"this function takes {wanted}; for {other} call {function}")
    raise ConfigurationError(
        f"the model is a {name}, which is not loaded: use what {loader} gives of a directory, or "
        "of a model in memory with its tokenizer or image processor"
    )


def failure(item: Item, error: ItemError) -> ItemFailure:
    """The error row of `item`."""
    return ItemFailure(
        item_id=item.id,
        index=item.index,
        kind=error.kind,
        message=str(error),
        traceback=traceback_of(error),
    )


def on_device(values: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device; to a CUDA device it is copied while the host goes on."""
    if device.type == "cuda":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)


def encode_each(
    items: Iterable[Item], encode: Callable[[Item], Encoded]
) -> list[Encoded | ItemFailure]:
    """Each item encoded by itself, in order; an ItemError of one is its error row."""
    results: list[Encoded | ItemFailure] = []
    for item in items:
        try:
            results.append(encode(item))
        except ItemError as error:
            results.append(failure(item, error))
    return results


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class LoadedModel:
    """A classifier ready to be explained; the module itself is never changed."""

    module: nn.Module
    modality: Modality
    classes: tuple[str, ...]  #: class names by index, all different
    ref: ModelRef  #: with its digest filled in
    encoder: Encoder
    caller: Caller
    #: where its input layers are; a graph model knows that after its first graph only
    located: Callable[[], Sites]
    #: what was measured of it; see `invariance.invariance_of`
    measured: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    #: language-model heads read for this model, by where they are from
    heads: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    #: changed copies of this model, by what they are for; see `variants.kept`
    variants: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    #: what recurs in explanations of this model; see `methods.at_input_layer.steps_of`
    steps: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __repr__(self) -> str:
        named = ", ".join(self.classes[:_NAMED]) + (", ..." if len(self.classes) > _NAMED else "")
        return (
            f"<LoadedModel {type(self.module).__name__} of {self.modality}: {len(self.classes)} "
            f"classes ({named}), {self.ref.dtype} on {self.ref.device}, from {self.ref.source}>"
        )

    @property
    def sites(self) -> Sites:
        """The input layers of this model."""
        return self.located()

    @property
    def default_at(self) -> str:
        """`encoder`, or the input where the model has no repeated layer list."""
        return "encoder" if self.sites.block is not None else _INPUT_LAYER[self.modality]

    @property
    def input_layers(self) -> tuple[str, ...]:
        """The values of `at` that `run` takes for this model."""
        sites = self.sites
        names = ["encoder"] if sites.block is not None else []
        if self.modality != "text" or sites.embeddings:
            names.append(_INPUT_LAYER[self.modality])
        return tuple(names)

    def notes_at(self, at: str) -> tuple[str, ...]:
        """Notes for a reader of relevance at an input layer."""
        sites = self.sites
        if at != "encoder" or sites.whole:
            return ()
        return (
            f"the model also reads this item beside {sites.block_name}, its input layer: relevance "
            "is of the first pass through it alone, and the rest is among the biases",
        )

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
        return self.padded(encoded)()

    def padded(self, encoded: Sequence[Encoded]) -> Padded:
        """The same batch in the host's memory, which another thread than the device's may make."""
        return self.encoder.padded(encoded)

    def run(self, batch: Batch, *, at: str, taps: Taps) -> Tensor:
        """Logits of one forward pass in which `taps` replace the tensor at `at`.

        The module runs in eval mode (and is left in the mode it was in); whether a graph is
        recorded is the caller's choice. Raises EngineError for an unknown `at` and where the
        forward pass never reaches the input layer.
        """
        if at not in self.input_layers:
            raise EngineError(
                f"{self.ref.source} has no input layer {at!r}; it has: "
                f"{', '.join(self.input_layers) or 'none'}"
            )
        logits = tapped(self.module, self.caller, self.sites, batch.inputs, at=at, taps=taps)
        return self._checked(logits, batch)

    def logits(self, batch: Batch) -> Tensor:
        """Logits of one plain forward pass in eval mode; see `run`."""
        with eval_mode(self.module):
            logits = self.caller(self.module, batch.inputs)
        return self._checked(logits, batch)

    def logits_shape(self, batch: Batch) -> tuple[int, ...]:
        """The shape of a batch's logits: (B, C), or (B, T, C) of a model that labels tokens."""
        items = len(batch.encoded)
        if self.ref.head in AT_POSITIONS:
            return items, batch.inputs[self.caller.main].shape[1], len(self.classes)
        return items, len(self.classes)

    def _checked(self, logits: Tensor, batch: Batch) -> Tensor:
        expected = self.logits_shape(batch)
        if tuple(logits.shape) != expected:
            axes = "(items, classes)" if len(expected) == 2 else "(items, positions, classes)"
            raise EngineError(
                f"{self.ref.source} gave logits of shape {tuple(logits.shape)} where "
                f"{axes} = {expected} was expected"
            )
        return logits
