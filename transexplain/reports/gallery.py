"""Which items are worth a look, made ready to be shown."""

from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from transexplain.reports.gallery_records import Explanation, Gallery, GalleryItem, Grid, Reason
from transexplain.reports.survey import Survey
from transexplain.spans import Span, largest, size_of, spans_of
from transexplain.store import results
from transexplain.store.database import Database
from transexplain.types import Attribution, ItemFailure, ItemOutcome, PatchGrid

EXPLANATIONS = 3  #: shown of one item
CHARACTERS = 4_000  #: shown of one text


def choose(found: Survey, size: int) -> dict[str, Reason]:
    """Item id -> why it is shown: a third each wrong, strong and first; gaps are filled.

    The same run always gives the same choice.
    """
    lists: tuple[tuple[Reason, list[str]], ...] = (
        ("wrong", found.wrong),
        ("strong", found.strongest),
        ("first", found.first),
    )
    chosen: dict[str, Reason] = {}
    for places in (-(-size // 3), size):  # a third each, then whatever is left
        for reason, ids in lists:
            fresh = [one for one in ids if one not in chosen]
            taken = sum(1 for other in chosen.values() if other == reason)
            for one in fresh[: max(0, min(places - taken, size - len(chosen)))]:
                chosen[one] = reason
    return chosen


def collect(db: Database, run_id: str, chosen: Mapping[str, Reason], scale: float) -> Gallery:
    """Read the chosen items and what explains them, which share a colour scale up to `scale`."""
    found: dict[str, list[Explanation]] = {}
    unread: dict[str, int] = {}
    texts: dict[str, str] = {}
    more: dict[str, int] = {}
    for one in results.iter_attributions(db, run_id, item_ids=list(chosen)):
        kept = found.setdefault(one.item_id, [])
        if len(kept) == EXPLANATIONS:
            more[one.item_id] = more.get(one.item_id, 0) + 1
            continue
        text, explanation, end = _explanation(one)
        kept.append(explanation)
        texts.setdefault(one.item_id, text)
        unread[one.item_id] = max(end, unread.get(one.item_id, 0))
    outcomes, groups = outcomes_of(db, run_id, chosen), _groups(db, run_id, chosen)
    order = {reason: place for place, reason in enumerate(("wrong", "strong", "first"))}
    shown = sorted(chosen.items(), key=lambda entry: order[entry[1]])
    return Gallery(
        scale=scale,
        items=tuple(
            _item(
                outcomes[item_id],
                reason,
                texts.get(item_id, ""),
                tuple(found.get(item_id, ())),
                unread_from=unread.get(item_id, 0),
                more=more.get(item_id, 0),
                groups=tuple(sorted(groups.get(item_id, ()))),
            )
            for item_id, reason in shown
            if item_id in outcomes
        ),
    )


def outcomes_of(db: Database, run_id: str, item_ids: Iterable[str]) -> dict[str, ItemOutcome]:
    """What became of these items; those without a result have no entry."""
    found = results.iter_items(db, run_id, item_ids=item_ids)
    return {one.item_id: one for one in found if not isinstance(one, ItemFailure)}


def _groups(db: Database, run_id: str, chosen: Mapping[str, Reason]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in results.iter_mentions(db, run_id, item_ids=list(chosen)):
        found.setdefault(one.item_id, set()).add(one.group)
    return found


def grid_of(relevance: NDArray[Any]) -> Grid:
    """A (rows, cols) array as rows of plain numbers."""
    return tuple(tuple(map(float, row)) for row in relevance)


def _explanation(one: Attribution) -> tuple[str, Explanation, int]:
    """The text, the explanation, and the character after the last that the model read."""
    text: str = ""
    words: tuple[Span, ...] = ()
    grid: Grid | None = None
    box = None
    if isinstance(one.features, PatchGrid):
        grid, box = grid_of(one.relevance), one.features.box
    else:
        text, words = spans_of(one)
    shown = tuple(word for word in words if word.end <= CHARACTERS)
    return (
        text,
        Explanation(
            target=one.target,
            class_name=one.class_name,
            logit=one.logit,
            largest=size_of(one) if grid else largest(words),
            words=shown,
            grid=grid,
            box=box,
        ),
        max((word.end for word in words), default=0),
    )


def _item(
    outcome: ItemOutcome,
    reason: Reason,
    text: str,
    explanations: tuple[Explanation, ...],
    *,
    unread_from: int,
    more: int,
    groups: tuple[str, ...],
) -> GalleryItem:
    is_text = any(one.grid is None for one in explanations)
    return GalleryItem(
        item_id=outcome.item_id,
        reason=reason,
        label=outcome.label,
        predicted=outcome.predicted,
        truncated=outcome.truncated,
        text=text[:CHARACTERS] if is_text else None,
        hidden=max(0, len(text) - CHARACTERS) if is_text else 0,
        unread_from=unread_from if is_text and outcome.truncated else None,
        source=outcome.source,
        explanations=explanations,
        more=more,
        groups=groups,
    )
