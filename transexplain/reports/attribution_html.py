"""One attribution as HTML for a notebook: the prediction, its heatmap, and a legend."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from transexplain.data.image_files import load_image
from transexplain.errors import ItemError
from transexplain.reports.coloured_text import DEEPEST, MAX_OPACITY, escape, token_html
from transexplain.reports.graph_drawing import graph_html
from transexplain.reports.heatmap import colour, data_uri, enlarged, overlay, tile
from transexplain.reports.phrasing import number, percent
from transexplain.types.items import Attribution, PatchGrid
from transexplain.types.words import size_of

_NAMED = 5  #: classes whose probability is shown
_WIDE = 384  #: pixels of a heatmap
_UNITS = {"logits": "logits", "unit_relevance": "(of 1 in all)", "score": "(a score without unit)"}


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
        drawn = graph_html(attribution) or token_html(attribution)
        body = f'<div style="line-height:1.9">{drawn}</div>'
    return (
        f'<div class="tx-attribution"><div>{_head(attribution)}</div>{body}'
        f'<div style="font-size:.85em">{"".join(_legend(attribution))}</div></div>'
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
    given = attribution.picture if image is None else image
    if isinstance(given, str | Path):
        try:
            given = load_image(Path(given))
        except ItemError:  # moved since it was explained
            if image is not None:
                raise
            return None
    if given is None:
        return None
    shown, box = enlarged(given), attribution.features.box
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


def _legend(attribution: Attribution) -> Iterator[str]:
    """The legend: what the colours mean, and the value of the strongest."""
    yield from legend(attribution.relevance, name=attribution.class_name)
    yield f"full colour: {number(size_of(attribution))} {unit_of(attribution)}"


def unit_of(attribution: Attribution) -> str:
    """The unit of its relevance, in words behind a number."""
    return _UNITS[attribution.unit]


def legend(*relevance: NDArray[Any], name: str = "it", palette: str = "diverging") -> Iterator[str]:
    """What the colours of these arrays mean: for or against a class."""
    shown, marks = escape(name), [_swatch(end, palette) for end in (-1.0, 1.0)]
    if min(one.min(initial=0.0) for one in relevance) < 0.0:
        yield f"{marks[0]} speaks against {shown} {marks[1]} speaks for {shown}; "
    else:
        yield f"{marks[1]} relevance; "


def _swatch(end: float, palette: str) -> str:
    red, green, blue = colour(end * DEEPEST, palette)
    return (
        f'<span style="display:inline-block;width:1em;height:.8em;border-radius:.2em;'
        f'background-color:rgba({red},{green},{blue},{MAX_OPACITY})"></span>'
    )
