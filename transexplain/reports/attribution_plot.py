"""One attribution drawn by matplotlib: bars for words, a heatmap over a picture."""

from typing import TYPE_CHECKING, Any

import numpy as np

from transexplain.errors import WrongKindError
from transexplain.registry import require
from transexplain.reports import heatmap
from transexplain.reports.attribution_html import drawn_picture
from transexplain.types.items import Attribution, PatchGrid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAR = 0.28  #: inches of height for each word
_WIDTH = 6.4  #: inches


def plot(
    attribution: Attribution,
    image: Any = None,
    *,
    ax: "Axes | None" = None,
    most: int = 20,
    alpha: float = 0.3,
) -> "Axes":
    """Draw an attribution: a bar for each word, or a picture under its heatmap.

    Args:
        attribution: what `explain` gave.
        image: the picture that was explained, PIL image, array (H, W, 3) or path; None: the one
            that the attribution knows, else the heatmap alone. For pictures only.
        ax: matplotlib axes to draw into; None: of a new figure.
        alpha: share of `image` itself, 0 to 1, where the relevance is strongest; 1: the image.
        most: words; of a longer text those with the largest |relevance|, in reading order.

    Returns: the axes.
    Raises: ConfigurationError where matplotlib is not installed; TypeError for what is no
    attribution, or a picture beside a text.
    """
    require("matplotlib", "notebook")
    WrongKindError.check(
        "plot", attribution, Attribution, "one attribution, as of the list of explain"
    )
    if isinstance(attribution.features, PatchGrid):
        drawn = drawn_picture(attribution, image, alpha=alpha)
        alone = heatmap.tile(attribution.relevance, width=heatmap.READABLE)
        picture = drawn or alone
        axes = _axes(ax, _WIDTH * picture.height / picture.width)
        axes.imshow(np.asarray(picture))
        axes.set_axis_off()
        axes.set_title(_title(attribution), parse_math=False)
        return axes
    if image is not None:
        raise WrongKindError("plot takes no picture for the attribution of a text")
    words = attribution.words()
    order = sorted(range(len(words)), key=lambda place: -abs(words[place].relevance))[:most]
    shown = [words[place] for place in sorted(order)]
    axes = _axes(ax, 1.0 + _BAR * max(1, len(shown)))
    for_class, against = (tuple(part / 255 for part in heatmap.colour(end)) for end in (1.0, -1.0))
    axes.barh(
        range(len(shown)),
        [word.relevance for word in shown],
        color=[for_class if word.relevance >= 0 else against for word in shown],
    )
    # a word with a dollar sign is no formula
    axes.set_yticks(range(len(shown)), [word.text for word in shown], parse_math=False)
    axes.invert_yaxis()
    axes.axvline(0.0, color="grey", linewidth=0.8)
    left_out = len(words) - len(shown)
    axes.set_xlabel(
        f"relevance ({attribution.unit.replace('_', ' ')})"
        + (f"; {left_out} weaker words are left out" if left_out else "")
    )
    axes.set_title(_title(attribution), parse_math=False)
    return axes


def _axes(ax: Any, height: float) -> "Axes":
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(_WIDTH, height), layout="constrained")
    axes: Axes = ax
    return axes


def _title(attribution: Attribution) -> str:
    return f"{attribution.class_name}: logit {attribution.logit:.2f} ({attribution.method})"
