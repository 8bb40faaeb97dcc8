"""Threads, time and databases under one scheduler that decides by a seed what happens next.

A world runs real code in real threads, of which one moves at a time. A thread gives way before
every SQL statement, before every commit and wherever it waits; the scheduler then picks the next
by its random numbers, lets virtual time pass, or ends a whole process there. The same seed gives
the same schedule.

Databases are real. SQLite has one writer at a time, so a transaction that would wait for another
is not started. On PostgreSQL a statement may wait for a row: the scheduler asks the server which
sessions are blocked, and goes on with the others.
"""

import heapq
import math
import random
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from transexplain.store.database import Database, raw_connection

EPOCH = 1_799_999_970.0  #: what the database's clock shows when a world begins
_CLOCKS = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)",
}
_LIMIT = 200_000  #: steps after which a world counts as one that never ends


class Crash(BaseException):
    """Ends the threads of a process that died; no code of ours catches it for good."""


class NeverEnds(AssertionError):  # noqa: N818 - as Violation
    """Every thread waits for another, or the world goes on and on."""


@dataclass(eq=False)
class Process:
    """Threads that die together."""

    name: str
    dead: bool = False
    stalled_until: float = 0.0  #: as by SIGSTOP: no thread of it moves before
    immortal: bool = False  #: the scheduler does not end it
    tasks: "list[Task]" = field(default_factory=list, repr=False)


class Task:
    """One thread of a world, which moves when the scheduler says so."""

    def __init__(self, world: "World", process: Process, body: Callable[[], object]) -> None:
        self.world, self.process, self._body = world, process, body
        self.wake = world.now  #: the latest moment at which it goes on
        self.ready: Callable[[], bool] | None = None  #: what it waits for until then
        self.over = False
        self.parked = True  #: it waits for its turn
        self.backend: int | None = None  #: PostgreSQL's number of its session, while it may block
        self.blocked = False  #: its statement waits inside the database
        self._turn = threading.Lock()  # released by the scheduler when it is this thread's turn
        self._parking = threading.Lock()  # released by the thread when it gives way
        self._turn.acquire()
        self._parking.acquire()
        self._thread = threading.Thread(target=self._main, daemon=True)
        process.tasks.append(self)
        world.tasks.append(self)
        self._thread.start()

    @property
    def number(self) -> int:
        """Of its thread."""
        return self._thread.ident or 0

    def due(self, now: float) -> bool:
        """Whether it can move: its time has come, or what it waits for; or it is to die."""
        if not self.parked or self.over:
            return False
        if self.process.dead:
            return True
        if now < self.process.stalled_until:
            return False
        return now >= self.wake or (self.ready is not None and self.ready())

    def next_moment(self) -> float:
        """When it can move, as far as time decides."""
        waits = self.ready is None or not self.ready()
        return max(self.wake if waits else 0.0, self.process.stalled_until)

    def park(self, wake: float, ready: Callable[[], bool] | None = None) -> None:
        """Give way until then, or until `ready`; raises Crash if the process died meanwhile."""
        self.wake, self.ready = wake, ready
        self.parked = True
        self._parking.release()
        self._turn.acquire()
        if self.process.dead:
            raise Crash

    def move(self) -> None:
        """Let it run until it gives way, ends, or waits inside the database."""
        self.parked = False
        self._turn.release()
        self.settle()

    def settle(self) -> None:
        """Wait until the thread is parked again, or known to be blocked by another."""
        while not self._parking.acquire(timeout=0.01):
            if self.backend is not None and self.world.is_blocked(self.backend):
                self.blocked = True
                return
        self.blocked = False

    def _main(self) -> None:
        self._turn.acquire()
        self.world.here.task = self
        try:
            if not self.process.dead:
                self._body()
        except Crash:
            pass
        except BaseException as error:  # noqa: BLE001 - raised by the scheduler
            self.world.errors.append(error)
        finally:
            self.over = True
            self.world.unlock(self)  # a connection that Crash went through is closed by now
            self._parking.release()


