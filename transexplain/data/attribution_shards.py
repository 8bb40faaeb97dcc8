"""Reading attributions made elsewhere from the snapshot that `attribution_files` wrote."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from transexplain.data.shard_reader import read_rows
from transexplain.types.items import Attribution, Item, ItemFailure, ItemOutcome, Token, Unit
from transexplain.types.plans import AuditPlan, Shard

#: the leaf of relevance that was measured elsewhere
LEAF = "imported"


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenItem:
    """An item with the attributions that another program gave it."""

    item: Item
    outcome: ItemOutcome
    attributions: tuple[Attribution, ...]


def read_attributions(plan: AuditPlan, shard: Shard) -> Iterator[GivenItem | ItemFailure]:
    """The items of one shard in order, with a failure in the place of each bad row.

    Raises DataSourceError, before the first item, as `reader.read_shard`.
    """
    for row in read_rows(plan.dataset, shard):
        if row["error_kind"] is None:
            yield _item(plan, row)
        else:
            yield ItemFailure(
                item_id=row["id"], index=row["index"], kind=row["error_kind"], message=row["error"]
            )


def _item(plan: AuditPlan, row: dict[str, Any]) -> GivenItem:
    document = json.loads(row["attributions"])
    tokens = tuple(
        Token(text=text, start=start, end=end, special=special, word=word)
        for text, start, end, special, word in document["tokens"]
    )
    content = Item(
        id=row["id"],
        index=row["index"],
        content=row["content"],
        label=row["label"],
        meta=json.loads(row["meta"]),
        cluster=row.get("cluster") or "",
        template=row.get("template") or "",
    )
    return GivenItem(
        item=content,
        outcome=ItemOutcome(
            item_id=content.id,
            index=content.index,
            label=content.label,
            predicted=document["predicted"],
            logits=tuple(document["logits"]),
            truncated=False,
            positions=len(tokens),
            text=row["content"],
            meta=content.meta,
        ),
        attributions=tuple(_attributions(plan, content, tokens, document["explained"])),
    )


def _attributions(
    plan: AuditPlan, item: Item, tokens: tuple[Token, ...], rows: list[dict[str, Any]]
) -> Iterator[Attribution]:
    unit: Unit = plan.method.params["unit"]
    for rank, one in _ranked(rows):
        name = one["class_name"]
        yield Attribution(
            item_id=item.id,
            method=plan.method.name,
            target=one["target"],
            rank=rank,
            class_index=plan.model.classes.index(name) if one["of_class"] else None,
            class_name=name,
            logit=one["logit"],
            relevance=np.array(one["scores"], dtype=np.float64),
            unit=unit,
            at=LEAF,
            features=tokens,
            ledger=None,
            text=item.content,
            notes=tuple(one["notes"]),
        )


def _ranked(rows: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each with its place among those of one target (`top:2` has two)."""
    seen: dict[str, int] = {}
    for row in rows:
        seen[row["target"]] = seen.get(row["target"], -1) + 1
        yield seen[row["target"]], row
