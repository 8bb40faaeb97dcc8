"""The verb metrics-server: what Prometheus reads, and whether the database answers."""

from typing import Annotated

import typer

from orchestrator.cli import options as opt


def metrics_server(
    *,
    host: Annotated[
        str, typer.Option("--host", help="address to listen on; 0.0.0.0: every one")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 9464,
    broker: Annotated[bool, typer.Option("--broker", help="/readyz asks the broker, too")] = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Answer Prometheus at /metrics with the fleet's state, until SIGTERM or Ctrl-C.

    /healthz says that the process lives, /readyz that the database answers and its tables fit.
    Messages that wait are counted where TRANSEXPLAIN_BROKER_URL names a broker.
    """
    from orchestrator.dispatch.queue import check_broker
    from orchestrator.dispatch.stopping import stopping
    from orchestrator.monitoring.broker_queues import BrokerQueues
    from orchestrator.monitoring.fleet_collector import FleetCollector
    from orchestrator.monitoring.metrics_http import monitoring_app, serve_metrics
    from orchestrator.monitoring.readiness import Readiness, database_check
    from transexplain.settings import secret

    settings = opt.settings_with(db)
    with opt.open_store(settings) as store, stopping() as stop:
        checks = [database_check(store)]
        if broker:
            checks.append(lambda: check_broker(settings))
        asked = BrokerQueues(settings) if broker or secret("BROKER_URL") is not None else None
        collector = FleetCollector(store, settings.queue, asked)
        app = monitoring_app(collector, Readiness(checks))
        server = serve_metrics(app, host=host, port=port)
        typer.echo(f"metrics of {store.name} at http://{host}:{port}/metrics")
        stop.wait()
        server.shutdown()
        server.server_close()
