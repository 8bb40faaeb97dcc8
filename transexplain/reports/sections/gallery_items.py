"""Examples: single items with their explanations."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from transexplain.reports.coloured_text import marked_html
from transexplain.reports.gallery import Shown, show
from transexplain.reports.redaction import RedactionRules, Redactor, empty, keep, kept, within
from transexplain.reports.report_section import Section
from transexplain.reports.row_records import Explanation, Gallery, GalleryItem, Reason
from transexplain.types.words import UNKNOWN, Span

_REASONS: dict[Reason, str] = {
    "wrong": "Wrong, by the widest margin",
    "strong": "Strongest relevance",
    "first": "First of the dataset",
}


def _examples(
    value: tuple[GalleryItem, ...], _gallery: Gallery, redactor: Redactor
) -> tuple[GalleryItem, ...]:
    """Numbered instead of called by their ids."""
    found: tuple[GalleryItem, ...] = redactor.within(value)
    return tuple(replace(one, item_id=f"item {place}") for place, one in enumerate(found, start=1))


def _places(item: GalleryItem) -> dict[int, int]:
    """Where each word of a text begins -> its number."""
    starts = sorted({word.start for each in item.explanations for word in each.words})
    return {start: number for number, start in enumerate(starts)}


def _blocks(value: str | None, item: GalleryItem, _redactor: Redactor) -> str | None:
    """A block for each word: even how long words are would say something."""
    return None if value is None else " ".join(UNKNOWN for _ in _places(item))


def _over_blocks(
    value: tuple[Explanation, ...], item: GalleryItem, redactor: Redactor
) -> tuple[Explanation, ...]:
    places = _places(item)
    found: tuple[Explanation, ...] = redactor.within(value)
    return tuple(
        replace(
            one,
            words=tuple(
                replace(w, start=2 * places[w.start], end=2 * places[w.start] + 1)
                for w in one.words
            ),
        )
        for one in found
    )


_RULES: Mapping[type, RedactionRules] = {
    Gallery: RedactionRules(fields={"items": _examples, "scale": keep}),
    GalleryItem: RedactionRules(
        fields={
            "item_id": empty(""),
            "text": _blocks,
            "hidden": empty(0),
            "unread_from": empty(None),
            "source": empty(None),
            "groups": empty(()),
            "explanations": _over_blocks,
            **kept("reason label predicted truncated more"),
        }
    ),
    Explanation: RedactionRules(
        fields={"words": within, **kept("target class_name logit largest grid box")}
    ),
    # `_over_blocks` puts them over blocks
    Span: RedactionRules(fields=kept("start end relevance")),
}


def _by_reason(gallery: Gallery) -> list[tuple[str, list[GalleryItem]]]:
    parts = (
        (title, [item for item in gallery.items if item.reason == reason])
        for reason, title in _REASONS.items()
    )
    return [(title, items) for title, items in parts if items]


def _text_of(item: GalleryItem, one: Explanation, scale: float) -> Markup:
    return marked_html(item.text or "", one.words, scale=scale, unread_from=item.unread_from)


def _picture_of(item: GalleryItem, root: str, scale: float) -> Shown | None:
    if not any(one.grid for one in item.explanations):
        return None
    return show(item, root, scale)


def _drawing(report: Any) -> Mapping[str, Any]:
    found, root = report.gallery, report.audited.root
    return {
        "gallery": _by_reason(found),
        "text_of": lambda item, one: _text_of(item, one, found.scale),
        "picture_of": lambda item: _picture_of(item, root, found.scale),
    }


SECTION = Section(
    template="examples.html.j2",
    links=(("examples", "Examples"),),
    redaction=_RULES,
    present=lambda report: bool(report.gallery.items),
    drawing=_drawing,
)
