"""Verbs that operate servers: worker, metrics-server."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options as opt
from transexplain.errors import ConfigurationError
from transexplain.settings import Settings

if TYPE_CHECKING:
    from transexplain.plans import Modality
    from workers.celery_worker import WorkerOptions

_MAX_SHARDS = 200

Device = Annotated[
    str | None,
    typer.Option("--device", help="one process on this torch device; default: the plan's"),
]
Devices = Annotated[
    str | None,
    typer.Option(
        "--devices",
        help="one supervised process per device: cuda:0,cuda:1, or cpu:2 for two on the CPU",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="CPU threads per process; default: its share"),
]
MaxShards = Annotated[
    int | None,
    typer.Option(
        "--max-shards",
        min=0,
        help=f"a process ends after so many shards, 0: never; {_MAX_SHARDS} where it is replaced",
    ),
]
Modalities = Annotated[
    list[str] | None,
    typer.Option("--modality", help="take only text, image or nodes; may be repeated"),
]
LogFormat = Annotated[str, typer.Option("--log-format", help="text or json")]


def worker(
    *,
    device: Device = None,
    devices: Devices = None,
    threads: Threads = None,
    max_shards: MaxShards = None,
    modality: Modalities = None,
    log_format: LogFormat = "text",
    db: opt.DatabaseUrl = None,
) -> None:
    """Serve the queues; SIGTERM ends it after the batch in hand.

    `--device` is one process. `--devices` starts one per device and replaces those that end.
    """
    from orchestrator.dispatch.queue import check_broker
    from workers import logs
    from workers.celery_worker import WorkerOptions, run_worker

    if device and devices:
        raise ConfigurationError("--device is for one process, --devices for several; give one")
    settings = opt.settings_with(db)
    check_broker(settings, must_answer=False)
    options = WorkerOptions(
        device=device,
        threads=threads,
        max_shards=max_shards or 0,
        modalities=_modalities(modality),
        log_format=logs.form_of(log_format),
    )
    if devices:
        code = _supervise(settings, devices, options, max_shards)
    else:
        code = run_worker(settings, options)
    if code:
        raise typer.Exit(code)


def _supervise(
    settings: Settings, devices: str, options: "WorkerOptions", max_shards: int | None
) -> int:
    from transexplain.store.database import open_database
    from workers import logs
    from workers.supervisor import crew_of, free, supervise

    several = replace(options, max_shards=_MAX_SHARDS if max_shards is None else max_shards)
    crew = crew_of(devices, several)
    logs.configure(options.log_format)
    # opened now: what is wrong with it every child would say
    with open_database(settings.database_url) as store:
        return supervise(settings, crew, on_death=lambda pid: free(store, pid))


def _modalities(given: list[str] | None) -> "tuple[Modality, ...]":
    from workers.app import MODALITIES

    unknown = set(given or ()) - set(MODALITIES)
    if unknown:
        raise ConfigurationError(
            f"--modality {', '.join(sorted(unknown))}: known are {', '.join(MODALITIES)}"
        )
    return tuple(one for one in MODALITIES if not given or one in given)


def metrics_server(
    *,
    host: Annotated[
        str, typer.Option("--host", help="address to listen on; 0.0.0.0: every one")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 9464,
    db: opt.DatabaseUrl = None,
) -> None:
    """Answer Prometheus at /metrics with the fleet's state, until SIGTERM or Ctrl-C."""
    from orchestrator import exposition
    from orchestrator.dispatch.stopping import stopping

    with opt.open_store(opt.settings_with(db)) as store, stopping() as stop:
        server, thread = exposition.serve(store, host=host, port=port)
        typer.echo(f"metrics of {store.name} at http://{host}:{port}/metrics")
        stop.wait()
        server.shutdown()
        server.server_close()
        thread.join()
