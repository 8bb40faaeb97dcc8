"""Steps that recur: traced once and replayed; on a card compiled, and captured as CUDA graphs.

A step is what an explanation of a batch of one shape computes. Eager code runs at first,
and whenever nothing better is ready. Tracing takes seconds: a step has to have cost more by then.
"""

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from torch import Tensor

from transexplain.engine.replay import Passes, Step, TensorFunction, positions_of
from transexplain.engine.traced import ONE_AT_A_TIME, Begun
from transexplain.settings import StepPolicy

if TYPE_CHECKING:
    from transexplain.engine.compiled import Replay

_LOG = logging.getLogger(__name__)

#: seconds of eager work on one step before it is traced, by device. A trace takes some 3 s; on a
#: card it saves nine tenths of a small step, on a CPU a third of a very small one
_EARNED = {"cuda": 3.0, "cpu": 8.0}
#: positions (B * T) above which Python's share of a step on a CPU is too small to save
_SMALL_ON_CPU = 64
_TRACES = 4  #: of one step, for guards that read differently
_KEPT = 32  #: steps of one model; the one that was used least recently goes first
#: devices on which steps are compiled, and on which batches are padded and filled up to few
#: shapes, for each is a trace
_CARDS = frozenset({"cuda"})
_TIMED = 5  #: replays that are timed before a step is judged by the fastest


@dataclass(slots=True)
class _History:
    """What is known of the steps of one key."""

    eager: float = 0.0  #: seconds since the last trace
    replayed: float = 0.0  #: seconds of replays
    fastest: dict[str, float] = field(default_factory=dict)  #: seconds, eager and replayed
    replays: int = 0
    traces: list["Replay"] = field(default_factory=list)
    refused: str = ""  #: why it stays eager

    def took(self, seconds: float, *, replayed: bool) -> None:
        """Note how long it took: it says whether replays are worth it."""
        name = "replayed" if replayed else "eager"
        self.fastest[name] = min(seconds, self.fastest.get(name, seconds))
        self.eager += 0.0 if replayed else seconds
        self.replayed += seconds if replayed else 0.0
        self.replays += replayed


