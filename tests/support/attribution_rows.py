"""A stored run's attributions as the rows of a file that `transexplain import` reads."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transexplain.store import readers, runs
from transexplain.store.revisions import open_database
from transexplain.types.items import ItemOutcome


def rows_of_run(url: str, run_id: str = "latest") -> list[dict[str, Any]]:
    """One row per attribution, in the order of the run."""
    with open_database(url) as db:
        run = runs.get(db, run_id)
        outcomes = {
            one.item_id: one
            for one in readers.iter_items(db, run.id)
            if isinstance(one, ItemOutcome)
        }
        return [
            {
                "id": one.item_id,
                "text": one.text,
                "tokens": [token.text for token in one.features],  # type: ignore[union-attr]
                "offsets": [[token.start, token.end] for token in one.features],  # type: ignore[union-attr]
                "special": [token.special for token in one.features],  # type: ignore[union-attr]
                "scores": one.relevance.tolist(),
                "prediction": outcomes[one.item_id].predicted,
                "logits": list(outcomes[one.item_id].logits),
                "label": outcomes[one.item_id].label,
                "target": one.target,
                "class": one.class_name,
                "logit": one.logit,
                **outcomes[one.item_id].meta,
            }
            for one in readers.iter_attributions(db, run.id)
        ]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as JSON lines or Parquet, as the suffix of `path` says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=5)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)
