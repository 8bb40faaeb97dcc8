"""Celery tasks: thin bodies around the pipeline of shards."""

import logging
import math

from celery import Celery
from celery.worker import state
from kombu.exceptions import OperationalError

from transexplain.store.records import Claim
from workers import logs
from workers.app import queue_of
from workers.messages import TASK
from workers.pipeline import OnEnd, Pipeline
from workers.shard_work import End, Workbench

log = logging.getLogger(__name__)

#: seconds that one message may keep a worker at its run, so that other runs get their turn
STINT = 30.0


def register(app: Celery, pipeline: Pipeline, *, max_shards: int = 0) -> None:
    """Give `app` the task that works on one shard of a run, and on more while it is at it.

    After `max_shards` shards the process takes no further message and ends; 0: never.
    """
    worked = 0

    def explain_shard(run_id: str, shard_index: int) -> None:
        nonlocal worked
        most = max_shards - worked if max_shards else math.inf
        with logs.fields(run=run_id, shard=shard_index):
            worked += pipeline.stint(run_id, shard_index, seconds=STINT, most=most)
        if max_shards and worked >= max_shards:
            state.should_stop = 0  # Celery's own flag: leave between two messages, with status 0

    app.task(explain_shard, name=TASK)


def told(app: Celery, bench: Workbench) -> OnEnd:
    """What is done when a shard ended: it is logged, and one that came back gets a new message.

    Where the broker is away that is for the next sweep: the shard's end is written down already.
    """

    def on_end(claim: Claim, end: End) -> None:
        with logs.fields(run=claim.run_id, shard=claim.shard.index, attempt=claim.attempt):
            log.info("shard ended: %s", end)
        if end in ("failed", "stopped"):
            queue = queue_of(bench.settings, bench.plan(claim.run_id))
            try:
                app.send_task(TASK, args=(claim.run_id, claim.shard.index), queue=queue)
            except (OperationalError, OSError) as error:
                log.warning("no message sent, the next sweep sends it: %s", error)

    return on_end
