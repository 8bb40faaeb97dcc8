"""A Celery pool whose tasks are threads, one device's: how many it holds follows its room."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
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
        self._status = 0  # of the process, where it leaves
        self._lock = threading.Lock()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def register_with_event_loop(self, loop: Any) -> None:
        """Have the event loop wake when a task has ended or there is room for another."""
        loop.add_reader(self._wake_read, self._on_wake)

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
        # what a task notes of itself for the log holds for Celery's own lines after it, and no more
        future = self._threads.submit(
            copy_context().run, apply_target, target, args, kwargs, callback, accept_callback
        )
        future.add_done_callback(self._ended)

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        """Nothing: a thread cannot be killed. A revoked shard is fenced, and ends by itself."""

    def on_stop(self) -> None:
        """Wait for the tasks that are under way."""
        self._threads.shutdown()

    @property
    def in_hand(self) -> bool:
        """Return whether a task is under way."""
        return self._running > 0

    def leave(self, status: int = 0) -> None:
        """End the worker as soon as no task is under way, with this exit status."""
        self._leaving, self._status = True, status
        with self._lock:
            if self._running == 0:
                _end_worker(status)
        self.wake()

    def wake(self) -> None:
        """Make Celery's main thread check `room` and acknowledged messages."""
        with suppress(BlockingIOError):  # its limit of calls is reached
            os.write(self._wake_write, b"!")

    def _on_wake(self) -> None:
        try:
            os.read(self._wake_read, 1024)
        except BlockingIOError:
            return
        consumer = self.consumer()
        qos = getattr(consumer, "qos", None)
        if qos is not None:
            qos.value = self.room()  # the event loop informs the broker

    def _ended(self, _: "Future[Any]") -> None:
        with self._lock:
            self._running -= 1
            last = self._running == 0 and self._leaving
        self.wake()
        if last:
            threading.Timer(_LAST_ACKNOWLEDGEMENT, _end_worker, (self._status,)).start()

    def _get_info(self) -> dict[str, Any]:
        return {**super()._get_info(), "max-concurrency": _MOST, "processes": [os.getpid()]}


def _end_worker(status: int) -> None:
    state.should_stop = status  # Celery's own flag: leave with this status
