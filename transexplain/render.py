"""Pictures and pages of single attributions: what `explain` shows."""

from typing import Any

from PIL import Image

from transexplain.reports import heatmap
from transexplain.reports.comparison import comparison_page as comparison
from transexplain.reports.tokens import page as html
from transexplain.reports.tokens import token_ansi as ansi
from transexplain.types import Attribution, PatchGrid

__all__ = ["ansi", "comparison", "html", "overlay"]


def overlay(attribution: Attribution, image: Any, **options: Any) -> Image.Image:
    """`image`, the picture that was explained, under its relevance.

    Args:
        attribution: of a picture; its relevance (rows, cols) lies over the part of the picture
            that the model saw.
        image: PIL image or array (H, W, 3) of any size.
        options: `alpha`, `scale` and `palette` of `reports.heatmap.overlay`.

    Raises TypeError for an attribution of a text.
    """
    if not isinstance(attribution.features, PatchGrid):
        raise TypeError("overlay() is for pictures; this attribution is of a text")
    return heatmap.overlay(image, attribution.relevance, box=attribution.features.box, **options)
