"""Routes for monitors: metrics by the rules of every page, /healthz and /readyz for anybody."""

import asyncio
from functools import partial

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from orchestrator.monitoring.broker_queues import BrokerQueues
from orchestrator.monitoring.fleet_collector import FleetCollector
from orchestrator.monitoring.readiness import (
    ALIVE,
    ALIVE_PATH,
    NOT_READY,
    READY,
    READY_PATH,
    Readiness,
    database_check,
)
from transexplain.store.database import Database


def monitoring_routes(db: Database, queue: str, broker: BrokerQueues | None) -> list[Route]:
    """Routes over a store; `queue` is the first part of the queues' names."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(db, queue, broker))
    return [
        Route("/metrics", partial(_metrics, registry)),
        Route(ALIVE_PATH, _alive),
        Route(READY_PATH, partial(_ready, Readiness([database_check(db)]))),
    ]


async def _metrics(registry: CollectorRegistry, request: Request) -> Response:
    encode, kind = choose_encoder(request.headers.get("accept", ""))
    body = await run_in_threadpool(encode, registry)
    return Response(body, headers={"Content-Type": kind, "Vary": "Accept"})


async def _alive(request: Request) -> Response:
    """The loop that answers every request still does."""
    return PlainTextResponse(ALIVE)


async def _ready(readiness: Readiness, request: Request) -> Response:
    # not in the pages' threads: those may all wait for the database
    ready = await asyncio.to_thread(readiness.ready)
    return PlainTextResponse(READY if ready else NOT_READY, 200 if ready else 503)
