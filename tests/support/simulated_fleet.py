"""A fleet in a simulated world: local runs, queue workers, supervisors, beats, people.

What moves is the code of the package: claims, leases, breadcrumbs, the path of a shard, the local
executor, the sweep, the tick. Simulated are threads and time (`simulated_world`), the broker
(which loses and repeats messages) and the computing, which takes time and whose items may end the
process or hang. Beside it stands a record of what really happened to every item, by which the
invariants judge the store.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import RLock, get_ident
from types import SimpleNamespace
from typing import Any
from unittest import mock

from simulated_world import Event, Executor, Process, Task, Thread, World
from sqlalchemy import delete, func, select
from store_samples import make_plan, make_result

from orchestrator.dispatch import local, queue
from orchestrator.schedule import tick
from transexplain.errors import DatabaseError
from transexplain.explaining import Stopped
from transexplain.settings import Settings
from transexplain.store import (
    queueing,
    readers,
    results,
    run_totals,
    runs,
    schedules,
    shard_blocks,
    shards,
)
from transexplain.store.database import Database
from transexplain.store.runs import Claim, ShardStatus
from transexplain.store.schedules import Planned
from transexplain.store.schema import duty, pending_shards, schedule
from transexplain.store.schema import run as run_table
from transexplain.store.schema import shard as shard_table
from transexplain.types.observer import Caution
from transexplain.types.plans import QueuePlace, Shard, ShardCut, ShardResult
from workers import claim_to_commit, device_turns, fair_turns, fresh_process, heartbeat
from workers.claim_to_commit import Device, Workbench
from workers.fair_turns import FairTurns

LEASE, DEADLINE = 4.0, 4.0  #: seconds, of a shard and of an item
SIZE, BATCH = 6, 2  #: items
ATTEMPTS = 3
_SCHEDULE = "every-minute"


@dataclass(frozen=True, kw_only=True)
class Weather:
    """What may happen in a world; chances of events are per second of virtual time."""

    slow: float = 0.1  #: the longest that a statement takes, in seconds
    very_slow: float = 0.1  #: one of fifteen takes up to this
    computing: float = 0.4 * DEADLINE  #: the longest that a batch takes, in seconds
    finishing: float = 0.0  #: the longest that a shard takes after its last item, in seconds
    saving: float = 0.0  #: the longest that a result takes before it is written, in seconds
    fatality: float = 0.0  #: chance at every statement and wait that the process dies there
    cuts: float = 0.0  #: chance at every statement and commit that the connection is cut
    stalls: float = 0.0  #: a process freezes for up to three leases
    jumps: float = 0.0  #: the database's clock is set
    meddling: float = 0.0  #: each person cancels, retries, closes, or ends a process
    people: int = 1
    poison: float = 0.0  #: chance of an item that whoever runs it ends or hangs
    flaky: float = 0.0  #: chance that an item fails this time
    losses: float = 0.0  #: chance that a message is lost, and that it comes twice
    pauses: float = 0.0  #: an operator pauses and unpauses runs
    cap: int | None = None  #: shards in hand, of a second run that is there from the beginning
    shards: int = 3  #: of each run
    size: int = SIZE  #: items of each shard
    block: int = shard_blocks.BLOCK  #: shards that are made at once
    minutes: float = 0.8  #: how long this goes on before the sky clears

    @property
    def calm(self) -> bool:
        """Whether nothing goes wrong, so that nothing may be done twice."""
        wrong = (self.fatality, self.cuts, self.stalls, self.jumps, self.meddling, self.pauses)
        return not any(wrong)


WEATHERS = {
    "calm": Weather(),
    "sluggish": Weather(saving=0.55 * DEADLINE),
    #: results are made faster than they are written
    "backlog": Weather(shards=6, computing=0.2, finishing=0.6 * DEADLINE, saving=0.8 * DEADLINE),
    #: who waits for the device waits for longer than an item may take
    "patient": Weather(size=40),
    "rough": Weather(
        slow=0.4,
        very_slow=2.0,
        fatality=0.004,
        cuts=0.003,
        stalls=0.05,
        jumps=0.05,
        meddling=0.05,
        poison=0.1,
        losses=0.2,
    ),
    #: processes die everywhere, between two items too: nobody is to blame
    "deadly": Weather(fatality=0.03, poison=0.15, minutes=0.4),
    #: several runs with a cap, some paused for a time, and workers that choose among them
    "shared": Weather(pauses=0.3, cap=1, fatality=0.004, losses=0.1, minutes=0.5),
    #: the shards of each run are made in blocks while others are worked on
    "growing": Weather(
        shards=7,
        block=2,
        computing=0.3,
        fatality=0.004,
        cuts=0.003,
        meddling=0.3,
        pauses=0.1,
        losses=0.2,
        people=2,
    ),
    #: people at work on runs that end and are reopened: what matters is who comes first
    "crowded": Weather(slow=0.6, very_slow=0.6, computing=0.1, meddling=1.0, people=3, flaky=0.2),
}


class Violation(AssertionError):  # noqa: N818 - it is what was found, not what went wrong
    """The protocol broke one of its promises."""


_RUNNING = select(
    shard_table.c.run_id, shard_table.c.index, shard_table.c.token, shard_table.c.breadcrumb
).where(shard_table.c.state == "running")


@dataclass
class Truth:
    """What really happened, whatever the store says."""

    claims: Counter[tuple[str, int]] = field(default_factory=Counter)  #: (run, shard)
    tokens: dict[tuple[str, int], int] = field(default_factory=dict)  #: (run, shard) -> last claim
    #: (run, shard, token) whose fresh process something else ended
    ended: set[tuple[str, int, int]] = field(default_factory=set)


class Fleet:
    """Runs, workers and everybody who meddles, in one world."""

    def __init__(self, db: Database, seed: int, weather: Weather) -> None:
        self.db, self.weather, self.story = db, weather, weather
        self.world = World(
            seed, db, slowness=self._slowness, fatality=weather.fatality, cuts=weather.cuts
        )
        self.random = self.world.random
        self.truth = Truth()
        self.settings = Settings(
            database_url="unused", lease_seconds=LEASE, item_deadline=DEADLINE, queue="simulated"
        )
        self.messages: list[tuple[str, int]] = []
        self.states: dict[str, str] = {}  #: of runs, after the last commit
        self.clear = False  #: the sky
        self._number = 0
        self._capped: str | None = None
        self.paused: dict[str, float] = {}  #: run -> since when, after the last commit
        items, size = weather.shards * weather.size, weather.size
        self._bad_items = {
            f"id-{row}": self.random.choice(("kills", "hangs"))
            for row in range(items)
            if self.random.random() < weather.poison
        }
        self._plan = make_plan(rows=items, max_attempts=ATTEMPTS, shard_size=size)
        self._shards = ShardCut(rows=items, size=size)
        self._really_claim, self._really_save = shards.claim, results.save
        self.world.on_commit = self._look

    # --- the story

    def play(self) -> None:
        """Everything that happens in this world, and the judgement at its end."""
        world = self.world
        with self._simulated():
            self._begin()
        with self._simulated(), world.watching():
            try:
                self._cast()
                until = 60.0 * self.weather.minutes
                world.run(lambda: world.now >= until)
                self._stop_faults()
                patience = world.now + 1800.0
                world.run(lambda: world.now >= patience)
                self._judge()
            finally:
                world.close()

    def _begin(self) -> None:
        with self.db.begin() as connection:
            for table in (run_table, schedule, duty):
                connection.execute(delete(table))
        runs.create(self.db, self._plan, self._shards)
        if self.weather.cap is not None:
            place = QueuePlace(priority=1, most_workers=self.weather.cap)
            self._capped = runs.create(self.db, self._plan, self._shards, place=place)
        planned = Planned(name=_SCHEDULE, cron="* * * * *", time_zone="UTC", spec={})
        with self.world.watching():  # by the world's clock
            schedules.add(self.db, planned)
        self._look()

    def _cast(self) -> None:
        either = self.random.choice((self._work_locally, self._serve_the_queue))
        for work in (self._work_locally, self._serve_the_queue, either, self._beat, self._beat):
            self._supervise(work)
        for _ in range(self.weather.people if self.weather.meddling else 0):
            self._supervise(self._meddle)
        if self.weather.pauses:
            self.world.start(Process("operator", immortal=True), self._pause_and_unpause)
        if self.weather.stalls or self.weather.jumps:
            self.world.start(Process("nature", immortal=True), self._freeze_and_set_clocks)

    def _stop_faults(self) -> None:
        """Nothing goes wrong by itself from now on, and whoever froze goes on."""
        self.clear = True
        self.world.fatality = self.world.cuts = 0.0
        self.weather = WEATHERS["calm"]
        for task in self.world.tasks:
            task.process.stalled_until = 0.0
        self.world.start(Process("pause", immortal=True), self._let_everything_end)

    def _let_everything_end(self) -> None:
        schedules.set_state(self.db, _SCHEDULE, "paused")
        for run_id in sorted(self.states):
            queueing.unpause(self.db, run_id)

    def _over(self) -> bool:
        return self.clear and "running" not in self.states.values()

    def _slowness(self, rng: random.Random) -> float:
        draw = rng.random()
        if draw < 0.5:
            return 0.0
        return rng.uniform(0, self.weather.very_slow if draw > 0.93 else self.weather.slow)

    # --- processes

    def _supervise(self, work: Callable[[Process], None]) -> None:
        """Start a process again whenever it ends, until everything is over."""

        def keep() -> None:
            while not self._over():
                self._number += 1
                child = Process(f"host:{self._number}:")
                first = self.world.start(child, lambda: self._live(child, work))  # noqa: B023
                self.world.wait(lambda: first.over)  # noqa: B023
                if child.dead and self.random.random() < 0.5:
                    shards.expire(self.db, None, child.name)
                self.world.sleep(self.random.uniform(0.1, 2.0))

        self.world.start(Process("supervisor", immortal=True), keep)

    def _live(self, process: Process, work: Callable[[Process], None]) -> None:
        try:
            work(process)
        except DatabaseError:  # exit code 4
            self.world.kill(process)

    def _bench(self, **options: Any) -> Workbench:
        return Workbench(**options, name=f"{self.world.task.process.name}x")

    def _work_locally(self, _: Process) -> None:
        """`transexplain run` or `resume`."""
        going = [run for run in runs.list_runs(self.db) if run.state == "running"]
        for run in reversed(going):
            local.run_here(self.db, run.id, self.settings, stop=Event(self.world))  # type: ignore[arg-type]

    def _serve_the_queue(self, process: Process) -> None:
        """`transexplain worker`: a message is a shard, and a thread of its own."""
        stop = Event(self.world)
        line = Executor(self.world)
        bench = self._bench(
            db=self.db,
            settings=self.settings,
            stop=stop,
            on_hang=self._hang,
            device=Device(line),  # type: ignore[arg-type]
            turns=FairTurns(),
        )
        if self.random.random() < self.weather.meddling:
            self.world.start(process, lambda: self._terminate(stop))
        left = self.random.choice((1, 2, 99))  # `--max-shards`
        in_hand: list[Task] = []
        while left and not stop.is_set() and not self._over():
            in_hand = [task for task in in_hand if not task.over]
            if self.messages and len(in_hand) < bench.device.room:
                run_id, index = self.messages.pop(0)
                work = partial(self._task, bench, run_id, index)
                in_hand.append(self.world.start(process, work))
                left -= 1
            else:
                self.world.sleep(self.random.uniform(0.0, 1.0))
        self.world.wait(lambda: all(task.over for task in in_hand))
        line.shutdown()

    def _task(self, bench: Workbench, run_id: str, index: int) -> None:
        claims: list[Claim] = []
        try:
            end = bench.work(run_id, index, on_claim=claims.append)
        except DatabaseError:  # the task has failed; its shard comes back by its lease
            return
        for claim in claims:
            if end in ("failed", "stopped") or (end == "done" and claim.capped):
                self._send(claim.run_id, [claim.shard.index])

    def _terminate(self, stop: Event) -> None:
        """SIGTERM, some time."""
        self.world.sleep(self.random.uniform(0, 20))
        stop.set()

    def _beat(self, _: Process) -> None:
        """`transexplain beat`: the tick and the sweep."""
        while not self._over():
            queue.sweep(self.db, self.settings)
            tick.tick(self.db, self.settings)
            self.world.sleep(self.random.uniform(2, 8))

    def _meddle(self, _: Process) -> None:
        """A person who cancels, retries and closes."""
        while not self.clear:
            self.world.sleep(self.random.expovariate(self.story.meddling))
            if self.clear:
                return
            run_id = self.random.choice(sorted(self.states))
            what = self.random.random()
            if what < 0.01:
                runs.cancel(self.db, run_id)
            elif what < 0.4:
                shards.redrive(self.db, run_id)
            elif what < 0.7:
                shards.retry_failed(self.db, run_id)
            else:
                runs.finalise(self.db, run_id)

    def _pause_and_unpause(self) -> None:
        """An operator who pauses runs and lets them go on."""
        while not self.clear:
            self.world.sleep(self.random.expovariate(self.story.pauses))
            if self.clear:
                return
            run_id = self.random.choice(sorted(self.states))
            (queueing.unpause if run_id in self.paused else queueing.pause)(self.db, run_id)

    def _freeze_and_set_clocks(self) -> None:
        while not self.clear:
            self.world.sleep(1.0)
            living = [task.process for task in self.world.tasks if not task.process.immortal]
            if living and self.random.random() < self.weather.stalls:
                frozen = self.random.choice(living)
                frozen.stalled_until = self.world.now + self.random.uniform(0, 3 * LEASE)
            if self.random.random() < self.weather.jumps:
                size = self.random.choice((1.0, LEASE, 10 * LEASE, 172_815.0))
                self.world.ahead += self.random.uniform(-size, size)

    def _hang(self, message: str) -> None:
        """What `end_process` does: the process is gone."""
        process = self.world.task.process
        if self.story.calm:
            raise Violation(f"a process that did not hang ended itself: {message}")
        self.world.kill(process)
        self.world.sleep(0)

    def _send(self, run_id: str, indices: Sequence[int]) -> None:
        for index in indices:
            if self.random.random() >= self.weather.losses:
                self.messages.append((run_id, index))
            if self.random.random() < self.weather.losses:
                self.messages.append((run_id, index))

    # --- computing

    def _compute(self, plan: Any, shard: Shard, model: Any, **given: Any) -> Any:
        """Takes time and tells the observer as `explain_shard` does; bad items do their worst."""
        observer, caution = given["observer"], given["caution"]
        claim = getattr(observer, "_keeper", observer)._claim
        self._judge_quarantine(claim)
        for batch in _batches(shard, caution):
            if observer.should_stop():
                raise Stopped
            observer.batch_started(batch)
            self.world.sleep(self.random.uniform(0.05, self.weather.computing))
            for name in batch:
                self._meet(name)
            for name in batch:
                observer.item_done(name)
        return partial(self._finish, claim, shard, caution)

    def _finish(self, claim: Claim, shard: Shard, caution: Caution) -> ShardResult:
        """The result of a shard whose last batch is over."""
        if self.weather.finishing:
            self.world.sleep(self.random.uniform(0, self.weather.finishing))
        bad = frozenset(
            row
            for row in _rows(shard)
            if f"id-{row}" in caution.quarantined or self.random.random() < self.weather.flaky
        )
        made = make_result(shard, failing=bad, note=f"{shard.index}/{claim.token}")
        failures = tuple(replace(one, kind="model-error") for one in made.failures)
        return replace(made, failures=failures)

    def _trial(self, trial: Any) -> ShardResult:
        """A fresh process: a canary, the accused, the shard; something else may end it, once."""
        job, caution = trial._job, trial._job.caution
        claim = getattr(trial._observer, "_keeper", trial._observer)._claim
        self._judge_quarantine(claim)
        names = [f"id-{row}" for row in _rows(job.shard) if f"id-{row}" not in caution.quarantined]
        free = [name for name in names if name not in caution.accused]
        tried = [*free[-1:], *sorted(caution.accused)] if caution.accused else []
        for name in tried:
            trial._hear("trial" if name in caution.accused else "canary", (name,))
            self._spend(trial, claim, (name,))
            trial._hear("tried", True)
        for batch in _batches(job.shard, caution):
            trial._hear("batch", batch)
            self._spend(trial, claim, batch)
            trial._hear("done", batch)
        return self._finish(claim, job.shard, caution)

    def _spend(self, trial: Any, claim: Claim, names: Sequence[str]) -> None:
        """The time of some items in a fresh process, that may die in them."""
        trial._alive()
        self.world.sleep(self.random.uniform(0.05, self.weather.computing))
        if trial._observer.should_stop():
            raise Stopped
        key = (claim.run_id, claim.shard.index, claim.token)
        chance = (50 if trial._on_trial else 5) * self.weather.fatality  # there it may convict
        ended = key not in self.truth.ended and self.random.random() < chance
        if ended:
            self.truth.ended.add(key)
        if ended or any(name in self._bad_items for name in names):
            raise trial._died("it died")

    def _meet(self, name: str) -> None:
        what = self._bad_items.get(name)
        if what == "kills":
            self.world.kill(self.world.task.process)
            self.world.sleep(0)
        if what == "hangs":
            self.world.wait(lambda: False)

    # --- what is recorded

    def _claim(self, *args: Any, **options: Any) -> Claim | None:
        """`shards.claim`, counted."""
        paused = dict(self.paused)
        claim = self._really_claim(*args, **options)
        if claim is not None:
            since = paused.get(claim.run_id)
            if since is not None and self.paused.get(claim.run_id) == since:
                found = Violation(f"run {claim.run_id} was paused, and a shard of it was claimed")
                self.world.errors.append(found)
            self.truth.claims[claim.run_id, claim.shard.index] += 1
        return claim

    def _save(self, db: Database, claim: Claim, result: Any) -> None:
        if self.weather.saving:
            self.world.sleep(self.random.uniform(0, self.weather.saving))
        self._really_save(db, claim, result)

    def _look(self) -> None:
        """After every commit: what is closed has nothing left to do."""
        query = (
            select(run_table.c.id, run_table.c.state, shard_table.c.state, func.count())
            .join(shard_table, shard_table.c.run_id == run_table.c.id)
            .group_by(run_table.c.id, run_table.c.state, shard_table.c.state)
        )
        with self.db.read() as connection:
            found = connection.execute(query).all()
            paused = {
                row.id: row.paused
                for row in connection.execute(
                    select(run_table.c.id, run_table.c.paused).where(
                        run_table.c.paused.is_not(None)
                    )
                )
            }
            unmade = set(connection.execute(select(pending_shards.c.run_id)).scalars())
            running = connection.execute(_RUNNING).all()
        self.paused = paused
        for run_id, index, token, accused in running:
            if accused and self.truth.tokens.get((run_id, index)) != token:
                raise Violation(f"shard {index} of run {run_id} begins with {accused} in hand")
            self.truth.tokens[run_id, index] = token
        for run_id, state, of_shards, count in found:
            self.states[run_id] = state
            full = self.weather.cap is not None and count > self.weather.cap
            if full and run_id == self._capped and of_shards == "running":
                raise Violation(f"{count} shards of run {run_id} are in hand, beyond its cap")
            if state == "done" and run_id in unmade:
                raise Violation(f"run {run_id} is done, and not all of its shards are made")
            if state != "running" and of_shards in ("queued", "running"):
                raise Violation(f"run {run_id} is {state}, and {count} shards are {of_shards}")

    # --- what is judged

    def _judge_quarantine(self, claim: Claim) -> None:
        for name in claim.caution.quarantined:
            if name not in self._bad_items:
                found = Violation(f"{name} is in quarantine and ends nothing")
                self.world.errors.append(found)  # raised here it would be one shard's failure

    def _judge(self) -> None:
        """At the end every run is over, and every item is there once."""
        for run_id, state in self.states.items():
            found = shards.list_shards(self.db, run_id)
            if state == "running":
                raise Violation(f"run {run_id} goes on for ever: {found}")
            if len(found) != self.story.shards and state != "cancelled":
                raise Violation(f"run {run_id} is {state} with {len(found)} shards")
            notes = {one["shard"]: one["note"] for one in run_totals.aggregates(self.db, run_id)}
            rows = Counter(one.item_id for one in readers.iter_items(self.db, run_id))
            for one in found:
                self._judge_shard(run_id, one, notes.get(one.shard.index), rows)
        self._judge_schedule()

    def _judge_shard(
        self, run_id: str, one: ShardStatus, note: str | None, rows: Counter[str]
    ) -> None:
        allowed = {"done"} if self.story.calm else {"done", "dead", "cancelled"}
        cancelled = self.states[run_id] == "cancelled"
        if one.state not in allowed or (one.state == "cancelled" and not cancelled):
            raise Violation(f"{one} of a run that is {self.states[run_id]}")
        if one.state == "dead" and one.fruitless < ATTEMPTS:
            raise Violation(f"given up too early: {one}")
        counts = {rows[f"id-{row}"] for row in _rows(one.shard)}
        if one.state == "done" and (counts != {1} or note is None):
            raise Violation(f"items lost or doubled: {counts}, {note}, {one}")
        if self.story.calm and self.truth.claims[run_id, one.shard.index] > 1:
            raise Violation(f"nothing went wrong, and it was worked on twice: {one}")

    def _judge_schedule(self) -> None:
        fired = schedules.fires(self.db, _SCHEDULE, limit=10_000)
        made = [one.run_id for one in fired if one.run_id]
        if len(set(made)) != len(made) or len(made) != len(self.states) - 1 - bool(self._capped):
            raise Violation(f"{len(fired)} fires made {made} of {sorted(self.states)}")
        if self.story.calm and not fired:
            raise Violation("the schedule never fired")

    # --- the package's names for threads and time

    def _trials(self) -> type:
        """`_Trial`, whose process is simulated."""
        fleet = self

        class Trial(fresh_process._Trial):
            def result(self) -> ShardResult:
                return fleet._trial(self)

        return Trial

    @contextmanager
    def _simulated(self) -> Iterator[None]:
        """The package's modules see this world's threads, time, broker and computing."""
        world = self.world
        threads = SimpleNamespace(
            Thread=lambda **options: Thread(world, **options),
            Event=lambda: Event(world),
            get_ident=get_ident,
        )
        clock = SimpleNamespace(monotonic=world.monotonic)
        prepared = SimpleNamespace(plan=self._plan, shards=self._shards, place=QueuePlace())
        changes: list[tuple[Any, str, Any]] = [
            (heartbeat, "threading", threads),
            (heartbeat, "time", clock),
            (heartbeat, "START_DEADLINE", DEADLINE),
            (device_turns, "time", clock),
            (fair_turns, "time", clock),
            (local, "time", clock),
            (local, "threading", SimpleNamespace(Event=lambda: Event(world), RLock=RLock)),
            (local, "ThreadPoolExecutor", partial(Executor, world)),
            (local, "_POLL", 1.0),
            (local, "Workbench", self._bench),
            (local, "end_process", self._hang),
            (claim_to_commit, "compute", self._compute),
            (fresh_process, "_Trial", self._trials()),
            (claim_to_commit, "model_for", lambda plan, models: None),
            (shards, "claim", self._claim),
            (results, "save", self._save),
            (shard_blocks, "BLOCK", self.story.block),
            (shard_blocks, "LOW", min(shard_blocks.LOW, self.story.block)),
            (queue, "depth", lambda *_: len(self.messages)),
            (queue, "send_messages", lambda _, *sent: self._send(sent[0], sent[1])),
            (tick, "_prepare", lambda *_: prepared),
        ]
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(mock.patch.object(*change))
            yield


def _rows(shard: Shard) -> range:
    return range(shard.start, shard.stop)


def _batches(shard: Shard, caution: Caution) -> Iterator[tuple[str, ...]]:
    names = [f"id-{row}" for row in _rows(shard) if f"id-{row}" not in caution.quarantined]
    together = [name for name in names if name not in caution.alone]
    for start in range(0, len(together), BATCH):
        yield tuple(together[start : start + BATCH])
    yield from ((name,) for name in names if name in caution.alone)
