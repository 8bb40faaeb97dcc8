"""The queue: messages that say which shard may be worked on, and how many of them wait."""

from collections.abc import Sequence

from kombu.exceptions import OperationalError

from transexplain.errors import BrokerError
from transexplain.settings import Settings, redact_url
from workers.app import TASK, make_app


def send_hints(settings: Settings, run_id: str, indices: Sequence[int], queue: str) -> None:
    """Send one message (run id, shard index) per shard to the plan's `queue`, see `queue_of`.

    Raises:
        BrokerError: the broker cannot be reached; the run stays and `resume` sends them again.
    """
    app = make_app(settings)
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)
            with app.amqp.Producer(connection) as producer:
                for index in indices:
                    app.send_task(
                        TASK, args=(run_id, index), queue=queue, producer=producer, retry=False
                    )
    except (OperationalError, OSError) as error:
        raise _unreachable(settings, error) from error
    finally:
        app.close()


def check_broker(settings: Settings) -> None:
    """Raise BrokerError now rather than after a run was written."""
    send_hints(settings, "", (), settings.queue)


def depth(settings: Settings, queue: str) -> int:
    """How many messages wait in a queue, those in workers' hands not counted.

    Raises BrokerError where the broker cannot be reached.
    """
    app = make_app(settings)
    try:
        with app.connection_for_read() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)
            # not passive: with a key prefix kombu does not find what Redis holds
            named = app.amqp.queues[queue].bind(connection.default_channel)
            return int(named.queue_declare().message_count)
    except (OperationalError, OSError) as error:
        raise _unreachable(settings, error) from error
    finally:
        app.close()


def _unreachable(settings: Settings, error: Exception) -> BrokerError:
    return BrokerError(
        f"broker {redact_url(settings.broker_url)} cannot be reached: {error}. Check that it "
        "is running and that TRANSEXPLAIN_BROKER_URL names it"
    )
