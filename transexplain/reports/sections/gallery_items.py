"""Examples: single items with their explanations."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from markupsafe import Markup
from PIL import Image

from transexplain.data.picture_places import open_picture
from transexplain.errors import ItemError
from transexplain.files.paths import any_path
from transexplain.reports import GRAPHS
from transexplain.reports.coloured_text import MentionMark, marked_html
from transexplain.reports.heatmap import Grid, data_uri, grid_of, muted, overlay, resized, tile
from transexplain.reports.redaction import (
    Redactor,
    empty,
    published,
    within,
)
from transexplain.reports.report_section import Section
from transexplain.store import ranked_items, readers, runs
from transexplain.store.database import Database
from transexplain.types.graphs import TEXT, GraphShape, nodes_of
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, Mention, PatchGrid
from transexplain.types.relevance_sums import bin_of, outer_edge
from transexplain.types.words import UNKNOWN, Span, largest, size_of, spans_of

Reason = Literal["wrong", "strong", "first"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """One attribution of a gallery item: words of a text, a picture's grid, or a graph's nodes."""

    target: str
    class_name: str
    logit: float
    largest: float  #: largest |relevance| of a word or patch
    words: tuple[Span, ...]
    grid: Grid | None
    box: tuple[float, float, float, float] | None = None  #: part of the picture under the grid
    nodes: tuple[float, ...] = ()  #: relevance of the nodes of a graph that is drawn


@dataclass(frozen=True, kw_only=True, slots=True)
class GalleryItem:
    """One item to look at."""

    item_id: str
    reason: Reason  #: wrong with the widest margin | strongest relevance | first of the dataset
    label: str | None
    predicted: str
    truncated: bool
    text: str | None  #: beginning, where it is long
    hidden: int  #: characters after `text`
    unread_from: int | None  #: character from which the model read nothing
    source: str | None  #: picture, relative to `Audited.root`
    explanations: tuple[Explanation, ...]
    more: int  #: explanations of this item that are not shown
    groups: tuple[str, ...] = ()  #: mentioned in it, by name; empty, too, where no audit looked
    mentions: tuple[MentionMark, ...] = ()  #: where in `text`, in its order; they do not overlap
    shape: GraphShape | None = None  #: of a graph that is drawn; its words say the same
    about: str = ""  #: the text of a graph, a molecule's SMILES
    second_at: int | None = None  #: see `pairs`


@dataclass(frozen=True, kw_only=True, slots=True)
class Gallery:
    """Examples, and the colour scale that all of them share."""

    scale: float  #: 90th percentile over all attributions of the largest |relevance|
    items: tuple[GalleryItem, ...]


_SMALLEST, _LARGEST = 160, 256  # pixels of the longer side
_ALPHA = 0.15


def show(item: GalleryItem, root: str, scale: float) -> dict[str, Any]:
    """Open the picture of `item` and draw its explanations, each as a `data:` address.

    Returns the `original`, or why it is `missing` and heatmaps stand alone; and as `drawn` of each
    explanation that on the `shared` scale of all examples and that on its `own`.
    """
    original, missing, ground = "", "", None
    try:
        image = resized(opened(item.source, root), smallest=_SMALLEST, largest=_LARGEST)
        original, ground = data_uri(image), muted(image)
    except ItemError as error:
        missing = str(error)
    drawn = [
        {"shared": _heatmap(ground, explanation, scale), "own": _heatmap(ground, explanation, None)}
        for explanation in item.explanations
    ]
    return {"original": original, "missing": missing, "drawn": drawn}


def opened(source: str | None, root: str) -> Image.Image:
    """The picture of an item, relative to the folder `root`; raises ItemError without one."""
    if source is None:
        raise ItemError("missing-image", "no file of this picture was recorded")
    if not root:
        raise ItemError("missing-image", "the dataset's folder was not recorded")
    return open_picture(any_path(root), source)


def _heatmap(ground: Image.Image | None, explanation: Explanation, scale: float | None) -> str:
    grid, box = np.asarray(explanation.grid or ((0.0,),)), explanation.box or (0.0, 0.0, 1.0, 1.0)
    if ground is None:
        return data_uri(tile(grid, scale=scale))
    return data_uri(overlay(ground, grid, alpha=_ALPHA, scale=scale, box=box))


SHARE = 0.9  #: of all explanations that the gallery's shared colour scale does not saturate


def scale_of(db: Database, run_id: str, count: int) -> float:
    """The size that `SHARE` of a run's `count` explanations do not exceed, to 1 %."""
    below = max(1, math.ceil(SHARE * count - 1e-9))
    ends = ranked_items.sizes_at(db, run_id, count - below + 1)
    if ends is None or not (place := bin_of(ends[0])):
        return 0.0
    return min(ends[1], outer_edge(place))  # the largest bounds it


