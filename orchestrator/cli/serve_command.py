"""The verb serve: pages over the store for a browser."""

import ipaddress
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options as opt
from transexplain.registry import require

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


def serve(
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
    db: opt.DatabaseUrl = None,
) -> None:
    """Show runs, groups, items and the fleet in a browser, read-only, until SIGTERM or Ctrl-C."""
    for package in ("starlette", "uvicorn"):
        require(package, "serve")
    from orchestrator.serve.access import access_rules
    from orchestrator.serve.server import serve_pages
    from transexplain.store.revisions import open_database

    rules = access_rules(
        host,
        token_file=token_file,
        user_header=trusted_user_header,
        proxies=trusted_proxy or (),
        hosts=allow_host or (),
    )
    settings = opt.settings_with(db)
    with open_database(settings.database_url, read_only=True) as store:
        typer.echo(f"{store.name} at http://{_shown(host)}:{port}/ (read-only)")
        serve_pages(store, rules, host=host, port=port, queue=settings.queue)


def _shown(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host
