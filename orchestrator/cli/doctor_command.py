"""The verb that reports whether a model can be explained, and what prevents it: doctor."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from orchestrator.cli import options as opt
from orchestrator.cli.explain_command import ledger_line
from orchestrator.spec.data_section import ModelOption, require_local_model
from orchestrator.spec.spec_document import parameters
from transexplain.errors import ConfigurationError, DataSourceError, ItemError
from transexplain.types.items import ItemFailure
from transexplain.types.plans import DatasetSpec, Shard

if TYPE_CHECKING:
    from transexplain.doctor import Diagnosis
    from transexplain.models.loaded_model import LoadedModel


def doctor(  # noqa: PLR0913 - the options of a command line
    source: Annotated[str | None, typer.Argument(help="the model, instead of --model")] = None,
    *,
    model: ModelOption = None,
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", help="examine its first item; default: a neutral one"),
    ] = None,
    method: Annotated[str, typer.Option("--method", help="explanation method")] = "lrp",
    at: Annotated[
        str | None, typer.Option("--at", help="input layer: encoder, words (text), pixels (image)")
    ] = None,
    param: opt.Params = None,
    device: opt.LoadedTo = "cpu",
    dtype: Annotated[
        str, typer.Option("--dtype", help="float64, float32, bfloat16 or float16")
    ] = "float32",
    trace: Annotated[
        bool,
        typer.Option("--trace", help="try whether a step can be traced and replayed as a graph"),
    ] = False,
    json_: opt.AsJson = False,
) -> None:
    """Examine one item: operators and their rules, the ledger, cost, batches, what is missing."""
    named = [name for name in (source, model) if name is not None]
    if len(named) != 1:
        raise ConfigurationError("name one model: transexplain doctor --model MODEL")
    require_local_model(named[0])
    from transexplain.api import load_model
    from transexplain.doctor import examine

    loaded = load_model(named[0], dtype=dtype, device=device)
    item = None if data is None else _first_item(loaded, data)
    diagnosis = examine(loaded, item, method, at, trace=trace, **parameters(param))
    if json_:
        typer.echo(json.dumps(diagnosis.document(), indent=2, ensure_ascii=False))
    else:
        _print(diagnosis)
    if diagnosis.verdict != "covered":
        raise typer.Exit(1)


def _first_item(model: "LoadedModel", source: str) -> Any:
    """The first item of a dataset; its snapshot is thrown away."""
    from transexplain.data.shard_reader import read_shard
    from transexplain.data.snapshot import prepare

    with TemporaryDirectory() as folder:
        dataset = prepare(DatasetSpec(source=source, limit=1), Path(folder))
        if not dataset.rows:
            raise DataSourceError(f"dataset {source!r} has no rows")
        if dataset.modality != model.modality:
            raise DataSourceError(
                f"the model reads {model.modality} but dataset {source!r} holds {dataset.modality}"
            )
        (first,) = read_shard(dataset, Shard(index=0, start=0, stop=1))
    if isinstance(first, ItemFailure):
        raise ItemError(first.kind, f"the first item of {source!r} cannot be read: {first.message}")
    return first


def _print(diagnosis: "Diagnosis") -> None:
    console = Console(highlight=False, markup=False)
    ref = diagnosis.model
    console.print(
        f"{ref.source}: {ref.modality}, {ref.dtype} on {ref.device}; {diagnosis.method} at "
        f"{diagnosis.at!r}, {diagnosis.positions} positions, class {diagnosis.target!r}",
        soft_wrap=True,
    )
    console.print(_operators(diagnosis))
    for line in (
        *_ledger(diagnosis),
        *_cost(diagnosis),
        *_tracing(diagnosis),
        *_batches(diagnosis),
    ):
        console.print(line, soft_wrap=True)
    _print_uncovered(console, diagnosis)
    good = diagnosis.verdict == "covered"
    console.print(f"verdict: {diagnosis.verdict}", style="bold green" if good else "bold red")


def _operators(diagnosis: "Diagnosis") -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("operator", no_wrap=True)
    table.add_column("rule", overflow="fold")
    for name in ("times", "constants", "rules", "ms"):
        table.add_column(name, justify="right", no_wrap=True)
    measured = diagnosis.ledger is not None
    for use in diagnosis.operators:
        booked = (use.embeddings + use.biases, use.rules)
        table.add_row(
            use.name,
            use.rule,
            str(use.count),
            *(f"{value:+.4f}" if value and measured else "" for value in booked),
            f"{1000 * use.seconds:.2f}",
        )
    return table


def _ledger(diagnosis: "Diagnosis") -> Iterator[str]:
    ledger = diagnosis.ledger
    if ledger is not None:
        yield ledger_line(ledger, str(diagnosis.unit))
        judged = {
            True: f"within {diagnosis.gap_tolerance:.0e}" if diagnosis.gap_tolerance else "",
            False: f"above {diagnosis.gap_tolerance or 0:.0e}: it does not close",
            None: "measured only, in half precision",
        }[diagnosis.closes]
        yield f"gap {ledger.gap:+.1e}, {ledger.relative_gap:.1e} of the sum of |terms|: {judged}"
    if diagnosis.logits_difference is not None:
        exact = "identical to" if diagnosis.logits_difference == 0 else "differ from"
        yield f"logits {exact} the untouched model's (at most {diagnosis.logits_difference:.1e})"


def _cost(diagnosis: "Diagnosis") -> Iterator[str]:
    timing = diagnosis.timing
    if timing is None:
        return
    peak = timing.peak_bytes
    yield (
        f"forward {1000 * timing.forward:.1f} ms, explanation {1000 * timing.explanation:.1f} ms: "
        f"{timing.ratio:.2f} forwards (medians of 3, one item)"
    )
    device = "not measured on CPU" if peak is None else f"{peak / 2**20:.0f} MiB"
    yield f"kept for the backward pass: {timing.graph_bytes / 2**20:.1f} MiB; device peak: {device}"


def _tracing(diagnosis: "Diagnosis") -> Iterator[str]:
    tracing = diagnosis.tracing
    if tracing is None:
        return
    if tracing.operators is None or tracing.replay is None:
        yield f"not traced: {tracing.why}"
        return
    guards = f"{tracing.guards} guard{'' if tracing.guards == 1 else 's'}"
    yield (
        f"traced in {tracing.seconds:.1f} s: {tracing.operators:,} operators, {guards}; a replay "
        f"takes {1000 * tracing.replay:.1f} ms"
    )


def _batches(diagnosis: "Diagnosis") -> Iterator[str]:
    invariance = diagnosis.invariance
    neighbours = f"on neighbours: {_dependence(invariance.batch, invariance.batch_difference)}"
    padding = f"; on padding: {_dependence(invariance.padding, invariance.padding_difference)}"
    shown = padding if diagnosis.model.modality != "image" else ""
    yield f"logits depend {neighbours}{shown}. Batches: {diagnosis.batching}"


def _dependence(invariant: bool | None, difference: float | None) -> str:
    if invariant is None or difference is None:
        return "not measured"
    return f"{'no' if invariant else 'yes'} ({difference:.1e} of the largest logit)"


def _print_uncovered(console: Console, diagnosis: "Diagnosis") -> None:
    """One line per place in the code, however many layers run through it."""
    places: dict[tuple[str, str, str], tuple[list[str], int]] = {}
    for uncovered in diagnosis.uncovered:
        place, _, module = uncovered.where.partition(" (")
        key = (uncovered.operator, place, uncovered.why)
        modules, times = places.get(key, ([], 0))
        places[key] = [*modules, module.removesuffix(")")], times + uncovered.count
    for (operator, place, why), (modules, times) in places.items():
        more = f" and {len(modules) - 1} more" if len(modules) > 1 else ""
        named = f", {modules[0]}{more}" if modules[0] else ""
        console.print(f"not covered: {operator}, {times} x, {place}{named}: {why}", soft_wrap=True)
    if not diagnosis.uncovered:
        return
    if diagnosis.remedies:
        console.print(f"methods that need no rule for it: {', '.join(diagnosis.remedies)}")
    else:
        console.print(
            "remedy: report the operators above, or write them with operators that have a rule",
            soft_wrap=True,
        )