class World:
    """Virtual time, threads and one database.

    `slowness` draws how long a statement takes, in seconds; `fatality` is the chance that a
    process that may die does so where it gives way, `cuts` that its connection is cut there.
    """

    def __init__(
        self,
        seed: int,
        db: Database,
        *,
        slowness: Callable[[random.Random], float],
        fatality: float = 0.0,
        cuts: float = 0.0,
    ) -> None:
        self.random = random.Random(seed)
        self.db = db
        self.now = 0.0
        self.ahead = 0.0  #: of the database's clock, which may jump
        self.slowness, self.fatality, self.cuts = slowness, fatality, cuts
        self.tasks: list[Task] = []
        self.errors: list[BaseException] = []
        self.here = threading.local()
        self.writer: Task | None = None  #: who has SQLite's lock
        self.on_commit: Callable[[], None] = lambda: None
        self.commits = 0
        self.statements = 0
        self.crashes = 0
        self._control: Any = None

    # --- what simulated code calls

    def monotonic(self) -> float:
        """`time.monotonic` of this world."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.task.park(self.now + seconds)

    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait for something; False: it did not come in time."""
        until = math.inf if timeout is None else self.now + timeout
        if not ready():
            self.task.park(until, ready)
        return ready()

    @property
    def task(self) -> Task:
        """The thread that asks."""
        task: Task = self.here.task
        return task

    def start(self, process: Process, body: Callable[[], object]) -> Task:
        """A new thread of a process."""
        return Task(self, process, body)

    def kill(self, process: Process) -> None:
        """End a process as SIGKILL does: none of its threads executes another statement."""
        process.dead = True
        self.crashes += 1

    # --- the scheduler

    def run(self, over: Callable[[], bool]) -> None:
        """Move threads until `over`, or all have ended; raises what one of them raised."""
        for _ in range(_LIMIT):
            if self.errors:
                raise self.errors[0]
            if over() or not self._step():
                return
        raise NeverEnds(f"{_LIMIT} steps, now {self.now:.0f} s")

    def close(self) -> None:
        """End every thread."""
        for task in self.tasks:
            task.process.dead = True
        while self._step():
            pass
        if self._control is not None:
            self._control.close()

    def _step(self) -> bool:
        self.tasks = [task for task in self.tasks if not task.over]
        if not self.tasks:
            return False
        due = [task for task in self.tasks if task.due(self.now)]
        if not due:
            self._pass_time()
            return True
        task = self.random.choice(due)
        mortal = not (task.process.dead or task.process.immortal)
        if mortal and self.fatality and self.random.random() < self.fatality:
            self.kill(task.process)
        commits = self.commits
        task.move()
        for other in self.tasks:
            if other.blocked:
                other.settle()
        if self.commits > commits:
            self.on_commit()
        return True

    def _pass_time(self) -> None:
        moments = [task.next_moment() for task in self.tasks if task.parked]
        ahead = [moment for moment in moments if self.now < moment < math.inf]
        blocked = [task for task in self.tasks if task.blocked]
        if not ahead and blocked:
            # by the session of a thread that died, which the server has yet to roll back
            for task in blocked:
                task.settle()
            return
        if not ahead:
            raise NeverEnds(f"every thread waits for another:\n{self._where()}")
        self.now = min(ahead)

    def _where(self) -> str:
        frames = sys._current_frames()
        return "\n".join(
            f"{task.process}:\n{''.join(traceback.format_stack(frames[task.number])[-6:-1])}"
            for task in self.tasks
        )

    def is_blocked(self, backend: int) -> bool:
        """Whether a session of PostgreSQL waits for a lock that another holds."""
        import psycopg

        if self._control is None:
            url = self.db.engine.url.set(drivername="postgresql")
            text = url.render_as_string(hide_password=False)
            self._control = psycopg.connect(text, autocommit=True)
        query = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
        return bool(self._control.execute(query, (backend,)).fetchone()[0])

    # --- hooks of the database

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Give way at every statement and commit on this world's database."""
        hooks: list[tuple[str, Any, dict[str, bool]]] = [
            ("before_cursor_execute", self._before, {"retval": True}),
            ("after_cursor_execute", self._after, {}),
            ("commit", self._commit, {}),
            ("rollback", self._rollback, {}),
        ]
        for name, hook, options in hooks:
            event.listen(self.db.engine, name, hook, **options)
        try:
            yield
        finally:
            for name, hook, _ in hooks:
                event.remove(self.db.engine, name, hook)

    def _before(
        self, connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any
    ) -> tuple[str, Any]:
        task: Task | None = getattr(self.here, "task", None)
        if task is not None:
            with self._may_be_lost(task, connection):
                if task.process.dead:
                    raise Crash
                task.park(self.now + self.slowness(self.random))
                self._cut(task)
                if statement.startswith("BEGIN IMMEDIATE"):
                    self.wait(lambda: self.writer is None)
                    self.writer = task
            if connection.dialect.name == "postgresql":
                task.backend = raw_connection(connection).info.backend_pid
            self.statements += 1
        clock = repr(EPOCH + self.now + self.ahead)
        virtual = f"CAST({clock} AS DOUBLE PRECISION)"
        return statement.replace(_CLOCKS[connection.dialect.name], virtual), parameters

    def _after(self, *_: Any) -> None:
        self._rejoin()

    def _commit(self, connection: Any) -> None:
        task = self._rejoin()
        if task is None:
            return
        with self._may_be_lost(task, connection):
            task.park(self.now + self.slowness(self.random))
            self._cut(task)
        self.commits += 1
        self.unlock(task)

    def _cut(self, task: Task) -> None:
        if self.cuts and not task.process.immortal and self.random.random() < self.cuts:
            raise OperationalError("a statement", None, ConnectionError("the server went away"))

    @contextmanager
    def _may_be_lost(self, task: Task, connection: Any) -> Iterator[None]:
        """A connection that is cut, or whose process dies: it is closed and its work rolled back.

        A statement that somebody still reads from would keep SQLite's lock beyond closing.
        """
        try:
            yield
        except (Crash, OperationalError):
            raw_connection(connection).rollback()
            connection.invalidate()
            self.unlock(task)
            raise

    def _rollback(self, connection: Any) -> None:
        task: Task | None = getattr(self.here, "task", None)
        if task is not None:
            self.unlock(task)

    def _rejoin(self) -> Task | None:
        """A thread that was blocked moves on its own when it is let go: it takes its turn again."""
        task: Task | None = getattr(self.here, "task", None)
        if task is not None and task.blocked:
            task.park(self.now)
        return task

    def unlock(self, task: Task) -> None:
        """Note that SQLite's lock is free, once this thread gives way again."""
        if self.writer is task:
            self.writer = None


