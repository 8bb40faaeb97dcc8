"""The aggregate of a shard: all totals and control results that the group statistics need."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.class_totals import (
    PART_WIDTH,
    PARTS,
    ClassKey,
    GapTotals,
    HeatmapKey,
    MeanHeatmap,
    PartTotal,
    SeenTotals,
    mean_heatmaps,
    part_totals,
)
from transexplain.analysis.groups.counterfactuals import Observation
from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.exact_totals import (
    UNITS,
    Count,
    Counts,
    ExactTable,
    Tables,
    Totals,
    exact_sums,
    numbered,
)
from transexplain.analysis.groups.hidden_regions import HiddenRegion
from transexplain.analysis.groups.mention_ablation import MentionAblation
from transexplain.analysis.groups.outcome_totals import OutcomeTotals
from transexplain.analysis.groups.prediction_powered import ExactSample
from transexplain.analysis.groups.randomised_control import RandomisedTotals
from transexplain.analysis.groups.text_totals import (
    TextBatch,
    TextRepeats,
    part_rows,
    word_rows,
    words_of,
)
from transexplain.errors import ConfigurationError
from transexplain.types.items import Attribution, ItemOutcome, PatchGrid
from transexplain.types.plans import AuditPlan


@dataclass(slots=True)
class ControlResults(Totals):
    """The results of one shard, or of shards merged into it; lists are in any order."""

    ablations: list[MentionAblation] = field(default_factory=list)
    #: of swapped mentions, and of items made from one template
    observations: list[Observation] = field(default_factory=list)
    #: of texts with a word that the lexicon may lack, and without it, see `mention_coverage`
    candidates: list[Observation] = field(default_factory=list)
    #: group -> texts without swaps, because only some of its words could be swapped
    unpaired: Counts[str] = field(default_factory=Counts)
    regions: list[HiddenRegion] = field(default_factory=list)  #: of pictures, hidden
    randomised: RandomisedTotals = field(default_factory=RandomisedTotals)
    exact: ExactSample | None = None  #: None: the run's method explains alone


VERSION = 7  #: of the aggregate; no other is read


@dataclass(frozen=True, kw_only=True, slots=True)
class WordTotal:
    """One word over all attributions of a target and class."""

    word: str  #: lower case
    documents: int
    mentions: int
    relevance: float  #: sum over mentions, in the method's unit
    magnitude: float  #: sum of |relevance|


@dataclass(slots=True)
class ShardAggregate(Totals):
    """Totals over the items of one shard, or of the shards merged into it."""

    items: Count = 0
    truncated: Count = 0
    #: (label or None, predicted class) -> items
    predictions: Counts[tuple[str | None, str]] = field(default_factory=Counts)
    #: class sensitivity: items that it was measured on, and the sum over them
    _sensitive: Count = 0
    _sensitivity: int = 0
    #: (target, class) -> word -> [documents, mentions, relevance, |relevance|]
    _words: Tables = field(default_factory=lambda: Tables(4, 2))
    #: -> [pictures, sum of every cell in turn, row by row]
    _pictures: ExactTable[HeatmapKey] = field(default_factory=ExactTable)
    #: -> the numbers of the `PARTS` of all texts, one part after the other
    _positions: ExactTable[ClassKey] = field(default_factory=ExactTable)
    #: mentions of every entity
    entities: EntityTotals = field(default_factory=EntityTotals)
    #: mentions by a second lexicon, which only robustness rows read
    second: EntityTotals = field(default_factory=EntityTotals)
    #: a random sample of items, checked
    checked: ControlResults = field(default_factory=ControlResults)
    #: (group, entity) -> how often it was left out as ambiguous
    dropped: Counts[tuple[str, str]] = field(default_factory=Counts)
    #: (group, entity, as written) -> mentions of lexicons' entities
    spellings: Counts[tuple[str, str, str]] = field(default_factory=Counts)
    seen: SeenTotals = field(default_factory=SeenTotals)
    #: of items in which mentions were looked for
    gaps: GapTotals = field(default_factory=GapTotals)
    outcomes: OutcomeTotals = field(default_factory=OutcomeTotals)  #: where groups were looked for
    repeats: TextRepeats | None = None  #: None: see `TextRepeats.of`

    @classmethod
    def of(cls, plan: AuditPlan) -> "ShardAggregate":
        """The totals of a plan's items, before the first is counted."""
        return cls(repeats=TextRepeats.of(plan))

    def add(self, outcome: ItemOutcome, attributions: Sequence[Attribution]) -> None:
        """Count one item and all its attributions; raises as `add_all`."""
        self.add_all([outcome], attributions)

    def add_all(self, outcomes: Sequence[ItemOutcome], attributions: Sequence[Attribution]) -> None:
        """Count items and all their attributions; many at once are counted fastest.

        Raises:
            ValueError: a relevance or a logit is not finite.
        """
        self.items += len(outcomes)
        self.truncated += sum(outcome_.truncated for outcome_ in outcomes)
        self.predictions.merge(Counter((row.label, row.predicted) for row in outcomes))
        if self.repeats is not None:
            for outcome in outcomes:
                if outcome.text is not None:
                    self.repeats.add(outcome.text)
        self.seen.add(attributions)
        pictures = [row for row in attributions if isinstance(row.features, PatchGrid)]
        texts = [
            attribution
            for attribution in attributions
            if not isinstance(attribution.features, PatchGrid)
        ]
        for added, some in ((self._add_images, pictures), (self._add_texts, texts)):
            if some:
                added(some)

    def add_sensitivity(self, value: float) -> None:
        """Count the class sensitivity of one item."""
        self._sensitive += 1
        self._sensitivity += round(value * UNITS)

    def add_dropped(self, entities: Iterable[tuple[str, str]]) -> None:
        """Count (group, entity) that stand in an item but are not taken for mentions."""
        for key in entities:
            self.dropped.add(key)

    @property
    def class_sensitivity(self) -> tuple[float, int] | None:
        """Mean over the items it was measured on, and how many; None: on none."""
        count = self._sensitive
        return (self._sensitivity / (UNITS * count), count) if count else None

    @property
    def class_keys(self) -> list[ClassKey]:
        """(target, class) pairs that texts or heatmaps were counted of, sorted."""
        pictured = {(target, class_name) for target, class_name, *_ in self._pictures}
        # a text without words, as where no text is stored, has positions
        return sorted({*self._words.tables, *self._positions, *pictured})

    def words(self, target: str, class_name: str) -> list[WordTotal]:
        """Totals of every word for a target and class, in alphabetical order."""
        return [
            WordTotal(
                word=word,
                documents=documents,
                mentions=mentions,
                relevance=relevance / UNITS,
                magnitude=magnitude / UNITS,
            )
            for word, (documents, mentions, relevance, magnitude) in sorted(
                self._words.tables.get((target, class_name), {}).items()
            )
        ]

    def heatmaps(self) -> list[MeanHeatmap]:
        """The mean heatmap of every target, class and grid size."""
        return mean_heatmaps(self._pictures)

    def positions(self, target: str, class_name: str) -> tuple[PartTotal, ...]:
        """Totals by place in the text, from its beginning; empty where no text was counted."""
        return part_totals(self._positions.get((target, class_name), ()))

    def to_json(self) -> dict[str, Any]:
        """The totals as JSON values, the version first."""
        return {"version": VERSION, **Totals.to_json(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "ShardAggregate":
        """Read what `to_json` wrote; raises as `merged_aggregates`."""
        return merged_aggregates((content,))

    def check(self) -> None:
        """Raise ValueError where numbers of what was read do not fit each other."""
        for (*_, rows, columns), (count, *cells) in self._pictures.items():
            if count < 1 or len(cells) != rows * columns:
                raise ValueError(f"pictures: {len(cells)} cells of {count} pictures of {rows} rows")
        if any(len(row) % PART_WIDTH for row in self._positions.values()):
            raise ValueError("positions: a part with some of its numbers")
        for totals in (self.entities, self.second):
            if any(key not in totals._rows.tables for key in totals._documents.tables):
                raise ValueError("entities: a stratum without rows")
        bool(self.outcomes)  # reads the names of situations

    def _add_texts(self, attributions: Sequence[Attribution]) -> None:
        keys, kinds = numbered([(row.target, row.class_name) for row in attributions])
        batch = TextBatch.join(attributions)
        _check_finite(batch.relevance, attributions)
        tables = [self._words.of(key) for key in keys]
        for kind, rows in word_rows(words_of(batch), kinds):
            tables[kind].merge(rows)
        for key, parts in zip(keys, part_rows(batch, kinds, len(keys), PARTS), strict=True):
            self._positions.add(key, parts)

    def _add_images(self, attributions: Sequence[Attribution]) -> None:
        keys, kinds = numbered(
            [(row.target, row.class_name, *row.relevance.shape) for row in attributions]
        )
        for number, key in enumerate(keys):
            chosen = np.flatnonzero(kinds == number).tolist()
            cells = np.stack([attributions[place].relevance.ravel() for place in chosen])
            _check_finite(cells, attributions)
            of = np.tile(np.arange(cells.shape[1]), len(chosen))
            sums = exact_sums(cells.ravel(), of, cells.shape[1])
            self._pictures.add(key, [len(chosen), *sums])


def version_of(content: Any) -> int | None:
    """The version of an aggregate; None where it has none that is a number."""
    version = content.get("version") if isinstance(content, dict) else None
    return version if type(version) is int else None


def check_versions(versions: Iterable[int | None]) -> None:
    """Raise ConfigurationError where `ShardAggregate.from_json` cannot read one of `versions`."""
    for version in versions:
        if version != VERSION:
            raise ConfigurationError(
                f"the run's aggregates are of version {version}, this software reads {VERSION}: "
                "run the audit again"
            )


def merged_aggregates(payloads: Iterable[Mapping[str, Any]]) -> ShardAggregate:
    """The totals of all shards; one payload at a time is in memory.

    Raises ConfigurationError for a payload of a version that is not read, or a damaged one.
    """
    total = ShardAggregate()
    for payload in payloads:
        check_versions((version_of(payload),))
        _reading(partial(total.add_json, payload))
    _reading(total.check)
    return total


def _reading(read: Callable[[], None]) -> None:
    try:
        read()
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"a shard's saved aggregate cannot be read: {error}; restore the database from a "
            "backup, or run the audit again"
        ) from None


def _check_finite(
    relevance: NDArray[np.floating[Any]], attributions: Sequence[Attribution]
) -> None:
    """Raise ValueError where a relevance, of all attributions together, is not finite."""
    if not np.isfinite(relevance).all():
        wrong = next(
            attribution
            for attribution in attributions
            if not np.isfinite(attribution.relevance).all()
        )
        raise ValueError(f"item {wrong.item_id!r} has a relevance that is not finite")
