"""The command line: the table of its verbs, each loaded when it is used, and what every verb
shares.
"""

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand

from orchestrator.dispatch import stopping
from transexplain.errors import InfrastructureError, TransExplainError
from transexplain.registry import load


class Entry(NamedTuple):
    """Where a verb is, and the first paragraph of its docstring."""

    place: str  #: `module:function`, imported on first use
    help: str


VERBS: Mapping[str, Entry] = {
    "demo": Entry(
        "orchestrator.cli.train_commands:demo",
        "Train a small text and a small image model here, audit both, and write their reports.",
    ),
    "validate": Entry(
        "orchestrator.cli.run_commands:validate",
        "Check an audit without running it: model, data, targets, lexicon, one item explained.",
    ),
    "plan": Entry(
        "orchestrator.cli.run_commands:plan", "Check an audit and say what it would do and cost."
    ),
    "run": Entry("orchestrator.cli.run_commands:run", "Run an audit here and write its report."),
    "submit": Entry(
        "orchestrator.cli.run_commands:submit", "Put an audit on the queue for workers."
    ),
    "resume": Entry(
        "orchestrator.cli.run_commands:resume",
        "Continue a run: finished shards stay, the others are worked on, dead ones once more.",
    ),
    "retry": Entry(
        "orchestrator.cli.run_commands:retry",
        "Work once more on dead shards and, with --failed, on shards that hold failed items.",
    ),
    "cancel": Entry(
        "orchestrator.cli.run_commands:cancel",
        "Cancel a run; workers stop before their next batch.",
    ),
    "import": Entry(
        "orchestrator.cli.import_command:import_",
        "Group statistics and a report over attributions made elsewhere; no model is loaded.",
    ),
    "evaluate": Entry(
        "orchestrator.cli.evaluate_command:evaluate",
        "Measure how faithful explanations are: tables with intervals, curves, paired tests.",
    ),
    "train": Entry(
        "orchestrator.cli.train_commands:train",
        "Fine-tune a classifier in stages; run again after an interruption to go on.",
    ),
    "status": Entry("orchestrator.cli.status_commands:status", "Show how far runs are."),
    "report": Entry(
        "orchestrator.cli.status_commands:report",
        "Write the report of an audit or evaluation again, or print it as JSON.",
    ),
    "matches": Entry(
        "orchestrator.cli.finding_commands:matches",
        "Write random matches in context for a person to check, or tell their precision.",
    ),
    "strategies": Entry(
        "orchestrator.cli.finding_commands:strategies",
        "Cluster a run's explanations class by class; point out what looks like a shortcut.",
    ),
    "compare": Entry(
        "orchestrator.cli.compare_command:compare",
        "Compare two runs over the same data, item by item and entity by entity.",
    ),
    "gate": Entry(
        "orchestrator.cli.release_commands:gate",
        "Check a run against a policy: a line for every rule, exit code 1 where one is not kept.",
    ),
    "export": Entry(
        "orchestrator.cli.release_commands:export",
        "Write a run's attributions, tables or findings for other programs; docs/export.md.",
    ),
    "manifest": Entry(
        "orchestrator.cli.release_commands:manifest",
        "Print what a run was made from and how it went, as canonical JSON.",
    ),
    "verify": Entry(
        "orchestrator.cli.release_commands:verify",
        "Hash every input and stored byte of a run, and explain some items again.",
    ),
    "explain": Entry("orchestrator.cli.explain_command:explain", "Explain one text or picture."),
    "doctor": Entry(
        "orchestrator.cli.doctor_command:doctor",
        "Examine one item: operators and their rules, the ledger, cost, batches, what is missing.",
    ),
    "worker": Entry(
        "orchestrator.cli.operator_commands:worker",
        "Serve the queues; SIGTERM ends it after the batch in hand.",
    ),
    "metrics-server": Entry(
        "orchestrator.cli.operator_commands:metrics_server",
        "Answer Prometheus at /metrics with the fleet's state, until SIGTERM or Ctrl-C.",
    ),
    "sweep": Entry(
        "orchestrator.cli.schedule_commands:sweep",
        "Send messages again for shards that nobody holds, and close runs that are through.",
    ),
    "beat": Entry(
        "orchestrator.cli.schedule_commands:beat",
        "Tick and sweep until SIGTERM (Celery beat); several at once do no harm.",
    ),
    "version": Entry("orchestrator.cli.command_line:version", "Print the version."),
}

#: verbs with verbs of their own: the function makes the group
GROUPS: Mapping[str, Entry] = {
    "schedule": Entry(
        "orchestrator.cli.schedule_commands:schedule_group", "Audits that are made again and again."
    ),
    "db": Entry(
        "orchestrator.cli.operator_commands:database_group",
        "The store: its tables, partitions, old runs and backups.",
    ),
}


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
