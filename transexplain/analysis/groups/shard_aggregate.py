"""The aggregate of a shard: all totals and control results that the group statistics need."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.aggregate_form import check_form, reading_tables
from transexplain.analysis.groups.class_totals import (
    PARTS,
    ClassKey,
    GapTotals,
    HeatmapTotals,
    MeanHeatmap,
    PositionTotals,
    SeenTotals,
)
from transexplain.analysis.groups.counterfactuals import (
    Observation,
    observations_from_json,
    observations_to_json,
)
from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.exact_totals import (
    UNITS,
    Counts,
    ExactTable,
    exact_sums,
    merge_each,
    numbered,
    packed,
    unpacked_rows,
)
from transexplain.analysis.groups.hidden_regions import (
    HiddenRegion,
    regions_from_json,
    regions_to_json,
)
from transexplain.analysis.groups.mention_ablation import MentionAblation, ablations_to_json
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
class ControlResults:
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

    def merge(self, other: Self) -> Self:
        """Add what `other` holds to this, and return this."""
        self.ablations += other.ablations
        self.observations += other.observations
        self.candidates += other.candidates
        self.unpaired.merge(other.unpaired)
        self.regions += other.regions
        self.randomised.merge(other.randomised)
        if other.exact is not None:
            self.exact = (self.exact or ExactSample()).merge(other.exact)
        return self

    def to_json(self) -> dict[str, Any]:
        """As JSON values; equal checks give equal JSON."""
        content: dict[str, Any] = {
            "removals": ablations_to_json(self.ablations),
            "observations": observations_to_json(self.observations),
            "randomised": self.randomised.to_json(),
        }
        if self.regions:
            content["regions"] = regions_to_json(self.regions)
        if self.candidates:
            content["candidates"] = observations_to_json(self.candidates)
        if self.unpaired:
            content["unpaired"] = dict(sorted(self.unpaired.items()))
        return content if self.exact is None else {**content, "exact": self.exact.to_json()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        exact = content.get("exact")
        return cls(
            ablations=[MentionAblation(**row) for row in content["removals"]],
            observations=observations_from_json(content["observations"]),
            candidates=observations_from_json(content.get("candidates", ())),
            unpaired=Counts(content.get("unpaired", {})),
            regions=regions_from_json(content.get("regions", ())),
            randomised=RandomisedTotals.from_json(content["randomised"]),
            exact=ExactSample.from_json(exact) if exact else None,
        )


VERSION = 6  #: of the aggregate; no other is read
WORD_WIDTH = 4  #: numbers in the totals of a word


@dataclass(frozen=True, kw_only=True, slots=True)
class WordTotal:
    """One word over all attributions of a target and class."""

    word: str  #: lower case
    documents: int
    mentions: int
    relevance: float  #: sum over mentions, in the method's unit
    magnitude: float  #: sum of |relevance|


@dataclass(slots=True)
class ShardAggregate:
    """Totals over the items of one shard, or of the shards merged into it."""

    items: int = 0
    truncated: int = 0
    #: (label or None, predicted class) -> items
    predictions: Counts[tuple[str | None, str]] = field(default_factory=Counts)
    #: class sensitivity: items that it was measured on, and the sum over them
    _sensitivity: list[int] = field(default_factory=lambda: [0, 0])
    #: of every word: documents, mentions, relevance, |relevance|
    _words: dict[ClassKey, ExactTable[str]] = field(default_factory=dict)
    _heatmaps: HeatmapTotals = field(default_factory=HeatmapTotals)
    positions: PositionTotals = field(default_factory=PositionTotals)  #: by place in the text
    entities: EntityTotals = field(default_factory=EntityTotals)  #: mentions of every entity
    #: mentions by a second lexicon, which only robustness rows read
    second: EntityTotals = field(default_factory=EntityTotals)
    checked: ControlResults = field(
        default_factory=ControlResults
    )  #: a random sample of items, checked
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
        self._sensitivity = _sum(self._sensitivity, (1, round(value * UNITS)))

    def add_dropped(self, entities: Iterable[tuple[str, str]]) -> None:
        """Count (group, entity) that stand in an item but are not taken for mentions."""
        for key in entities:
            self.dropped.add(key)

    @property
    def class_sensitivity(self) -> tuple[float, int] | None:
        """Mean over the items it was measured on, and how many; None: on none."""
        count, summed = self._sensitivity
        return (summed / (UNITS * count), count) if count else None

    def merge(self, other: "ShardAggregate") -> "ShardAggregate":
        """Add the totals of `other` to these, and return these."""
        self.items += other.items
        self.truncated += other.truncated
        self._sensitivity = _sum(self._sensitivity, other._sensitivity)
        self.predictions.merge(other.predictions)
        merge_each(self._words, other._words, ExactTable)
        self._heatmaps.merge(other._heatmaps)
        self.positions.merge(other.positions)
        self.entities.merge(other.entities)
        self.second.merge(other.second)
        self.checked.merge(other.checked)
        self.dropped.merge(other.dropped)
        self.spellings.merge(other.spellings)
        self.seen.merge(other.seen)
        self.gaps.merge(other.gaps)
        self.outcomes.merge(other.outcomes)
        if other.repeats is not None:
            mine = self.repeats or TextRepeats(other.repeats.below)
            self.repeats = mine.merge(other.repeats)
        return self

    @property
    def class_keys(self) -> list[ClassKey]:
        """(target, class) pairs that have words or heatmaps, sorted."""
        return sorted({*self._words, *self._heatmaps.class_keys})

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
                self._words.get((target, class_name), {}).items()
            )
        ]

    def heatmaps(self) -> list[MeanHeatmap]:
        """The mean heatmap of every target, class and grid size."""
        return self._heatmaps.means()

    def to_json(self) -> dict[str, Any]:
        """The totals as JSON values; equal totals give equal JSON."""
        by_label = sorted(self.predictions.items(), key=lambda e: (e[0][0] or "", e[0][1], e[1]))
        content = {
            "version": VERSION,
            "items": self.items,
            "truncated": self.truncated,
            "sensitivity": self._sensitivity,
            "predictions": [[*key, count] for key, count in by_label],
            "words": [_words_json(key, words) for key, words in sorted(self._words.items())],
            "heatmaps": self._heatmaps.to_json(),
            "positions": self.positions.to_json(),
            "entities": self.entities.to_json(),
            "second": self.second.to_json(),
            "checked": self.checked.to_json(),
            "dropped": [[*key, count] for key, count in sorted(self.dropped.items())],
            "seen": self.seen.to_json(),
            "gaps": self.gaps.to_json(),
            "outcomes": self.outcomes.to_json(),
        }
        if self.spellings:
            content["spellings"] = [[*key, count] for key, count in sorted(self.spellings.items())]
        return content if self.repeats is None else {**content, "repeats": self.repeats.to_json()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "ShardAggregate":
        """Read what `to_json` wrote.

        Raises:
            ConfigurationError: written by another version, or damaged; it names the place.
        """
        check_versions((version_of(content),))
        check_form(content)
        with reading_tables():
            return cls(
                items=content["items"],
                truncated=content["truncated"],
                predictions=Counts(
                    {(label, predicted): many for label, predicted, many in content["predictions"]}
                ),
                _sensitivity=list(content["sensitivity"]),
                _words=dict(map(_words, content["words"])),
                _heatmaps=HeatmapTotals.from_json(content["heatmaps"]),
                positions=PositionTotals.from_json(content["positions"]),
                entities=EntityTotals.from_json(content["entities"]),
                second=EntityTotals.from_json(content["second"]),
                checked=ControlResults.from_json(content["checked"]),
                dropped=Counts(
                    {(group, entity): count for group, entity, count in content["dropped"]}
                ),
                spellings=Counts(
                    {(row[0], row[1], row[2]): row[3] for row in content.get("spellings", ())}
                ),
                seen=SeenTotals.from_json(content["seen"]),
                gaps=GapTotals.from_json(content["gaps"]),
                outcomes=OutcomeTotals.from_json(content["outcomes"]),
                repeats=_repeats(content.get("repeats")),
            )

    def _add_texts(self, attributions: Sequence[Attribution]) -> None:
        keys, kinds = numbered([(row.target, row.class_name) for row in attributions])
        batch = TextBatch.join(attributions)
        _check_finite(batch.relevance, attributions)
        tables = [self._words.setdefault(key, ExactTable()) for key in keys]
        for kind, rows in word_rows(words_of(batch), kinds):
            tables[kind].merge(rows)
        for key, parts in zip(keys, part_rows(batch, kinds, len(keys), PARTS), strict=True):
            self.positions.add(key, parts)

    def _add_images(self, attributions: Sequence[Attribution]) -> None:
        keys, kinds = numbered(
            [(row.target, row.class_name, *row.relevance.shape) for row in attributions]
        )
        for number, key in enumerate(keys):
            chosen = np.flatnonzero(kinds == number).tolist()
            cells = np.stack([attributions[place].relevance.ravel() for place in chosen])
            _check_finite(cells, attributions)
            of = np.tile(np.arange(cells.shape[1]), len(chosen))
            self._heatmaps.add(key, len(chosen), exact_sums(cells.ravel(), of, cells.shape[1]))


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


def _sum(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return [first + other for first, other in zip(left, right, strict=True)]


def _words_json(key: ClassKey, words: Mapping[str, list[int]]) -> dict[str, Any]:
    names = sorted(words)
    table = packed([words[name] for name in names], WORD_WIDTH)
    return {"target": key[0], "class_name": key[1], "names": names, **table}


def _words(content: Mapping[str, Any]) -> tuple[ClassKey, ExactTable[str]]:
    """The words of a target and class."""
    key = (content["target"], content["class_name"])
    names = content["names"]
    return key, ExactTable(zip(names, unpacked_rows(content, len(names), WORD_WIDTH), strict=True))


def _repeats(content: Mapping[str, Any] | None) -> TextRepeats | None:
    return None if content is None else TextRepeats.from_json(content)


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
