"""A report that may be handed on: no texts, no ids, and no row that rests on few items."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from transexplain.errors import ConfigurationError
from transexplain.learned.planned import without_folders
from transexplain.reports.class_records import ClassView, Confusion
from transexplain.reports.gallery_records import Explanation, Gallery, GalleryItem
from transexplain.reports.mixed import redacted_mixed
from transexplain.reports.records import Audited, Previous, Summary
from transexplain.reports.redacted_groups import keys_of, redacted_groups
from transexplain.reports.said import with_sentences
from transexplain.reports.wording import short
from transexplain.spans import UNKNOWN, Span

FEWEST = 10  #: items that a row must rest on to be told


class _InDocuments(Protocol):
    @property
    def documents(self) -> int: ...


_Counted = TypeVar("_Counted", bound=_InDocuments)


def fewest_of(redact: bool, min_count: int | None) -> int | None:
    """The items behind every row that `--redact` and `--min-count` ask for; None: nothing is.

    Raises ConfigurationError for a `min_count` without `redact` or below 2.
    """
    if not redact:
        if min_count is not None:
            raise ConfigurationError("--min-count is for --redact; give both")
        return None
    fewest = FEWEST if min_count is None else min_count
    _check(fewest)
    return fewest


def _check(fewest: int) -> None:
    if fewest < 2:
        raise ConfigurationError(f"--min-count {fewest} hides nobody; give at least 2")


def redacted(summary: Summary, fewest: int = FEWEST) -> Summary:
    """The summary without texts, ids and pictures, and without what rests on few items.

    Words, entities, groups, classes, kinds of failures and parts of splits that fewer than
    `fewest` items stand behind are left out, cells of the confusion table become None. Totals of
    the whole run stay, so that a single cell that is missing in a row can be worked out. Examples
    keep their colours over blocks, and are numbered. The headline is written anew from what is
    left. Raises ConfigurationError for `fewest` below 2.
    """
    _check(fewest)
    groups = redacted_groups(summary.groups, fewest) if summary.groups else None
    kept = keys_of(groups)
    previous = _previous(summary.previous, kept)
    conservation = summary.conservation and replace(summary.conservation, worst_item="")
    classes = tuple(_class(one, fewest) for one in summary.classes if one.items >= fewest)
    failures = tuple(
        replace(kind, examples=()) for kind in summary.failures if kind.count >= fewest
    )
    found = replace(
        summary,
        audited=_audited(summary.audited),
        conservation=conservation,
        classes=classes,
        classes_omitted=summary.classes_omitted + len(summary.classes) - len(classes),
        confusion=_confusion(summary.confusion, fewest),
        groups=groups,
        gallery=_gallery(summary.gallery),
        failures=failures,
        notes=(*summary.notes, _note(fewest)),
        previous=previous,
        mixed=redacted_mixed(summary.mixed, fewest),
        fewest=fewest,
    )
    return with_sentences(found)


def _audited(audited: Audited) -> Audited:
    """Without the folders of the machine that it was made on."""
    given = audited.parameters
    return replace(
        audited,
        root="",
        model=short(audited.model),
        dataset=short(audited.dataset),
        parameters=without_folders({"name": audited.method, "params": given})["params"],
    )


def _note(fewest: int) -> str:
    return (
        "This report is redacted: texts, pictures, messages and ids of items are left out, and "
        f"words, entities, groups, classes and kinds of failures behind which fewer than {fewest} "
        f"items stand; cells of fewer than {fewest} say so. Other cells are not hidden to protect "
        "these: where a total stands beside them, one missing cell can be worked out. The headline "
        "was written from what is left; verdicts were adjusted over the whole table."
    )


def _class(view: ClassView, fewest: int) -> ClassView:
    return replace(
        view,
        raising_by_mean=_frequent(view.raising_by_mean, fewest),
        raising_by_total=_frequent(view.raising_by_total, fewest),
        lowering_by_mean=_frequent(view.lowering_by_mean, fewest),
        lowering_by_total=_frequent(view.lowering_by_total, fewest),
        rare=_frequent(view.rare, fewest),
        weighted=_frequent(view.weighted, fewest),
        minimum=max(view.minimum, fewest),
    )


def _frequent(rows: Iterable[_Counted], fewest: int) -> tuple[_Counted, ...]:
    return tuple(row for row in rows if row.documents >= fewest)


def _confusion(found: Confusion, fewest: int) -> Confusion:
    return replace(
        found,
        counts=tuple(
            tuple(None if count is None or 0 < count < fewest else count for count in row)
            for row in found.counts
        ),
    )


def _previous(found: Previous | None, kept: Sequence[tuple[str, str, str]]) -> Previous | None:
    if found is None:
        return None
    known = set(kept)
    groups = tuple(one for one in found.groups if (one.group, one.target, one.class_name) in known)
    return replace(found, groups=groups)


def _gallery(gallery: Gallery) -> Gallery:
    return replace(
        gallery,
        items=tuple(
            _item(one, f"item {number}") for number, one in enumerate(gallery.items, start=1)
        ),
    )


def _item(one: GalleryItem, name: str) -> GalleryItem:
    """The example with a block for each word: even how long words are says something."""
    starts = sorted({word.start for each in one.explanations for word in each.words})
    places = {start: number for number, start in enumerate(starts)}
    return replace(
        one,
        item_id=name,
        text=None if one.text is None else " ".join(UNKNOWN for _ in starts),
        hidden=0,
        unread_from=None,
        source=None,
        groups=(),
        explanations=tuple(_blocks(each, places) for each in one.explanations),
    )


def _blocks(one: Explanation, places: dict[int, int]) -> Explanation:
    words = tuple(
        Span(start=2 * places[w.start], end=2 * places[w.start] + 1, relevance=w.relevance)
        for w in one.words
    )
    return replace(one, words=words)
