"""Runs the application by uvicorn until SIGTERM or Ctrl-C."""

import uvicorn

from orchestrator.serve.access import AccessRules
from orchestrator.serve.application import application
from transexplain.errors import InfrastructureError
from transexplain.store.database import Database

_LONGEST_ANSWER = 5  #: seconds that requests have to end after SIGTERM


def serve_pages(db: Database, rules: AccessRules, *, host: str, port: int) -> None:
    """Answer until a signal; raises InfrastructureError where the port is taken."""
    config = uvicorn.Config(
        application(db, rules),
        host=host,
        port=port,
        log_level="warning",
        # the client's address is the one that connected, whatever a header says
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_LONGEST_ANSWER,
    )
    server = uvicorn.Server(config)
    try:
        server.run()
    except SystemExit:
        raise InfrastructureError(
            f"nothing can listen at {host}:{port}: another program does, or the address is none of "
            "this machine's; choose another --port"
        ) from None
    if not server.started:
        raise InfrastructureError(f"nothing can listen at {host}:{port}; choose another --port")
