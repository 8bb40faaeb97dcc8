"""A verb: the items whose answer was the closest call, `transexplain close-calls RUN`."""

import json
from heapq import nsmallest
from typing import Annotated

import typer

from orchestrator.cli import options as opt


def close_calls(
    run_id: opt.RunId = "latest",
    *,
    top: Annotated[int, typer.Option("--top", min=1, help="number of items")] = 10,
    json_: opt.AsJson = False,
    db: opt.DatabaseUrl = None,
) -> None:
    """List the items whose two highest logits are nearest to each other."""
    # imported here, so that `transexplain --help` stays quick
    from transexplain.store import runs
    from transexplain.store.readers import iter_items
    from transexplain.types.items import ItemOutcome

    with opt.open_store(opt.settings_with(db)) as store:
        run = runs.get(store, run_id)
        margins = (
            (sorted(one.logits)[-1] - sorted(one.logits)[-2], one.item_id, one.predicted)
            for one in iter_items(store, run.id)
            if isinstance(one, ItemOutcome) and len(one.logits) > 1
        )
        found = nsmallest(top, margins)
    if json_:
        rows = [{"margin": margin, "id": name, "predicted": best} for margin, name, best in found]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for margin, name, best in found:
        typer.echo(f"{margin:8.4f}  {best}  {name}")
