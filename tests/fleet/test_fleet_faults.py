"""A fleet whose groups, queue and database are killed under it stores what one process does."""

import math
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
import redis
from broker_keys import queue_name_of_test
from chaos_groups import Group, environment, wait_for
from command_line_here import run_here
from tiny_audit import make_audit

from orchestrator.dispatch import queue
from orchestrator.dispatch.queue import send_messages
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.auditing.explained_shard import StagedShard
from transexplain.errors import BrokerError, DatabaseError
from transexplain.explaining.item_loop import Silent
from transexplain.models.load import load_model
from transexplain.settings import Settings
from transexplain.store import readers, run_totals, runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.runs import ShardStatus, recorded_shards
from transexplain.types.observer import Caution
from workers.heartbeat import EXIT_HUNG
from workers.queue_names import queue_of

_PASSWORD = "chaos"
_POSTGRES_FOLDERS = "/usr/lib/postgresql"  #: where Debian keeps what it does not put on the path


def binary(name: str) -> str:
    """The path of a server's program; the test is skipped, or fails in CI, where it is missing."""
    debian = sorted(Path(_POSTGRES_FOLDERS).glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(debian[-1]) if debian else None)
    if found is None:
        missing = f"no {name} here; install it to run this test"
        if os.environ.get("CI") == "true":
            raise FileNotFoundError(missing)
        pytest.skip(missing)
    return found


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class OwnRedis:
    """A Redis that writes nothing to disk: what it held is gone when it ends."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self._folder = folder
        self.url = f"redis://:{_PASSWORD}@127.0.0.1:{self._port}/0"
        self._start()

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)

    def restart(self) -> None:
        """End it as a power cut does, and start an empty one on the same port."""
        self.kill()
        self._start()

    def kill(self) -> None:
        self._server.kill()
        self._server.wait()

    def _start(self) -> None:
        self._server = subprocess.Popen(
            [
                *(binary("redis-server"), "--port", str(self._port), "--bind", "127.0.0.1"),
                *("--requirepass", _PASSWORD, "--save", "", "--appendonly", "no"),
                *("--dir", str(self._folder)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 30
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


class OwnPostgres:
    """A PostgreSQL cluster in a folder of its own, with the durability it has by default."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self._data = folder / "data"
        self._log = folder / "log"
        self._identity: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to be run by root
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            self._identity = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/postgres"
        self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-p {self._port} -h 127.0.0.1 -k {folder}"
        self._run("pg_ctl", "start", "-w", "-l", str(self._log), "-o", options)

    def restart_at_once(self) -> None:
        """End every process of the server without a checkpoint, then recover from the log."""
        self._run("pg_ctl", "restart", "-w", "-m", "immediate", "-l", str(self._log))

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "-w", "-m", "immediate")

    def backends(self, state: str) -> int:
        """How many clients of the server are in this state now."""
        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE state = %s", (state,)
            ).fetchone()
        return int(found[0]) if found else 0

    def _run(self, program: str, *words: str) -> None:
        with tempfile.TemporaryFile() as printed:  # a pipe would stay open in the server
            done = subprocess.run(
                [binary(program), "-D", str(self._data), *words],
                stdout=printed,
                stderr=printed,
                cwd="/",
                timeout=120,
                check=False,
                **self._identity,
            )
            printed.seek(0)
            assert done.returncode == 0, printed.read().decode()


@contextmanager
def own_redis(folder: Path) -> Iterator[OwnRedis]:
    server = OwnRedis(folder)
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """In a folder that the operating system's user `postgres` can reach, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="te-pg-") as folder:
        server = OwnPostgres(Path(folder))
        try:
            yield server
        finally:
            server.stop()


Row = dict[str, Any]
#: one of an item's results: its kind, and its place among the item's
Key = tuple[str, int]

TOLERANCE, NOTHING = 1e-5, 1e-7  #: relative; absolute, where the largest relevance is 1e-2


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Everything that a run stored, by item and by shard."""

    items: dict[int, Row]
    shards: dict[int, int]  #: item -> shard
    parts: dict[int, dict[Key, Row]]  #: item -> its attributions, mentions and scores
    aggregates: dict[int, dict[str, Any]]


