"""The verb serve: pages over the store for a browser."""

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options as opt
from transexplain.registry import require

if TYPE_CHECKING:
    from orchestrator.serve.access import AccessRules
    from orchestrator.serve.live_desk import LiveSettings
    from orchestrator.serve.operating import Operator
    from transexplain.settings import Settings

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
    operate: Annotated[
        bool, typer.Option("--operate", help="readers may cancel, retry and resume runs")
    ] = False,
    reports: Annotated[
        bool,
        typer.Option(
            "--reports/--no-reports",
            help="make sections of reports and clusters, in a process beside the server",
        ),
    ] = True,
    live: opt.Live,
    db: opt.DatabaseUrl = None,
) -> None:
    """Show runs, groups, items and the fleet in a browser until SIGTERM or Ctrl-C."""
    for package in ("starlette", "uvicorn", "python_multipart"):
        require(package, "serve")
    from orchestrator.serve.access import access_rules

    rules = access_rules(
        host,
        token_file=token_file,
        user_header=trusted_user_header,
        proxies=trusted_proxy or (),
        hosts=allow_host or (),
    )
    _serve(db, rules, (host, port), operate=operate, live=live, reports=reports)


def _serve(
    db: str | None,
    rules: "AccessRules",
    place: tuple[str, int],
    *,
    operate: bool,
    live: "LiveSettings | None",
    reports: bool,
) -> None:
    from orchestrator.monitoring.probes import BrokerQueues
    from orchestrator.serve.live_desk import LiveDesk
    from orchestrator.serve.server import serve_pages
    from transexplain.settings import secret
    from transexplain.store.revisions import open_database

    host, port = place
    settings = opt.settings_with(db)
    with (
        open_database(settings.database_url, read_only=True) as store,
        _operator(settings, operate) as operator,
    ):
        does = [name for name, is_on in (("operate", operate), ("live", live)) if is_on]
        typer.echo(
            f"{store.name} at http://{_shown(host)}:{port}/ ({' and '.join(does) or 'read-only'})"
        )
        desk = None if live is None else LiveDesk(live)
        serve_pages(
            *(store, rules),
            host=host,
            port=port,
            queue=settings.queue,
            operator=operator,
            desk=desk,
            broker=BrokerQueues(settings) if secret("BROKER_URL") is not None else None,
            reports=reports,
        )


@contextmanager
def _operator(settings: "Settings", operate: bool) -> "Iterator[Operator | None]":
    """The operator of runs, with a handle of its own, which writes."""
    if not operate:
        yield None
        return
    from orchestrator.serve.operating import Operator
    from transexplain.settings import secret
    from transexplain.store.revisions import open_database

    with open_database(settings.database_url) as writing:
        has_broker = secret("BROKER_URL") is not None
        yield Operator(db=writing, settings=settings, has_broker=has_broker)


def _shown(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host
