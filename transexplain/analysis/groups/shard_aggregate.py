"""The totals of a shard's items, from which reports are made, and the results of its controls."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from transexplain.analysis.groups.counterfactuals import Observation
from transexplain.analysis.groups.entity_totals import EntityTotals
from transexplain.analysis.groups.hidden_regions import HiddenRegion
from transexplain.analysis.groups.mention_ablation import MentionAblation
from transexplain.analysis.groups.mixed_audits import ExactSample
from transexplain.analysis.groups.outcomes import OutcomeTotals
from transexplain.analysis.groups.randomised_control import RandomisedTotals
from transexplain.analysis.groups.text_totals import (
    TextBatch,
    TextRepeats,
    part_rows,
    word_rows,
    words_of,
)
from transexplain.errors import ConfigurationError
from transexplain.store.exact_sums import (
    LARGEST,
    UNITS,
    Sums,
    add_row,
    add_table,
    counts,
    exact,
    exact_sums,
    numbered,
)
from transexplain.types.items import Attribution, ItemOutcome, PatchGrid
from transexplain.types.plans import AuditPlan

VERSION = 8  #: of the aggregate; no other is read
PARTS = 20  #: equal stretches of every text
ALL = ""  #: stands for every item; no group is called so
ClassKey = tuple[str, str]  #: target of the plan, class name


@dataclass(frozen=True, kw_only=True, slots=True)
class WordTotal:
    """One word over all attributions of a target and class."""

    word: str  #: lower case
    documents: int
    mentions: int
    relevance: float  #: sum over mentions, in the method's unit
    magnitude: float  #: sum of |relevance|


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MeanHeatmap:
    """The average picture of what a class looks at."""

    target: str
    class_name: str
    count: int  #: pictures
    relevance: NDArray[np.float64]  #: (rows, cols), mean over pictures


@dataclass(frozen=True, kw_only=True, slots=True)
class PartTotal:
    """One of the `PARTS` stretches over all texts of a target and class."""

    texts: int  #: with a position here
    positions: int
    relevance: float  #: sum over positions, in the method's unit
    magnitude: float  #: sum of |relevance|


def heatmaps_of(sums: Sums) -> list[MeanHeatmap]:
    """The mean heatmap of every target, class and grid size, sorted by these."""
    heatmaps = []
    for key, cells in sorted(sums.strata("pictures").items()):
        target, class_name, rows, cols = key
        [count] = sums.table("pictured")[key]
        means = [cells[place,][0] / (UNITS * count) for place in range(rows * cols)]
        heatmaps.append(
            MeanHeatmap(
                target=target,
                class_name=class_name,
                count=count,
                relevance=np.array(means, dtype=np.float64).reshape(rows, cols),
            )
        )
    return heatmaps


def parts_of(sums: Sums, target: str, class_name: str) -> tuple[PartTotal, ...]:
    """Totals by place in the text, from its beginning; empty where no text was counted."""
    rows = sums.strata("positions").get((target, class_name), {})
    return tuple(
        PartTotal(
            texts=texts,
            positions=positions,
            relevance=relevance / UNITS,
            magnitude=magnitude / UNITS,
        )
        for _, (texts, positions, relevance, magnitude) in sorted(rows.items())
    )


class SeenTotals:
    """Attributions by target and class.

    Totals of `sums`: seen, (target, class) -> [attributions, logits]; layers and units, (name,) ->
    [attributions].
    """

    def __init__(self, sums: Sums | None = None) -> None:
        self.sums = Sums() if sums is None else sums

    def add(self, attributions: Sequence[Attribution]) -> None:
        """Count attributions; raises ValueError where a logit is not finite."""
        keys, kinds = numbered([(row.target, row.class_name) for row in attributions])
        logits = np.array([attribution.logit for attribution in attributions], dtype=np.float64)
        wrong = np.flatnonzero(~(np.abs(logits) < LARGEST))
        if len(wrong):
            name = attributions[wrong[0]].item_id
            raise ValueError(f"item {name!r} has a logit that is not finite")
        many = np.bincount(kinds, minlength=len(keys)).tolist()
        for key, *row in zip(keys, many, exact_sums(logits, kinds, len(keys)), strict=True):
            add_row(self.sums.table("seen"), key, row)
        for total, name in (("layers", "at"), ("units", "unit")):
            for value, count in Counter(getattr(row, name) for row in attributions).items():
                add_row(self.sums.table(total), (value,), [count])

    @property
    def input_layers(self) -> set[str]:
        """Where relevance was measured."""
        return set(counts(self.sums.table("layers")))

    @property
    def units(self) -> set[str]:
        """Of relevance."""
        return set(counts(self.sums.table("units")))

    @property
    def count(self) -> Counter[ClassKey]:
        """Attributions of every target and class."""
        return Counter(counts(self.sums.table("seen")))

    def mean_logit(self, key: ClassKey) -> float:
        """Over the attributions of a target and class; 0 where there are none."""
        count, summed = self.sums.table("seen").get(key, (0, 0))
        return summed / (UNITS * count) if count else 0.0


class GapTotals:
    """Relative gaps of ledgers by group.

    Total of `sums`: gaps, (group or `ALL`,) -> [items, ledgers, sum of their relative gaps in
    units of 2**-100].
    """

    def __init__(self, sums: Sums | None = None) -> None:
        self.sums = Sums() if sums is None else sums

    def add(self, attributions: Iterable[Attribution], groups: Collection[str]) -> None:
        """Count the ledgers of one item that mentions `groups`; without a ledger, nothing.

        Raises ValueError where a gap is not finite.
        """
        gaps = [row.ledger.relative_gap for row in attributions if row.ledger is not None]
        if not all(map(isfinite, gaps)):
            raise ValueError("the gap of a ledger is not finite")
        if gaps:
            row = [1, len(gaps), sum(round(gap * UNITS * UNITS) for gap in gaps)]
            for group in (ALL, *groups):
                add_row(self.sums.table("gaps"), (group,), row)

    def means(self) -> dict[str, tuple[int, float]]:
        """Group or `ALL` -> items with a ledger, and the mean relative gap of these ledgers."""
        return {
            group: (items, summed / (UNITS * UNITS * ledgers))
            for (group,), (items, ledgers, summed) in self.sums.table("gaps").items()
        }


@dataclass(slots=True)
class ControlResults:
    """The results of one shard, or of shards merged into it; lists are in any order."""

    ablations: list[MentionAblation] = field(default_factory=list)
    #: of swapped mentions, and of items made from one template
    observations: list[Observation] = field(default_factory=list)
    #: of texts with a word that the lexicon may lack, and without it, see `mention_coverage`
    candidates: list[Observation] = field(default_factory=list)
    regions: list[HiddenRegion] = field(default_factory=list)  #: of pictures, hidden
    #: of a run whose method is checked against an exact one
    exact: ExactSample = field(default_factory=ExactSample)
    #: group -> texts without swaps, because only some of its words could be swapped
    unpaired: Counter[str] = field(default_factory=Counter)
    randomised: RandomisedTotals = field(default_factory=RandomisedTotals)

    def merge(self, other: "ControlResults") -> None:
        """Add what `other` holds."""
        for name in _LISTS:
            getattr(self, name).extend(getattr(other, name))
        self.exact.merge(other.exact)
        self.unpaired.update(other.unpaired)
        self.randomised.merge(other.randomised)


_LISTS = ("ablations", "observations", "candidates", "regions")


class _AggregateAsJson(msgspec.Struct, forbid_unknown_fields=True):
    """The aggregate as JSON; `totals` as `Sums.packed`."""

    version: int
    totals: dict[str, str]
    ablations: list[MentionAblation]
    observations: list[Observation]
    candidates: list[Observation]
    regions: list[HiddenRegion]
    exact: ExactSample
    unpaired: dict[str, int]


class ShardAggregate:
    """Totals over the items of one shard, or of the shards merged into it.

    Those that are numbers are in `sums`, by key:

    - items: () -> [items, truncated]; sensitivity: () -> [items, sum of their class sensitivity]
    - predictions: (label or None, predicted class) -> [items]
    - words, of each (target, class): (word,) -> [documents, mentions, relevance, |relevance|]
    - pictured: (target, class, rows, columns) -> [pictures]; pictures, of each of these: (number
      of the cell, row by row,) -> [sum]
    - positions, of each (target, class): (number of the part of `PARTS`,) -> [texts with a position
      there, positions, relevance, |relevance|]
    - dropped: (group, entity) -> [how often it was left out as ambiguous]
    - spellings: (group, entity, as written) -> [mentions of lexicons' entities]

    and those of the parts below.
    """

    def __init__(self) -> None:
        self.sums = Sums()
        self.entities = EntityTotals(self.sums)  #: mentions of every entity
        #: mentions by a second lexicon, which only robustness rows read
        self.second = EntityTotals(self.sums, "second")
        self.seen = SeenTotals(self.sums)
        self.gaps = GapTotals(self.sums)  #: of items in which mentions were looked for
        self.outcomes = OutcomeTotals(self.sums)  #: where groups were looked for
        self.repeats = TextRepeats(self.sums)
        #: a random sample of items, checked
        self.checked = ControlResults(randomised=RandomisedTotals(self.sums))

    @classmethod
    def of(cls, plan: AuditPlan) -> "ShardAggregate":
        """The totals of a plan's items, before the first is counted."""
        aggregate = cls()
        aggregate.repeats.draw(plan)
        return aggregate

    def add(self, outcome: ItemOutcome, attributions: Sequence[Attribution]) -> None:
        """Count one item and all its attributions; raises as `add_all`."""
        self.add_all([outcome], attributions)

    def add_all(self, outcomes: Sequence[ItemOutcome], attributions: Sequence[Attribution]) -> None:
        """Count items and all their attributions; many at once are counted fastest.

        Raises:
            ValueError: a relevance or a logit is not finite, or `exact_sums.LARGEST` or beyond.
        """
        truncated = sum(outcome.truncated for outcome in outcomes)
        add_row(self.sums.table("items"), (), [len(outcomes), truncated])
        predictions = self.sums.table("predictions")
        for key, count in Counter((row.label, row.predicted) for row in outcomes).items():
            add_row(predictions, key, [count])
        self.repeats.add(outcome.text for outcome in outcomes)
        self.seen.add(attributions)
        pictures = [row for row in attributions if isinstance(row.features, PatchGrid)]
        texts = [row for row in attributions if not isinstance(row.features, PatchGrid)]
        if pictures:
            self._add_images(pictures)
        if texts:
            self._add_texts(texts)

    def _add_texts(self, attributions: Sequence[Attribution]) -> None:
        keys, kinds = numbered([(row.target, row.class_name) for row in attributions])
        batch = TextBatch.join(attributions)
        _check_finite(batch.relevance, attributions)
        for kind, rows in word_rows(words_of(batch), kinds):
            add_table(self.sums.table("words", keys[kind]), rows)
        for key, parts in zip(keys, part_rows(batch, kinds, len(keys), PARTS), strict=True):
            add_table(self.sums.table("positions", key), parts)

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
            add_row(self.sums.table("pictured"), key, [len(chosen)])
            rows = {(place,): [number] for place, number in enumerate(sums)}
            add_table(self.sums.table("pictures", key), rows)

    def add_sensitivity(self, value: float) -> None:
        """Count the class sensitivity of one item."""
        add_row(self.sums.table("sensitivity"), (), [1, exact(value)])

    def add_dropped(self, entities: Iterable[tuple[str, str]]) -> None:
        """Count (group, entity) that stand in an item but are not taken for mentions."""
        for key in entities:
            add_row(self.sums.table("dropped"), key, [1])

    def add_spelling(self, group: str, entity: str, surface: str) -> None:
        """Count a mention of a lexicon's entity by how it is written."""
        add_row(self.sums.table("spellings"), (group, entity, surface), [1])

    @property
    def items(self) -> int:
        """Items that were counted."""
        return self.sums.table("items").get((), [0])[0]

    @property
    def truncated(self) -> int:
        """Of these, items that were longer than the model reads."""
        return self.sums.table("items").get((), [0])[-1]

    @property
    def predictions(self) -> dict[tuple[str | None, str], int]:
        """(label or None, predicted class) -> items."""
        return counts(self.sums.table("predictions"))

    @property
    def dropped(self) -> dict[tuple[str, str], int]:
        """(group, entity) -> how often it was left out as ambiguous."""
        return counts(self.sums.table("dropped"))

    @property
    def spellings(self) -> dict[tuple[str, str, str], int]:
        """(group, entity, as written) -> mentions of lexicons' entities."""
        return counts(self.sums.table("spellings"))

    @property
    def class_sensitivity(self) -> tuple[float, int] | None:
        """Mean over the items it was measured on, and how many; None: on none."""
        count, summed = self.sums.table("sensitivity").get((), (0, 0))
        return (summed / (UNITS * count), count) if count else None

    @property
    def class_keys(self) -> list[ClassKey]:
        """(target, class) pairs that texts or heatmaps were counted of, sorted."""
        pictured = {(target, name) for target, name, *_ in self.sums.table("pictured")}
        # a text without words, as where no text is stored, has positions
        return sorted({*self.sums.strata("words"), *self.sums.strata("positions"), *pictured})

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
            for (word,), (documents, mentions, relevance, magnitude) in sorted(
                self.sums.strata("words").get((target, class_name), {}).items()
            )
        ]

    def heatmaps(self) -> list[MeanHeatmap]:
        """The mean heatmap of every target, class and grid size."""
        return heatmaps_of(self.sums)

    def positions(self, target: str, class_name: str) -> tuple[PartTotal, ...]:
        """Totals by place in the text, from its beginning; empty where no text was counted."""
        return parts_of(self.sums, target, class_name)

    def merge(self, other: "ShardAggregate") -> "ShardAggregate":
        """Add what `other` holds to this, and return this."""
        return self.add_json(other.to_json())

    def without(self, groups: Collection[str]) -> "ShardAggregate":
        """The totals without what was counted for these groups; these stay as they are."""
        others = ShardAggregate().merge(self)
        checked = others.checked
        for totals in (others.entities, checked.randomised.real, *checked.randomised.draws):
            totals.remove(groups)
        for name in ("observations", "regions", "candidates"):
            kept = [row for row in getattr(checked, name) if row.group not in groups]
            setattr(checked, name, kept)
        return others

    def take_words(self, other: "ShardAggregate") -> None:
        """Replace the words by those of another."""
        self.sums.remove("words")
        self.sums.merge(other.sums, "words", "words")

    def rename_entities(self, groups: Collection[str], rename: Callable[[str], str]) -> None:
        """Give the entities of these groups other names."""
        checked = self.checked
        randomised = checked.randomised
        for totals in (self.entities, self.second, randomised.real, *randomised.draws):
            totals.rename(groups, rename)
        for rows in (*(getattr(checked, name) for name in _LISTS), checked.exact.mentions):
            rows[:] = [
                replace(row, entity=rename(row.entity)) if row.group in groups else row
                for row in rows
            ]

    def to_json(self) -> dict[str, Any]:
        """The totals as JSON values, the version first; equal totals give equal JSON."""
        checked = self.checked
        lists = {name: _sorted(getattr(checked, name)) for name in _LISTS}
        exact = {
            entry.name: _sorted(value) if isinstance(value, list) else value
            for entry in fields(checked.exact)
            for value in (getattr(checked.exact, entry.name),)
        }
        unpaired = dict(sorted(checked.unpaired.items()))
        self.outcomes.count_waiting()
        totals = self.sums.packed()
        return {"version": VERSION, "totals": totals, **lists, "exact": exact, "unpaired": unpaired}

    def add_json(self, content: Any) -> "ShardAggregate":
        """Add what `to_json` wrote, and return this.

        Raises ConfigurationError for a version that is not read, or what is damaged.
        """
        check_versions((content.get("version") if isinstance(content, dict) else None,))
        try:
            saved = msgspec.convert(content, _AggregateAsJson)
            self.sums.add_packed(saved.totals)
        except (ValueError, msgspec.ValidationError) as error:
            raise ConfigurationError(
                f"a shard's saved aggregate cannot be read: {error}; restore the database from a "
                "backup, or run the audit again"
            ) from None
        for name in _LISTS:
            getattr(self.checked, name).extend(getattr(saved, name))
        self.checked.exact.merge(saved.exact)
        self.checked.unpaired.update(saved.unpaired)
        return self

    @classmethod
    def from_json(cls, content: Any) -> "ShardAggregate":
        """Read what `to_json` wrote; raises as `add_json`."""
        return cls().add_json(content)


