"""Celery tasks: thin bodies around `shard_work`."""

import logging

from celery import Celery

from workers.app import TASK
from workers.shard_work import Workbench

log = logging.getLogger(__name__)


def register(app: Celery, bench: Workbench) -> None:
    """Give `app` the task that works on one shard with this process's workbench."""

    def explain_shard(run_id: str, shard_index: int) -> None:
        end = bench.work(run_id, shard_index)
        log.info("run %s shard %d: %s", run_id, shard_index, end)
        if end in ("failed", "stopped"):
            app.send_task(TASK, args=(run_id, shard_index))

    app.task(explain_shard, name=TASK)
