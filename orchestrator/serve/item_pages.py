"""Pages of items: those that are looked for, and one with all that explains it."""

from dataclasses import asdict, replace
from typing import Any

from markupsafe import Markup

from orchestrator.serve.asked import Answer, Asked, NotThereError
from orchestrator.serve.links import link
from transexplain.reports.coloured_text import marked_html
from transexplain.reports.sections.gallery_items import (
    Explanation,
    GalleryItem,
    Shown,
    gallery_item,
    show,
)
from transexplain.store import browsing_items
from transexplain.store.browsing_items import ItemRecord, ItemSearch
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome

_ITEMS = 50  #: on a page
_LOOKED_FOR = ("text", "predicted", "label", "group", "entity")
_BEGINNING = 240  #: characters of a text in a list
_PICTURES = 12  #: heatmaps on a page; the others are in the JSON


def items(asked: Asked) -> Answer:
    """Items by text, entity, label and prediction, in the order of the dataset."""
    db, run = asked.db, asked.run
    filters = {name: asked.word(name) for name in _LOOKED_FOR}
    document: dict[str, Any] = {"run": run, "filters": filters, "readable": asked.readable}
    if not asked.readable:
        return Answer({**document, "items": [], "next_row": None, "next": None})
    wanted = ItemSearch(**filters)
    start = asked.number("start")
    found = browsing_items.search(
        db, run.id, wanted, start=start, limit=_ITEMS, seconds=asked.time_left
    )
    following = found.next_row
    return Answer(
        {
            **document,
            "items": [_listed(one) for one in found.found],
            "next_row": following,
            "next": None
            if following is None
            else link("runs", run.id, "items", **filters, start=following),
        },
        {"start": start, "full": len(found.found) == _ITEMS, "classes": asked.facts.classes},
    )


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
    facts, outcome = asked.facts, found.outcome
    shown = gallery_item(outcome, "first", found.attributions, mentions=found.mentions)
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
        },
        {
            "shown": shown,
            "entries": entries,
            "text_of": lambda one: _coloured(shown, one),
            "pictures": _drawn(shown, facts.root),
        },
    )


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


def _coloured(item: GalleryItem, one: Explanation) -> Markup:
    """On the explanation's own scale: alone on its page it is compared with no other item."""
    return marked_html(
        item.text or "",
        one.words,
        scale=0.0,
        unread_from=item.unread_from,
        mentions=item.mentions,
    )


def _drawn(item: GalleryItem, root: str) -> Shown | None:
    if not any(one.grid for one in item.explanations):
        return None
    few = replace(item, explanations=item.explanations[:_PICTURES])
    scale = max(one.largest for one in few.explanations)
    return show(few, root, scale)
