"""Makes the bytes of a page: HTML by its template, or JSON of the same document."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup
from PIL import Image

from orchestrator.serve.links import link
from orchestrator.serve.slow_desk import PagePiece
from transexplain.errors import ItemError
from transexplain.reports import GRAPHS
from transexplain.reports.coloured_text import marked_html, marks_css, nodes_css
from transexplain.reports.forest import ForestAxis, whisker
from transexplain.reports.heatmap import data_uri, muted, overlay, resized, tile
from transexplain.reports.page import VOCABULARY, environment, storable
from transexplain.reports.phrasing import number, percent, power, short
from transexplain.reports.sections.gallery_items import Explanation, GalleryItem, opened
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.shards import PASSING_KINDS
from transexplain.types.graphs import GraphShape, nodes_of
from transexplain.types.items import Attribution, ItemOutcome, PatchGrid
from transexplain.types.pairs import in_a_line

#: name -> colours of what raises and of what lowers a class
PALETTES: Mapping[str, tuple[str, str]] = {
    "blue-red": ("red", "blue"),
    "green-red": ("green", "red"),
}
ALPHAS = (0, 15, 30, 50, 70, 85, 100)  #: per cent of the picture itself
PICTURES = 12  #: heatmaps on a page; the others are in the JSON
_SMALLEST, _LARGEST = 160, 384  # pixels of the longer side


class Look(NamedTuple):
    """The colours and shades of relevance."""

    palette: str = "blue-red"  #: one of `PALETTES`
    alpha: int = 15  #: one of `ALPHAS`

    @property
    def colours(self) -> tuple[str, str]:
        """The colours of positive and of negative relevance."""
        return PALETTES[self.palette]


def pictures_of(item: GalleryItem, root: str, look: Look) -> dict[str, Any] | None:
    """A picture and the heatmaps over it, each a `data:` address; None: the item is no picture.

    `drawn` are those of the first `PICTURES` explanations, each on its own scale; `missing` says
    why there is no `original`. `root` is the folder that its file lies in.
    """
    if not any(explanation.grid for explanation in item.explanations):
        return None
    few = item.explanations[:PICTURES]
    try:
        image = opened(item.source, root)
    except ItemError as error:
        grids = (np.asarray(explanation.grid or ((0.0,),)) for explanation in few)
        alone = tuple(data_uri(tile(grid, palette=look.palette)) for grid in grids)
        return {"original": None, "missing": str(error), "drawn": alone}
    image = resized(image, smallest=_SMALLEST, largest=_LARGEST)
    ground = muted(image)
    drawn = tuple(_over(ground, explanation, look) for explanation in few)
    return {"original": data_uri(image), "missing": "", "drawn": drawn}


def _over(ground: Image.Image, explanation: Explanation, look: Look) -> str:
    grid, box = np.asarray(explanation.grid or ((0.0,),)), explanation.box or (0.0, 0.0, 1.0, 1.0)
    return data_uri(overlay(ground, grid, alpha=look.alpha / 100, box=box, palette=look.palette))


def words_of(item: GalleryItem, explanation: Explanation) -> Markup:
    """On the explanation's own scale: alone on its page it is compared with no other item."""
    return marked_html(
        item.text or "",
        explanation.words,
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
    shapes = GRAPHS.load("stored_shapes")(plan, {outcome.item_id: outcome}, names)
    shape: GraphShape | None = shapes.get(outcome.item_id)
    return shape


def graph_of(shape: GraphShape, explanation: Explanation, item_id: str, look: Look) -> Markup:
    """The nodes in their colours, on the explanation's own scale."""
    label = f"relevance of the nodes of {item_id} for {explanation.class_name}"
    draw = GRAPHS.load("node_link")
    drawn: Markup = draw(shape, explanation.nodes, label=label, palette=look.palette)
    return drawn


_DASH, _MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
_STYLES = (
    *("style.css", "evaluation.css", "sections.css"),
    *("charts.css", "cloud.css", "strategies.css"),
)
#: state of a verdict or measure, or what relevance says -> style of its tag
_TONES = {
    **dict.fromkeys(("flagged", "changes", "differ", "outside", "difference"), "flagged"),
    **dict.fromkeys(("clear", "does not change", "do not differ", "inside"), "clear"),
    **dict.fromkeys(("open", "inconclusive"), "open"),
    "equivalent": "clear",
}


class Static(NamedTuple):
    """A file that pages name."""

    body: bytes
    kind: str

    @property
    def version(self) -> str:
        """Changes with the bytes."""
        return hashlib.sha256(self.body).hexdigest()[:16]


@cache
def static_files() -> Mapping[str, Static]:
    """Name -> the file: one style sheet, the report's script, and htmx with its licence."""
    here, reports = files("orchestrator.serve"), files("transexplain.reports") / "templates"
    styles = [(reports / name).read_text(encoding="utf-8") for name in _STYLES]
    stylesheet = (here / "templates" / "serve.css").read_text(encoding="utf-8")
    marks = [str(marks_css()), *(str(marks_css(palette, f".{palette} ")) for palette in PALETTES)]
    css = "\n".join([*styles, *marks, str(nodes_css()), stylesheet])
    script = (here / "static" / "htmx.min.js").read_bytes()
    licence = (here / "static" / "htmx.LICENSE").read_bytes()
    return {
        "style.css": Static(css.encode(), "text/css; charset=utf-8"),
        "htmx.js": Static(script, "text/javascript; charset=utf-8"),
        "page.js": Static((reports / "page.js").read_bytes(), "text/javascript; charset=utf-8"),
        "htmx.LICENSE": Static(licence, "text/plain; charset=utf-8"),
    }


@cache
def _templates() -> Environment:
    """The report's environment, with this package's templates before the report's."""
    overlay = environment().overlay()
    overlay.loader = ChoiceLoader(
        [PackageLoader("orchestrator.serve"), PackageLoader("transexplain.reports")]
    )
    return overlay


def html(template: str, **names: Any) -> bytes:
    """A page of this package's templates; every value is escaped unless a report made it."""
    words = {**VOCABULARY, **_WORDS, **names}
    return storable(_templates().get_template(f"{template}.html.j2").render(words)).encode()


def json_bytes(document: Any) -> bytes:
    """Any document as ASCII, so that no character of a name is lost."""
    return json.dumps(document, default=_plain, allow_nan=False).encode("ascii")


def attribution_document(attribution: Attribution) -> dict[str, Any]:
    """An attribution without its relevance, as JSON."""
    names = ("target", "rank", "class_name", "method", "at", "unit", "logit")
    ledger = attribution.ledger
    return {
        **{name: getattr(attribution, name) for name in names},
        "prefix_relevance": list(attribution.prefix_relevance),
        "ledger": ledger and {**asdict(ledger), "relative_gap": ledger.relative_gap},
        "notes": list(attribution.notes),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, PagePiece):  # unpacked here: a page does not
        return value.document
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return dict(value)


def _static(name: str) -> str:
    return f"/static/{name}?v={static_files()[name].version}"


def _interval(row: Mapping[str, Any], name: str, share: bool = False) -> Markup:
    """A number, or a share, of a row of results with its interval; a dash where there is none."""
    shown = percent if share else number
    value = row[name]
    if value is None:
        return Markup(_DASH)
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if low is None and high is None:
        return Markup("{}").format(shown(value))
    ends = (f"{_MINUS}∞" if low is None else shown(low), "∞" if high is None else shown(high))
    # digits and signs alone: nothing needs escaping, which takes long for a table
    return Markup(f'{shown(value)} <span class="soft">[{ends[0]}, {ends[1]}]</span>')


def _metric(value: float | None, unit: str) -> str:
    """A metric of any size, shares by the hundred."""
    if value is None:
        return _DASH
    if unit == "share" and (value == 0 or abs(value) >= 0.0005):
        return percent(value)
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return power(value) if abs(value) < 0.001 else number(value)


def _whisker(row: Mapping[str, Any], name: str, axis: ForestAxis) -> Markup:
    """A number with its interval on an axis that other rows share; empty without an interval."""
    ends = (row[name], row[f"{name}_low"], row[f"{name}_high"])
    if any(end is None for end in ends):
        return Markup("")
    return whisker(*ends, axis)


def _duration(seconds: float | None) -> str:
    """`42 s`, `3 min 20 s`, `2 h 5 min`, `7 d 3 h`."""
    if seconds is None:
        return _DASH
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours = minutes // 60
    if hours < 48:
        return f"{hours} h {minutes % 60} min"
    return f"{hours // 24} d {hours % 24} h"


_WORDS = {
    "link": link,
    "static": _static,
    "interval": _interval,
    "whisker_of": _whisker,
    "duration": _duration,
    "plain": lambda value: _DASH if value is None else f"{value:,}",
    "rate": lambda value: _DASH if value is None else percent(value),
    "metric_value": _metric,
    "short": short,
    "in_a_line": in_a_line,
    "tones": _TONES,
    "passing_kinds": PASSING_KINDS,
    # the features of a server; off unless a page says otherwise
    "operate": False,
    "live": False,
    "reports": True,
}


_HEIGHT, _PAD = 56, 7  #: pixels, and what stays free above and below


#: a place from the left by its name, its value (None: a gap), and the ends of its interval
LinePoint = tuple[str, float | None, float | None, float | None]


def line_drawing(points: Sequence[LinePoint], *, label: str, zero: bool = True) -> Markup:
    """The points from left to right, evenly apart, with their intervals; empty: nothing to draw.

    `label` says what is drawn to those who do not see it; `zero`: 0 is within the drawing. Places
    are percentages, so that it fills whatever width it has.
    """
    drawn = [numbers for _, *numbers in points if numbers[0] is not None]
    known = [end for numbers in drawn for end in numbers if end is not None]
    if not known:
        return Markup("")
    low, high = min(known), max(known)
    low, high = (min(low, 0.0), max(high, 0.0)) if zero else (low, high)
    size = high - low or 1.0

    def place(order: int) -> str:
        return f"{3 + 94 * order / (len(points) - 1) if len(points) > 1 else 50:.2f}%"

    def level(value: float) -> float:
        return round(_PAD + (_HEIGHT - 2 * _PAD) * (high - value) / size, 1)

    parts = [Markup('<line class="ld-zero" x1="0" x2="100%" y1="{0}" y2="{0}"/>').format(level(0))]
    parts = parts if low <= 0.0 <= high else []
    before: tuple[str, float] | None = None
    for order, (_, value, *_) in enumerate(points):
        if value is None:
            before = None
            continue
        x, y = place(order), level(value)
        if before is not None:
            parts.append(
                Markup('<line class="ld-line" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(
                    *before, x, y
                )
            )
        before = (x, y)
    parts += [_dot(point, place(order), level) for order, point in enumerate(points)]
    return Markup(
        '<svg class="ld" role="img" aria-label="{}" width="100%" height="{}">{}</svg>'
    ).format(label, _HEIGHT, Markup("").join(parts))


def _dot(point: LinePoint, x: str, level: Callable[[float], float]) -> Markup:
    """A point with its interval; its numbers are shown under the pointer."""
    name, value, low, high = point
    if value is None:
        return Markup("")
    interval = Markup("")
    said = number(value)
    if low is not None and high is not None:
        said += f" [{number(low)}, {number(high)}]"
        interval = Markup('<line class="ld-interval" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(
            x, level(low), level(high)
        )
    return Markup(
        '<g><title>{}: {}</title>{}<circle class="ld-dot" cx="{}" cy="{}" r="3.5"/></g>'
    ).format(name, said, interval, x, level(value))
