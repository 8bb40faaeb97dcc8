"""A picture and a text whose similarity was explained, as one HTML element: both on one scale."""

from markupsafe import Markup

from transexplain.errors import WrongKindError
from transexplain.reports.attribution_html import drawn_picture, legend, unit_of
from transexplain.reports.coloured_text import escape, token_html
from transexplain.reports.heatmap import data_uri, tile
from transexplain.reports.phrasing import number
from transexplain.types.similarities import SimilarityAttribution
from transexplain.types.words import size_of

_WIDE = 384  #: pixels of a heatmap


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
