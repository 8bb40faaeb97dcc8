"""Verbs that look ahead: validate, plan."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.running import warn
from orchestrator.spec.audit_spec import (
    JoinOption,
    LongTextOption,
    StrideOption,
    TargetsOption,
    WindowOption,
    load_spec,
    overrides_of,
)
from orchestrator.spec.data_section import DataOption
from orchestrator.spec.groups_section import LexiconOption
from orchestrator.spec.method_section import MethodOption
from orchestrator.spec.model_section import ModelOption
from transexplain.settings import Settings

if TYPE_CHECKING:
    from orchestrator.plan.audit_plan import Prepared
    from transexplain.plans import Task


def validate(  # noqa: PLR0913 - the options of a command line
    spec: opt.SpecPath = None,
    *,
    model: ModelOption = None,
    data: DataOption = None,
    target: TargetsOption = None,
    method: MethodOption = None,
    lexicon: LexiconOption = None,
    long_text: LongTextOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    join: JoinOption = None,
    set_: opt.Set = None,
) -> None:
    """Check an audit without running it: model, data, targets, lexicon, one item explained."""
    overrides = overrides_of(
        **{"model": model, "data": data, "target": target, "method": method, "lexicon": lexicon},
        **{"long_text": long_text, "window": window, "stride": stride, "join": join},
    )
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
    model: ModelOption = None,
    data: DataOption = None,
    target: TargetsOption = None,
    method: MethodOption = None,
    lexicon: LexiconOption = None,
    long_text: LongTextOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    join: JoinOption = None,
    set_: opt.Set = None,
    json_: opt.AsJson = False,
) -> None:
    """Check an audit and say what it would do and cost."""
    from orchestrator.plan.estimate import estimate
    from orchestrator.spec.evaluation_section import evaluation_estimate

    overrides = overrides_of(
        **{"model": model, "data": data, "target": target, "method": method, "lexicon": lexicon},
        **{"long_text": long_text, "window": window, "stride": stride, "join": join},
    )
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


def prepare(
    spec: Path | None,
    overrides: dict[str, Any],
    set_: list[str] | None,
    settings: Settings,
    task: "Task" = "audit",
) -> "Prepared":
    """Read and check a specification, telling its warnings; raises ConfigurationError."""
    from orchestrator.plan.audit_plan import prepare_audit

    read = load_spec(spec, overrides, set_ or ())
    if task == "evaluation":
        read = read.model_copy(update={"data": read.data.with_usual_sample()})
    prepared = prepare_audit(read, settings, task)
    for warning in prepared.warnings:
        warn(warning)
    return prepared
