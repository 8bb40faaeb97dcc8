"""Diagnoses whether a model can be explained exactly, which operators it uses, and what that
costs.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from transexplain.engine.census import Census, Uncovered
from transexplain.engine.composites import Composite, composite
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.propagate import propagate
from transexplain.engine.replay import Step, Tracing, try_tracing
from transexplain.errors import ConfigurationError, EngineError, ItemError
from transexplain.methods import METHODS, bound, facts_of
from transexplain.methods.batch_explanation import BatchExplanation
from transexplain.methods.relevance import rules_of
from transexplain.models.calling import logits_of
from transexplain.models.image_encoder import ImageEncoder
from transexplain.models.invariance import NEUTRAL_TEXT, invariance_of, tolerance_of
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel
from transexplain.models.text_encoder import TextEncoder
from transexplain.types.items import Item, Ledger, ResolvedTarget, Unit
from transexplain.types.plans import ModelRef
from transexplain.types.scores import MethodSpec

if TYPE_CHECKING:
    from transexplain.engine.census import OperatorUse
    from transexplain.models.invariance import Invariance


def neutral_content(model: LoadedModel) -> Any:
    """A plain sentence, or a picture whose colours change from side to side.

    Raises ConfigurationError for a graph model and for a text model without a tokenizer.
    """
    encoder = model.encoder
    if isinstance(encoder, ImageEncoder):
        channels, height, width = encoder.shape
        down, across = np.mgrid[0:height, 0:width] / max(height - 1, width - 1, 1)
        ramps = np.stack([across, down, (across + down) / 2], axis=-1)
        if encoder.transform is not None:
            return ramps
        planes = np.resize(ramps.transpose(2, 0, 1), (channels, height, width))
        return {"pixel_values": torch.from_numpy(2 * planes - 1)}
    if model.modality == "nodes":
        raise ConfigurationError(
            f"no graph suits every model: pass an item, {{'{model.caller.main}': (T, F), ...}}"
        )
    if isinstance(encoder, TextEncoder) and encoder.tokenizer is None:
        raise ConfigurationError(
            "this model was wrapped without a tokenizer: pass an item, {'input_ids': ...}"
        )
    return NEUTRAL_TEXT


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Medians of interleaved runs over one item, and the memory they took."""

    forward: float  #: seconds of the untouched model
    explanation: float  #: seconds of forward, backward and record
    graph_bytes: int  #: kept from the forward for the backward pass
    peak_bytes: int | None  #: largest allocation on a CUDA device; None: not measured on CPU

    @property
    def ratio(self) -> float:
        """Explanation in forwards."""
        return self.explanation / self.forward


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """One item through one model under one method."""

    model: ModelRef
    method: str
    unit: Unit  #: of the ledger
    at: str
    positions: int  #: T
    target: str  #: the predicted class, which was explained
    operators: "tuple[OperatorUse, ...]"
    uncovered: tuple[Uncovered, ...]
    remedies: tuple[str, ...]  #: methods that need no propagation through an operator
    ledger: Ledger | None  #: None where the model is not covered
    gap_tolerance: float | None  #: share of the sum of |terms|; None: measured only
    logit_scale: float  #: largest |logit| of the untouched model
    logits_difference: float | None  #: to the untouched model; None: the pass gave no logits
    logits_tolerance: float  #: share of the largest logit
    timing: Timing | None  #: None where the model is not covered
    invariance: "Invariance"
    tracing: Tracing | None = None  #: None: not tried

    @property
    def closes(self) -> bool | None:
        """Return whether the gap is within its tolerance; None where it is measured only."""
        if self.ledger is None or not math.isfinite(self.ledger.gap):
            return False
        if self.gap_tolerance is None:
            return None
        return self.ledger.relative_gap <= self.gap_tolerance

    @property
    def same_logits(self) -> bool:
        """Return whether the logits are the same with and without the rules."""
        difference = self.logits_difference
        return difference is not None and difference <= self.logits_tolerance * self.logit_scale

    @property
    def verdict(self) -> str:
        """One line: `covered`, or the reason against it."""
        if self.uncovered:
            names = dict.fromkeys(call.operator for call in self.uncovered)
            return f"not covered: {', '.join(names)}"
        if not self.same_logits:
            return f"logits differ from the untouched model's by {self.logits_difference:.1e}"
        if self.closes is False:
            return "ledger does not close"
        return "covered"

    @property
    def batching(self) -> str:
        """Return how items of this model are put into batches."""
        if not self.invariance.batch:
            return "item by item"
        if self.model.modality == "image":
            return "any items together"
        return "equal lengths" if self.invariance.padding is False else "similar lengths, padded"

    def document(self) -> Mapping[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        derived = {
            "verdict": self.verdict,
            "closes": self.closes,
            "batching": self.batching,
            "ratio": None if self.timing is None else self.timing.ratio,
        }
        plain: Mapping[str, Any] = _finite({**asdict(self), **derived})
        return plain


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_ROUNDS = 3
#: largest gap of a ledger, as a share of the sum of |terms|
_GAPS = {torch.float64: 1e-12, torch.float32: 5e-6}
_GAP_AFTER_CASTS = 1e-5

Array = NDArray[np.float64]


def examine(
    model: LoadedModel,
    item: Any = None,
    method: str = "lrp",
    at: str | None = None,
    *,
    trace: bool = False,
    **params: Any,
) -> Diagnosis:
    """Explain one item with `model` under `method`; record the operators met and not covered.

    Args:
        model: what `load_model` or `wrap` gave; it is left as it was.
        item: a text, a picture, encoded inputs or an `Item`; default: a plain sentence or a
            picture of colour gradients.
        method: a method that propagates relevance (the name of a composite).
        at: the input layer; default: the model's.
        trace: try whether a step can be traced and replayed, which takes seconds.
        params: parameters of the method, such as `gamma`.

    Raises:
        ConfigurationError: an unknown method or input layer, or no encoder for `item`.
        ItemError: the item cannot be encoded, or the model itself fails on it.
    """
    composite(method)  # an unknown method is refused before anything runs
    content = neutral_content(model) if item is None else item
    item = content if isinstance(content, Item) else Item(id="0", index=0, content=content)
    # before the input layer: a graph model finds its own at a graph
    (encoded,) = model.encode([item])
    if not isinstance(encoded, Encoded):
        raise ItemError(encoded.kind, encoded.message)
    at = at or model.default_at
    spec = MethodSpec(name=method, params={**params, "at": at})
    explain, rules = bound(spec), rules_of(method, at, params)
    if at not in model.input_layers:
        known = ", ".join(model.input_layers) or "none"
        raise ConfigurationError(f"{model.ref.source} has no input layer {at!r}; it has: {known}")
    batch = model.collate([encoded])
    case = _Case(model, batch, explain, rules, at, _plain_logits(model, batch))
    census = Census(root=model.module)
    logits, faults = case.counted(census)
    if faults:
        return _diagnosis(case, census, faults, None, None, logits)
    explained = case.explain()
    timing = case.timed()
    ledger = explained.attributions[0][0].ledger
    diagnosis = _diagnosis(case, census, faults, ledger, timing, [*logits, explained.logits])
    return replace(diagnosis, tracing=case.traced()) if trace else diagnosis


@dataclass(frozen=True, slots=True)
class _Case:
    """One item of one model, to be explained for the class that the model predicts."""

    model: LoadedModel
    batch: Batch  #: of one item
    method: Callable[..., BatchExplanation]  #: as audits call it
    rules: Composite
    at: str
    plain: Array  #: (1, C) or (1, T, C) of the untouched model

    @property
    def place(self) -> tuple[int, ...]:
        """Of the largest logit: its class, behind its position where tokens have logits."""
        largest = np.unravel_index(int(np.argmax(self.plain[0])), self.plain[0].shape)
        return tuple(map(int, largest))

    @property
    def index(self) -> int:
        return self.place[-1]

    def counted(self, census: Census) -> tuple[list[Array], tuple[Uncovered, ...]]:
        """The logits (1, C), if any, and the reason why the pass cannot be explained."""
        logits: list[Array] = []
        try:
            passes = propagate(
                lambda taps: self.model.run(self.batch, at=self.at, taps=taps),
                self.rules,
                1,
                module=self.model.module,
                census=census,
            )
            logits.append(_array(passes.logits))
            if not census.uncovered:
                seed = torch.zeros(passes.logits.shape)
                seed[(0, *self.place)] = 1.0
                passes.relevance(seed, last=True)
        except (EngineError, RuntimeError) as error:
            whole = Uncovered(operator="the pass as a whole", where="", why=str(error))
            return logits, (*census.uncovered, whole)
        return logits, census.uncovered

    def explain(self) -> BatchExplanation:
        """The method as audits call it."""
        target = ResolvedTarget(
            spec="predicted",
            rank=0,
            class_index=self.index,
            class_name=self.model.classes[self.index],
            coefficients=((self.index, 1.0),),
            positions=self.place[:-1],
        )
        return self.method(self.model, self.batch, lambda _logits: [[target]])

    def traced(self) -> Tracing:
        """The trace of the step, with the time of its replay."""

        def run(inputs: Mapping[str, Tensor], taps: RelevanceMode) -> Tensor:
            return self.model.run(replace(self.batch, inputs=dict(inputs)), at=self.at, taps=taps)

        step = Step(
            forward=run,
            composite=self.rules,
            inputs=self.batch.inputs,
            shape=self.model.logits_shape(self.batch),
            module=self.model.module,
        )
        return try_tracing(step)

    def timed(self) -> Timing:
        """Medians of interleaved runs; both ran before, so nothing is cold."""
        on_cuda = self.batch.lengths.is_cuda
        held = _HeldForBackward()
        with held:
            self.explain()
        if on_cuda:
            torch.cuda.reset_peak_memory_stats()
        model, inputs = self.model, self.batch.inputs
        forwards, explanations = [], []
        for _ in range(_ROUNDS):
            untouched = partial(logits_of, model.module, model.caller, inputs)
            forwards.append(_seconds(untouched, on_cuda=on_cuda))
            explanations.append(_seconds(self.explain, on_cuda=on_cuda))
        return Timing(
            forward=statistics.median(forwards),
            explanation=statistics.median(explanations),
            peak_bytes=torch.cuda.max_memory_allocated() if on_cuda else None,
            graph_bytes=held.bytes,
        )


class _HeldForBackward(saved_tensors_hooks):
    """Counts what a forward pass keeps for its backward, each storage once."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        super().__init__(self._keep, lambda tensor: tensor)

    def _keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    @property
    def bytes(self) -> int:
        """The size of all storages together."""
        return sum(self._seen.values())


def _diagnosis(
    case: _Case,
    census: Census,
    faults: tuple[Uncovered, ...],
    ledger: Ledger | None,
    timing: Timing | None,
    logits: list[Array],
) -> Diagnosis:
    model, plain = case.model, case.plain
    (encoded,) = case.batch.encoded
    return Diagnosis(
        model=model.ref,
        method=case.rules.name,
        unit=case.rules.unit,
        at=case.at,
        positions=encoded.length,
        target=model.classes[case.index],
        operators=census.operators,
        uncovered=faults,
        remedies=tuple(name for name in METHODS if not facts_of(name).needs_rules),
        ledger=ledger,
        gap_tolerance=_gap_tolerance(model, census),
        logit_scale=float(np.abs(plain).max()),
        logits_difference=max(
            (float(np.abs(logit - plain).max()) for logit in logits), default=None
        ),
        logits_tolerance=tolerance_of(model),
        timing=timing,
        invariance=invariance_of(model, encoded, ragged=model.modality != "image"),
    )


def _plain_logits(model: LoadedModel, batch: Batch) -> Array:
    try:
        return _array(logits_of(model.module, model.caller, batch.inputs))
    except (TypeError, ValueError, RuntimeError, IndexError, AssertionError) as error:
        raise ItemError("model-error", f"the model itself fails on the item: {error}") from error


def _seconds(run: Callable[[], Any], *, on_cuda: bool) -> float:
    if on_cuda:
        torch.cuda.synchronize()
    begun = time.perf_counter()
    run()
    if on_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def _gap_tolerance(model: LoadedModel, census: Census) -> float | None:
    """Return what a gap is judged by; None where half precision is at work: it is measured only."""
    if not census.dtypes <= set(_GAPS):
        return None
    dtype: torch.dtype = getattr(torch, model.ref.dtype)
    casts = dtype == torch.float64 and torch.float32 in census.dtypes
    return _GAP_AFTER_CASTS if casts else _GAPS.get(dtype)


def _array(logits: Tensor) -> Array:
    array: Array = logits.detach().double().cpu().numpy()
    return array