class Event:
    """`threading.Event` of a world."""

    def __init__(self, world: World) -> None:
        self._world, self._set = world, False

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        return self._world.wait(self.is_set, timeout)


class Thread:
    """`threading.Thread` of a world; it belongs to the process that starts it."""

    def __init__(self, world: World, target: Callable[[], None], **_: Any) -> None:
        self._world, self._target = world, target
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._world.start(self._world.task.process, self._target)

    def join(self) -> None:
        task = self._task
        self._world.wait(lambda: task.over)


class Future:
    """`concurrent.futures.Future` of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._done = False
        self._calls: list[Callable[[Future], object]] = []
        self._value: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._done

    def set_result(self, value: Any) -> None:
        self._value = value
        self._end()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._end()

    def add_done_callback(self, call: Callable[["Future"], object]) -> None:
        if self._done:
            call(self)
        else:
            self._calls.append(call)

    def _end(self) -> None:
        self._done = True
        for call in self._calls:
            call(self)

    def exception(self) -> BaseException | None:
        self._world.wait(self.done)
        return self._error

    def result(self) -> Any:
        if error := self.exception():
            raise error
        return self._value


class Executor:
    """`ThreadPoolExecutor` in a world."""

    def __init__(self, world: World, workers: int = 1, *_: Any) -> None:
        self._world, self._most = world, workers
        self._calls: list[tuple[int, Callable[[], Any], Future]] = []
        self._number = 0
        self._closing = False
        self._workers: list[Task] = []

    def __enter__(self) -> "Executor":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def submit(self, call: Callable[..., Any], *args: Any) -> Future:
        future = Future(self._world)
        heapq.heappush(self._calls, (self._number, lambda: call(*args), future))
        self._number += 1
        if len(self._workers) < self._most:
            self._workers.append(self._world.start(self._world.task.process, self._work))
        return future

    def shutdown(self) -> None:
        self._closing = True
        if self._workers:
            self._world.wait(lambda: all(worker.over for worker in self._workers))

    def _work(self) -> None:
        while True:
            self._world.wait(lambda: bool(self._calls) or self._closing)
            if not self._calls:
                return
            _, call, future = heapq.heappop(self._calls)
            try:
                future.set_result(call())
            except Crash:
                raise
            except BaseException as error:  # noqa: BLE001 - raised where the result is read
                future.set_exception(error)