def results_of(db: Database, run_id: str) -> Results:
    """Read a run's results; asserts that none is there twice."""
    items: dict[int, Row] = {}
    rows: dict[str, int] = {}
    for one in readers.iter_items(db, run_id):
        assert one.index not in items and one.item_id not in rows, "no item twice"
        items[one.index], rows[one.item_id] = asdict(one), one.index
    parts: dict[int, dict[Key, Row]] = {index: {} for index in items}
    for attribution in readers.iter_attributions(db, run_id):
        row = {name: getattr(attribution, name) for name in attribution.__dataclass_fields__}
        row["features"] = list(attribution.features)  # type: ignore[arg-type]
        row["relevance"] = attribution.relevance.tobytes()
        row["ledger"] = attribution.ledger and asdict(attribution.ledger)
        _add(parts[rows[attribution.item_id]], "attribution", row)
    for kind, some in (
        ("mention", readers.iter_mentions(db, run_id)),
        ("score", readers.iter_scores(db, run_id)),
    ):
        for other in some:
            _add(parts[rows[other.item_id]], kind, asdict(other))
    found = recorded_shards(db, run_id)
    saved = [one.index for one in found if one.digest is not None]
    payloads = list(run_totals.aggregates(db, run_id))
    return Results(
        items=items,
        shards={row: one.index for one in found for row in range(one.start, one.stop)},
        parts=parts,
        aggregates=dict(zip(saved, payloads, strict=True)),
    )


def _add(held: dict[Key, Row], kind: str, row: Row) -> None:
    """As the next of its kind."""
    held[kind, sum(1 for name, _ in held if name == kind)] = row