def choose(db: Database, run_id: str, size: int) -> dict[str, Reason]:
    """Item id -> why it is shown: a third each wrong, strong and first; gaps are filled.

    The same run always gives the same choice.
    """
    lists: dict[Reason, list[str]] = {
        "wrong": ranked_items.wrong(db, run_id, size),
        "strong": ranked_items.strongest(db, run_id, size),
        "first": ranked_items.first(db, run_id, size),
    }
    chosen: dict[str, Reason] = {}
    for places in (-(-size // 3), size):  # a third each, then whatever is left
        for reason, ids in lists.items():
            fresh = [key for key in ids if key not in chosen]
            taken = sum(1 for other in chosen.values() if other == reason)
            for item_id in fresh[: max(0, min(places - taken, size - len(chosen)))]:
                chosen[item_id] = reason
    return chosen


EXPLANATIONS = 3  #: shown of one item
CHARACTERS = 4_000  #: shown of one text


def collect(db: Database, run_id: str, chosen: Mapping[str, Reason], scale: float) -> Gallery:
    """Read the chosen items and what explains them, which share a colour scale up to `scale`."""
    plan = runs.get(db, run_id).plan
    explained: dict[str, list[Attribution]] = {}
    more: dict[str, int] = {}
    names: dict[str, list[str]] = {}  # of the nodes of graphs
    for attribution in readers.iter_attributions(db, run_id, item_ids=list(chosen)):
        kept = explained.setdefault(attribution.item_id, [])
        if len(kept) == EXPLANATIONS:
            more[attribution.item_id] = more.get(attribution.item_id, 0) + 1
            continue
        kept.append(attribution)
        if plan.dataset.modality == "nodes":
            names[attribution.item_id] = nodes_of(attribution)[0]
    outcomes, mentions = outcomes_of(db, run_id, chosen), _mentions(db, run_id, chosen)
    shown = sorted(chosen.items(), key=lambda entry: list(_REASONS).index(entry[1]))
    shapes = GRAPHS.load("stored_shapes")(plan, outcomes, names) if names else {}
    return Gallery(
        scale=scale,
        items=tuple(
            gallery_item(
                outcomes[item_id],
                reason,
                explained.get(item_id, ()),
                more=more.get(item_id, 0),
                mentions=mentions.get(item_id, ()),
                shape=shapes.get(item_id),
            )
            for item_id, reason in shown
            if item_id in outcomes
        ),
    )


def outcomes_of(db: Database, run_id: str, item_ids: Iterable[str]) -> dict[str, ItemOutcome]:
    """The outcomes of these items; those without a result have no entry."""
    items = readers.iter_items(db, run_id, item_ids=item_ids)
    return {item.item_id: item for item in items if not isinstance(item, ItemFailure)}


def _mentions(db: Database, run_id: str, chosen: Mapping[str, Reason]) -> dict[str, list[Mention]]:
    mentions: dict[str, list[Mention]] = {}
    for mention in readers.iter_mentions(db, run_id, item_ids=list(chosen)):
        mentions.setdefault(mention.item_id, []).append(mention)
    return mentions


def _marks(mentions: Iterable[Mention], text: str) -> Iterator[MentionMark]:
    """Each entity once, whatever was explained; a group of whole items has no place in a text."""
    by_place: dict[tuple[int, int], list[Mention]] = {}
    for row in mentions:
        if 0 <= row.start < row.end <= len(text) and row.end - row.start < len(text):
            by_place.setdefault((row.start, row.end), []).append(row)
    reached = 0
    for start, end in sorted(by_place, key=lambda place: (place[0], -place[1])):
        if start < reached:
            continue
        reached = end
        here = by_place[start, end]
        groups = tuple(sorted({mention.group for mention in here}))
        yield MentionMark(start=start, end=end, entity=here[0].entity, groups=groups)


def _explanation(attribution: Attribution, *, drawn: bool) -> tuple[str, Explanation, int]:
    """The text, the explanation, and the character after the last that the model read.

    `drawn`: it is of a graph whose nodes are drawn.
    """
    text: str = ""
    words: tuple[Span, ...] = ()
    grid: Grid | None = None
    box = None
    if isinstance(attribution.features, PatchGrid):
        grid, box = grid_of(attribution.relevance), attribution.features.box
    else:
        text, words = spans_of(attribution)
    nodes = tuple(nodes_of(attribution)[1].tolist()) if drawn else ()
    shown = tuple(word for word in words if word.end <= CHARACTERS)
    return (
        text,
        Explanation(
            target=attribution.target,
            class_name=attribution.class_name,
            logit=attribution.logit,
            largest=size_of(attribution) if grid else largest(words),
            words=shown,
            grid=grid,
            box=box,
            nodes=nodes,
        ),
        max((word.end for word in words), default=0),
    )


def gallery_item(
    outcome: ItemOutcome,
    reason: Reason,
    attributions: Sequence[Attribution],
    *,
    more: int = 0,
    mentions: Sequence[Mention] = (),
    shape: GraphShape | None = None,
) -> GalleryItem:
    """Return what a page shows of an item and of these of its attributions; `more` are left out."""
    explained = [_explanation(attribution, drawn=shape is not None) for attribution in attributions]
    explanations = tuple(explanation for _, explanation, _ in explained)
    text = explained[0][0] if explained else ""
    is_text = any(explanation.grid is None for explanation in explanations)
    # without the text that was stored, no place in it is known
    placed = any(attribution.text is not None for attribution in attributions)
    unread_from = max((end for *_, end in explained), default=0)
    return GalleryItem(
        item_id=outcome.item_id,
        reason=reason,
        label=outcome.label,
        predicted=outcome.predicted,
        truncated=outcome.truncated,
        text=text[:CHARACTERS] if is_text else None,
        hidden=max(0, len(text) - CHARACTERS) if is_text else 0,
        unread_from=unread_from if is_text and outcome.truncated else None,
        source=outcome.source,
        explanations=explanations,
        more=more,
        groups=tuple(sorted({mention.group for mention in mentions})),
        mentions=tuple(_marks(mentions, text[:CHARACTERS])) if placed else (),
        shape=shape,
        about=str(outcome.meta.get(TEXT, "")) if shape is not None else "",
        second_at=outcome.second_at if placed else None,
    )


_REASONS: dict[Reason, str] = {
    "wrong": "Wrong, by the widest margin",
    "strong": "Strongest relevance",
    "first": "First of the dataset",
}


def _examples(
    value: tuple[GalleryItem, ...], _gallery: Gallery, redactor: Redactor
) -> tuple[GalleryItem, ...]:
    """Numbered instead of called by their ids."""
    items: tuple[GalleryItem, ...] = redactor.within(value)
    return tuple(
        replace(item, item_id=f"item {place}") for place, item in enumerate(items, start=1)
    )


def _places(item: GalleryItem) -> dict[int, int]:
    """Return where each word of a text begins -> its number."""
    starts = sorted({word.start for each in item.explanations for word in each.words})
    return {start: number for number, start in enumerate(starts)}


def _over_blocks(
    value: tuple[Explanation, ...], item: GalleryItem, redactor: Redactor
) -> tuple[Explanation, ...]:
    places = _places(item)
    explanations: tuple[Explanation, ...] = redactor.within(value)
    return tuple(
        replace(
            explanation,
            words=tuple(
                replace(w, start=2 * places[w.start], end=2 * places[w.start] + 1)
                for w in explanation.words
            ),
        )
        for explanation in explanations
    )


def _text_of(item: GalleryItem, explanation: Explanation, scale: float) -> Markup:
    return marked_html(
        item.text or "",
        explanation.words,
        scale=scale,
        unread_from=item.unread_from,
        mentions=item.mentions,
        second_at=item.second_at,
    )


def _graph_of(item: GalleryItem, explanation: Explanation, scale: float) -> Markup:
    assert item.shape is not None
    label = f"relevance of the nodes of {item.item_id} for {explanation.class_name}"
    draw = GRAPHS.load("node_link")
    drawn: Markup = draw(item.shape, explanation.nodes, label=label, scale=scale, own=True)
    return drawn


def _drawing(report: Any) -> Mapping[str, Any]:
    gallery, root = report.gallery, report.audited.root
    parts = (
        (title, [item for item in gallery.items if item.reason == reason])
        for reason, title in _REASONS.items()
    )
    return {
        "gallery": [(title, items) for title, items in parts if items],
        "text_of": lambda item, explanation: _text_of(item, explanation, gallery.scale),
        "graph_of": lambda item, explanation: _graph_of(item, explanation, gallery.scale),
        "picture_of": lambda item: (
            show(item, root, gallery.scale) if any(e.grid for e in item.explanations) else None
        ),
    }


SECTION = Section(
    template="examples.html.j2",
    links=(("examples", "Examples"),),
    redaction={
        Gallery: published("scale", items=_examples),
        GalleryItem: published(
            "reason label predicted truncated more",
            item_id=empty(""),
            # a block for each word, because even the lengths of words would reveal something
            text=lambda value, item, _redactor: (
                None if value is None else " ".join(UNKNOWN for _ in _places(item))
            ),
            hidden=empty(0),
            unread_from=empty(None),
            second_at=empty(None),
            source=empty(None),
            shape=empty(None),
            about=empty(""),
            groups=empty(()),
            mentions=empty(()),
            explanations=_over_blocks,
        ),
        Explanation: published(
            "target class_name logit largest grid box",
            inside="words",
            nodes=empty(()),
        ),
        # `_over_blocks` puts them over blocks
        Span: published("start end relevance"),
        # `shape` is emptied
        GraphShape: published("names places edges"),
        # `mentions` is emptied
        MentionMark: published("start end entity groups"),
    },
    of_summary={"gallery": within},
    present=lambda report: bool(report.gallery.items),
    drawing=_drawing,
)
