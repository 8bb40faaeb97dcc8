"""Where the host's time goes: processor time of each stage of a run, by functions that it calls.

Every function of `STAGES` is replaced by one that takes the time of its own thread. A stage's time
is exclusive: what it spends in a function of another stage counts there.
"""

import functools
import importlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

#: stage -> "module:attribute" of its functions, as they are looked up when they are called
STAGES: dict[str, tuple[str, ...]] = {
    "read": (
        "transexplain.data.shard_reader:read_rows",
        "transexplain.data.shard_reader:item_of",
    ),
    "encode": ("transexplain.explaining.explain_request:Request.encode",),
    "batch": (
        "transexplain.explaining.item_loop:batches_of",
        "transexplain.models.loaded_model:LoadedModel.padded",
    ),
    "records": (
        "transexplain.methods.batch_explanation:explain_targets",
        "transexplain.explaining.item_loop:finished",
    ),
    "stand-in": ("benchmarks.host_stand_in:StandIn.relevance",),
    "totals": (
        "transexplain.analysis.groups.shard_aggregate:ShardAggregate.add_all",
        "transexplain.analysis.groups.shard_aggregate:ShardAggregate.to_json",
    ),
    "mentions": ("transexplain.auditing.shard_mentions:MentionCounter.of",),
    "rows": (
        "transexplain.store.results:rows_of",
        "transexplain.store.results:summary_of",
    ),
    "digest": ("transexplain.store.results:digest_of",),
    "database": (
        "transexplain.store.results:save",
        "transexplain.store.runs:finalise",
        "transexplain.store.shards:claim",
        "transexplain.store.shards:note",
    ),
}
REST = "the rest"  #: of the process: loops, threads, imports


class Stopwatch:
    """Processor seconds of each stage, of all threads together."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._threads = threading.local()
        self._lock = threading.Lock()

    def enter(self, stage: str) -> None:
        """The thread works for `stage` from now on."""
        mine = self._threads
        stack = mine.__dict__.setdefault("stack", [])
        now = time.thread_time()
        if stack:
            self._add(stack[-1], now - mine.since)
        stack.append(stage)
        mine.since = now

    def leave(self) -> None:
        """The thread is through with the stage that it entered last."""
        mine, now = self._threads, time.thread_time()
        self._add(mine.stack.pop(), now - mine.since)
        mine.since = now

    def _add(self, stage: str, seconds: float) -> None:
        with self._lock:
            self.seconds[stage] += seconds

    def around(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, timed; of an iterator each step is."""

        @functools.wraps(function)
        def timed(*args: Any, **named: Any) -> Any:
            self.enter(stage)
            try:
                found = function(*args, **named)
            finally:
                self.leave()
            return self._steps(stage, found) if isinstance(found, Iterator) else found

        return timed

    def _steps(self, stage: str, steps: Iterator[Any]) -> Iterator[Any]:
        while True:
            self.enter(stage)
            try:
                one = next(steps)
            except StopIteration:
                return
            finally:
                self.leave()
            yield one


@contextmanager
def timed_stages() -> Iterator[Stopwatch]:
    """A block in which the functions of `STAGES` are timed; nobody else may run meanwhile.

    Raises AttributeError where one of them is not there any more: the table is to be mended.
    """
    watch = Stopwatch()
    with ExitStack() as stack:
        for stage, places in STAGES.items():
            for place in places:
                module, _, path = place.partition(":")
                *outer, name = path.split(".")
                owner = functools.reduce(getattr, outer, importlib.import_module(module))
                timed = watch.around(stage, getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, timed))
        yield watch
