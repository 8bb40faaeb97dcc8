"""Strategies as one HTML file that needs nothing but a browser: no network, no script."""

import numpy as np
from markupsafe import Markup

from transexplain.reports.gallery_records import GalleryItem
from transexplain.reports.heatmap import colour_bar, data_uri, tile
from transexplain.reports.page import page
from transexplain.reports.pictures import Shown, show
from transexplain.reports.strategies import drawings
from transexplain.reports.strategies.records import StrategyReport
from transexplain.reports.strategies.report import EXEMPLARS
from transexplain.reports.strategies.wording import percent, suspicion
from transexplain.reports.tokens import spans_html
from transexplain.reports.wording import spoken, things
from transexplain.strategies.records import ClassStrategies, Cluster


def render(report: StrategyReport) -> str:
    """One self-contained HTML page; pictures that can be opened are embedded."""
    found, explored = report.strategies, report.explored
    return page(
        "strategies.html.j2",
        r=report,
        e=explored,
        s=found,
        clusters=[cluster for one in found.classes for cluster in one.clusters],
        exemplars=lambda one, cluster: _exemplars(report, one, cluster),
        mean=_mean,
        scale_of=_scale,
        picture_of=lambda item: _picture(item, explored.root),
        text_of=_text,
        embedding=drawings.embedding,
        spectrum=drawings.spectrum,
        colour=drawings.colour,
        why=lambda cluster: suspicion(cluster, found.modality),
        bar=data_uri(colour_bar()),
        spoken=lambda name: spoken(found.target, name, explored.classes),
        noun=lambda count: things(found.modality, count),
        percent=percent,
    )


def _exemplars(report: StrategyReport, one: ClassStrategies, cluster: Cluster) -> list[GalleryItem]:
    held = report.exemplars.get(one.class_name, {})
    count = EXEMPLARS.get(report.strategies.modality, EXEMPLARS["text"])
    return [held[name] for name in cluster.item_ids[:count] if name in held]


def _scale(one: ClassStrategies) -> float:
    """The largest |mean| of a cell in any cluster of the class."""
    grids = [np.asarray(cluster.heatmap) for cluster in one.clusters if cluster.heatmap]
    return max((float(np.abs(grid).max()) for grid in grids), default=0.0)


def _mean(cluster: Cluster, scale: float) -> str:
    return data_uri(tile(np.asarray(cluster.heatmap), width=208, scale=scale))


def _picture(item: GalleryItem, root: str) -> Shown:
    return show(item, root, item.explanations[0].largest)


def _text(item: GalleryItem) -> Markup:
    # spans_html escapes the text itself; on its own scale, since shapes are compared, not sizes
    words = item.explanations[0].words
    return Markup(spans_html(item.text or "", words, unread_from=item.unread_from))
