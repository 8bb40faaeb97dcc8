"""A page that shows one item as every method explains it, with a row for each method."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from transexplain.errors import ConfigurationError, WrongKindError
from transexplain.evaluating.metrics.map_metrics import HARDLY, sensitivity_between
from transexplain.methods import facts_of
from transexplain.reports.coloured_text import token_html
from transexplain.reports.heatmap import data_uri, overlay, resized, tile
from transexplain.reports.page import page
from transexplain.types.items import Attribution, Compared, PatchGrid

#: palette -> positive and negative
_COLOURS = {"blue-red": ("Red", "blue"), "green-red": ("Green", "red")}
_CELL = 176  #: pixels that a picture's cell is wide


def comparison_page(
    compared: Sequence[Compared],
    *,
    picture: Any | None = None,
    palette: str = "blue-red",
    title: str = "One item, every method",
) -> str:
    """A self-contained HTML page: a row for each method, a column for each target.

    Every cell is drawn on its own largest value, because units differ. Methods that are not
    defined for the model stand below with their reason.

    Args:
        compared: of one item.
        picture: the picture that was explained, to lie under its heatmaps.
        palette: `blue-red` or `green-red`.
        title: of the page.

    Raises ConfigurationError for an unknown palette.
    """
    if palette not in _COLOURS:
        raise ConfigurationError(f"palette is one of {', '.join(_COLOURS)}, not {palette!r}")
    WrongKindError.check("comparison", compared, Sequence, "what explain_by_methods gives")
    for explanation in compared:
        WrongKindError.check("comparison", explanation, Compared, "what explain_by_methods gives")
    explained = [explanation for explanation in compared if explanation.attributions]
    rows = [_row(explanation, picture, palette) for explanation in explained]
    first = explained[0].attributions if explained else ()
    return page(
        "comparison.html.j2",
        title=title,
        for_class=_COLOURS[palette][0],
        against=_COLOURS[palette][1],
        classes=[(attribution.class_name, attribution.logit) for attribution in first],
        rows=rows,
        refused=[explanation for explanation in compared if explanation.error],
        is_picture=any(isinstance(row.attributions[0].features, PatchGrid) for row in explained),
    )


def _row(compared: Compared, picture: Any | None, palette: str) -> dict[str, Any]:
    facts = facts_of(compared.method)
    first = compared.attributions[0]
    several = len(compared.attributions) > 1
    sensitivity = sensitivity_between(*compared.attributions[:2]) if several else None
    return {
        "method": compared.method,
        "source": facts.source,
        "unit": first.unit,
        "at": first.at,
        "seconds": compared.seconds,
        "sensitivity": sensitivity,
        "blind": facts.reads_target == "no",
        "hardly": sensitivity is not None and sensitivity < HARDLY,
        "notes": _notes(compared.attributions),
        "cells": [_cell(each, picture, palette) for each in compared.attributions],
    }


def _notes(rows: Sequence[Attribution]) -> list[str]:
    """Return what holds of every class, then what holds of one, with its name."""
    shared = [note for note in rows[0].notes if all(note in each.notes for each in rows)]
    single = [f"{a.class_name}: {note}" for a in rows for note in a.notes if note not in shared]
    return [*dict.fromkeys([*shared, *single])]


def _cell(attribution: Attribution, picture: Any | None, palette: str) -> Markup:
    if not isinstance(attribution.features, PatchGrid):
        return Markup(token_html(attribution, palette=palette))
    if picture is None:
        return Markup(data_uri(tile(attribution.relevance, width=_CELL, palette=palette)))
    under = resized(picture, smallest=_CELL, largest=_CELL * 2)
    drawn = overlay(
        under, attribution.relevance, box=attribution.features.box, alpha=0.4, palette=palette
    )
    return Markup(data_uri(drawn))
