"""What the logits of a model depend on besides the item itself.

Some models mix what shares a batch (padding that a Fourier transform or a convolution reads). Their
logits for an item then depend on its neighbours, and so would its explanation; whether a model
is like that is measured here, with its own forward pass.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transexplain.models.calling import logits_of
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.items import Item, ItemFailure

#: largest difference of two equal items, as a share of the largest logit
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 5e-2}
#: a plain sentence, for models that bring their tokenizer
NEUTRAL_TEXT = "The film was shown on Monday evening, and the audience stayed until the end."
_OTHER_DTYPE = 5e-2
_LONGEST = 24  # positions: enough to tell, cheap to run
_FORWARD_ERRORS = (TypeError, ValueError, RuntimeError, IndexError, AssertionError)


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


def tolerance_of(model: LoadedModel) -> float:
    """The greatest difference of two logits of one item, as a share of the largest."""
    return TOLERANCES.get(getattr(torch, model.ref.dtype), _OTHER_DTYPE)


def invariance_of(model: LoadedModel, sample: Encoded, *, ragged: bool = True) -> Invariance:
    """What the logits of an item do not depend on, measured at the first call.

    `sample` is any item of the caller's; with `ragged` padding is tested too. From several
    threads, the first measures and the others wait.
    """
    return _test_of(model).of(model, sample, ragged=ragged)


def is_measured(model: LoadedModel) -> bool:
    """Return whether `invariance_of` needs no pass of the model any more."""
    return _test_of(model).is_over(ragged=model.modality != "image")


def _test_of(model: LoadedModel) -> "InvarianceTest":
    test: InvarianceTest = model.measured.setdefault("invariance", InvarianceTest())
    return test


class InvarianceTest:
    """The measurement of one model: at most three small forward passes, made on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._probe: _Probe | None = None
        self._measured: Invariance | None = None

    def is_over(self, *, ragged: bool) -> bool:
        """Return whether it is measured; `ragged`: with padding."""
        invariance = self._measured
        return invariance is not None and (
            not ragged or not invariance.batch or invariance.padding is not None
        )

    def of(self, model: LoadedModel, sample: Encoded, *, ragged: bool) -> Invariance:
        """As `invariance_of`; probes are cut from `sample` where the model has no tokenizer."""
        with self._lock:
            invariance, probe = self._measured, self._probe
            if invariance is not None and self.is_over(ragged=ragged):
                return invariance
            if probe is None or (ragged and not probe.can_pad):
                probe = _Probe.made(model, sample)
            if probe is None:  # this item fails alone, which shows nothing of the others
                return _judged(model, float("inf"), None)
            if invariance is None:
                invariance = _judged(model, probe.batch_difference(model), None)
            if ragged and invariance.batch and probe.can_pad:
                invariance = _judged(
                    model, invariance.batch_difference, probe.padding_difference(model)
                )
            finished = not invariance.batch or invariance.padding is not None
            self._measured, self._probe = invariance, None if finished else probe
            return invariance


@dataclass(frozen=True, slots=True)
class _Probe:
    """A short item, the longer one it was cut from, and its logits alone."""

    short: Encoded
    long: Encoded
    alone: Tensor  #: (C,), or (T, C)

    @classmethod
    def made(cls, model: LoadedModel, sample: Encoded) -> "_Probe | None":
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

    def batch_difference(self, model: LoadedModel) -> float:
        return self._difference(_rows(model, [self.short, _other(model, self.short)]))

    def padding_difference(self, model: LoadedModel) -> float:
        return self._difference(_rows(model, [self.short, self.long]))

    def _difference(self, together: Tensor | None) -> float:
        if together is None:
            return float("inf")
        beside = together[0][: len(self.alone)]  # without padding, of a model that labels tokens
        largest = torch.stack([self.alone, beside]).abs().max()
        apart = (self.alone - beside).abs().max()
        return float(apart / largest) if largest else 0.0


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
        from transexplain.models.graph_inputs import first_nodes

        main = model.caller.main
        nodes = max(1, text.inputs[main].shape[0] - (text.length - length))
        cut = first_nodes(text.inputs, main, nodes)
        return replace(text, inputs=cut, length=length)
    kept = torch.tensor([*range(length - 1), text.length - 1])
    inputs = {name: row[kept] for name, row in text.inputs.items()}
    return replace(text, inputs=inputs, length=length)


def _other(model: LoadedModel, encoded: Encoded) -> Encoded:
    """Another item of the same size: other ids between its ends, or the picture turned around."""
    if model.modality == "nodes":
        from transexplain.models.graph_inputs import changed

        return replace(encoded, inputs=changed(encoded.inputs, model.caller.main))
    if "input_ids" not in encoded.inputs:
        turned = {name: 0.5 - values.flip(-1) for name, values in encoded.inputs.items()}
        return replace(encoded, inputs=turned)
    ids = encoded.inputs["input_ids"]
    inner = ids[1:-1]
    if not len(inner):
        return replace(encoded, inputs={**encoded.inputs, "input_ids": ids.flip(-1)})
    # one id many times: another bag of words too, with the ends that mark begin and end kept
    varied = bool((inner != inner[0]).any())
    filler = inner[len(inner) // 2] if varied else ids[0]
    filled = torch.cat([ids[:1], filler.expand(len(inner)), ids[-1:]])
    return replace(encoded, inputs={**encoded.inputs, "input_ids": filled})


def _rows(model: LoadedModel, encoded: Sequence[Encoded]) -> Tensor | None:
    """Logits in float64; None where the model cannot take such a batch."""
    try:
        logits = logits_of(model.module, model.caller, model.collate(encoded).inputs)
    except _FORWARD_ERRORS:
        return None
    taken = logits.ndim >= 2 and logits.shape[0] == len(encoded)
    return logits.double().cpu() if taken else None