class Steps:
    """The recurring steps of one model.

    One thread replays at a time, for a captured graph has one memory; others run eagerly
    meanwhile. A change of the module's weights (other tensors in their places) or hooks on it make
    every trace void.
    """

    def __init__(
        self, policy: StepPolicy = "auto", earned: Mapping[str, float] | None = None
    ) -> None:
        self.policy = policy
        self.earned = earned or _EARNED
        self.in_buckets = self.compiling = _CARDS
        self._ran: set[str] = set()
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _History] = OrderedDict()
        self._weights: tuple[int, ...] = ()
        self._warned: set[str] = set()
        self._paused = 0

    @contextmanager
    def passes(self, step: Step) -> Iterator[Passes]:
        """Passes over one batch, replayed where that is ready; they end with the block."""
        filled = step.filled()
        with self._replay_of(filled) as trace:
            if trace is None or trace.step is None:
                yield step.eager()
            else:
                current = replace(trace.step, traced=trace.traced)
                yield current.replayed(filled.inputs, step.shape[0])

    @contextmanager
    def begun(self, work: TensorFunction) -> Iterator[Begun | None]:
        """A replay of the function after its first part; it ends with the block.

        None where the function has to be called.
        """
        with self._replay_of(work) as trace:
            yield None if trace is None else trace.traced.begin(*work.given)

    def called(self, work: TensorFunction) -> list[Tensor]:
        """Return what the function gives, replayed where that is ready."""
        with self.begun(work) as begun:
            if begun is None:
                return list(work.function(*work.examples))
            # the next replay writes over what this one gave
            return [tensor.clone() for tensor in begun.end(work.examples[-1])]

    @contextmanager
    def _replay_of(self, work: Step | TensorFunction) -> Iterator["Replay | None"]:
        """What applies to these inputs, while it is used; None where eager code has to run."""
        if not self._may_recur(work) or not self._lock.acquire(blocking=False):
            self._ran.add("eager")
            yield None
            return
        try:
            history, device, begun = self._of(work), work.device.type, time.perf_counter()
            trace = self._fitting(history, work, device) or self._traced(history, work, device)
            kind = "eager" if trace is None else trace.traced.kind
            self._ran.add(kind)
            yield trace
            history.took(time.perf_counter() - begun, replayed=kind != "eager")
            slower = history.fastest.get("replayed", 0.0) > history.fastest.get("eager", math.inf)
            if history.replays == _TIMED and slower and device not in self.compiling:
                history.refused, history.traces = "a replay is not faster", []
        finally:
            self._lock.release()

    def _fitting(
        self, history: _History, work: Step | TensorFunction, device: str
    ) -> "Replay | None":
        for trace in history.traces:
            if device in self.compiling and history.replayed >= self.earned[device]:
                trace.compile()
            trace.use_compiled()
            if trace.traced.applies(*work.given):
                return trace
        return None

    def _traced(
        self, history: _History, work: Step | TensorFunction, device: str
    ) -> "Replay | None":
        soon = history.eager < self.earned[device]
        if history.refused or soon or len(history.traces) == _TRACES:
            return None
        if not ONE_AT_A_TIME.acquire(blocking=False):
            return None  # a thread compiles: later
        try:
            from transexplain.engine.compiled import Replay

            trace = Replay.of(work.traced(), work.examples, self.warn)
        except Exception as error:  # noqa: BLE001 - a model's own code may raise anything in a trace
            history.refused = f"{type(error).__name__}: {error}"
            self.warn(f"explained eagerly, for a step could not be traced: {history.refused}")
            return None
        finally:
            ONE_AT_A_TIME.release()
        history.eager = 0.0
        history.traces.append(trace)
        return trace

    def ran(self) -> tuple[str, ...]:
        """Return how steps ran since the last call: some of compiled, eager, replayed."""
        ran, self._ran = self._ran, set()
        return tuple(sorted(ran))

    def buckets(self, device: str) -> bool:
        """Return whether batches on this device, such as `cuda:0`, shall come in few shapes."""
        return self.policy == "auto" and device.partition(":")[0] in self.in_buckets

    def refusals(self) -> list[str]:
        """Why steps that recurred were left to eager code."""
        return [history.refused for history in self._kept.values() if history.refused]

    def forget(self) -> bool:
        """Give back the memory of all traces: somebody else needs it; whether there were any."""
        with self._lock:
            some = any(history.traces for history in self._kept.values())
            self._kept.clear()
        return some

    @contextmanager
    def eagerly(self) -> Iterator[None]:
        """Nothing is replayed or traced in here, for want of memory."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def warn(self, text: str) -> None:
        """Log why steps run slower than they might; the same reason for many shapes once."""
        if text not in self._warned:
            self._warned.add(text)
            _LOG.warning(text)

    def _may_recur(self, work: Step | TensorFunction) -> bool:
        device = work.device.type
        if self.policy == "eager" or self._paused or device not in self.earned:
            return False
        # something else watches the module, or moves it: a replay would not call it
        for layer in work.module.modules():
            if layer._forward_hooks or layer._forward_pre_hooks or hasattr(layer, "_hf_hook"):
                return False
        return device != "cpu" or positions_of(work) <= _SMALL_ON_CPU

    def _of(self, work: Step | TensorFunction) -> _History:
        # where they are: their values may change in place, for a trace reads them there
        tensors = chain(work.module.parameters(), work.module.buffers())
        weights = tuple(tensor.data_ptr() for tensor in tensors)
        if weights != self._weights:
            self._kept.clear()
            self._weights = weights
        history = self._kept.setdefault(work.key, _History())
        self._kept.move_to_end(work.key)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return history


def bucket_of(length: int, *, apart: int = 16) -> int:
    """The next length that batches are padded to: 16, 32, ... 128, then 32, 64, ... apart.

    With `apart=1` the next number of items that they are filled up to: 1, ... 8, 10, 12, ...
    """
    apart = max(apart, (1 << (length - 1).bit_length()) >> 3)
    return -(-length // apart) * apart


def power_of_two(number: int) -> int:
    """The largest power of two that is not above `number`."""
    return 1 << (number.bit_length() - 1)
