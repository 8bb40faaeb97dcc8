"""Verbs that look ahead: validate, plan."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orchestrator.cli import options as opt
from transexplain.settings import Settings

if TYPE_CHECKING:
    from orchestrator.plan import Prepared
    from transexplain.plans import Task


def register(app: typer.Typer) -> None:
    """Add this module's verbs."""
    for verb in (validate, plan):
        app.command()(verb)


def validate(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    model: opt.Model = None,
    data: opt.Data = None,
    target: opt.Targets = None,
    method: opt.Method = None,
    lexicon: opt.Lexicon = None,
    long_text: opt.LongText = None,
    window: opt.Window = None,
    stride: opt.Stride = None,
    join: opt.Join = None,
    set_: opt.Set = None,
) -> None:
    """Check an audit without running it: model, data, targets, lexicon, one item explained."""
    long = opt.long_texts(long_text, window, stride, join)
    overrides = {**overrides_of(model, data, target, method, lexicon, None), **long}
    prepared = prepare(spec, overrides, set_, Settings.from_environment())
    plan = prepared.plan
    typer.echo(
        f"ok: {plan.dataset.rows} items in {len(prepared.shards)} shards, model of "
        f"{plan.model.modality} with classes {', '.join(plan.model.classes[:10])}, "
        f"plan {plan.digest[:12]}"
    )


def plan(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    model: opt.Model = None,
    data: opt.Data = None,
    target: opt.Targets = None,
    method: opt.Method = None,
    lexicon: opt.Lexicon = None,
    long_text: opt.LongText = None,
    window: opt.Window = None,
    stride: opt.Stride = None,
    join: opt.Join = None,
    set_: opt.Set = None,
    json_: opt.AsJson = False,
) -> None:
    """Check an audit and say what it would do and cost."""
    from orchestrator.cost import estimate, evaluation_estimate

    long = opt.long_texts(long_text, window, stride, join)
    overrides = {**overrides_of(model, data, target, method, lexicon, None), **long}
    prepared = prepare(spec, overrides, set_, Settings.from_environment())
    found = estimate(prepared)
    measured = evaluation_estimate(prepared.plan)
    if json_:
        evaluation = asdict(measured) if measured else None
        typer.echo(json.dumps({**asdict(found), "evaluation": evaluation}, indent=2))
        return
    typer.echo(found.spoken())
    if measured:
        typer.echo(f"faithfulness: {measured.spoken()}")


def overrides_of(
    model: str | None,
    data: str | None,
    target: list[str] | None,
    method: str | None,
    lexicon: str | None,
    name: str | None,
) -> dict[str, Any]:
    """Command-line options as keys of the specification."""
    return {
        "model.source": model,
        "data.source": data,
        "targets": target or None,
        "method.name": method,
        "groups.lexicon": lexicon,
        "name": name,
    }


def prepare(
    spec: Path | None,
    overrides: dict[str, Any],
    set_: list[str] | None,
    settings: Settings,
    task: "Task" = "audit",
) -> "Prepared":
    """Read and check a specification, telling its warnings; raises ConfigurationError."""
    from orchestrator.evaluation import with_usual_sample
    from orchestrator.plan import prepare_audit
    from orchestrator.spec import load_spec

    asked = load_spec(spec, overrides, set_ or ())
    if task == "evaluation":
        asked = with_usual_sample(asked)
    prepared = prepare_audit(asked, settings, task)
    for warning in prepared.warnings:
        warn(warning)
    return prepared


def warn(message: str) -> None:
    """A warning for the terminal."""
    typer.secho(f"warning: {message}", fg=typer.colors.YELLOW, err=True)
