"""Renders single attributions: pages with coloured words, heatmaps over pictures, and graphs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from transexplain.data.image_files import load_image
from transexplain.errors import ConfigurationError, WrongKindError
from transexplain.registry import load
from transexplain.reports import GRAPHS, heatmap
from transexplain.reports.attribution_html import page as html
from transexplain.reports.attribution_html import pair_html as pair
from transexplain.reports.coloured_text import token_ansi as ansi
from transexplain.reports.methods_compared import comparison_page as comparison
from transexplain.types.graphs import nodes_of
from transexplain.types.items import Attribution, PatchGrid

_MOLECULES = "transexplain.extras.graphs.molecules:molecule_svg"

__all__ = ["ansi", "comparison", "graph", "html", "molecule", "overlay", "pair", "segments"]


def overlay(
    attribution: Attribution,
    image: Any = None,
    *,
    size: int | None = heatmap.READABLE,
    **options: Any,
) -> Image.Image:
    """`image`, the picture that was explained, under its relevance.

    Args:
        attribution: of a picture; its relevance (rows, cols) lies over the part of the picture
            that the model saw.
        image: PIL image, array (H, W, 3) or path, of any size; None: the picture that the
            attribution knows, as those of `explain` do.
        size: pixels that the longer side has at least, small pictures are enlarged; None: as
            large as `image`.
        options: `alpha` (share of the picture itself; 1: the plain picture), `scale`, `palette` and
            `solid` of `reports.heatmap.overlay`.

    Raises TypeError for an attribution of a text, and for what is none; ConfigurationError where no
    picture is known.
    """
    WrongKindError.check("overlay()", attribution, Attribution, "one attribution")
    if not isinstance(attribution.features, PatchGrid):
        raise WrongKindError("overlay() is for pictures; this attribution is of a text")
    picture = attribution.picture if image is None else image
    if picture is None:
        raise ConfigurationError(
            "this attribution does not know its picture, as those of streams and of stored runs do "
            "not: give it, overlay(attribution, picture)"
        )
    if isinstance(picture, str | Path):
        picture = load_image(Path(picture))
    shown = picture if size is None else heatmap.enlarged(picture, size)
    return heatmap.overlay(shown, attribution.relevance, box=attribution.features.box, **options)


def segments(
    attribution: Attribution, labels: NDArray[Any], picture: Any = None, **options: Any
) -> Image.Image:
    """The relevance of nodes that are parts of a picture, each part in one colour.

    Args:
        attribution: of a graph, T nodes; virtual nodes are left out.
        labels: (rows, cols) the node, 0 to T - 1, that each place of the picture belongs to;
            -1: to none.
        picture: PIL image or array (H, W[, 3]) to lie below; None: white.
        options: `alpha`, `scale` and `palette` of `reports.heatmap.segments`.

    Raises TypeError for an attribution of a picture.
    """
    if isinstance(attribution.features, PatchGrid):
        raise WrongKindError(
            "segments() is for graphs; overlay() draws pictures on a grid of patches"
        )
    nodes = [not token.special for token in attribution.features]
    relevance = attribution.relevance[np.asarray(nodes)]
    return heatmap.segments(relevance, labels, picture=picture, **options)


def graph(
    attribution: Attribution,
    graph: Mapping[str, Any] | None = None,
    *,
    scale: float | None = None,
    palette: str = "blue-red",
) -> str:
    """The graph that was explained as an SVG element: nodes coloured by relevance, and links.

    It shows on light and dark ground, in a page as it is or in an .svg file of its own. Virtual
    nodes are left out.

    Args:
        attribution: of a graph, T nodes.
        graph: the item that was explained; its `edges` (E, 2) are drawn, else the pairs of
            `adjacency` (T, T), else those at `distances` (T, T) of 1. Nodes stand at its
            `node_positions` (T, 2), else where a layout of the edges puts them. None: the graph
            that the attribution knows, as those of `explain` do.
        scale: |relevance| that gets the full colour, the same for all graphs to be compared; None:
            the largest of this one.
        palette: `blue-red`, or `green-red` as in the TransExplain paper (negative is red).

    Raises TypeError for the attribution of a picture and for what is none; ConfigurationError for
    an unknown palette, a bad scale, and places that do not fit the nodes.
    """
    WrongKindError.check("graph()", attribution, Attribution, "one attribution")
    known = attribution.picture if graph is None else graph
    names, relevance = nodes_of(attribution)
    shape = GRAPHS.load("shape_of")(names, known if isinstance(known, Mapping) else None)
    label = f"relevance of the nodes of {attribution.item_id} for {attribution.class_name}"
    draw = GRAPHS.load("node_link")
    return str(draw(shape, relevance.tolist(), label=label, scale=scale, palette=palette))


def molecule(attribution: Attribution, smiles: str | None = None, **options: Any) -> str:
    """The structural formula as an SVG file, its atoms coloured by relevance (extra `molecules`).

    Args:
        attribution: of a graph whose nodes are the heavy atoms in the order of the SMILES, as
            `data.molecules.molecule_graph` makes them.
        smiles: of the molecule; None: the `text` of the graph that the attribution knows, as those
            of `explain` do.
        options: `scale`, `palette` and `size` of `molecules.molecule_svg`.

    Raises TypeError for the attribution of a picture and for what is none; ConfigurationError
    where no SMILES is known, RDKit is missing or the atoms are not as many; ItemError `bad-smiles`.
    """
    WrongKindError.check("molecule()", attribution, Attribution, "one attribution")
    _, relevance = nodes_of(attribution)
    known = attribution.picture
    formula = known.get("text") if smiles is None and isinstance(known, Mapping) else smiles
    if formula is None:
        raise ConfigurationError(
            "this attribution does not know its molecule: give it, molecule(attribution, smiles)"
        )
    drawing: str = load(_MOLECULES)(str(formula), relevance, **options)
    return drawing
