"""A loaded model: encodes items, makes batches, and runs with access to the input layer.

Some models mix what shares a batch (padding that a Fourier transform or a convolution reads). Their
logits for an item then depend on its neighbours, and so would its explanation; whether a model
is like that is measured here, with its own forward pass.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transexplain.error_frames import traceback_of
from transexplain.errors import EngineError, ItemError
from transexplain.models.calling import Caller, eval_mode, logits_of
from transexplain.models.graph_inputs import changed, first_nodes
from transexplain.models.input_layer import Sites, Taps, tapped
from transexplain.types.items import Item, ItemFailure, PatchGrid
from transexplain.types.plans import AT_POSITIONS, Modality, ModelRef
from transexplain.types.tokens import Token


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """Long texts are read in windows, each of `max_length` positions."""

    stride: int | None = None  #: positions of text from window to window; None: no overlap


LongText = Literal["truncate", "error"] | Windows
#: largest difference of two equal items, as a share of the largest logit
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 5e-2}
#: a plain sentence, for models that bring their tokenizer
NEUTRAL_TEXT = "The film was shown on Monday evening, and the audience stayed until the end."
_OTHER_DTYPE = 5e-2
_LONGEST = 24  # positions: enough to tell, cheap to run
_FORWARD_ERRORS = (TypeError, ValueError, RuntimeError, IndexError, AssertionError)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Invariance:
    """What a model's logits do not depend on, as measured.

    Differences are shares of the largest logit; infinite where the model takes no such batch.
    """

    batch: bool  #: an item has the same logits alone and beside another of its length
    batch_difference: float
    padding: bool | None  #: ... and beside a longer one, padded; None: not measured
    padding_difference: float | None
    tolerance: float


def tolerance_of(model: "LoadedModel") -> float:
    """How far two logits of one item may lie apart, as a share of the largest."""
    return TOLERANCES.get(getattr(torch, model.ref.dtype), _OTHER_DTYPE)


class InvarianceTest:
    """The measurement of one model: at most three small forward passes, made on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._probe: _Probe | None = None
        self._found: Invariance | None = None

    def of(self, model: "LoadedModel", sample: Encoded, *, ragged: bool) -> Invariance:
        """The invariance of `model`, measured first where it is not known yet.

        Args:
            model: the model that this test belongs to.
            sample: an item; probes are cut from it where the model brings no tokenizer.
            ragged: whether padding matters to the caller.
        """
        with self._lock:
            found, probe = self._found, self._probe
            if found is not None and (not ragged or not found.batch or found.padding is not None):
                return found
            if probe is None or (ragged and not probe.can_pad):
                probe = _Probe.made(model, sample)
            if probe is None:  # this item fails alone, which shows nothing of the others
                return _judged(model, float("inf"), None)
            if found is None:
                found = _judged(model, probe.batch_difference(model), None)
            if ragged and found.batch and probe.can_pad:
                found = _judged(model, found.batch_difference, probe.padding_difference(model))
            finished = not found.batch or found.padding is not None
            self._found, self._probe = found, None if finished else probe
            return found


