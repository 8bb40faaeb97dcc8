"""Draws an explained item as its reader wants it: coloured words, heatmaps, graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from PIL import Image

from transexplain.errors import ItemError
from transexplain.reports.coloured_text import marked_html
from transexplain.reports.graph_drawing import GraphShape, node_link, nodes_of, stored_shapes
from transexplain.reports.heatmap import data_uri, muted, overlay, resized, tile
from transexplain.reports.sections.gallery_items import Explanation, GalleryItem, opened
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.types.items import Attribution, ItemOutcome, PatchGrid

#: name -> colours of what raises and of what lowers a class
PALETTES: Mapping[str, tuple[str, str]] = {
    "blue-red": ("red", "blue"),
    "green-red": ("green", "red"),
}
ALPHAS = (0, 15, 30, 50, 70, 85, 100)  #: per cent of the picture itself
PICTURES = 12  #: heatmaps on a page; the others are in the JSON
_SMALLEST, _LARGEST = 160, 384  # pixels of the longer side


class Look(NamedTuple):
    """How relevance is drawn."""

    palette: str = "blue-red"  #: one of `PALETTES`
    alpha: int = 15  #: one of `ALPHAS`

    @property
    def colours(self) -> tuple[str, str]:
        """Of what raises, and of what lowers."""
        return PALETTES[self.palette]


@dataclass(frozen=True, slots=True)
class Pictures:
    """A picture and the heatmaps over it, each a `data:` address."""

    original: str | None
    missing: str  #: why there is no original; heatmaps then stand alone
    drawn: tuple[str, ...]  #: of the first `PICTURES` explanations, each on its own scale


def pictures_of(item: GalleryItem, root: str, look: Look) -> Pictures | None:
    """None: the item is no picture. `root` is the folder that its file lies in."""
    if not any(one.grid for one in item.explanations):
        return None
    few = item.explanations[:PICTURES]
    try:
        image = opened(item.source, root)
    except ItemError as error:
        return Pictures(None, str(error), tuple(_alone(one, look) for one in few))
    image = resized(image, smallest=_SMALLEST, largest=_LARGEST)
    ground = muted(image)
    return Pictures(data_uri(image), "", tuple(_over(ground, one, look) for one in few))


def _over(ground: Image.Image, one: Explanation, look: Look) -> str:
    grid, box = np.asarray(one.grid or ((0.0,),)), one.box or (0.0, 0.0, 1.0, 1.0)
    return data_uri(overlay(ground, grid, alpha=look.alpha / 100, box=box, palette=look.palette))


def _alone(one: Explanation, look: Look) -> str:
    return data_uri(tile(np.asarray(one.grid or ((0.0,),)), palette=look.palette))


def words_of(item: GalleryItem, one: Explanation) -> Markup:
    """On the explanation's own scale: alone on its page it is compared with no other item."""
    return marked_html(
        item.text or "",
        one.words,
        scale=0.0,
        unread_from=item.unread_from,
        mentions=item.mentions,
        second_at=item.second_at,
    )


def shape_of_item(
    db: Database, run_id: str, outcome: ItemOutcome, attributions: Sequence[Attribution]
) -> GraphShape | None:
    """The shape of a graph; None: the item is none, or it cannot be drawn."""
    first = next(iter(attributions), None)
    if first is None or first.text is not None or isinstance(first.features, PatchGrid):
        return None
    names = {outcome.item_id: nodes_of(first)[0]}
    plan = runs.get(db, run_id).plan
    return stored_shapes(plan, {outcome.item_id: outcome}, names).get(outcome.item_id)


def graph_of(shape: GraphShape, one: Explanation, item_id: str, look: Look) -> Markup:
    """The nodes in their colours, on the explanation's own scale."""
    label = f"relevance of the nodes of {item_id} for {one.class_name}"
    return node_link(shape, one.nodes, label=label, palette=look.palette)
