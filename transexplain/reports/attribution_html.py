"""Attributions as HTML: one for a notebook, with a head and a legend; a page of several."""

from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from transexplain.data.image_files import load_image
from transexplain.errors import ItemError, WrongKindError
from transexplain.reports import GRAPHS
from transexplain.reports.coloured_text import DEEPEST, MAX_OPACITY, escape, token_html
from transexplain.reports.heatmap import colour, data_uri, enlarged, overlay, tile
from transexplain.reports.page import page as rendered
from transexplain.reports.phrasing import number, percent
from transexplain.types.items import Attribution, PatchGrid, SimilarityAttribution
from transexplain.types.words import size_of

_NAMED = 5  #: classes whose probability is shown
_WIDE = 384  #: pixels of a heatmap
_UNITS = {"logits": "logits", "unit_relevance": "(of 1 in all)", "score": "(a score without unit)"}


#: what has a place on a page
Drawn = Attribution | SimilarityAttribution


@singledispatch
def rich_html(record: object) -> str:
    """Return what a notebook shows of a record, by its type."""
    raise TypeError(f"nothing draws a {type(record).__name__}")


@rich_html.register
def attribution_html(attribution: Attribution) -> str:
    """The text with its words coloured, a picture's heatmap, or a graph, as one HTML element.

    It needs no style sheet and shows on light and dark ground. Raises ConfigurationError where the
    relevance holds NaN or infinity.
    """
    if isinstance(attribution.features, PatchGrid):
        image = drawn_picture(attribution) or tile(attribution.relevance, width=_WIDE)
        body = (
            f'<img src="{data_uri(image)}" alt="heatmap of item {escape(attribution.item_id)}" '
            'style="max-width:100%;border:1px solid rgba(128,128,128,.5)">'
        )
    else:
        body = f'<div style="line-height:1.9">{_graph_or_text(attribution)}</div>'
    shown = "".join(legend(attribution.relevance, name=attribution.class_name))
    return (
        f'<div class="tx-attribution"><div>{_head(attribution)}</div>{body}'
        f'<div style="font-size:.85em">{shown}full colour: {number(size_of(attribution))} '
        f"{unit_of(attribution)}</div></div>"
    )


def drawn_picture(
    attribution: Attribution,
    image: Any = None,
    *,
    alpha: float = 0.3,
    scale: float | None = None,
    palette: str = "diverging",
) -> Image.Image | None:
    """A picture of a readable size under its heatmap; None where no picture is known.

    Args:
        attribution: of a picture.
        image: PIL image, array (H, W, 3) or path; None: the picture that the attribution knows.
        alpha, scale, palette: see `heatmap.overlay`.

    Raises ConfigurationError for an `image` that is no picture, ItemError for a file that is none.
    """
    assert isinstance(attribution.features, PatchGrid)
    picture = attribution.picture if image is None else image
    if isinstance(picture, str | Path):
        try:
            picture = load_image(Path(picture))
        except ItemError:  # moved since it was explained
            if image is not None:
                raise
            return None
    if picture is None:
        return None
    shown, box = enlarged(picture), attribution.features.box
    return overlay(shown, attribution.relevance, box=box, alpha=alpha, scale=scale, palette=palette)


def _head(attribution: Attribution) -> str:
    parts = [
        f"<strong>{escape(attribution.class_name)}</strong>: logit {number(attribution.logit)}",
        f"{escape(attribution.method)} at {escape(attribution.at)}",
    ]
    some = list(attribution.probabilities.items())[:_NAMED]
    more = len(attribution.probabilities) > _NAMED
    if some:
        shown = ", ".join(f"{escape(name)}: {percent(share)}" for name, share in some)
        parts.append(f"probabilities: {shown}{', …' if more else ''}")
    return " · ".join(parts)


def unit_of(attribution: Attribution) -> str:
    """The unit of its relevance, in words behind a number."""
    return _UNITS[attribution.unit]


def legend(*relevance: NDArray[Any], name: str = "it", palette: str = "diverging") -> Iterator[str]:
    """What the colours of these arrays mean: for or against a class."""
    shown, marks = escape(name), [_swatch(end, palette) for end in (-1.0, 1.0)]
    if min(values.min(initial=0.0) for values in relevance) < 0.0:
        yield f"{marks[0]} speaks against {shown} {marks[1]} speaks for {shown}; "
    else:
        yield f"{marks[1]} relevance; "


