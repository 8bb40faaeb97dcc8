"""The verbs of `transexplain` and their exit codes.

0 ok, 1 a verdict that is not good (`doctor`, `demo`, `gate`, `verify`), 2 bad configuration or
usage, 3 finished with failed items above the tolerance, 4 infrastructure, 130 interrupted, 141
nobody reads the output any more (as `... | head`).
"""

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand

from orchestrator.cli.verb_table import GROUPS, VERBS
from orchestrator.dispatch import stopping
from transexplain.errors import InfrastructureError, TransExplainError
from transexplain.registry import load

_NOBODY_READS = 141  # as a shell says of a process that SIGPIPE ended
_PLAIN: Mapping[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False}

app = typer.Typer(
    name="transexplain",
    help="Audit transformer classifiers in bulk by layer-wise relevance propagation.",
    no_args_is_help=True,
    **_PLAIN,
)


class _Verb(TyperCommand):
    """A verb whose module is imported when the verb is used, so that `--help` is quick."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **more: Any) -> Any:
        """The context of the verb itself."""
        return _loaded(self.name or "").make_context(info_name, args, *rest, **more)


def _loaded(name: str) -> Any:
    """The command behind a name in the tables."""
    if name in GROUPS:
        group = typer.main.get_command(load(GROUPS[name].place)())
        group.help = GROUPS[name].help
        return group
    alone = typer.Typer(**_PLAIN)
    alone.command(name)(load(VERBS[name].place))
    return typer.main.get_command(alone)


def _not_loaded() -> None:
    """Stands for a verb until it is used."""


def version() -> None:
    """Print the version."""
    from transexplain.version import __version__

    typer.echo(__version__)


for _name, _entry in (*VERBS.items(), *GROUPS.items()):
    app.command(_name, cls=_Verb, help=_entry.help)(_not_loaded)


def main() -> None:
    """Entry point: errors of this package become one message and their exit code."""
    stopping.handle_interrupts()
    plain = sys.stdout
    if plain is not None:
        sys.stdout = _Output(plain)
    try:
        app()
    except TransExplainError as error:
        typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
        sys.exit(error.exit_code)
    except (Exception, KeyboardInterrupt):
        # a library that was interrupted may call it by any name
        if not stopping.interrupted():
            raise
        sys.exit(stopping.INTERRUPTED)
    finally:
        sys.stdout = plain
        stopping.end_on_interrupt()


class _Output:
    """Standard output that ends the command without a traceback where it cannot be written."""

    def __init__(self, stream: Any) -> None:
        stream.reconfigure(errors="backslashreplace")  # names may hold what no terminal shows
        self._stream = stream
        self._lost: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """As the stream's."""
        with self._guarded():
            return int(self._stream.write(text))

    def flush(self) -> None:
        """As the stream's."""
        with self._guarded():
            self._stream.flush()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            if self._lost is not None:  # somebody swallowed it
                raise self._lost
            yield
        except OSError as error:
            if self._lost is None:
                # what is still in its buffer has to go somewhere when Python ends
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            self._lost = error
            if error.errno == errno.EPIPE:
                raise SystemExit(_NOBODY_READS) from None
            raise InfrastructureError(f"the output cannot be written: {error.strerror}") from None
