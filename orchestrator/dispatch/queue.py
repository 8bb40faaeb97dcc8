"""Sends messages to the queue: one for each shard of a run, and again for those that the broker
lost.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache

from amqp.exceptions import AccessRefused, NotAllowed, NotFound  # type: ignore[import-untyped]
from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError

from orchestrator.dispatch.stopping import NOBODY, Reports
from transexplain.errors import BrokerError
from transexplain.settings import Settings
from transexplain.store import queueing, runs, shard_blocks
from transexplain.store.database import Database
from transexplain.text.addresses import shown_url, without_secrets
from workers.app import make_app
from workers.message_guard import TASK
from workers.queue_names import queue_of

_PATIENCE = 5  #: seconds that a broker may take to answer


def send_messages(settings: Settings, run_id: str, indices: Sequence[int], queue: str) -> None:
    """Send one message (run id, shard index) per shard to the plan's `queue`, see `queue_of`.

    Raises:
        BrokerError: the broker cannot be reached; the run stays and `resume` sends them again.
    """
    with _connected(settings) as (app, connection), app.amqp.Producer(connection) as producer:
        for index in indices:
            app.send_task(TASK, args=(run_id, index), queue=queue, producer=producer, retry=False)


def check_broker(settings: Settings, *, must_answer: bool = True) -> None:
    """Raise BrokerError now rather than after a run was written.

    A broker that does not answer may still be starting: without `must_answer` only one that
    answers and refuses is an error (the password, the virtual host, the database).
    """
    try:
        with _connected(settings) as (_, connection):
            connection.default_channel  # noqa: B018 - opens it
    except BrokerError as error:
        if must_answer or _refuses(error):
            raise


def depth(settings: Settings, queue: str) -> int:
    """The number of messages that wait in a queue, without those that workers hold.

    Raises BrokerError where the broker cannot be reached.
    """
    with _connected(settings) as (app, connection):
        # not passive: with a key prefix kombu does not find what Redis holds
        named = app.amqp.queues[queue].bind(connection.default_channel)
        return int(named.queue_declare().message_count)


def depths(settings: Settings, queues: Sequence[str]) -> dict[str, int]:
    """The number of messages that wait in each queue, without those that workers hold.

    It makes no queue; a queue that does not exist holds none. Raises BrokerError where the broker
    cannot be reached.
    """
    with _connected(settings) as (_, connection):
        return {name: _waiting(connection, name) for name in queues}


def _waiting(connection: Connection, queue: str) -> int:
    # at Redis a queue is a list, which declaring does not make; passive, kombu does not find what
    # is there with a key prefix
    passive = connection.transport.driver_type != "redis"
    with connection.channel() as channel:  # RabbitMQ closes it where there is no such queue
        try:
            return int(channel.queue_declare(queue, passive=passive).message_count)
        except NotFound:
            return 0


@contextmanager
def _connected(settings: Settings) -> Iterator[tuple[Celery, Connection]]:
    """The application with its own connection; every error of a broker becomes BrokerError."""
    app = make_app(settings)
    options = app.conf.broker_transport_options
    if settings.broker_url.startswith("redis"):
        # a server that is no Redis, or wants TLS, may say nothing for ever
        app.conf.broker_transport_options = {**options, "socket_timeout": _PATIENCE}
    try:
        with app.connection_for_write() as connection:
            errors = (*connection.connection_errors, *connection.channel_errors)
            try:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=_PATIENCE)
                yield app, connection
            except (OperationalError, OSError, *errors) as error:
                reason = " ".join(str(error).split()).rstrip(".")
                raise BrokerError(
                    f"broker {shown_url(settings.broker_url)} "
                    f"{'refuses' if _refuses(error) else 'cannot be reached'}: "
                    f"{without_secrets(reason, settings.broker_url)}. Check that it is running and "
                    "that TRANSEXPLAIN_BROKER_URL names it, with its user, password and virtual "
                    "host or database"
                ) from error
    finally:
        app.close()


def _refuses(error: BaseException | None) -> bool:
    """Return whether a broker answered, and would refuse again."""
    from redis.exceptions import AuthenticationError, ResponseError

    refusals = (AccessRefused, NotAllowed, AuthenticationError, ResponseError)
    while error is not None:
        if isinstance(error, refusals):
            return True
        error = error.__cause__
    return False


#: seconds between two sweeps of all processes
EVERY = 5.0
#: messages that may wait in the queue because of a sweep
BOUND = 1_000


def sweep(
    db: Database, settings: Settings, *, every: float = EVERY
) -> tuple[int, tuple[str, ...]] | None:
    """Close runs that are through and top up the queue; None: swept less than `every` seconds ago.

    Returns the number of messages sent, and the ids of the runs that had nothing left to do.
    Raises BrokerError where the broker cannot be reached; runs are closed all the same.
    """
    if not queueing.take_task(db, "sweep", every):
        return None
    closed = tuple(run_id for run_id in queueing.exhausted(db) if runs.finalise(db, run_id))
    return top_up(db, settings, patience=every), closed


def top_up(db: Database, settings: Settings, *, patience: float = EVERY) -> int:
    """Fill each queue with messages up to the number of free shards, at most `BOUND` a queue.

    Returns how many were sent.

    A shard whose message was sent less than `patience` seconds ago gets no other.
    """
    by_queue: dict[str, list[str]] = defaultdict(list)
    caps = queueing.handing_out(db)
    shard_blocks.refill(db, caps)
    for run_id in caps:
        by_queue[_queue(db, settings, run_id)].append(run_id)
    return sum(
        _top_up_queue(db, settings, name, {run_id: caps[run_id] for run_id in run_ids}, patience)
        for name, run_ids in by_queue.items()
    )


def _top_up_queue(
    db: Database, settings: Settings, name: str, caps: Mapping[str, int | None], patience: float
) -> int:
    waiting = queueing.waiting(db, caps, BOUND)
    missing = waiting - depth(settings, name) if waiting else 0
    if missing <= 0:
        return 0
    chosen = queueing.take(db, caps, missing, patience)
    for run_id, indices in chosen.items():
        send_messages(settings, run_id, indices, name)
    return sum(map(len, chosen.values()))


@lru_cache(maxsize=4096)
def _queue(db: Database, settings: Settings, run_id: str) -> str:
    """The queue of a run, which never changes."""
    return queue_of(settings, runs.get(db, run_id).plan)


_POLL = 0.5
#: at most this share of the time goes into queries: counting a million shards takes a second
_QUERY_SHARE = 0.2


def follow(
    db: Database,
    run_id: str,
    settings: Settings,
    report: Reports = NOBODY,
    stop: threading.Event | None = None,
    *,
    look: Callable[[], None] | None = None,
) -> None:
    """Watch a run until it ends, sweeping: lost messages are sent again, the run is closed.

    Where nothing was finished for the length of a lease and nobody holds a shard, `report.wait`
    is called; also while the broker is away, which ends nothing. `look` is called each time: its
    exceptions end the watching. `stop` ends it with KeyboardInterrupt; workers go on.
    """
    warn = report.wait
    stop = stop or threading.Event()
    state = runs.progress(db, run_id)
    seen, moved = state.items_finished, time.monotonic()
    pause = _POLL
    while state.state == "running":
        if stop.wait(pause):
            raise KeyboardInterrupt
        if look is not None:
            look()
        try:
            sweep(db, settings)
        except BrokerError as error:
            warn(str(error))
        started = time.monotonic()
        state = runs.progress(db, run_id)
        pause = max(_POLL, (time.monotonic() - started) / _QUERY_SHARE)
        finished = state.items_finished
        if finished > seen:
            report.items(finished - seen)
            seen, moved = finished, time.monotonic()
        elif time.monotonic() - moved > settings.lease_seconds:
            if state.paused:
                warn(f"the run is paused; `transexplain unpause {run_id}` lets it go on")
            elif not state.workers and state.state == "running":
                warn("no worker holds a shard of this run; start one with `transexplain worker`")
            moved = time.monotonic()
