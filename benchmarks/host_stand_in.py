"""A device that computes nothing: it returns prepared arrays at a chosen rate, as a method.

The method is called `stand-in` where `offered` was called. It takes the place of the model's
passes; what surrounds them (batches, targets, records) is the real thing.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from transexplain.methods import add_method, batch_explanation
from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Resolve,
    SeedRelevance,
)
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.types.items import Ledger

NAME = "stand-in"
_KINDS = ("add", "embedding", "layer_norm", "linear", "softmax")


class StandIn:
    """When the device was busy, and how fast it is."""

    def __init__(self) -> None:
        self.rate: float | None = None  #: items/s; None: it answers at once
        self._prepared = np.random.default_rng(0).normal(size=1 << 16)
        self._ledgers = [_ledger(value) for value in self._prepared[:64]]
        self._lock = threading.Lock()
        self.reset()

    def reset(self, on_first: Callable[[], None] = lambda: None) -> None:
        """Forget the batches so far; `on_first` is called right before the next one."""
        self._on_first = on_first
        self.busy = 0.0  #: seconds
        self.items = 0
        self._first: float | None = None
        self._last = 0.0

    @property
    def waited(self) -> float | None:
        """Share of the time from the first batch to the end of the last in which it did nothing.

        None where it answers at once, so that its time is no measure.
        """
        if self.rate is None or self._first is None:
            return None
        return 1 - self.busy / (self._last - self._first)

    @contextmanager
    def batch(self, items: int) -> Iterator[None]:
        """A block that explains so many items; the device is busy for as long as its rate says."""
        with self._lock:  # one device
            if self._first is None:
                self._on_first()
                self._first = time.perf_counter()
            begun = time.perf_counter()
            if self.rate is not None:
                time.sleep(items / self.rate)
            self._last = time.perf_counter()
            self.busy += self._last - begun
            self.items += items
        yield

    def relevance(self, rows: int, width: int) -> Array:
        """(rows, width) prepared numbers."""
        start = self.items % 1024
        return np.resize(self._prepared[start:], (rows, width))

    def ledgers(self, rows: int) -> list[Ledger]:
        """One prepared ledger per row."""
        return [self._ledgers[row % len(self._ledgers)] for row in range(rows)]


def _ledger(value: float) -> Ledger:
    return Ledger(
        inputs=value,
        special=0.25,
        embeddings=0.0,
        biases=0.125,
        rules=0.0,
        total=value + 0.375,
        gap=1e-7,
        magnitude=2.0 + abs(value),
        biases_by_kind=dict.fromkeys(_KINDS[2:4], 0.0625),
        rules_by_kind=dict.fromkeys(_KINDS, 0.0),
    )


DEVICE = StandIn()


def explain(model: LoadedModel, batch: Batch, resolve: Resolve, *, method: str) -> BatchExplanation:
    """Prepared logits (B, C), relevance (B, T) and ledgers of B items, when the device is ready."""
    rows = len(batch.encoded)
    width = max(one.length for one in batch.encoded)
    with DEVICE.batch(rows):
        logits = DEVICE.relevance(rows, len(model.classes))

    def take(seed: Array, last: bool) -> SeedRelevance:
        del seed, last
        return SeedRelevance(DEVICE.relevance(rows, width), ledgers=DEVICE.ledgers(rows))

    mark = CommonFields(method=method, at=model.default_at, unit="logits")
    return batch_explanation.explain_targets(batch, logits, resolve, take, mark)


def offered() -> StandIn:
    """The device, after its method was added to those of this process."""
    add_method(NAME, explain, source="benchmarks.host", modalities=("text", "image"))
    return DEVICE
