"""The summary as one HTML file that needs nothing but a browser: no network, one script."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from transexplain.bias.randomised import RandomisedRow
from transexplain.bias.ranking import Ranking
from transexplain.bias.removals import RemovalStatistic
from transexplain.findings import GroupStatistic
from transexplain.reports import (
    approximating,
    class_charts,
    controls,
    forest,
    live,
    word_plane,
)
from transexplain.reports.class_records import ClassView, WordRow
from transexplain.reports.evaluation.wording import change, probability, span, value
from transexplain.reports.gallery_records import Explanation, GalleryItem, Reason
from transexplain.reports.heatmap import colour_bar, data_uri
from transexplain.reports.marked import marked_html, marks_css
from transexplain.reports.mixed import agreement
from transexplain.reports.pictures import Shown, mean_heatmap, show
from transexplain.reports.records import Groups, StatementKind, Summary
from transexplain.reports.templating import environment, script, sort_value, storable
from transexplain.reports.wording import (
    named,
    number,
    percent,
    power,
    signed,
    spoken,
    things,
    tone,
)

_REASONS: dict[Reason, str] = {
    "wrong": "Wrong, by the widest margin",
    "strong": "Strongest relevance",
    "first": "First of the dataset",
}

#: what somebody has to know first
_FIRST: tuple[StatementKind, ...] = ("problem", "flagged", "clear", "unknown", "good", "fact")

_BREAKS = re.compile(r"(?<=[/_.:-])(?=.)")


@dataclass(frozen=True, slots=True)
class GroupTable:
    """The comparisons for one target and class, strongest first."""

    target: str
    class_name: str
    rows: tuple[GroupStatistic, ...]
    flagged: int
    axis: forest.Axis


@dataclass(frozen=True, slots=True)
class WordList:
    """One list of top words."""

    title: str
    by: str  #: mean | total
    sign: str  #: pos | neg
    rows: tuple[WordRow, ...]
    largest: float


#: what templates call numbers, names and pictures by, the same for every report
_VOCABULARY = {
    "strip": forest.strip,
    "whisker": forest.whisker,
    "box": forest.box,
    "axis_scale": forest.scale,
    "controls": controls,
    "agreement": agreement,
    "approximation": approximating.told,
    "method_of": approximating.method_of,
    "sort_value": sort_value,
    "tone": tone,
    "signed": signed,
    "power": power,
    "number": number,
    "named": named,
    "value": value,
    "change": change,
    "span": span,
    "probability": probability,
    "percent": percent,
}


def render(summary: Summary) -> str:
    """One self-contained HTML page; pictures that can be opened are embedded."""
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            _VOCABULARY,
            s=summary,
            audited=summary.audited,
            counts=summary.counts,
            findings=sorted(summary.headline, key=lambda line: _FIRST.index(line.kind)),
            tables=tuple(_tables(summary.groups)) if summary.groups else (),
            heatmaps=_heatmaps(summary),
            gallery=_gallery(summary),
            bar=data_uri(colour_bar()),
            word_lists=_word_lists,
            text_of=lambda item, one: _text_of(item, one, summary.gallery.scale),
            picture_of=lambda item: _picture_of(summary, item),
            spread_axis=_spread_axis,
            ranking_axis=_ranking_axis,
            row_of=lambda check: _row_of(summary.groups, check),
            scripts=(script("page.js"), *(live.scripts() if _has_charts(summary) else ())),
            class_charts=class_charts,
            word_plane=word_plane,
            marks_css=marks_css(),
            breakable=_breakable,
            spoken=lambda target, name: spoken(target, name, summary.audited.classes),
            noun=lambda count: things(summary.audited.modality, count),
            moment=moment,
        )
    )
    return storable(page)


def _has_charts(summary: Summary) -> bool:
    return any(view.heatmap is None for view in summary.classes)


def _tables(groups: Groups) -> Iterator[GroupTable]:
    axes = {
        target: forest.axis_of([r for r in groups.rows if r.target == target], groups.practical)
        for target in dict.fromkeys(row.target for row in groups.rows)
    }
    for target, class_name in dict.fromkeys((r.target, r.class_name) for r in groups.rows):
        rows = [r for r in groups.rows if (r.target, r.class_name) == (target, class_name)]
        rows.sort(key=lambda r: (r.difference is None, -(r.difference or 0.0), r.group))
        flagged = sum(row.flagged for row in rows)
        yield GroupTable(target, class_name, tuple(rows), flagged, axes[target])


def _row_of(
    groups: Groups | None,
    check: RemovalStatistic | RandomisedRow | GroupStatistic,
) -> GroupStatistic | None:
    key = (check.group, check.target, check.class_name)
    rows = groups.rows if groups else ()
    return next((one for one in rows if (one.group, one.target, one.class_name) == key), None)


def _ranking_axis(ranking: Ranking) -> forest.Axis:
    return forest.axis_around(end for one in ranking.entities for end in one.interval)


def _spread_axis(rows: Iterable[GroupStatistic]) -> forest.Axis:
    spreads = [row.quantiles for row in rows if row.quantiles]
    return forest.axis_around(end for one in spreads for end in (one.low, one.high))


def _word_lists(view: ClassView) -> list[WordList]:
    return [
        _word_list("Raise it, per mention", "mean", "pos", view.raising_by_mean),
        _word_list("Raise it, in total", "total", "pos", view.raising_by_total),
        _word_list("Lower it, per mention", "mean", "neg", view.lowering_by_mean),
        _word_list("Lower it, in total", "total", "neg", view.lowering_by_total),
    ]


def _word_list(title: str, by: str, sign: str, rows: tuple[WordRow, ...]) -> WordList:
    largest = max((abs(getattr(row, by)) for row in rows), default=0.0)
    return WordList(title, by, sign, rows, largest)


def _heatmaps(summary: Summary) -> dict[int, str]:
    """Place of a class among `classes` -> its mean heatmap; all of a target on one scale."""
    found: dict[int, str] = {}
    for place, view in enumerate(summary.classes):
        if view.heatmap is not None:
            found[place] = mean_heatmap(view.heatmap, heatmap_scale(summary, view.target))
    return found


def heatmap_scale(summary: Summary, target: str) -> float:
    """The largest |mean relevance| of a patch in any class of `target`."""
    grids = [v.heatmap for v in summary.classes if v.heatmap and v.target == target]
    return max((abs(cell) for grid in grids for row in grid for cell in row), default=0.0)


def _gallery(summary: Summary) -> list[tuple[str, list[GalleryItem]]]:
    parts = (
        (title, [item for item in summary.gallery.items if item.reason == reason])
        for reason, title in _REASONS.items()
    )
    return [(title, items) for title, items in parts if items]


def _text_of(item: GalleryItem, one: Explanation, scale: float) -> Markup:
    return marked_html(item.text or "", one.words, scale=scale, unread_from=item.unread_from)


def _picture_of(summary: Summary, item: GalleryItem) -> Shown | None:
    if not any(one.grid for one in item.explanations):
        return None
    return show(item, summary.audited.root, summary.gallery.scale)


def _breakable(name: str) -> Markup:
    """`name` with leave to break the line after the marks that part its words."""
    pieces = _BREAKS.split(name)
    return Markup("<wbr>").join(pieces)


def moment(seconds: float | None) -> str:
    """A time as a report writes it."""
    if seconds is None:
        return "not finished"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