def differences(left: Any, right: Any, exact: bool, where: str = "") -> list[str]:
    """Where two values (rows, lists, numbers, arrays as bytes) differ; none: they are equal.

    Unless `exact`, numbers may be `TOLERANCE` of themselves apart, in float32 payloads too.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        names = sorted({*left, *right}, key=str)
        return [
            one
            for name in names
            for one in differences(left.get(name), right.get(name), exact, f"{where}.{name}")
        ]
    sequences = isinstance(left, list | tuple) and isinstance(right, list | tuple)
    if sequences and len(left) == len(right):
        pairs = enumerate(zip(left, right, strict=True))
        return [one for i, (a, b) in pairs for one in differences(a, b, exact, f"{where}[{i}]")]
    if _equal(left, right, exact, where):
        return []
    return [f"{where}: {left!r} is not {right!r}"]


def _equal(left: Any, right: Any, exact: bool, where: str) -> bool:
    if exact or type(left) is not type(right):
        return bool(left == right)
    if isinstance(left, float):
        return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=NOTHING)
    if isinstance(left, bytes) and where.endswith(".relevance") and len(left) == len(right):
        one, other = (np.frombuffer(blob, dtype="<f4") for blob in (left, right))
        return np.allclose(one, other, rtol=TOLERANCE, atol=NOTHING)
    return bool(left == right)


def totals(payload: dict[str, Any]) -> dict[str, Any]:
    """An aggregate as numbers in logits, which compare within a tolerance, and counts."""
    read = ShardAggregate.from_json(payload)
    words = {
        f"{target} {name} {one.word}": [one.documents, one.mentions, one.relevance, one.magnitude]
        for target, name in read.class_keys
        for one in read.words(target, name)
    }
    counts = {str(key): count for key, count in sorted(read.predictions.items(), key=str)}
    sensitivity = list(read.class_sensitivity or ())
    return {
        "items": read.items,
        "truncated": read.truncated,
        "predictions": counts,
        "sensitivity": sensitivity,
        "words": words,
    }


SEED = 20
SHARDS, SIZE = 200, 20
KILLS, HANGS, EATS = 311, 873, 1347  #: items; each is in the midst of a shard of its own
POISON = {KILLS: "quarantined", HANGS: "quarantined", EATS: "out-of-memory"}
LEASE, ITEM_DEADLINE = 3.0, 15.0  #: seconds

#: shards done -> what happens then
SCORE = [
    *((6 + 12 * number, "kill") for number in range(12)),
    *((place, "flush") for place in (27, 100)),
    *((place, "duplicates") for place in (14, 47, 87, 140)),
    *((place, "zombie") for place in (37, 80, 123)),
    (60, "redis"),
    (67, "postgres"),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnRedis]:
    with own_redis(tmp_path) as server:
        yield server


@pytest.fixture
def postgres() -> Iterator[OwnPostgres]:
    with own_postgres() as server:
        yield server


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """Two hundred shards of twenty items, several batches each."""
    return str(
        make_audit(
            tmp_path,
            items=SHARDS * SIZE,
            shard_size=SIZE,
            batch_tokens=64,
            max_attempts=8,  # poison needs three, and faults of others take some
            evaluation={"items": 8},  # enough for rows in every table
        )
    )


@pytest.fixture
def undisturbed(tmp_path: Path, spec: str) -> Results:
    """What one process stores in SQLite."""
    url = f"sqlite:///{tmp_path / 'undisturbed.db'}"
    run_here(environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=url), tmp_path, "run", spec)
    with open_database(url) as db:
        return results_of(db, runs.get(db, "latest").id)


@pytest.fixture
def settings(tmp_path: Path, broker: OwnRedis, postgres: OwnPostgres) -> Settings:
    return Settings(
        database_url=postgres.url,
        broker_url=broker.url,
        snapshot_dir=tmp_path / "snapshots",
        queue="chaos",
        lease_seconds=LEASE,
        item_deadline=ITEM_DEADLINE,
    )


@pytest.mark.exhaustive
@pytest.mark.timeout(1500)
def test_chaos_changes_nothing_but_the_poison(
    tmp_path: Path,
    broker: OwnRedis,
    postgres: OwnPostgres,
    settings: Settings,
    spec: str,
    undisturbed: Results,
) -> None:
    env = fleet_environment(tmp_path, settings)
    run_here(env, tmp_path, "db", "upgrade")
    run_here(env, tmp_path, "submit", spec)
    begun = time.monotonic()
    with open_database(settings.database_url) as db, Sweeper(db, settings) as sweeper:
        run_id = runs.get(db, "latest").id
        groups = [Group(name, env, tmp_path) for name in "ab"]
        conductor = Conductor(
            db=db,
            run_id=run_id,
            settings=settings,
            folder=tmp_path,
            broker=broker,
            postgres=postgres,
            groups=groups,
            poisoned=[item // SIZE for item in POISON],
            seed=SEED,
        )
        try:
            conductor.play(SCORE)
            # by the last worker, or by the sweep where that one was killed before it could
            wait_for(lambda: runs.get(db, run_id).state != "running", "the run is closed")
        finally:
            codes = [group.end() for group in groups]
        fenced = print_figures(conductor, sweeper, time.monotonic() - begun)
        assert codes == [0, 0], "SIGTERM ends a group cleanly whatever it went through"
        assert sum(group.kills for group in groups) >= 10
        assert fenced >= len(conductor.fenced) == 3
        assert sweeper.sent > 0
        assert len(conductor.torn) == 1
        compare(db, run_id, undisturbed)


def print_figures(conductor: "Conductor", sweeper: "Sweeper", seconds: float) -> int:
    """Print the figures of the test; how many times a worker was fenced."""
    fenced = sum(len(group.lines("shard ended: fenced")) for group in conductor.groups)
    print(  # noqa: T201 - read by people
        f"\nchaos: {runs.claims(conductor.db, conductor.run_id)} attempts at {SHARDS} shards, "
        f"{sweeper.sent} messages sent again, {fenced} commits fenced, {seconds:.0f} seconds; "
        f"{dict(conductor.done)}, {sweeper.vain} sweeps in vain"
    )
    return fenced


def fleet_environment(folder: Path, settings: Settings) -> dict[str, str]:
    return environment(
        folder,
        TRANSEXPLAIN_DATABASE_URL=settings.database_url,
        TRANSEXPLAIN_BROKER_URL=settings.broker_url,
        TRANSEXPLAIN_QUEUE=settings.queue,
        TRANSEXPLAIN_LEASE_SECONDS=str(settings.lease_seconds),
        TRANSEXPLAIN_ITEM_DEADLINE=str(settings.item_deadline),
        CHAOS_SLOWLY="0.08",
        CHAOS_KILLS=str(KILLS),
        CHAOS_HANGS=str(HANGS),
        CHAOS_EATS=str(EATS),
    )


def compare(db: Database, run_id: str, undisturbed: Results) -> None:
    """The fleet's tables against the reference's: equal but for the poison, and that recorded."""
    run = runs.get(db, run_id)
    assert (run.state, run.shards["done"]) == ("done", SHARDS)
    check_failures(db, run_id)
    disturbed = results_of(db, run_id)
    assert disturbed.items.keys() == undisturbed.items.keys()
    poisoned = {item // SIZE for item in POISON}
    isolated = {
        one.shard.index for one in shards.list_shards(db, run_id) if one.caution != Caution()
    }
    loose = isolated | poisoned  # batches were cut up there
    assert len(loose) < SHARDS / 4, "most were computed in the same batches"
    wrong = poisoned_aggregates(db, run_id, disturbed)
    for index, row in undisturbed.items.items():
        if index in POISON:
            assert not disturbed.parts[index]
            continue
        exact = undisturbed.shards[index] not in loose
        parts, stored = undisturbed.parts[index], disturbed.parts[index]
        wrong += differences(row, disturbed.items[index], exact, f"item {index}")
        wrong += differences(parts, stored, exact, f"item {index}")
    for index in undisturbed.aggregates.keys() - poisoned:
        left, right = undisturbed.aggregates[index], disturbed.aggregates[index]
        wrong += differences(totals(left), totals(right), index not in loose, f"aggregate {index}")
    assert not wrong, f"{len(wrong)} differences: {wrong[:10]}"
    print(  # noqa: T201 - as above
        f"chaos: {SHARDS - len(loose)} shards byte-identical, {len(loose)} within 1e-5 "
        f"({len(isolated)} isolated)"
    )


def check_failures(db: Database, run_id: str) -> None:
    """Exactly the poison failed, each item with its cause."""
    failures = {one.item_id: one for one in readers.iter_items(db, run_id, only_failed=True)}
    assert {name: one.kind for name, one in failures.items()} == {
        str(name): kind for name, kind in POISON.items()
    }
    assert "was killed by SIGKILL" in failures[str(KILLS)].message
    assert f"it hung, no progress within {ITEM_DEADLINE:g} seconds" in failures[str(HANGS)].message
    assert "allocate memory" in failures[str(EATS)].message


def poisoned_aggregates(db: Database, run_id: str, disturbed: Results) -> list[str]:
    """The aggregates of the poisoned shards against those of the shards without their poison."""
    plan = runs.get(db, run_id).plan
    model = load_model(plan.model.source)
    wrong = []
    for status in shards.list_shards(db, run_id):
        ill = {str(item): "poison" for item in POISON if item // SIZE == status.shard.index}
        if ill:
            shard = StagedShard(plan, status.shard, model, caution=Caution(quarantined=ill))
            wanted = shard.compute(Silent())()
            stored = totals(disturbed.aggregates[status.shard.index])
            where = f"aggregate {status.shard.index}"
            wrong += differences(totals(dict(wanted.aggregate)), stored, False, where)
    return wrong


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
                self.sent += swept[0] if swept else 0


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
        return [group for group in self.groups if self._held(group)]

    def _held(self, group: Group) -> list[ShardStatus]:
        """The shards with a lease of this group; one that lost its commit waits without."""
        running = self.statuses("running")
        return [row for row in running if group.holds(row.worker) and (row.lease_left or 0) > 0]

    def _kill(self) -> None:
        """Kill a whole group at work and start it again, where nothing would be given up for it."""
        victims: list[Group] = []

        def found() -> bool:
            victims[:] = [one for one in self._at_work() if self._may_end(one)]
            return bool(victims)

        try:  # while both groups work on the poison, which takes minutes, neither may end
            wait_for(found, "a group at work on a batch", 2 * STUCK)
        except AssertionError as error:
            raise AssertionError(self._stuck(self.statuses())) from error
        victim = self._random.choice(victims)
        victim.kill()
        victim.start()

    def _may_end(self, group: Group) -> bool:
        """Whether no shard would be dead if the group ended now.

        Each that it holds loses an attempt, and the poison needs the last ones for itself.
        """
        held = self._held(group)
        return not any(row.caution.alone or row.fruitless >= self._last for row in held)

    def _some_may_end(self) -> bool:
        return any(map(self._may_end, self._at_work()))

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
            wait_for(self._some_may_end, "a group at work on a batch", 2 * STUCK)
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
            wait_for(lambda: self._status(index).attempt > attempt, "another claims it", STUCK)
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


ITEMS, SIZE, FAULTS = 160, 20, 6


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_many_faults_blame_nobody(
    amqp_url: str, postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = str(make_audit(tmp_path, items=ITEMS, shard_size=SIZE, batch_tokens=24))
    quiet = f"sqlite:///{tmp_path / 'quiet.db'}"
    run_here(environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=quiet), tmp_path, "run", spec)
    settings = Settings(
        database_url=postgres_url,
        broker_url=amqp_url,
        queue=queue_name_of_test(),
        lease_seconds=4.0,
    )
    env = environment(
        tmp_path,
        TRANSEXPLAIN_DATABASE_URL=settings.database_url,
        TRANSEXPLAIN_BROKER_URL=settings.broker_url,
        TRANSEXPLAIN_QUEUE=settings.queue,
        TRANSEXPLAIN_LEASE_SECONDS="4",
        CHAOS_SLOWLY="0.8",
    )
    run_here(env, tmp_path, "db", "upgrade")
    run_here(env, tmp_path, "submit", spec)
    with open_database(settings.database_url) as db, open_database(quiet) as before:
        run_id = runs.get(db, "latest").id
        done = play(db, run_id, settings, [Group(name, env, tmp_path) for name in "ab"], tmp_path)
        kinds = Counter(one.kind for one in readers.iter_items(db, run_id, only_failed=True))
        wanted, found = results_of(before, runs.get(before, "latest").id), results_of(db, run_id)
        wrong = [
            line
            for index, row in wanted.items.items()
            for line in (
                *differences(row, found.items[index], False, f"item {index}"),
                *differences(wanted.parts[index], found.parts[index], False, f"item {index}"),
            )
        ]
        with capsys.disabled():
            print(  # noqa: T201 - read by people
                f"\ndeaths: {dict(done)}, {runs.claims(db, run_id)} attempts at "
                f"{ITEMS // SIZE} shards, {len(found.items)} items, failures {dict(kinds)}, "
                f"{len(wrong)} values differ by more than 1e-5"
            )
    assert done["kill"] + done["starve"] == FAULTS and done["kill"] and done["starve"]
    assert not kinds and not wrong
    assert found.items.keys() == wanted.items.keys() and len(found.items) == ITEMS


def play(
    db: Database, run_id: str, settings: Settings, groups: list[Group], folder: Path
) -> Counter[str]:
    """Make the faults while the run works, then wait for its end; what was done how often."""
    done: Counter[str] = Counter()
    chance = random.Random(20)
    try:
        while done["kill"] + done["starve"] < FAULTS:
            fault = chance.choice(("kill", "starve"))
            victims = at_work(db, run_id, settings, groups)
            if fault == "kill":
                time.sleep(chance.uniform(0.0, 1.0))
                victim = chance.choice(victims)
                victim.kill()
                victim.start()
            else:
                (folder / "starve").touch()
                wait_for(lambda: any(folder.glob("starved-*")), "somebody starves", 300)
                for file in folder.glob("starved-*"):
                    file.unlink()
            done[fault] += 1
        wait_for(lambda: is_whole(db, run_id, settings), "the run is whole", 1200)
    finally:
        for group in groups:
            group.end()
    return done


def at_work(db: Database, run_id: str, settings: Settings, groups: list[Group]) -> list[Group]:
    """The groups that hold a shard, as soon as there is one."""
    found: list[Group] = []

    def look() -> bool:
        assert not is_whole(db, run_id, settings), "the run was too short for so many faults"
        held = [one.worker for one in shards.list_shards(db, run_id, states=("running",))]
        found[:] = [group for group in groups if any(map(group.holds, held))]
        return bool(found)

    wait_for(look, "a group at work", 300)
    return found


def is_whole(db: Database, run_id: str, settings: Settings) -> bool:
    """Whether all shards are done; dead ones are tried again, as by `transexplain retry`."""
    queue.sweep(db, settings)
    states = runs.get(db, run_id).shards
    if states["dead"] and not (states["queued"] or states["running"]):
        shards.redrive(db, run_id)
    return states["done"] == ITEMS // SIZE


SLOWLY = 1.0  #: seconds that a batch takes at least
LEASE = 6.0  #: seconds
HEARTBEAT = LEASE / 3
TOUCH = 1.0  #: seconds that a busy machine may add


@contextmanager
def fleet_at_work(folder: Path, broker: OwnRedis) -> Iterator[tuple[Group, Database, str]]:
    """One group in the midst of a shard of forty items in at least ten slow batches."""
    spec = str(make_audit(folder, items=120, shard_size=40, batch_tokens=32))
    env = environment(
        folder,
        TRANSEXPLAIN_DATABASE_URL=f"sqlite:///{folder / 'store.db'}",
        TRANSEXPLAIN_BROKER_URL=broker.url,
        TRANSEXPLAIN_QUEUE="ends",
        TRANSEXPLAIN_LEASE_SECONDS=str(LEASE),
        CHAOS_SLOWLY=str(SLOWLY),
    )
    run_here(env, folder, "submit", spec)
    group = Group("a", env, folder)
    try:
        with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
            wait_for(lambda: len(batches(folder)) >= 3, "the shard is begun")
            yield group, db, runs.get(db, "latest").id
    finally:
        group.end()


def batches(folder: Path) -> list[float]:
    """When each batch began so far, by the clock of the epoch."""
    file = folder / "batches"
    lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
    return [float(line.split()[0]) for line in lines]


@pytest.mark.exhaustive
@pytest.mark.parametrize("meanwhile", ["nothing", "flushed", "gone"])
def test_sigterm_ends_a_worker_after_its_batch_and_gives_the_lease_back(
    tmp_path: Path, broker: OwnRedis, meanwhile: str
) -> None:
    """Whatever became of the broker since the worker took its message."""
    with fleet_at_work(tmp_path, broker) as (group, db, run_id):
        if meanwhile == "gone":
            broker.kill()
        elif meanwhile == "flushed":
            with broker.client() as client:
                client.flushdb()
        before = len(batches(tmp_path))
        assert group.end() == 0, group.log.read_text(encoding="utf-8")
        assert len(batches(tmp_path)) <= before + 1, "none but the one that began at that moment"
        states = shards.list_shards(db, run_id)
        assert {one.state for one in states} == {"queued"}
        assert {one.attempt for one in states} == {0}, "given back uncounted"
        assert not any(one.breadcrumb or one.caution.alone for one in states), "and without blame"
        if meanwhile == "gone":
            assert group.lines("no message sent, the next sweep sends it")
        else:
            with broker.client() as client:
                assert client.llen("ends:ends.text.cpu") >= 1, "its message waits again"


@pytest.mark.exhaustive
def test_no_item_is_explained_more_than_a_heartbeat_after_a_cancel(
    tmp_path: Path, broker: OwnRedis
) -> None:
    with fleet_at_work(tmp_path, broker) as (group, db, run_id):
        cancelled = time.time()
        assert runs.cancel(db, run_id)
        wait_for(lambda: group.lines("shard ended: fenced"), "the worker lets go")
        begun = batches(tmp_path)
        assert begun[-1] <= cancelled + HEARTBEAT + TOUCH
        time.sleep(2 * SLOWLY + TOUCH)
        assert batches(tmp_path) == begun, "it stays at that"
        assert runs.get(db, run_id).state == "cancelled"
        assert runs.progress(db, run_id).items_done == 0, "and not because the shard was through"


HANGS_UNDER_CELERY = """
import logging
from celery.utils.log import LoggingProxy
import sys
from workers.heartbeat import end_process
logging.basicConfig(stream=sys.__stderr__)
sys.stderr = LoggingProxy(logging.getLogger("redirected"))
end_process("shard 4: item '13' made no progress")
"""


def test_a_hang_ends_a_worker_whose_standard_error_celery_has_taken() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS_UNDER_CELERY],
        env=environment(Path("unused")),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == EXIT_HUNG
    assert "item '13' made no progress" in done.stderr
    assert "most recent call first" in done.stderr, "and says where"