def _swatch(end: float, palette: str) -> str:
    red, green, blue = colour(end * DEEPEST, palette)
    return (
        f'<span style="display:inline-block;width:1em;height:.8em;border-radius:.2em;'
        f'background-color:rgba({red},{green},{blue},{MAX_OPACITY})"></span>'
    )


@rich_html.register
def pair_html(
    pair: SimilarityAttribution, *, scale: float | None = None, palette: str = "blue-red"
) -> str:
    """The picture under its heatmap and the text coloured, with a head and a legend.

    It needs no style sheet and shows on light and dark ground.

    Args:
        pair: what `explain_similarity` gave.
        scale: |relevance| that gets the full colour; None: the largest of both sides.
        palette: `blue-red`, or `green-red` as in the TransExplain paper (negative is red).

    Raises ConfigurationError for NaN, an unknown palette or a bad scale, ItemError for a picture
    that cannot be read.
    """
    WrongKindError.check("pair", pair, SimilarityAttribution, "what explain_similarity gives")
    full = scale_of(pair) if scale is None else scale
    head = (
        f"<strong>{escape(pair.target)}</strong> {number(pair.logit)} · cosine "
        f"{number(pair.cosine)} · {escape(pair.method)} at {escape(pair.at)}"
    )
    shown = "".join(legend(pair.picture.relevance, pair.text.relevance, palette=palette))
    return (
        f'<div class="tx-attribution"><div>{head}</div>'
        f"{pair_body(pair, scale=full, palette=palette)}"
        f'<div style="font-size:.85em">{shown}full colour: {number(full)} '
        f"{unit_of(pair.picture)}</div></div>"
    )


def pair_body(
    pair: SimilarityAttribution, *, scale: float | None = None, palette: str = "blue-red"
) -> Markup:
    """Picture and text alone; see `pair_html`."""
    full = scale_of(pair) if scale is None else scale
    image = drawn_picture(pair.picture, scale=full, palette=palette) or tile(
        pair.picture.relevance, width=_WIDE, scale=full, palette=palette
    )
    text = token_html(pair.text, scale=full, palette=palette)
    return Markup(
        f'<img src="{data_uri(image)}" alt="heatmap of item {escape(pair.item_id)}" '
        'style="max-width:100%;border:1px solid rgba(128,128,128,.5)">'
        f'<div style="line-height:1.9">{text}</div>'
    )


def scale_of(pair: SimilarityAttribution) -> float:
    """The largest |relevance| of a patch or a word; raises ConfigurationError for NaN."""
    return max(size_of(pair.picture), size_of(pair.text))


def page(
    attributions: Drawn | Sequence[Drawn],
    *,
    scale: float | None = None,
    palette: str = "blue-red",
    title: str = "TransExplain",
) -> str:
    """A self-contained HTML page of attributions: coloured texts, heatmaps, graphs, pairs.

    Without `scale` each is drawn on its own largest value. Raises as `token_html` does.
    """
    records = [attributions] if isinstance(attributions, Drawn) else attributions
    WrongKindError.check("html", records, Sequence, "attributions")
    for record in records:
        WrongKindError.check("html", record, Drawn, "attributions")
    colour(0.0, palette)  # an unknown palette is refused whatever the attributions are
    look: dict[str, Any] = {"scale": scale, "palette": palette}
    entries = []
    for record in records:
        is_picture = isinstance(getattr(record, "features", None), PatchGrid)
        if isinstance(record, SimilarityAttribution):
            body = pair_body(record, **look)
        elif is_picture:
            body = Markup(data_uri(tile(record.relevance, width=288, **look)))
        else:
            body = _graph_or_text(record, **look)
        entries.append({"of": record, "body": body, "is_picture": is_picture})
    return rendered("page.html.j2", entries=entries, title=title)


def _graph_or_text(attribution: Attribution, **options: Any) -> Markup:
    """The graph that an attribution knows, else its text or the names of its nodes."""
    graph: Markup | None = None
    if isinstance(attribution.picture, Mapping):
        graph = GRAPHS.load("html")(attribution, **options)
    return graph or Markup(token_html(attribution, **options))
