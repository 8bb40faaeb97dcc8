"""The Celery application: messages are ids only, JSON only; SQL holds the truth.

No result backend, no chord, no ETA; one message is taken at a time and acknowledged after the
work, so a lost worker's message comes back. A message is a hint: what it names is claimed in SQL
first, so a message too many does nothing. What else lies on a queue is refused before Celery sees
it, see `messages`.

There is one queue per modality and class of device, `<queue>.<modality>.<cpu|gpu>`: a plan names
both, and a worker listens where it can serve.
"""

import ssl
from collections.abc import Iterable
from typing import Any, Literal, get_args

from celery import Celery

from transexplain.addresses import check_broker_url
from transexplain.plans import AuditPlan, Modality
from transexplain.settings import Settings
from workers.brokers import GuardedAmqp, OnRefused, tell

MODALITIES: tuple[Modality, ...] = get_args(Modality)
DeviceClass = Literal["cpu", "gpu"]


def device_class(device: str) -> DeviceClass:
    """`cpu`, or `gpu` for any accelerator."""
    return "cpu" if device.partition(":")[0] == "cpu" else "gpu"


def queue_of(settings: Settings, plan: AuditPlan) -> str:
    """The queue that hints for shards of this plan go to."""
    return f"{settings.queue}.{plan.model.modality}.{device_class(plan.model.device)}"


def queues_for(
    settings: Settings, kind: DeviceClass = "gpu", modalities: Iterable[Modality] = MODALITIES
) -> list[str]:
    """The queues that a worker serves: with an accelerator both classes, else the CPU's only.

    As it stands by default: every queue there is.
    """
    classes = ("gpu", "cpu") if kind == "gpu" else ("cpu",)
    return [f"{settings.queue}.{modality}.{one}" for one in classes for modality in modalities]


def make_app(settings: Settings, on_refused: OnRefused = tell) -> Celery:
    """The application for one broker and its queues.

    `on_refused` is told of messages that its consumers did not take. Raises ConfigurationError
    for a broker URL that names no Redis and no RabbitMQ.
    """
    check_broker_url(settings.broker_url)
    app = Celery("transexplain", broker=settings.broker_url, amqp=GuardedAmqp)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_default_queue=settings.queue,
        task_default_delivery_mode="transient",  # a hint that is lost is sent again
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        worker_prefetch_multiplier=1,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        **_transport(settings, on_refused),
    )
    return app


def _transport(settings: Settings, on_refused: OnRefused) -> dict[str, Any]:
    """What depends on the broker: options of Redis, and TLS that always checks the server."""
    scheme = settings.broker_url.partition("://")[0]
    ca = str(settings.broker_ca) if settings.broker_ca else None
    if scheme in ("redis", "rediss"):
        options: dict[str, Any] = {
            "broker_transport_options": {
                "global_keyprefix": f"{settings.queue}:",
                "socket_connect_timeout": 5,
                "on_refused": on_refused,
            }
        }
        if scheme == "rediss":
            checked = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
            options["broker_use_ssl"] = {**checked, **({"ssl_ca_certs": ca} if ca else {})}
        return options
    # RabbitMQ takes messages without a word unless asked to say that it has them
    guarded = {"confirm_publish": True, "on_refused": on_refused}
    confirmed: dict[str, Any] = {"broker_transport_options": guarded}
    if scheme == "amqps":
        # a name of None is filled in with the broker's, and then checked
        return {
            **confirmed,
            "broker_use_ssl": {
                "cert_reqs": ssl.CERT_REQUIRED,
                "server_hostname": None,
                "ca_certs": ca,
            },
        }
    return confirmed
