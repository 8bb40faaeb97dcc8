"""The verb for a fresh machine: train two small models, audit them, find the planted bias."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    *,
    folder: Annotated[Path, typer.Option("--folder", help="where everything is written")] = Path(
        "transexplain-demo"
    ),
    seed: Annotated[int, typer.Option("--seed", help="of the corpus and the training")] = 0,
) -> None:
    """Train a small text and a small image model here, audit both, and write their reports."""
    from orchestrator.demo.run import run_demo

    result = run_demo(folder, seed, say=typer.echo)
    if not result.as_planted:
        raise typer.Exit(1)
