"""The Celery application: messages are ids only, JSON only; SQL holds the truth.

No result backend, no chord, no ETA; one message is taken at a time and acknowledged after the
work, so a lost worker's message comes back. A message is a hint: what it names is claimed in SQL
first, so a message too many does nothing.
"""

from celery import Celery

from transexplain.settings import Settings

TASK = "transexplain.explain_shard"


def make_app(settings: Settings) -> Celery:
    """The application for one broker and queue."""
    app = Celery("transexplain", broker=settings.broker_url)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_default_queue=settings.queue,
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        worker_prefetch_multiplier=1,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "global_keyprefix": f"{settings.queue}:",
            "socket_connect_timeout": 5,
        },
    )
    return app
