"""The Celery application: a task is a shard, a message is its ids in JSON; SQL holds the truth.

No result backend, no chord, no ETA; a message is acknowledged after the work, so a lost worker's
message comes back. What it names is claimed in SQL first, so a message too many does nothing. What
else lies on a queue is refused before Celery sees it, see `message_guard`.
"""

import os
import ssl
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click
from celery import Celery
from celery.app.defaults import SETTING_KEYS
from kombu import Exchange, Queue

from transexplain.errors import ConfigurationError, TransExplainError
from transexplain.registry import Registry
from transexplain.settings import Settings
from transexplain.text.addresses import check_broker_url
from workers.guarded_connections import GuardedAmqp, OnRefused, log_refusal
from workers.message_guard import EVENTS, Refusal
from workers.queue_names import queues_for

#: what beat calls: name of the task -> seconds
PERIODIC = {"transexplain.sweep": 5.0, "transexplain.tick": 30.0}
#: what a worker and a beat call that lies above this package, imported when it is called:
#: `transexplain beat` hands over tasks of its own
DUTIES = Registry(
    "duty",
    {
        "close": "transexplain.reports.sql_results:close_apart",
        "sweep": "orchestrator.dispatch.queue:sweep",
        "periodic tasks": "orchestrator.schedule.tick:periodic_tasks",
    },
)
#: what no module of settings changes
_SAFE = {
    "accept_content": ["json"],
    "task_serializer": "json",
    "task_ignore_result": True,
    "task_acks_late": True,
    "task_reject_on_worker_lost": False,
    "worker_prefetch_multiplier": 1,  # the pool requests more when there is room
    "worker_enable_prefetch_count_reduction": False,
}
#: what `Settings` say, or is not there
_OURS = {
    *("broker_url", "broker_read_url", "broker_write_url", "broker_use_ssl"),
    *("result_backend", "worker_pool"),
}
#: options of `celery -A workers.app worker`, as those of `transexplain worker`
_WORKER_OPTIONS = (
    click.Option(["--device"], help="torch device; default: the plan's"),
    click.Option(["--threads"], type=int, help="CPU threads; default: torch's choice"),
    click.Option(["--max-shards"], type=int, help="end after this many shards"),
)


def make_app(settings: Settings, on_refused: OnRefused | None = None) -> Celery:
    """The application for one broker and its queues.

    `on_refused` receives messages that its consumers did not take; by default that is
    `app.on_refused`, as it stands when one comes. Settings of Celery's own are read from the
    module that the environment names as `CELERY_CONFIG_MODULE`, but for those that keep messages
    safe. Raises ConfigurationError for a broker URL that names no Redis and no RabbitMQ.
    """
    check_broker_url(settings.broker_url)
    app = Celery("transexplain", broker=settings.broker_url, amqp=GuardedAmqp)
    app.settings = settings
    app.on_refused = on_refused or log_refusal
    app.connected = threading.Event()  # its worker has a broker
    app.conf.update(_defaults(settings))
    if module := os.environ.get("CELERY_CONFIG_MODULE"):
        try:
            named = vars(import_module(module))
        except ImportError as error:
            raise ConfigurationError(f"CELERY_CONFIG_MODULE={module}: {error}") from error
        allowed = SETTING_KEYS - _OURS
        app.conf.update({name: value for name, value in named.items() if name in allowed})
    app.conf.update(_SAFE)

    def refused(refusal: Refusal) -> None:
        app.on_refused(refusal)

    for name, value in _transport(settings, refused).items():
        kept = app.conf[name] if isinstance(value, dict) and app.conf[name] else {}
        app.conf[name] = {**kept, **value} if isinstance(value, dict) else value
    app.steps["worker"].add("workers.device_worker:ShardStep")
    app.steps["consumer"].add("workers.device_worker:BrokerStep")
    app.user_options["worker"].update(_WORKER_OPTIONS)
    return app


def _defaults(settings: Settings) -> dict[str, Any]:
    """What an operator's module of settings may change."""
    return {
        "task_queues": [
            Queue(name, Exchange(name), routing_key=name) for name in queues_for(settings)
        ],
        "task_default_queue": settings.queue,
        "task_default_delivery_mode": "transient",  # a message that is lost is sent again
        "worker_pool": "workers.device_pool:DevicePool",
        "worker_concurrency": 1,
        "worker_send_task_events": True,
        "worker_hijack_root_logger": False,
        "control_exchange": settings.queue,  # fleets that share a broker stay apart
        "event_exchange": f"{settings.queue}{EVENTS}",
        "event_queue_prefix": f"{settings.queue}{EVENTS}",
        "broker_connection_retry_on_startup": True,
        "beat_scheduler": "workers.beat:PeriodicScheduler",
        "beat_schedule": {
            name: {"task": name, "schedule": seconds} for name, seconds in PERIODIC.items()
        },
        "result_expires": None,  # otherwise beat adds a task of Celery
    }


def __getattr__(name: str) -> Celery:
    """`app`, for `celery -A workers.app`: made by the settings of the environment, once."""
    if name != "app":
        raise AttributeError(f"module {__name__} has no {name}")
    try:
        made = make_app(Settings.from_environment())
    except TransExplainError as error:
        if click.get_current_context(silent=True) is None:
            raise
        # Celery's command line would print its traceback
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    globals()["app"] = made
    return made


def _transport(settings: Settings, on_refused: Callable[[Refusal], None]) -> dict[str, Any]:
    """What depends on the broker: options of Redis, and TLS that always checks the server."""
    scheme = settings.broker_url.partition("://")[0]
    ca = str(settings.broker_ca) if settings.broker_ca else None
    options: dict[str, Any] = {"on_refused": on_refused}
    if scheme in ("redis", "rediss"):
        options |= {"global_keyprefix": f"{settings.queue}:", "socket_connect_timeout": 5}
        tls: dict[str, Any] = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
        tls |= {"ssl_ca_certs": ca} if ca else {}
    else:
        # RabbitMQ confirms that it has a message only where that is requested
        options["confirm_publish"] = True
        # a name of None is filled in with the broker's, and then checked
        tls = {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": None, "ca_certs": ca}
    encrypted = {"broker_use_ssl": tls} if scheme in ("rediss", "amqps") else {}
    return {"broker_transport_options": options, **encrypted}
