"""Runs the application by uvicorn until SIGTERM or Ctrl-C."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from orchestrator.monitoring.broker_queues import BrokerQueues
from orchestrator.serve.access import AccessRules
from orchestrator.serve.application import application
from orchestrator.serve.live_desk import LiveDesk
from orchestrator.serve.operating import Operator
from transexplain.errors import InfrastructureError
from transexplain.store.database import Database

_LONGEST_ANSWER = 5  #: seconds that requests have to end after a signal
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Server(uvicorn.Server):
    """Ends well where a signal asks for it, as the other verbs do; the second Ctrl-C is quicker."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn would raise the signal again at the end."""
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve_pages(  # noqa: PLR0913 - what `application` takes, and where it listens
    db: Database,
    rules: AccessRules,
    *,
    host: str,
    port: int,
    queue: str,
    operator: Operator | None = None,
    desk: LiveDesk | None = None,
    broker: BrokerQueues | None = None,
    reports: bool = True,
) -> None:
    """Answer until a signal; raises InfrastructureError where nothing can listen there.

    `queue` and what follows it as `application` takes them.
    """
    app = application(
        *(db, rules), queue=queue, operator=operator, desk=desk, broker=broker, reports=reports
    )
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        # the client's address is the one that connected, whatever a header says
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_LONGEST_ANSWER,
    )
    server = _Server(config)
    try:
        server.run()
    except SystemExit:  # it could not start, and has logged why
        raise InfrastructureError(
            f"nothing can listen at {host}:{port}: another program does, or the address is none of "
            "this machine's; choose another --port"
        ) from None
