"""The verb `train`: a classifier, and an explainer of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import options as opt
from orchestrator.spec.audit_spec import NameOption
from transexplain.extras.training.training_plans import FitObserver, Trained
from transexplain.extras.training.training_spec import load_training, train_spec
from transexplain.files.paths import local_path
from transexplain.settings import Settings

if TYPE_CHECKING:
    from rich.progress import Progress


_INTERRUPTED = 130
SpecPath = Annotated[Path, typer.Argument(help="training specification (YAML)")]
Output = Annotated[
    str | None, typer.Option("--output", "-o", help="folder; default: trainings/NAME")
]
Restart = Annotated[
    bool, typer.Option("--restart", help="forget the checkpoints of the output and begin again")
]


def train(
    spec: SpecPath,
    *,
    output: Output = None,
    name: NameOption = None,
    set_: opt.Set = None,
    restart: Restart = False,
    as_json: opt.AsJson = False,
) -> None:
    """Fine-tune a classifier in stages; run again after an interruption to go on."""
    from orchestrator.dispatch.stopping import stopping

    overrides = {"output": output, "name": name}
    read = load_training(spec, overrides, set_ or ())
    if restart:
        from transexplain.extras.training.training_runs import forget

        forget(local_path(read.output or f"trainings/{read.name}"))
    try:
        with stopping() as stop, _shown(read.name, stop) as observer:
            trained = train_spec(read, Settings.from_environment(), observer)
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command goes on with the training", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    _print(trained, as_json=as_json)


class _Bar(FitObserver):
    """Shows a fit as a progress bar with its losses; ends it when a stop is requested."""

    def __init__(self, bar: "Progress", label: str, stop: Event) -> None:
        self.bar, self.stop, self.label = bar, stop, label
        self.task = bar.add_task(label, total=None, note="")
        self.metrics = ""

    def began(self, what: str) -> None:
        """Another part of the training; the bar begins again."""
        self.metrics = ""
        self.bar.reset(self.task, total=None, description=f"{self.label}: {what}", note="")
        typer.echo(f"{self.label}: {what}", err=True)

    def stepped(self, step: int, steps: int, losses: Mapping[str, float]) -> None:
        """One step further."""
        note = f"loss {losses['loss']:.4f}" if "loss" in losses else ""
        self.bar.update(self.task, completed=step, total=steps, note=f"{note}{self.metrics}")

    def validated(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """One epoch further; written on a line of its own."""
        self.metrics = "".join(f", {name} {value:.4f}" for name, value in metrics.items())
        typer.echo(f"{self.label}: epoch {epoch}{self.metrics}", err=True)

    def should_stop(self) -> bool:
        """Return whether Ctrl-C or SIGTERM came."""
        return self.stop.is_set()


@contextmanager
def _shown(label: str, stop: Event) -> Iterator[_Bar]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Left

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Left(),
        TextColumn("{task.fields[note]}"),
        console=console,
        disable=not console.is_terminal,
    )
    with bar:
        yield _Bar(bar, label, stop)


def _print(trained: Trained, *, as_json: bool) -> None:
    if as_json:
        import json

        document: dict[str, Any] = asdict(trained)
        typer.echo(json.dumps(document, indent=1, default=str))
        return
    for failure in trained.failures[:5]:
        typer.echo(f"left out {failure.item_id}: {failure.kind}: {failure.message}", err=True)
    if trained.failures:
        typer.echo(f"left out {len(trained.failures)} items in all", err=True)
    if trained.epochs:
        measured = "nothing was held out"
        if trained.metrics:
            of = f"{trained.validation_examples} held-out items"
            measured = f"accuracy {trained.metrics['accuracy']:.4f} over {of}"
        ended = ", ended early" if trained.stopped_early else ""
        typer.echo(f"{trained.examples} items, {trained.epochs} epochs{ended}: {measured}")
    typer.echo(f"model      {trained.model}")
    if trained.explainer is not None:
        typer.echo(f"explainer  {trained.explainer}")
    typer.echo(f"history    {', '.join(str(path) for path in trained.histories)}")
    typer.echo(f"curves     {', '.join(str(path) for path in trained.curves)}")
    agreement = trained.agreement
    if agreement is not None:
        typer.echo(
            f"the explainer ranks positions as its teacher does with a rank correlation of "
            f"{agreement.rank_correlation:.3f} (relative error {agreement.relative_error:.3f}) "
            f"over {agreement.items} held-out items"
        )
    by = ""
    if trained.explainer is not None:
        by = f" --method learned --set method.params.explainer={trained.explainer}"
    typer.echo(f"next: transexplain run --model {trained.model} --data DATA{by}")
