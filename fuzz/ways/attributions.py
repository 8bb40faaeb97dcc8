"""Attributions made elsewhere: rows of an import, through the snapshot to what is stored.

The first line is a JSON object of options: `classes`, `columns` and `parquet`; then JSON lines.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasketch
import scipy.sparse.csgraph

from fuzz.guard import promise
from fuzz.ways.tables import options_of
from orchestrator.plan.import_plan import import_spec, prepare_import
from transexplain.auditing.explained_shard import import_shard
from transexplain.data.attribution_files import GivenItem, read_attributions
from transexplain.settings import Settings
from transexplain.store.results import rows_of
from transexplain.types.plans import Shard

#: the last two look for texts that are nearly the same
__all__ = ["datasketch", "scipy", "target"]

_FILE = Path("attributions.jsonl")
_LEXICON = Path("groups.csv")
_GROUPS = "group,term\nwomen,Anna\nwomen,she\nmen,he\n"


class _Nobody:
    """An observer that never stops the work."""

    def batch_started(self, item_ids: Sequence[str]) -> None:
        pass

    def check_started(self, item_ids: Sequence[str]) -> None:
        pass

    def item_done(self, *item_ids: str) -> None:
        pass

    def should_stop(self) -> bool:
        return False


def target(data: bytes) -> None:
    """An import that is accepted can be read, matched, added up and stored."""
    head, _, body = data.partition(b"\n")
    options = options_of(head)
    _FILE.write_bytes(body)
    _LEXICON.write_text(_GROUPS)
    overrides = {"groups": str(_LEXICON)} if options.get("groups") else {}
    spec = import_spec(str(_FILE), overrides, _settings(options))
    named = {"columns": _texts(options.get("columns")), "classes": _classes(options)}
    found = prepare_import(spec, Settings(snapshot_dir=Path("snapshots")), **named)
    plan = found.plan
    rows = plan.dataset.rows
    shard = Shard(index=0, start=0, stop=rows)
    items = list(read_attributions(plan, shard))
    promise(len(items) == rows, "items are lost")
    for one in items:
        if isinstance(one, tuple):
            _check(one)
    result = import_shard(plan, shard, observer=_Nobody(), items=iter(items))
    json.dumps(result.aggregate, allow_nan=False)
    rows_of("run", result)


def _settings(options: Mapping[str, Any]) -> list[str]:
    meta = options.get("meta")
    return [f"data.meta=[{json.dumps(meta)}]"] if isinstance(meta, str) else []


def _texts(given: Any) -> dict[str, str]:
    pairs = given.items() if isinstance(given, dict) else ()
    return {str(key): value for key, value in pairs if isinstance(value, str)}


def _classes(options: Mapping[str, Any]) -> tuple[str, ...]:
    given = options.get("classes")
    return tuple(map(str, given)) if isinstance(given, list) else ()


def _check(given: GivenItem) -> None:
    _, outcome, attributions = given
    text = outcome.text or ""
    for attribution in attributions:
        promise(math.isfinite(attribution.logit), "a logit that is not finite")
        promise(len(attribution.relevance) == len(attribution.features), "lengths differ")
        for token in attribution.features:
            token.text.encode()  # a report is UTF-8
            promise(0 <= token.start <= token.end <= len(text), "a token outside the text")
        attribution.words()
