"""Pages below a run's findings: a group, an entity of it, a class."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
from markupsafe import Markup

from orchestrator.serve.drawn_pages import line_drawing
from orchestrator.serve.gathered_totals import GatheredTotals
from orchestrator.serve.links import link
from orchestrator.serve.page_request import NotThereError, PageContent, PageRequest
from orchestrator.serve.run_pages import axis_of
from transexplain.reports.heatmap import data_uri, tile
from transexplain.store import browsing, browsing_items
from transexplain.types.items import ItemOutcome, Mention

_ROWS = 200
_ENTITIES = 100
_DRIVERS = 5  #: entities that are named first
#: with their mentions, on a page: most lie in parts of their own, which are read one by one
_ITEMS = 10
_WIDEST = 10  #: texts with swapped names, on a page
_CONTEXT = 90  #: characters on each side of a mention
_TABLES = (
    *("group_verdict", "group_measure", "counterfactual_result", "outcome_result"),
    "group_result",
)
_LISTS = ("raising_by_total", "lowering_by_total", "raising_by_mean", "lowering_by_mean")


def one_group(request: PageRequest) -> PageContent:
    """A group's verdict with its measures, swaps, rates and relevance; its strata and entities."""
    db, run, group = request.db, request.run, request.names["group"]
    rows = {
        name: browsing.result_rows(db, name, run.id, limit=_ROWS, group_name=group)
        for name in _TABLES
    }
    entities = browsing.entities_of(db, run.id, group, _ENTITIES)
    if not entities and not any(rows.values()):
        raise NotThereError(
            f"Run {run.id} has found nothing about a group {group!r}.", request.run_page()
        )
    relevance = rows["group_result"]
    return PageContent(
        {
            "run": run,
            "group": group,
            "verdict": next(iter(rows["group_verdict"]), None),
            "measures": {
                question: [row for row in rows["group_measure"] if row["question"] == question]
                for question in ("mention", "outcome")
            },
            "counterfactuals": rows["counterfactual_result"],
            "outcomes": rows["outcome_result"],
            "relevance": [row for row in relevance if not row["split_by"]],
            "strata": [row for row in relevance if row["split_by"]],
            "drivers": browsing.entities_of(db, run.id, group, _DRIVERS, driving=True),
            "entities": entities,
        },
        {"differences": axis_of(relevance, "difference")},
    )


def one_entity(request: PageRequest) -> PageContent:
    """The mentions of an entity in their context, a page of items at a time."""
    db, run = request.db, request.run
    group, entity = request.names["group"], request.names["entity"]
    totals = browsing.result_rows(
        db, "entity_result", run.id, limit=_ROWS, group_name=group, entity=entity
    )
    document: dict[str, Any] = {
        "run": run,
        "group": group,
        "entity": entity,
        "classes": totals,
        "readable": request.readable,
        "swaps": _swaps(request, group, entity) if request.readable else None,
    }
    unknown = NotThereError(
        f"Run {run.id} has no mention of {entity!r} of the group {group!r}.", request.run_page()
    )
    if not request.readable:
        if not totals:
            raise unknown
        return PageContent({**document, "items": [], "next_row": None, "next": None})
    start = request.number("start")
    look = partial(browsing_items.mentions_of, db, run.id, group, entity)
    scanned = look(start=start, limit=_ITEMS, seconds=request.time_left)
    known = totals or scanned.found or scanned.next_row
    if not known and start:  # the last page may be empty
        first = look(start=0, limit=1, seconds=request.time_left)
        known = first.found or first.next_row
    if not known:
        raise unknown
    here = ("runs", run.id, "groups", group, "entities", entity)
    return PageContent(
        {
            **document,
            "items": [_in_context(outcome, mentions) for outcome, mentions in scanned.found],
            "next_row": scanned.next_row,
            "next": None if scanned.next_row is None else link(*here, start=scanned.next_row),
        }
    )


def _swaps(request: PageRequest, group: str, entity: str) -> dict[str, Any] | None:
    """The effect of a name on predictions in place of other names; None: none were swapped."""
    db, run = request.db, request.run
    rows = browsing.result_rows(
        db, "counterfactual_result", run.id, limit=_ROWS, group_name=group, kind="swap"
    )
    if not rows:
        return None
    predictions = list(dict.fromkeys(row["prediction"] for row in rows))
    totals = request.counts.totals(db, run, request.time_left / 2)
    texts = totals.swaps(group, entity)
    return {
        "done": totals.done,
        "cut": totals.cut,
        "texts": len(texts),
        "predictions": [
            {
                "prediction": prediction,
                "effect": fmean(text.changes[place] for text in texts),
                "changed": sum(text.changed for text in texts) / sum(text.others for text in texts),
            }
            for place, prediction in enumerate(predictions)
            if texts and all(place < len(text.changes) for text in texts)
        ],
        "widest": [
            {**text._asdict(), "changes": dict(zip(predictions, text.changes, strict=False))}
            for text in texts[:_WIDEST]
        ],
    }


