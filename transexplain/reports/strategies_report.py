"""The record of a strategies report: clusters, examples, and the sentences about them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from transexplain.analysis.strategies import shortcuts, spectral
from transexplain.analysis.strategies.discover_strategies import AXES, CELLS, STABLE
from transexplain.analysis.strategies.shortcuts import (
    ClassStrategies,
    Cluster,
    Point,
    RegionEvidence,
    Strategies,
)
from transexplain.reports.charts import Series, line_drawing, stroke
from transexplain.reports.coloured_text import spans_html
from transexplain.reports.heatmap import colour_bar, data_uri
from transexplain.reports.page import page, paragraphs
from transexplain.reports.phrasing import class_phrase, probability, things
from transexplain.reports.report_formats import plain, schema_of
from transexplain.reports.report_formats import render_json as to_json
from transexplain.reports.report_section import Statement, of_run, statements
from transexplain.reports.sections.class_views import mean_heatmap
from transexplain.reports.sections.gallery_items import (
    GalleryItem,
    gallery_item,
    outcomes_of,
    show,
)
from transexplain.store import readers, runs
from transexplain.store.database import Database

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Explored:
    """The run that was explored."""

    name: str
    version: str  #: of TransExplain, when the report was made
    model: str
    classes: tuple[str, ...]
    dataset: str
    fingerprint: str  #: sha256 of the dataset's snapshot
    rows: int
    root: str  #: folder that picture paths are relative to
    method: str
    state: str  #: running | done | cancelled
    created: float  #: seconds since the epoch
    finished: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyReport:
    """One discovery with its sentences and its exemplars."""

    headline: tuple[Statement, ...]
    explored: Explored
    strategies: Strategies
    exemplars: Mapping[str, Mapping[str, GalleryItem]]  #: class -> item id -> what to show
    notes: tuple[str, ...]
    schema_version: int = SCHEMA_VERSION


def headline(strategies: Strategies, classes: Sequence[str]) -> Iterator[Statement]:
    """Yield the sentences at the top: what looks like a shortcut first."""

    def name(view: ClassStrategies) -> str:
        return class_phrase(strategies.target, view.class_name, classes)

    views = strategies.classes
    clustered = [view for view in views if view.clusters]
    return statements(
        "strategies_headline.txt.j2",
        s=strategies,
        clustered=clustered,
        name=name,
        suspicion=suspicion,
        suspected=any(cluster.suspicions for view in clustered for cluster in view.clusters),
        several=[
            f"{name(view)} ({len(view.clusters)})" for view in views if len(view.clusters) > 1
        ],
        alike=[name(view) for view in views if len(view.clusters) == 1],
        few=[f"{name(view)} ({view.sampled})" for view in views if not view.clusters],
        drawn=[
            f"{name(view)} {view.sampled:,} of {view.items:,}"
            for view in views
            if view.sampled < view.items
        ],
    )


def suspicion(cluster: Cluster, modality: str) -> str:
    """Why a cluster looks like a shortcut: its strongest evidence, with its numbers."""
    strongest = cluster.suspicions[0]
    size = things(modality, cluster.size)
    if isinstance(strongest, RegionEvidence):
        where = f"{'at' if 'border' in strongest.region else 'in'} the {strongest.region}"
        return (
            f"In its {size}, {percent(strongest.share)} of what speaks for the class lies {where}, "
            f"which is {percent(strongest.area)} of the picture; in all others "
            f"{percent(strongest.elsewhere or 0.0)} ({probability(strongest.adjusted_p)})."
        )
    return (
        f"In its {size}, {percent(strongest.share)} of what speaks for the class is the word "
        f"\u201c{strongest.word}\u201d, which is in "
        f"{percent(strongest.documents / cluster.size)} of them and in "
        f"{percent(strongest.corpus_share)} of all texts ({probability(strongest.adjusted_p)})."
    )


def percent(share: float) -> str:
    """A share as a sentence writes it; what is not nothing is not written as 0."""
    digits = 0 if share >= 0.1 or share == 0.0 else 1
    if 0.0 < share < 0.0005:
        return "less than 0.1\u00a0%"
    return f"{100 * share:.{digits}f}\u00a0%"


def notes(strategies: Strategies) -> tuple[str, ...]:
    """A paragraph each on what was done and what it rests on."""
    return paragraphs(
        "strategies_notes.txt.j2",
        s=strategies,
        spectral=spectral,
        shortcuts=shortcuts,
        cells=CELLS,
        axes=AXES,
        stable=STABLE,
        percent=percent,
    )


EXEMPLARS = {"image": 6, "text": 4}  #: of a cluster, the most typical ones


def strategy_report(db: Database, strategies: Strategies) -> StrategyReport:
    """Read the exemplars and put everything into words.

    Raises ConfigurationError where the run is gone.
    """
    run = runs.get(db, strategies.run_id)
    plan = run.plan
    return StrategyReport(
        headline=tuple(headline(strategies, plan.model.classes)),
        explored=of_run(Explored, run),
        strategies=strategies,
        exemplars=_exemplars(db, strategies),
        notes=notes(strategies),
    )


def _exemplars(db: Database, strategies: Strategies) -> Mapping[str, Mapping[str, GalleryItem]]:
    count = EXEMPLARS.get(strategies.modality, EXEMPLARS["text"])
    chosen = {
        view.class_name: {name for cluster in view.clusters for name in cluster.item_ids[:count]}
        for view in strategies.classes
    }
    outcomes = outcomes_of(db, strategies.run_id, set().union(*chosen.values()))
    return {
        class_name: {
            attribution.item_id: gallery_item(
                outcomes[attribution.item_id], "strong", [attribution]
            )
            for attribution in readers.iter_attributions(
                db, strategies.run_id, item_ids=sorted(ids), target=strategies.target
            )
            if attribution.class_name == class_name and attribution.item_id in outcomes
        }
        for class_name, ids in chosen.items()
    }


_SIDE = 400  #: of the drawing, with its edge
_EDGE = 16
_DOT, _SMALL_DOT, _MANY = 7, 4, 500  #: widths of a dot, and points from which dots are small


def embedding(points: Sequence[Point]) -> Markup:
    """The items as dots in the colours of their clusters, each cluster with its number.

    One path a cluster, so that thousands of points stay small; nothing a user wrote is in it.
    """
    width = _SMALL_DOT if len(points) >= _MANY else _DOT
    numbers = sorted({point.cluster for point in points})
    dots = Markup("").join(_dots([p for p in points if p.cluster == n], n, width) for n in numbers)
    labels = Markup("").join(_label([p for p in points if p.cluster == n], n) for n in numbers)
    return Markup(
        '<svg class="embedding" viewBox="0 0 {0} {0}" role="img" '
        'aria-label="items by the likeness of their explanations">{1}{2}</svg>'
    ).format(_SIDE, dots, labels if len(numbers) > 1 else "")


def _dots(points: Sequence[Point], number: int, width: int) -> Markup:
    path = "".join("M{:.0f} {:.0f}h0".format(*_place(point.x, point.y)) for point in points)
    # every second cluster has square dots, so that colour is not the only difference
    cap = "round" if number % 2 else "square"
    return Markup('<path d="{}" stroke="{}" stroke-width="{}" stroke-linecap="{}"/>').format(
        path, colour(number), width if number % 2 else width - 1, cap
    )


def _label(points: Sequence[Point], number: int) -> Markup:
    x, y = _place(*(float(np.median([getattr(p, axis) for p in points])) for axis in ("x", "y")))
    return Markup('<text x="{:.0f}" y="{:.0f}">{}</text>').format(x, y + 6, number)


def _place(x: float, y: float) -> tuple[float, float]:
    half = _SIDE / 2 - _EDGE
    return _SIDE / 2 + half * x, _SIDE / 2 - half * y


def colour(number: int) -> str:
    """The colour of a cluster, a CSS value that differs for every kind of colour blindness."""
    return stroke(number - 1).colour


def spectrum(view: ClassStrategies) -> Markup:
    """The smallest eigenvalues of the class's Laplacian, and those of one cluster."""
    x = tuple(float(place) for place in range(1, len(view.eigenvalues) + 1))
    series = Series(x=x, y=view.eigenvalues, stroke=stroke(0))
    chance = Series(x=x, y=view.chance, stroke=stroke(0, "random"))
    drawing = line_drawing([series, chance], x_title="number", y_title="eigenvalue", label="")
    return Markup(drawing.still)


