"""The queue: messages that say which shard may be worked on, and how many of them wait."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from amqp.exceptions import AccessRefused, NotAllowed  # type: ignore[import-untyped]
from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError

from transexplain.addresses import shown_url, without_secrets
from transexplain.errors import BrokerError
from transexplain.settings import Settings
from workers.app import make_app
from workers.message_guard import TASK

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
    """How many messages wait in a queue, those in workers' hands not counted.

    Raises BrokerError where the broker cannot be reached.
    """
    with _connected(settings) as (app, connection):
        # not passive: with a key prefix kombu does not find what Redis holds
        named = app.amqp.queues[queue].bind(connection.default_channel)
        return int(named.queue_declare().message_count)


@contextmanager
def _connected(settings: Settings) -> Iterator[tuple[Celery, Connection]]:
    """The application and a connection of its own; every complaint of a broker is BrokerError."""
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
                raise _unusable(settings, error) from error
    finally:
        app.close()


def _unusable(settings: Settings, error: Exception) -> BrokerError:
    reason = without_secrets(" ".join(str(error).split()).rstrip("."), settings.broker_url)
    how = "refuses" if _refuses(error) else "cannot be reached"
    return BrokerError(
        f"broker {shown_url(settings.broker_url)} {how}: {reason}. Check that it is running and "
        "that TRANSEXPLAIN_BROKER_URL names it, with its user, password and virtual host or "
        "database"
    )


def _refuses(error: BaseException | None) -> bool:
    """Whether a broker answered, and will give the same answer again."""
    from redis.exceptions import AuthenticationError, ResponseError

    refusals = (AccessRefused, NotAllowed, AuthenticationError, ResponseError)
    while error is not None:
        if isinstance(error, refusals):
            return True
        error = error.__cause__
    return False
