"""Pages of items: those that are looked for, and one with all that explains it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from orchestrator.serve.asked import Answer, Asked, BadQueryError, NotThereError
from orchestrator.serve.drawn_pages import (
    ALPHAS,
    PALETTES,
    Look,
    graph_of,
    pictures_of,
    shape_of_item,
    words_of,
)
from orchestrator.serve.links import link
from transexplain.reports.sections.gallery_items import Explanation, gallery_item
from transexplain.store import browsing_items
from transexplain.store.browsing_items import ItemRecord, Neighbours
from transexplain.store.ranked_items import KEPT, ORDERS, ItemSearch
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome

_ITEMS = 50  #: on a page
_LOOKED_FOR = ("text", "word", "predicted", "label", "group", "entity")
_BEGINNING = 240  #: characters of a text in a list


def items(asked: Asked) -> Answer:
    """Items by text, word, entity, label and prediction: as in the data, or ranked by a value."""
    run = asked.run
    filters = {name: asked.word(name) for name in _LOOKED_FOR}
    order = asked.word("sort")
    if order and order not in ORDERS:
        raise BadQueryError(f"sort must be one of {', '.join(ORDERS)}, or nothing.")
    if order and ORDERS[order].needs_word and not filters["word"]:
        raise BadQueryError(f"sort={order} needs a word.")
    document: dict[str, Any] = {
        "run": run,
        "filters": filters,
        "sort": order,
        "readable": asked.readable,
        "items": [],
        "next_row": None,
        "next": None,
        "ranked": None,
    }
    drawing = {"start": asked.number("start"), "orders": ORDERS, "classes": asked.facts.classes}
    if not asked.readable:
        return Answer(document, drawing)
    found = _ranked(asked, filters, order) if order else _in_order(asked, filters)
    full = len(found["items"]) == _ITEMS
    here = link("runs", run.id, "items", **filters, sort=order, after=asked.word("after"))
    return Answer({**document, **found}, {**drawing, "full": full, "address": here})


def _in_order(asked: Asked, filters: Mapping[str, str]) -> dict[str, Any]:
    db, run, start = asked.db, asked.run, asked.number("start")
    wanted = ItemSearch(**filters)
    found = browsing_items.search(
        db, run.id, wanted, start=start, limit=_ITEMS, seconds=asked.time_left
    )
    following = found.next_row
    return {
        "items": [_listed(one) for one in found.found],
        "next_row": following,
        "next": None
        if following is None
        else link("runs", run.id, "items", **filters, start=following),
    }


def _ranked(asked: Asked, filters: Mapping[str, str], order: str) -> dict[str, Any]:
    run, after = asked.run, _cursor(asked)
    ranking = asked.counts.ranking(
        asked.db, run, ItemSearch(**filters), order, _listed, asked.time_left
    )
    known = len(ranking.best)
    shown = ranking.page(after, _ITEMS + 1)
    following = None
    if len(shown) > _ITEMS:
        key, row = shown[_ITEMS - 1].cursor
        following = link("runs", run.id, "items", **filters, sort=order, after=f"{key!r},{row}")
    return {
        "items": [
            {**one.shown, "value": 0.0 - ORDERS[order].sign * one.key} for one in shown[:_ITEMS]
        ],
        "next": following,
        "ranked": {
            "by": ORDERS[order].value,
            "done": ranking.done,
            "certain": ranking.certain,
            "seen": ranking.seen,
            "kept": known,
            "most": KEPT,
        },
    }


def _cursor(asked: Asked) -> tuple[float, int] | None:
    given = asked.word("after")
    if not given:
        return None
    key, _, row = given.partition(",")
    try:
        return float(key), int(row)
    except ValueError:
        raise BadQueryError(f"after must be a value and a row, not {given!r}.") from None


def _listed(one: ItemOutcome) -> dict[str, Any]:
    text = one.text or ""
    return {
        "item_id": one.item_id,
        "index": one.index,
        "label": one.label,
        "raw_label": one.raw_label,
        "predicted": one.predicted,
        "truncated": one.truncated,
        "source": one.source,
        "text": None if one.text is None else text[:_BEGINNING],
        "second_at": one.second_at,
        "more": max(0, len(text) - _BEGINNING),
    }


def one_item(asked: Asked) -> Answer:
    """One item: its words coloured or its heatmap, for every target, with the ledger."""
    db, run, name = asked.db, asked.run, asked.names["item"]
    document: dict[str, Any] = {"run": run, "item_id": name, "readable": asked.readable}
    if not asked.readable:
        return Answer({**document, "failure": None, "item": None, "explanations": []})
    found = browsing_items.item_record(db, run.id, name)
    if found is None:
        raise NotThereError(
            f"Run {run.id} has no item {name!r}, or has not come to it yet.", asked.run_page()
        )
    if isinstance(found, ItemFailure):
        return Answer({**document, "failure": found, "item": None, "explanations": []})
    return _explained(asked, document, found)


def _explained(asked: Asked, document: dict[str, Any], found: ItemRecord) -> Answer:
    facts, outcome, look = asked.facts, found.outcome, _look(asked)
    shape = None
    if facts.modality == "nodes":
        shape = shape_of_item(asked.db, asked.run.id, outcome, found.attributions)
    shown = gallery_item(outcome, "first", found.attributions, mentions=found.mentions, shape=shape)
    entries = list(zip(shown.explanations, found.attributions, strict=True))
    logits = outcome.logits
    named = facts.classes if len(facts.classes) == len(logits) else range(len(logits))
    return Answer(
        {
            **document,
            "failure": None,
            "item": {
                **_listed(outcome),
                "text": outcome.text,
                "more": 0,
                "logits": dict(zip(map(str, named), logits, strict=True)),
                "positions": outcome.positions,
                "meta": dict(outcome.meta),
                "mentions": [asdict(one) for one in found.mentions],
                "scores": [asdict(one) for one in found.scores],
            },
            "explanations": [_document(one, of) for one, of in entries],
            "neighbours": _neighbours(found.near),
        },
        {
            "shown": shown,
            "entries": entries,
            "text_of": lambda one: words_of(shown, one),
            "graph_of": lambda one: graph_of(shape, one, outcome.item_id, look) if shape else "",
            "pictures": pictures_of(shown, facts.root, look),
            "look": look,
            "chosen": {name: asked.word(name) for name in ("palette", "alpha")},
            "palettes": PALETTES,
            "alphas": ALPHAS,
        },
    )


def _neighbours(near: Neighbours) -> dict[str, Any]:
    return {
        "before": near.before,
        "after": near.after,
        "alike": [{**_listed(one.outcome), "entity": one.entity} for one in near.alike],
    }


def _look(asked: Asked) -> Look:
    """Raises BadQueryError for a palette or a share that does not exist."""
    palette, alpha = asked.word("palette") or Look().palette, asked.word("alpha")
    if palette not in PALETTES:
        raise BadQueryError(f"palette must be one of {', '.join(PALETTES)}.")
    if alpha and alpha not in map(str, ALPHAS):
        raise BadQueryError(f"alpha must be one of {', '.join(map(str, ALPHAS))}, in per cent.")
    return Look(palette, int(alpha) if alpha else Look().alpha)


def _document(one: Explanation, of: Attribution) -> dict[str, Any]:
    ledger = of.ledger
    return {
        "target": of.target,
        "rank": of.rank,
        "class_name": of.class_name,
        "method": of.method,
        "at": of.at,
        "unit": of.unit,
        "logit": of.logit,
        "words": [[word.start, word.end, word.relevance] for word in one.words],
        "grid": one.grid,
        "prefix_relevance": list(of.prefix_relevance),
        "ledger": ledger and {**asdict(ledger), "relative_gap": ledger.relative_gap},
        "notes": list(of.notes),
    }
