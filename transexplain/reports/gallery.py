"""Gallery pictures with their heatmaps, opened again from the dataset and embedded."""

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from transexplain.analysis.groups.class_totals import SeenTotals
from transexplain.analysis.groups.exact_totals import Histogram, outer_edge
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.data.image_files import load_image
from transexplain.data.source_files import inside
from transexplain.errors import ItemError
from transexplain.reports.heatmap import data_uri, muted, overlay, resized, tile
from transexplain.reports.report_records import FailureExample, FailureKind
from transexplain.reports.row_records import Explanation, Gallery, GalleryItem, Grid, Reason
from transexplain.store import noteworthy, results
from transexplain.store.database import Database
from transexplain.store.noteworthy import margin_of
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, PatchGrid
from transexplain.types.plans import AuditRun
from transexplain.types.words import Span, largest, size_of, spans_of

_SMALLEST, _LARGEST = 160, 256  # pixels of the longer side
_ALPHA = 0.85


@dataclass(frozen=True, slots=True)
class Drawn:
    """One explanation as pictures, each a `data:` address."""

    shared: str  #: on the scale that all examples share
    own: str  #: on its own scale


@dataclass(frozen=True, slots=True)
class Shown:
    """One gallery item as pictures."""

    original: str | None
    missing: str  #: why there is no original; heatmaps then stand alone
    drawn: tuple[Drawn, ...]


def show(item: GalleryItem, root: str, scale: float) -> Shown:
    """Open the picture of `item` and draw its explanations."""
    try:
        image = _open(item.source, root)
    except ItemError as error:
        drawn = tuple(_alone(one, scale) for one in item.explanations)
        return Shown(None, str(error), drawn)
    image = resized(image, smallest=_SMALLEST, largest=_LARGEST)
    ground = muted(image)
    drawn = tuple(_over(ground, one, scale) for one in item.explanations)
    return Shown(data_uri(image), "", drawn)


def mean_heatmap(grid: Grid, scale: float) -> str:
    """The mean heatmap of a class as a `data:` address."""
    return data_uri(tile(np.asarray(grid), width=208, scale=scale))


def _open(source: str | None, root: str) -> Image.Image:
    if source is None:
        raise ItemError("missing-image", "no file of this picture was recorded")
    if not root:
        raise ItemError("missing-image", "the dataset's folder was not recorded")
    return load_image(inside(Path(root), source), name=source)


def _over(image: Image.Image, one: Explanation, scale: float) -> Drawn:
    grid, box = np.asarray(one.grid or ((0.0,),)), one.box or (0.0, 0.0, 1.0, 1.0)
    return Drawn(
        shared=data_uri(overlay(image, grid, alpha=_ALPHA, scale=scale, box=box)),
        own=data_uri(overlay(image, grid, alpha=_ALPHA, box=box)),
    )


def _alone(one: Explanation, scale: float) -> Drawn:
    grid = np.asarray(one.grid or ((0.0,),))
    return Drawn(shared=data_uri(tile(grid, scale=scale)), own=data_uri(tile(grid)))


SHARE = 0.9  #: of all explanations that the gallery's shared colour scale does not saturate
_EXAMPLES = 5


@dataclass(slots=True)
class Sizes:
    """A histogram of positive numbers over any range in little memory, exact to 1 %."""

    _seen: Histogram = field(default_factory=Histogram)
    _largest: float = 0.0

    def add(self, size: float) -> None:
        """Count one number, at least 0."""
        self._seen.add(size)
        self._largest = max(self._largest, size)

    def quantile(self, share: float) -> float:
        """A number that `share` of those added do not exceed; 0 where none was added."""
        place = self._seen.bin_of(share)
        return min(self._largest, outer_edge(place)) if place else 0.0


@dataclass(slots=True)
class Best:
    """The keys with the largest numbers; among equals, those that came first."""

    places: int
    _heap: list[tuple[float, int, str]] = field(default_factory=list)
    _seen: int = 0

    def add(self, number: float, key: str) -> None:
        """Offer one key."""
        self._seen += 1
        entry = (number, -self._seen, key)
        if len(self._heap) < self.places:
            heapq.heappush(self._heap, entry)
        elif self.places:
            heapq.heappushpop(self._heap, entry)

    def keys(self) -> list[str]:
        """Best first, each once."""
        return list(dict.fromkeys(key for _, _, key in sorted(self._heap, reverse=True)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What all rows together say; ids of items, the most noteworthy first."""

    seen: SeenTotals
    scale: float  #: `SHARE` of the explanations are not larger, to 1 %
    strongest: list[str]
    wrong: list[str]
    first: list[str]


def survey(db: Database, run: AuditRun, total: ShardAggregate, places: int) -> Survey:
    """What there is to say of a run whose merged totals are `total`, for a gallery of `places`.

    Either way gives the same survey, bit for bit.
    """
    first = noteworthy.first(db, run.id, places)
    if total.seen is None or noteworthy.sized(db, run.id) != total.seen.count.total():
        attributions = AttributionSurvey(strongest=Best(places))
        attributions.walk(results.iter_attributions(db, run.id))
        return Survey(
            seen=attributions.seen,
            scale=attributions.sizes.quantile(SHARE),
            strongest=attributions.strongest.keys(),
            wrong=_wrong(results.iter_items(db, run.id), run.plan.model.classes, places),
            first=first,
        )
    return Survey(
        seen=total.seen,
        scale=_scale(db, run.id, total.seen.count.total()),
        strongest=noteworthy.strongest(db, run.id, places),
        wrong=noteworthy.wrong(db, run.id, places),
        first=first,
    )


def failures(db: Database, run_id: str) -> tuple[FailureKind, ...]:
    """By kind, the most frequent first, with the first items of each."""
    found = noteworthy.failure_examples(db, run_id, _EXAMPLES)
    return tuple(
        FailureKind(
            kind=kind,
            count=count,
            examples=tuple(FailureExample(item_id=o.item_id, message=o.message) for o in some),
        )
        for kind, (count, some) in sorted(found.items(), key=lambda e: (-e[1][0], e[0]))
    )


@dataclass(slots=True)
class AttributionSurvey:
    """What a walk over all attributions found."""

    strongest: Best
    sizes: Sizes = field(default_factory=Sizes)
    seen: SeenTotals = field(default_factory=SeenTotals)

    def walk(self, attributions: Iterable[Attribution]) -> "AttributionSurvey":
        """Read all of `attributions`, and return this."""
        for one in attributions:
            size = size_of(one)
            self.sizes.add(size)
            self.strongest.add(size, one.item_id)
            self.seen.add(one)
        return self


def _wrong(
    items: Iterable[ItemOutcome | ItemFailure], classes: Iterable[str], count: int
) -> list[str]:
    places: Mapping[str, int] = {name: index for index, name in enumerate(classes)}
    best = Best(count)
    for one in items:
        margin = None if isinstance(one, ItemFailure) else margin_of(one, places)
        if margin is not None:
            best.add(margin, one.item_id)
    return best.keys()


def _scale(db: Database, run_id: str, count: int) -> float:
    """`Sizes.quantile` of all sizes, of which one is read."""
    below = max(1, math.ceil(SHARE * count - 1e-9))  # as `Histogram.bin_of`
    found = noteworthy.sizes_at(db, run_id, count - below + 1)
    if found is None:
        return 0.0
    sizes = Sizes()
    for size in found:  # that of the quantile, and the largest, which bounds it
        sizes.add(size)
    return sizes.quantile(0.5)


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
