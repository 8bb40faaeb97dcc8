"""Pages of items: those that are looked for, and one with all that explains it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from orchestrator.serve.drawn_pages import (
    ALPHAS,
    PALETTES,
    Look,
    attribution_document,
    graph_of,
    pictures_of,
    shape_of_item,
    words_of,
)
from orchestrator.serve.links import link
from orchestrator.serve.page_request import BadQueryError, NotThereError, PageContent, PageRequest
from transexplain.reports.sections.gallery_items import gallery_item
from transexplain.store import browsing_items
from transexplain.store.browsing_items import ItemRecord
from transexplain.store.ranked_items import KEPT, ORDERS, ItemSearch
from transexplain.types.items import ItemFailure, ItemOutcome

_ITEMS = 50  #: on a page
_LOOKED_FOR = ("text", "word", "predicted", "label", "group", "entity")
#: of an item in a list, besides the beginning of its text
_LISTED = (
    *("item_id", "index", "label", "raw_label", "predicted", "truncated", "source", "second_at"),
)
_BEGINNING = 240  #: characters of a text in a list


def items(request: PageRequest) -> PageContent:
    """Items by text, word, entity, label and prediction: as in the data, or ranked by a value."""
    run = request.run
    filters = {name: request.word(name) for name in _LOOKED_FOR}
    order = request.word("sort")
    if order and order not in ORDERS:
        raise BadQueryError(f"sort must be one of {', '.join(ORDERS)}, or nothing.")
    if order and ORDERS[order].needs_word and not filters["word"]:
        raise BadQueryError(f"sort={order} needs a word.")
    document: dict[str, Any] = {
        "run": run,
        "filters": filters,
        "sort": order,
        "readable": request.readable,
        "items": [],
        "next_row": None,
        "next": None,
        "ranked": None,
    }
    drawing = {"start": request.number("start"), "orders": ORDERS, "classes": request.facts.classes}
    if not request.readable:
        return PageContent(document, drawing)
    page = _ranked(request, filters, order) if order else _in_order(request, filters)
    full = len(page["items"]) == _ITEMS
    here = link("runs", run.id, "items", **filters, sort=order, after=request.word("after"))
    return PageContent({**document, **page}, {**drawing, "full": full, "address": here})


def _in_order(request: PageRequest, filters: Mapping[str, str]) -> dict[str, Any]:
    db, run, start = request.db, request.run, request.number("start")
    search = ItemSearch(**filters)
    page = browsing_items.search(
        db, run.id, search, start=start, limit=_ITEMS, seconds=request.time_left
    )
    following = page.next_row
    return {
        "items": [_listed(outcome) for outcome in page.found],
        "next_row": following,
        "next": None
        if following is None
        else link("runs", run.id, "items", **filters, start=following),
    }


def _ranked(request: PageRequest, filters: Mapping[str, str], order: str) -> dict[str, Any]:
    run, after = request.run, _cursor(request)
    ranking = request.counts.ranking(
        request.db, run, ItemSearch(**filters), order, _listed, request.time_left
    )
    known = len(ranking.best)
    shown = ranking.page(after, _ITEMS + 1)
    following = None
    if len(shown) > _ITEMS:
        key, row = shown[_ITEMS - 1].cursor
        following = link("runs", run.id, "items", **filters, sort=order, after=f"{key!r},{row}")
    return {
        "items": [
            {**entry.shown, "value": 0.0 - ORDERS[order].sign * entry.key}
            for entry in shown[:_ITEMS]
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


def _cursor(request: PageRequest) -> tuple[float, int] | None:
    cursor = request.word("after")
    if not cursor:
        return None
    key, _, row = cursor.partition(",")
    try:
        return float(key), int(row)
    except ValueError:
        raise BadQueryError(f"after must be a value and a row, not {cursor!r}.") from None


def _listed(outcome: ItemOutcome) -> dict[str, Any]:
    text = outcome.text or ""
    return {
        **{name: getattr(outcome, name) for name in _LISTED},
        "text": None if outcome.text is None else text[:_BEGINNING],
        "more": max(0, len(text) - _BEGINNING),
    }


def one_item(request: PageRequest) -> PageContent:
    """One item: its words coloured or its heatmap, for every target, with the ledger."""
    db, run, name = request.db, request.run, request.names["item"]
    document: dict[str, Any] = {"run": run, "item_id": name, "readable": request.readable}
    if not request.readable:
        return PageContent({**document, "failure": None, "item": None, "explanations": []})
    record = browsing_items.item_record(db, run.id, name)
    if record is None:
        raise NotThereError(
            f"Run {run.id} has no item {name!r}, or has not come to it yet.", request.run_page()
        )
    if isinstance(record, ItemFailure):
        return PageContent({**document, "failure": record, "item": None, "explanations": []})
    return _explained(request, document, record)


def _explained(request: PageRequest, document: dict[str, Any], record: ItemRecord) -> PageContent:
    facts, outcome, look = request.facts, record.outcome, _look(request)
    shape = None
    if facts.modality == "nodes":
        shape = shape_of_item(request.db, request.run.id, outcome, record.attributions)
    shown = gallery_item(
        outcome, "first", record.attributions, mentions=record.mentions, shape=shape
    )
    entries = list(zip(shown.explanations, record.attributions, strict=True))
    logits = outcome.logits
    named = facts.classes if len(facts.classes) == len(logits) else range(len(logits))
    return PageContent(
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
                "mentions": [asdict(mention) for mention in record.mentions],
                "scores": [asdict(score) for score in record.scores],
            },
            "explanations": [
                {
                    **attribution_document(of),
                    "words": [[word.start, word.end, word.relevance] for word in explanation.words],
                    "grid": explanation.grid,
                }
                for explanation, of in entries
            ],
            "neighbours": {
                "before": record.near.before,
                "after": record.near.after,
                "alike": [
                    {**_listed(neighbour.outcome), "entity": neighbour.entity}
                    for neighbour in record.near.alike
                ],
            },
        },
        {
            "shown": shown,
            "entries": entries,
            "text_of": lambda explanation: words_of(shown, explanation),
            "graph_of": lambda explanation: (
                graph_of(shape, explanation, outcome.item_id, look) if shape else ""
            ),
            "pictures": pictures_of(shown, facts.root, look),
            "look": look,
            "chosen": {name: request.word(name) for name in ("palette", "alpha")},
            "palettes": PALETTES,
            "alphas": ALPHAS,
        },
    )


def _look(request: PageRequest) -> Look:
    """Raises BadQueryError for a palette or a share that does not exist."""
    palette, alpha = request.word("palette") or Look().palette, request.word("alpha")
    if palette not in PALETTES:
        raise BadQueryError(f"palette must be one of {', '.join(PALETTES)}.")
    if alpha and alpha not in map(str, ALPHAS):
        raise BadQueryError(f"alpha must be one of {', '.join(map(str, ALPHAS))}, in per cent.")
    return Look(palette, int(alpha) if alpha else Look().alpha)
