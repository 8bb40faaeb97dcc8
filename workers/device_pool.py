"""A pool for Celery whose tasks are threads around one device.

Celery's main thread stays free, so that `inspect`, `revoke`, `rate_limit`, events and heartbeats
work while a shard is computed; its `solo` pool would answer between two shards. One message is in
hand, and one more for each shard that the device is through with or nearly so, see `Device.room`.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from celery.concurrency.base import BasePool, apply_target
from celery.worker import state

#: tasks at once: one that is computed, one before it and one behind it
_MOST = 3
#: seconds from the last task's end to the worker's: its acknowledgement goes out first
_LAST_ACKNOWLEDGEMENT = 0.3


class DevicePool(BasePool):  # type: ignore[misc]  # celery has no types
    """Threads for tasks; how many messages the worker holds follows `room`."""

    signal_safe = False
    body_can_be_buffer = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limit = 1  # what Celery takes at first
        self.room: Callable[[], int] = lambda: 1
        self.consumer: Callable[[], Any] = lambda: None  #: Celery's, where it has one
        self._threads = ThreadPoolExecutor(_MOST, "shard")
        self._running = 0
        self._leaving = False
        self._lock = threading.Lock()
        self._heard, self._said = os.pipe()
        os.set_blocking(self._heard, False)
        os.set_blocking(self._said, False)

    def register_with_event_loop(self, loop: Any) -> None:
        """Have the event loop wake when a task has ended or there is room for another."""
        loop.add_reader(self._heard, self._woken)

    def on_apply(
        self,
        target: Callable[..., Any],
        args: Any = None,
        kwargs: Any = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Callable[..., Any] | None = None,
        **_: Any,
    ) -> None:
        """Begin a task."""
        with self._lock:
            self._running += 1
        future = self._threads.submit(apply_target, target, args, kwargs, callback, accept_callback)
        future.add_done_callback(self._ended)

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        """Nothing: a thread cannot be killed. A revoked shard is fenced, and ends by itself."""

    def on_stop(self) -> None:
        """Wait for the tasks that are under way."""
        self._threads.shutdown()

    def leave(self) -> None:
        """End the worker as soon as no task is under way."""
        self._leaving = True
        with self._lock:
            if self._running == 0:
                _end_worker()
        self.wake()

    def wake(self) -> None:
        """Have Celery's main thread look at `room` and at what was acknowledged."""
        with suppress(BlockingIOError):  # it has been called often enough
            os.write(self._said, b"!")

    def _woken(self) -> None:
        try:
            os.read(self._heard, 1024)
        except BlockingIOError:
            return
        consumer = self.consumer()
        qos = getattr(consumer, "qos", None)
        if qos is not None:
            qos.value = self.room()  # the event loop tells the broker

    def _ended(self, _: "Future[Any]") -> None:
        with self._lock:
            self._running -= 1
            last = self._running == 0 and self._leaving
        self.wake()
        if last:
            threading.Timer(_LAST_ACKNOWLEDGEMENT, _end_worker).start()

    def _get_info(self) -> dict[str, Any]:
        return {**super()._get_info(), "max-concurrency": _MOST, "processes": [os.getpid()]}


def _end_worker() -> None:
    state.should_stop = 0  # Celery's own flag: leave with status 0
