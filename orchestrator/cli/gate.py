"""The verb for CI: does a run keep what a policy asks?"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options as opt

if TYPE_CHECKING:
    from orchestrator.gating import Verdict

_FAILED = 1


def gate(
    run_id: opt.RunId = "latest",
    *,
    policy: Annotated[Path, typer.Option("--policy", help="what is asked of the run (YAML)")],
    junit: Annotated[
        Path | None, typer.Option("--junit", help="write the rules as JUnit XML, too")
    ] = None,
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """Check a run against a policy: a line for every rule, exit code 1 where one is not kept."""
    from orchestrator.gating import judge, load_policy, write_junit

    asked = load_policy(policy)
    with opt.open_store(opt.settings_with(db)) as store:
        found = judge(store, run_id, asked)
    if junit is not None:
        write_junit(found, junit)
    if json_:
        typer.echo(json.dumps(asdict(found), indent=2))
    else:
        _print(found)
    if not found.passed:
        raise typer.Exit(_FAILED)


def _print(found: "Verdict") -> None:
    width = max(len(one.rule) for one in found.checks)
    for one in found.checks:
        word = typer.style("PASS", fg=typer.colors.GREEN)
        if not one.passed:
            word = typer.style("FAIL", fg=typer.colors.RED, bold=True)
        typer.echo(f"{word}  {one.rule:<{width}}  {one.text}")
    broken = sum(not one.passed for one in found.checks)
    end = f"{broken} of {len(found.checks)} rules are broken" if broken else "every rule is kept"
    typer.echo(f"run {found.run_id} ({found.name}): {end}")
