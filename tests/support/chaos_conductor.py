"""Faults for a fleet at work: what happens when, driven by how many shards are done."""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from chaos_groups import Group, wait_for
from chaos_servers import OwnPostgres, OwnRedis

from orchestrator.dispatch import queue
from orchestrator.dispatch.queue import send_messages
from transexplain.errors import BrokerError, DatabaseError
from transexplain.settings import Settings
from transexplain.store import runs, shards
from transexplain.store.database import Database
from transexplain.store.runs import ShardStatus
from workers.queue_names import queue_of

_ZOMBIES = 5  # tries
POLL = 0.1  # seconds
SWEEP_EVERY = 1.0  # seconds
STUCK = 150.0  # seconds without a claim or a shard done after which the fleet counts as stuck


class Sweeper:
    """Sweeps from a thread of its own, as beat does: what goes wrong is for the next time."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db, self._settings = db, settings
        self.sent = 0  #: messages
        self.vain = 0  #: sweeps that found a server away
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="sweeper")

    def __enter__(self) -> "Sweeper":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _go_on(self) -> None:
        while not self._end.wait(SWEEP_EVERY / 2):
            try:
                swept = queue.sweep(self._db, self._settings, every=SWEEP_EVERY)
            except (BrokerError, DatabaseError):
                self.vain += 1
            else:
                self.sent += swept.sent if swept else 0


@dataclass(kw_only=True)
class Conductor:
    """Makes the faults of a score, each once so many shards are done."""

    db: Database
    run_id: str
    settings: Settings
    folder: Path  #: where the hook in the workers looks for requests
    broker: OwnRedis
    postgres: OwnPostgres
    groups: Sequence[Group]
    poisoned: Sequence[int]  #: shards
    seed: int
    done: Counter[str] = field(default_factory=Counter)  #: faults by name
    fenced: list[int] = field(default_factory=list)  #: shards whose commit came too late
    torn: list[int] = field(default_factory=list)  #: shards whose commit the database cut off

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        plan = runs.get(self.db, self.run_id).plan
        self._queue, self._last = queue_of(self.settings, plan), plan.max_attempts - 1

    def play(self, score: Sequence[tuple[int, str]]) -> None:
        """Make every fault `(shards done, name)` in its turn, then wait for the run's end."""
        faults: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "flush": self._flush,
            "duplicates": self._duplicates,
            "zombie": self._zombie,
            "redis": self._restart_redis,
            "postgres": self._restart_postgres,
        }
        for threshold, name in sorted(score):
            self._wait_until_done(threshold)
            faults[name]()
            self.done[name] += 1
            self._hint(self.poisoned, first=True)
        self._wait_until_done(None)

    def statuses(self, *states: str) -> list[ShardStatus]:
        """The shards in these states (all without any), as soon as the database answers."""
        self.done["revived"] += sum(group.revive() for group in self.groups)
        deadline = time.monotonic() + 60
        while True:
            try:
                return shards.list_shards(self.db, self.run_id, states=states or None)
            except DatabaseError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL)

    def _wait_until_done(self, threshold: int | None) -> None:
        seen, moved = (-1, -1), time.monotonic()
        while True:
            found = self.statuses()
            done = sum(one.state == "done" for one in found)
            if done == len(found) if threshold is None else done >= threshold:
                return
            if seen != (now := (done, sum(one.attempt for one in found))):
                seen, moved = now, time.monotonic()
            assert time.monotonic() - moved < STUCK, self._stuck(found)
            time.sleep(POLL)

    def _stuck(self, found: Sequence[ShardStatus]) -> str:
        left = "\n".join(str(one) for one in found if one.state != "done")
        with self.broker.client() as client:
            waiting = client.llen(self._key)
        return f"nothing moves; {waiting} messages wait, the shards left are\n{left}"

    def _at_work(self) -> list[Group]:
        """The groups that hold a shard by the word of the database."""
        names = [one.worker for one in self.statuses("running")]
        return [group for group in self.groups if any(group.holds(name) for name in names)]

    def _kill(self) -> None:
        """Kill a whole group at work and start it again, where nothing would be given up for it."""
        victims: list[Group] = []

        def found() -> bool:
            victims[:] = [one for one in self._at_work() if self._may_end(one)]
            return bool(victims)

        wait_for(found, "a group at work on a batch")
        victim = self._random.choice(victims)
        victim.kill()
        victim.start()

    def _may_end(self, group: Group) -> bool:
        """Whether no shard would be dead if the group ended now.

        Each that it holds loses an attempt, and the poison needs the last ones for itself.
        """
        held = [one for one in self.statuses("running") if group.holds(one.worker)]
        return not any(one.caution.alone or one.fruitless >= self._last for one in held)

    def _all_may_end(self) -> bool:
        found = self._at_work()
        return len(found) == len(self.groups) and all(map(self._may_end, found))

    def _flush(self) -> None:
        with self.broker.client() as client:
            client.flushdb()

    def _restart_redis(self) -> None:
        self.broker.restart()

    def _duplicates(self) -> None:
        """Messages for shards that are done and for those in hand, before and behind all others."""
        held = [one.shard.index for one in self.statuses("running")]
        done = [one.shard.index for one in self.statuses("done")]
        doubled = held + self._random.sample(done, min(len(done), 5))
        self._hint(doubled, first=True)
        self._hint(doubled)

    def _zombie(self) -> None:
        """Stop a worker right before its commit until another has its shard, then let it go on.

        On a busy machine that may take longer than an item may: such a zombie ends itself when it
        wakes, and another is made.
        """
        for _ in range(_ZOMBIES):
            wait_for(self._all_may_end, "both groups at work on a batch")
            if self._is_fenced(*self._granted("freeze", "frozen")):
                return
            self.done["zombies that ended themselves"] += 1
        raise AssertionError(f"none of {_ZOMBIES} zombies came to its commit")

    def _is_fenced(self, pid: int, index: int, attempt: int) -> bool:
        """Wake the process once its shard is another's; whether its commit is fenced."""
        try:
            group = next(one for one in self.groups if one.has(pid))
            reported = len(_ends(group, index, "fenced"))
            wait_for(lambda: self._expired(index), "the zombie's lease ends")
            self._hint([index], first=True)
            wait_for(lambda: self._status(index).attempt > attempt, "another claims its shard")
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        def fenced() -> bool:
            return len(_ends(group, index, "fenced")) > reported

        wait_for(lambda: fenced() or not group.has(pid), "the zombie is fenced or ends")
        if fenced():
            self.fenced.append(index)
        return fenced()

    def _restart_postgres(self) -> None:
        """Restart it while a worker has written a shard's rows and not yet committed them."""
        _, index, attempt = self._granted("pause", "paused")
        try:
            assert self.postgres.backends("idle in transaction") >= 1, "a commit is under way"
            self.postgres.restart_at_once()
        finally:
            (self.folder / "go").touch()
        after = self._status(index)
        assert after.state == "running" or after.attempt > attempt, "nothing of it is stored"
        self.torn.append(index)

    def _granted(self, wish: str, granted: str) -> tuple[int, int, int]:
        """Ask for `wish`; the process that took it, the shard it commits, and which attempt."""
        (self.folder / wish).touch()
        wait_for(lambda: any(self.folder.glob(f"{granted}-*")), f"a worker takes {wish!r}")
        [file] = self.folder.glob(f"{granted}-*")
        file.unlink()
        pid, shard, attempt = map(int, file.name.split("-")[1:])
        return pid, shard, attempt

    def _expired(self, index: int) -> bool:
        one = self._status(index)
        return one.state != "running" or one.lease_left is None or one.lease_left < 0

    def _status(self, index: int) -> ShardStatus:
        return next(one for one in self.statuses() if one.shard.index == index)

    @property
    def _key(self) -> str:
        return f"{self.settings.queue}:{self._queue}"

    def _hint(self, indices: Sequence[int], *, first: bool = False) -> None:
        """Send a message for each shard; `first` puts it before those that wait."""
        send_messages(self.settings, self.run_id, indices, self._queue)
        if first:
            with self.broker.client() as client:
                for _ in indices:  # workers take from the right
                    client.lmove(self._key, self._key, "LEFT", "RIGHT")


def _ends(group: Group, index: int, end: str) -> list[object]:
    return [one for one in group.lines(f"shard ended: {end}") if one.get("shard") == index]