@dataclass(frozen=True, slots=True)
class _Probe:
    """A short item, the longer one it was cut from, and its logits alone."""

    short: Encoded
    long: Encoded
    alone: Tensor  #: (C,), or (T, C)

    @classmethod
    def made(cls, model: "LoadedModel", sample: Encoded) -> "_Probe | None":
        """Of a plain sentence or of `sample`; None where the model fails on it alone."""
        whole = _plain(model) or sample
        if model.modality == "image":
            shapes = [whole]
        else:
            whole = _cut(model, whole, min(whole.length, _LONGEST))
            # odd: what pools or strides over pairs of positions then meets padding
            shapes = [_cut(model, whole, max(1, whole.length // 2) | 1), whole]
        for short in shapes:
            alone = _rows(model, [short])
            if alone is not None:
                return cls(short, whole, alone[0])
        return None

    @property
    def can_pad(self) -> bool:
        return self.short.length < self.long.length

    def batch_difference(self, model: "LoadedModel") -> float:
        return self._difference(_rows(model, [self.short, _other(model, self.short)]))

    def padding_difference(self, model: "LoadedModel") -> float:
        return self._difference(_rows(model, [self.short, self.long]))

    def _difference(self, together: Tensor | None) -> float:
        if together is None:
            return float("inf")
        beside = together[0][: len(self.alone)]  # without padding, of a model that labels tokens
        largest = torch.stack([self.alone, beside]).abs().max()
        apart = (self.alone - beside).abs().max()
        return float(apart / largest) if largest else 0.0


_NAMED = 6  #: classes in a repr


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
    _invariance: InvarianceTest = field(default_factory=InvarianceTest, init=False, repr=False)
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
        """Where the input layers of this model are."""
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

    def invariance(self, sample: Encoded, *, ragged: bool = True) -> Invariance:
        """What the logits of an item were measured not to depend on, measured at the first call.

        `sample` is any item of the caller's; with `ragged` padding is tested too. From several
        threads, the first measures and the others wait.
        """
        return self._invariance.of(self, sample, ragged=ragged)

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


def _judged(
    model: LoadedModel, batch_difference: float, padding_difference: float | None
) -> Invariance:
    tolerance = tolerance_of(model)
    within = None if padding_difference is None else padding_difference <= tolerance
    return Invariance(
        batch=batch_difference <= tolerance,
        batch_difference=batch_difference,
        padding=within,
        padding_difference=padding_difference,
        tolerance=tolerance,
    )


def _plain(model: LoadedModel) -> Encoded | None:
    """The plain sentence as the model's own tokenizer gives it; None where it cannot."""
    if model.modality != "text":
        return None
    (made,) = model.encode([Item(id="invariance", index=0, content=NEUTRAL_TEXT)])
    return None if isinstance(made, ItemFailure) else made


def _cut(model: LoadedModel, text: Encoded, length: int) -> Encoded:
    """The first positions of `text` and its last one, which many models read the class from."""
    if length >= text.length:
        return text
    if model.modality == "nodes":
        main = model.caller.main
        nodes = max(1, text.inputs[main].shape[0] - (text.length - length))
        cut = first_nodes(text.inputs, main, nodes)
        return replace(text, inputs=cut, length=length)
    kept = torch.tensor([*range(length - 1), text.length - 1])
    inputs = {name: row[kept] for name, row in text.inputs.items()}
    return replace(text, inputs=inputs, length=length)


def _other(model: LoadedModel, one: Encoded) -> Encoded:
    """Another item of the same size: other ids between its ends, or the picture turned around."""
    if model.modality == "nodes":
        return replace(one, inputs=changed(one.inputs, model.caller.main))
    if "input_ids" not in one.inputs:
        turned = {name: 0.5 - values.flip(-1) for name, values in one.inputs.items()}
        return replace(one, inputs=turned)
    ids = one.inputs["input_ids"]
    inner = ids[1:-1]
    if not len(inner):
        return replace(one, inputs={**one.inputs, "input_ids": ids.flip(-1)})
    # one id many times: another bag of words too, with the ends that mark begin and end kept
    varied = bool((inner != inner[0]).any())
    filler = inner[len(inner) // 2] if varied else ids[0]
    filled = torch.cat([ids[:1], filler.expand(len(inner)), ids[-1:]])
    return replace(one, inputs={**one.inputs, "input_ids": filled})


def _rows(model: LoadedModel, encoded: Sequence[Encoded]) -> Tensor | None:
    """Logits in float64; None where the model cannot take such a batch."""
    try:
        logits = logits_of(model.module, model.caller, model.collate(encoded).inputs)
    except _FORWARD_ERRORS:
        return None
    taken = logits.ndim >= 2 and logits.shape[0] == len(encoded)
    return logits.double().cpu() if taken else None
