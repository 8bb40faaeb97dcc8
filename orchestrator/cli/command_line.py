"""The verbs of `transexplain` and their exit codes.

0 ok, 1 a verdict that is not good (`doctor`, `demo`, `gate`, `verify`, `fleet size`), 2 bad
configuration or usage, 3 finished with failed items above the tolerance, 4 infrastructure, 130
interrupted, 141 nobody reads the output any more (as `... | head`).
"""

import errno
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from orchestrator.cli.options import Several
from orchestrator.cli.verb_table import GROUPS, VERBS
from orchestrator.dispatch import stopping
from transexplain.errors import InfrastructureError, TransExplainError
from transexplain.registry import load

_NOBODY_READS = 141  # as a shell says of a process that SIGPIPE ended
_MISMATCH = (
    "torchvision was built for another torch than the one that is installed; install the two "
    "together, as the README does"
)
_PLAIN: Mapping[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False}

app = typer.Typer(
    name="transexplain",
    help="Audit transformer classifiers in bulk by layer-wise relevance propagation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class _Verb(TyperCommand):
    """A verb whose module is imported when the verb is used, so that `--help` is quick."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **more: Any) -> Any:
        return _loaded(self.name or "").make_context(info_name, args, *rest, **more)


def _loaded(name: str) -> Any:
    """The command behind a name in the tables."""
    if name in GROUPS:
        group = typer.main.get_command(load(GROUPS[name].place)())
        group.help = GROUPS[name].help
        return group
    alone = typer.Typer(**_PLAIN)
    alone.command(name)(_with_options(load(VERBS[name].place)))
    return typer.main.get_command(alone)


def _with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb whose parameters that stand for several options are replaced by these."""
    signature = inspect.signature(verb, eval_str=True)
    several: dict[str, tuple[Several, dict[str, Any]]] = {}
    parameters: list[Parameter] = []
    for parameter in signature.parameters.values():
        marks = getattr(parameter.annotation, "__metadata__", ())
        mark = next((mark for mark in marks if isinstance(mark, Several)), None)
        if mark is None:
            parameters.append(parameter)
            continue
        options = mark.options()
        several[parameter.name] = mark, options
        parameters += [
            Parameter(name, parameter.kind, default=None, annotation=annotation)
            for name, annotation in options.items()
        ]

    def with_options(**chosen: Any) -> None:
        for name, (mark, options) in several.items():
            chosen[name] = mark.value({option: chosen.pop(option) for option in options})
        verb(**chosen)

    # typer reads all three
    with_options.__doc__ = verb.__doc__
    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {
        parameter.name: parameter.annotation for parameter in parameters
    }
    return with_options


def _not_loaded() -> None:
    """Stands for a verb until it is used."""


def _version(shown: bool) -> None:
    if shown:
        from transexplain.version import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Audit transformer classifiers in bulk by layer-wise relevance propagation."""


for _name, _entry in (*VERBS.items(), *GROUPS.items()):
    app.command(_name, cls=_Verb, help=_entry.help, rich_help_panel=_entry.panel)(_not_loaded)


def main() -> None:
    """Entry point: errors of this package become one message and their exit code."""
    stopping.handle_interrupts()
    plain = sys.stdout
    if plain is not None:
        sys.stdout = _Output(plain)
    try:
        app()
    except (Exception, KeyboardInterrupt) as error:
        # a library that was interrupted may call it by any name
        if not isinstance(error, TransExplainError) and stopping.interrupted():
            sys.exit(stopping.INTERRUPTED)
        known = InfrastructureError(_MISMATCH) if _mismatched(error) else error
        if not isinstance(known, TransExplainError):
            raise
        typer.secho(f"error: {known}", fg=typer.colors.RED, err=True)
        sys.exit(known.exit_code)
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
        with self._guarded():
            return int(self._stream.write(text))

    def flush(self) -> None:
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


def _mismatched(error: BaseException | None) -> bool:
    """Return whether it began with an operator of torchvision that torch does not have."""
    while error is not None:
        if "torchvision::" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
