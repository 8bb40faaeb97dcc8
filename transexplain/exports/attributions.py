"""A run's attributions as rows, one for each item, target and class, in the dataset's order.

`attributions`, `idx` and `predictions` are called as Thermostat calls them (Feldhus et al. 2021,
"Thermostat: A Large Collection of NLP Model Explanations and Analysis Tools"); `transexplain
import` reads the rows of texts.
"""

import json
from collections.abc import Iterator
from typing import Any

from transexplain.errors import ConfigurationError
from transexplain.plans import AuditPlan, AuditRun
from transexplain.reports.escaping import encodable
from transexplain.store import results
from transexplain.store.database import Database
from transexplain.types import Attribution, ItemFailure, ItemOutcome, Ledger, PatchGrid, Token

Row = dict[str, Any]
LEDGER = ("inputs", "special", "embeddings", "biases", "rules", "total", "gap", "magnitude")


def iter_rows(db: Database, run: AuditRun, *, redacted: bool = False) -> Iterator[Row]:
    """Every attribution with what is known of its item; a page of rows is held at a time.

    Redacted, a row says nothing that the data said: its id is the number of its row, its tokens
    are numbered, and text, offsets, source and metadata are None. Raises
    ConfigurationError where the run was changed meanwhile.
    """
    items, kept = results.iter_items(db, run.id), metadata_of(run.plan)
    item: ItemOutcome | ItemFailure | None = None
    for one in results.iter_attributions(db, run.id):
        while item is None or item.item_id != one.item_id:
            item = next(items, None)
            if item is None:
                raise ConfigurationError(
                    f"run {run.id} was changed while it was exported; export it again"
                )
        if isinstance(item, ItemOutcome):
            own = {name: _clean(item.meta.get(name)) for name in kept}
            row = _row(item, one)
            yield {**dict.fromkeys(own), **_unsaid(row)} if redacted else {**own, **row}


def metadata_of(plan: AuditPlan) -> tuple[str, ...]:
    """Columns of metadata that the statistics were split or grouped by: an import needs them.

    One that is called as a column of the export is in `meta` alone.
    """
    names = (*plan.matching.columns, plan.slice)
    return tuple(dict.fromkeys(name for name in names if name))


def _unsaid(row: Row) -> Row:
    """The row without what the data said; offsets go, too, because they tell the words' lengths."""
    found = {**row, "id": str(row["idx"]), "meta": "{}"}
    found |= {name: None for name in ("text", "offsets", "source") if name in row}
    if "tokens" in row:
        found["tokens"] = [str(place) for place in range(len(row["tokens"]))]
    return found


def _clean(text: str | None) -> str | None:
    return None if text is None else encodable(text)


def _row(item: ItemOutcome, one: Attribution) -> Row:
    return {
        "id": encodable(item.item_id),
        "idx": item.index,
        **_positions(item, one),
        "target": one.target,
        "rank": one.rank,
        "class": one.class_name,
        "logit": one.logit,
        "prediction": item.predicted,
        "label": _clean(item.label),
        "predictions": list(item.logits),
        "unit": one.unit,
        "method": one.method,
        "at": one.at,
        "truncated": item.truncated,
        **_ledger(one.ledger),
        "notes": [encodable(note) for note in one.notes],
        "meta": json.dumps(dict(item.meta)),
    }


def _positions(item: ItemOutcome, one: Attribution) -> Row:
    if isinstance(one.features, PatchGrid):
        return _picture(item, one, one.features)
    return _text(one, one.features)


def _text(one: Attribution, tokens: tuple[Token, ...]) -> Row:
    return {
        "text": _clean(one.text),
        "tokens": [encodable(token.text) for token in tokens],
        "offsets": [[token.start, token.end] for token in tokens],
        "special": [token.special for token in tokens],
        "attributions": one.relevance.tolist(),
    }


def _picture(item: ItemOutcome, one: Attribution, grid: PatchGrid) -> Row:
    return {
        "source": _clean(item.source),
        "rows": grid.rows,
        "cols": grid.cols,
        "height": grid.height,
        "width": grid.width,
        "box": list(grid.box),
        "attributions": one.relevance.tolist(),
        "special_attributions": list(one.prefix_relevance),
    }


def _ledger(ledger: Ledger | None) -> Row:
    return {f"ledger_{name}": getattr(ledger, name) if ledger else None for name in LEDGER}