def render(report: StrategyReport) -> str:
    """One self-contained HTML page; pictures that can be read are embedded."""
    strategies = report.strategies
    clusters = [cluster for class_name in strategies.classes for cluster in class_name.clusters]
    return page("strategies.html.j2", **_names(report), r=report, clusters=clusters)


def class_piece(report: StrategyReport, class_name: str) -> dict[str, Any]:
    """One class of a report by itself: `name`, `html` (escaped) and `document` (JSON)."""
    view = next(row for row in report.strategies.classes if row.class_name == class_name)
    return {
        "name": class_name,
        "html": page("strategies_class.html.j2", **_names(report), one=view)
        if view.clusters
        else "",
        "document": {"notes": list(report.notes), **plain(view)},
    }


def _names(report: StrategyReport) -> dict[str, Any]:
    """Return what the templates know."""
    strategies, explored = report.strategies, report.explored
    count = EXEMPLARS.get(strategies.modality, EXEMPLARS["text"])

    def exemplars(view: ClassStrategies, cluster: Cluster) -> list[GalleryItem]:
        held = report.exemplars.get(view.class_name, {})
        return [held[name] for name in cluster.item_ids[:count] if name in held]

    return {
        "e": explored,
        "s": strategies,
        "exemplars": exemplars,
        "mean": lambda cluster, scale: mean_heatmap(cluster.heatmap, scale),
        "scale_of": _scale,
        "picture_of": lambda item: show(item, explored.root, item.explanations[0].largest),
        # on its own scale, since shapes are compared, not sizes
        "text_of": lambda item: Markup(
            spans_html(
                item.text or "",
                item.explanations[0].words,
                unread_from=item.unread_from,
                second_at=item.second_at,
            )
        ),
        "embedding": embedding,
        "spectrum": spectrum,
        "colour": colour,
        "why": lambda cluster: suspicion(cluster, strategies.modality),
        "bar": data_uri(colour_bar()),
        "class_phrase": lambda name: class_phrase(strategies.target, name, explored.classes),
        "noun": lambda count: things(strategies.modality, count),
        "percent": percent,
    }


def _scale(view: ClassStrategies) -> float:
    """The largest |mean| of a cell in any cluster of the class."""
    grids = [np.asarray(cluster.heatmap) for cluster in view.clusters if cluster.heatmap]
    return max((float(np.abs(grid).max()) for grid in grids), default=0.0)


def render_json(report: StrategyReport) -> str:
    """`report` as JSON text in ASCII; a number that is not finite is null.

    Exemplars are the first of each cluster's `item_ids`, which begin with the most typical.
    """
    names = ("schema_version", "headline", "explored", "strategies", "notes")
    return to_json({name: getattr(report, name) for name in names})


def schema() -> dict[str, Any]:
    """The JSON Schema that every such document satisfies."""
    document = schema_of(StrategyReport, "strategies", SCHEMA_VERSION)
    del document["properties"]["exemplars"]
    document["required"].remove("exemplars")
    return document
