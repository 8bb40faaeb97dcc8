"""The verb serve: pages over the store for a browser."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options as opt
from transexplain.registry import require
from transexplain.settings import secret

UserHeader = Annotated[
    str | None,
    typer.Option("--trusted-user-header", help="header in which a proxy names the reader"),
]
Proxies = Annotated[
    list[str] | None,
    typer.Option("--trusted-proxy", help="address of that proxy; may be repeated"),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="name that readers call the server by; may be repeated"),
]


Operate = Annotated[
    bool, typer.Option("--operate", help="readers may cancel, retry and resume runs")
]
Reports = Annotated[
    bool,
    typer.Option(
        "--reports/--no-reports",
        help="make sections of reports and clusters, in a process beside the server",
    ),
]


def serve(  # noqa: PLR0913 - the options of a command line
    *,
    host: Annotated[
        str,
        typer.Option("--host", help="address to listen on; others than this machine's need more"),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8321,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="file with the token that readers have")
    ] = None,
    trusted_user_header: UserHeader = None,
    trusted_proxy: Proxies = None,
    allow_host: Hosts = None,
    operate: Operate = False,
    reports: Reports = True,
    live: opt.Live,
    db: opt.DatabaseUrl = None,
) -> None:
    """Show runs, groups, items and the fleet in a browser until SIGTERM or Ctrl-C."""
    for package in ("starlette", "uvicorn", "python_multipart"):
        require(package, "serve")
    from orchestrator.monitoring.probes import BrokerQueues
    from orchestrator.serve.access import access_rules
    from orchestrator.serve.acting_pages import FleetOperator
    from orchestrator.serve.application import serve_pages
    from orchestrator.serve.live_desk import LiveDesk
    from transexplain.store.revisions import open_database

    rules = access_rules(
        host,
        token_file=token_file,
        user_header=trusted_user_header,
        proxies=trusted_proxy or (),
        hosts=allow_host or (),
    )
    settings = opt.settings_with(db)
    has_broker = secret("BROKER_URL") is not None
    with ExitStack() as stack:
        store = stack.enter_context(open_database(settings.database_url, read_only=True))
        operator = None
        if operate:  # with a handle of its own, which writes
            writing = stack.enter_context(open_database(settings.database_url))
            operator = FleetOperator(db=writing, settings=settings, has_broker=has_broker)
        does = [name for name, is_on in (("operate", operate), ("live", live)) if is_on]
        shown = f"[{host}]" if ":" in host else host
        typer.echo(f"{store.name} at http://{shown}:{port}/ ({' and '.join(does) or 'read-only'})")
        serve_pages(
            *(store, rules),
            host=host,
            port=port,
            queue=settings.queue,
            operator=operator,
            desk=None if live is None else LiveDesk(live),
            broker=BrokerQueues(settings) if has_broker else None,
            reports=reports,
        )