def _sorted(rows: Iterable[Any]) -> list[Any]:
    return sorted(msgspec.to_builtins(list(rows)), key=str)


def check_versions(versions: Iterable[Any]) -> None:
    """Raise ConfigurationError where `ShardAggregate.from_json` cannot read one of `versions`."""
    for version in versions:
        if type(version) is not int or version != VERSION:
            raise ConfigurationError(
                f"the run's aggregates are of version {version}, this software reads {VERSION}: "
                "run the audit again"
            )


def merged_aggregates(payloads: Iterable[Mapping[str, Any]]) -> ShardAggregate:
    """The totals of all shards; the controls' rows of all, and few shards' sums, are in memory.

    Raises ConfigurationError for a payload of a version that is not read, or a damaged one.
    """
    total = ShardAggregate()
    for payload in payloads:
        total.add_json(payload)
    return total


def _check_finite(
    relevance: NDArray[np.floating[Any]], attributions: Sequence[Attribution]
) -> None:
    """Raise ValueError where a relevance, of all attributions together, cannot be summed."""
    if not (np.abs(relevance) < LARGEST).all():
        wrong = next(row for row in attributions if not (np.abs(row.relevance) < LARGEST).all())
        raise ValueError(
            f"item {wrong.item_id!r} has a relevance that is not finite, or beyond {LARGEST:.0e}"
        )