def _in_context(outcome: ItemOutcome, mentions: tuple[Mention, ...]) -> dict[str, Any]:
    """An item and the places of its mentions, each with the relevance for every class."""
    places: dict[tuple[int, int, str], list[Mention]] = {}
    for mention in mentions:
        places.setdefault((mention.start, mention.end, mention.surface), []).append(mention)
    return {
        "item_id": outcome.item_id,
        "index": outcome.index,
        "label": outcome.label,
        "predicted": outcome.predicted,
        "places": [
            {
                "surface": surface,
                **_around(outcome.text or "", start, end),
                "relevance": [
                    {
                        "target": mention.target,
                        "class_name": mention.class_name,
                        "value": mention.relevance,
                    }
                    for mention in some
                ],
            }
            for (start, end, surface), some in places.items()
        ],
    }


def _around(text: str, start: int, end: int) -> dict[str, Any]:
    """The text on both sides of a mention; a group of whole items has none."""
    inside = 0 <= start < end <= len(text)
    begin, stop = max(0, start - _CONTEXT), end + _CONTEXT
    return {
        "before": text[begin:start] if inside else "",
        "after": text[end:stop] if inside else "",
        "cut_before": inside and begin > 0,
        "cut_after": inside and stop < len(text),
    }


def one_class(request: PageRequest) -> PageContent:
    """The words, places in texts and pictures, and confusions of a class."""
    db, run, name = request.db, request.run, request.class_name
    words = browsing.result_rows(db, "class_word", run.id, limit=500, class_name=name)
    totals, counts = None, None
    if request.readable:
        totals = request.counts.totals(db, run, request.time_left)
        counts = totals.predictions
    positions = [] if totals is None else _positions(totals, words, request.facts.targets, name)
    heatmaps = [] if totals is None else _heatmaps(totals, name)
    return PageContent(
        {
            "run": run,
            "class_name": name,
            "words": [
                _list_of(words, order, target) for target in _targets(words) for order in _LISTS
            ],
            "readable": request.readable,
            "labelled": _confused(counts, 0, name),
            "predicted": _confused(counts, 1, name),
            "positions": positions,
            "heatmaps": heatmaps,
            "counted_shards": None if totals is None else totals.shards,
            "counted_all": totals is None or totals.done,
        },
        {
            "chart_of": _chart_of_positions,
            "map_of": lambda heatmap: data_uri(tile(np.asarray(heatmap["grid"]), width=208)),
        },
    )


def _positions(
    totals: GatheredTotals, words: list[dict[str, Any]], targets: Sequence[str], name: str
) -> list[dict[str, Any]]:
    """Mean relevance of a position in each of the equal stretches of the texts, by target."""
    every_target = dict.fromkeys([*_targets(words), *targets])
    kept = []
    for target in every_target:
        rows = [
            {
                "mean": part.relevance / part.positions if part.positions else None,
                "mean_size": part.magnitude / part.positions if part.positions else None,
                "positions": part.positions,
                "texts": part.texts,
            }
            for part in totals.positions(target, name)
        ]
        if rows:
            kept.append({"target": target, "parts": rows})
    return kept


def _chart_of_positions(positions: Mapping[str, Any], name: str) -> Markup:
    count = len(positions["parts"])
    points = [
        (f"{100 * (n + 0.5) / count:.0f} % of the text", part["mean"], None, None)
        for n, part in enumerate(positions["parts"])
    ]
    label = f"mean relevance for {name} from the beginning of a text to its end"
    return line_drawing(points, label=label)


def _heatmaps(totals: GatheredTotals, name: str) -> list[dict[str, Any]]:
    """The mean heatmap of the pictures, by target and size."""
    return [
        {
            "target": heatmap.target,
            "pictures": heatmap.count,
            "grid": heatmap.relevance.tolist(),
        }
        for heatmap in totals.heatmaps(name)
    ]


def _targets(words: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["target"] for row in words))


def _list_of(words: list[dict[str, Any]], name: str, target: str) -> dict[str, Any]:
    rows = [row for row in words if row[name] is not None and row["target"] == target]
    return {"list": name, "target": target, "words": sorted(rows, key=lambda row: row[name])}


def _confused(
    counts: Counter[tuple[str, str]] | None, side: int, name: str
) -> list[dict[str, Any]] | None:
    """The counts of items with this label (side 0) or prediction (1), by the other of the two."""
    if counts is None:
        return None
    pairs = [(pair, count) for pair, count in counts.most_common() if pair[side] == name]
    return [
        {"label": label, "predicted": predicted, "items": count}
        for (label, predicted), count in pairs
    ]
