"""Requests and checks of a verification, and whether a stored shard is consistent in itself."""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path
from typing import Literal

import numpy as np

from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.data.manifest_rows import changed_files
from transexplain.errors import ConfigurationError, DamagedRowError
from transexplain.files.remote_files import is_url
from transexplain.methods.explainer_files import is_learned
from transexplain.store import readers, run_totals
from transexplain.store.database import Database
from transexplain.types.items import Attribution, ItemOutcome, PatchGrid
from transexplain.types.plans import DatasetRef, ModelRef
from transexplain.types.scores import MethodSpec

#: a note says what could not be checked, or is different and no fault; it fails nothing
Status = Literal["PASS", "FAIL", "NOTE"]
_SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifiedLine:
    """One line of a verification."""

    name: str
    status: Status
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyRequest:
    """The options of a verification: how thorough it is, and where files are now.

    Raises ConfigurationError for a number of items or a tolerance that cannot be.
    """

    items: int = 20  #: explained again
    seed: int = 0  #: of their drawing
    #: largest difference of two explanations of one item, as a share of its largest |relevance|;
    #: None: what the number type is good for, see `explained_again.TOLERANCES`
    tolerance: float | None = None
    model: str | None = None  #: in the place of the plan's source
    device: str | None = None  #: in the place of the plan's
    batch_tokens: int | None = None  #: in the place of the plan's
    data_root: Path | None = (
        None  #: folder of data files, lexicons, explainers, pictures that moved
    )
    snapshot_dir: Path | None = None  #: looked into where a snapshot is not where it was

    def __post_init__(self) -> None:
        """Refuse a wrong request before anything is read."""
        if self.items < 0:
            raise ConfigurationError(f"items={self.items} cannot be; 0 explains nothing again")
        if self.tolerance is not None and not self.tolerance >= 0:
            raise ConfigurationError(f"tolerance={self.tolerance} must be at least 0")
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise ConfigurationError(f"batch_tokens={self.batch_tokens} must be at least 1")

    def model_of(self, planned: ModelRef) -> ModelRef:
        """The model where it is to be read, on the device where it is to be run."""
        return replace(
            planned, source=self.model or planned.source, device=self.device or planned.device
        )

    def dataset_of(self, planned: DatasetRef) -> DatasetRef:
        """The dataset with its snapshot and its pictures where they are now."""
        folders = [folder for folder in (self.data_root, self.snapshot_dir) if folder is not None]
        places = [Path(planned.snapshot)]
        places += [folder / f"{planned.fingerprint}.parquet" for folder in folders]
        here = next((place for place in places if place.is_file()), None)
        lost = planned.snapshot if is_url(planned.snapshot) else str(places[0].absolute())
        root = planned.root
        if root and self.data_root is not None:
            root = str(self.data_root.absolute())
        return replace(planned, snapshot=str(here.absolute()) if here else lost, root=root)

    def file_of(self, planned: str) -> Path:
        """A data file or lexicon where it is now.

        Below `data_root` the most folders of its planned path that are there decide: of
        `/data/train/texts.csv` first `data/train/texts.csv`, then `train/texts.csv`, then
        `texts.csv`.
        """
        path = Path(planned)
        if self.data_root is None:
            return path
        parts = path.parts[1:] if path.anchor else path.parts
        if ".." in parts:  # a suffix before it is no part of the place
            parts = parts[len(parts) - parts[::-1].index("..") :]
        places = [self.data_root.joinpath(*parts[first:]) for first in range(len(parts))]
        return next((place for place in places if place.is_file()), self.data_root / path.name)

    def explainer_of(self, planned: str) -> Path:
        """An explainer where it is now: below `data_root`, else where it was."""
        moved = self.file_of(planned)
        return moved if moved.is_file() else Path(planned)

    def method_of(self, planned: MethodSpec) -> MethodSpec:
        """The method with its explainer where it is now."""
        place = planned.params.get("explainer") if is_learned(planned.name) else None
        if place is None:
            return planned
        return replace(
            planned, params={**planned.params, "explainer": str(self.explainer_of(place))}
        )


def judged(
    name: str, faults: Sequence[str], good: str, remedy: str = "", shown: int = _SHOWN
) -> VerifiedLine:
    """FAIL naming the first faults and how many there are, or PASS with `good`."""
    if not faults:
        return VerifiedLine(name=name, status="PASS", text=good)
    more = f"; and {len(faults) - shown} more" if len(faults) > shown else ""
    text = f"{'; '.join(faults[:shown])}{more}{f'. {remedy}' if remedy else ''}"
    return VerifiedLine(name=name, status="FAIL", text=text)


def listed_faults(dataset: DatasetRef) -> list[str]:
    """Return the faults of the files of a manifest; a snapshot has none."""
    if not dataset.manifest:
        return []
    try:
        return list(changed_files(dataset))
    except (OSError, ValueError) as error:
        return [f"the manifest cannot be read: {error}"]


def note(name: str, text: str) -> VerifiedLine:
    """A line about something that could not be checked."""
    return VerifiedLine(name=name, status="NOTE", text=text)


Checks = Iterator[VerifiedLine]


#: relevance is stored in float32: a value loses at most so much of itself
ROUNDING = 2.0**-24
#: what float32 loses of a sum, as a share of the sum of |terms|
_FLOAT32 = 1e-5
#: what float64 loses of it
_FLOAT64 = 1e-9

#: group, entity, target, class -> mentions, and the sum of their relevance
Mentioned = Mapping[tuple[str, str, str, str], tuple[int, float]]
#: target, class -> largest difference of a sum over its attributions
Room = Mapping[tuple[str, str], float]


def consistency_checks(
    db: Database, run_id: str, shards: Sequence[tuple[int, list[str]]]
) -> Checks:
    """All stored relevance, and the aggregates of `shards` (index, ids of the explained items)."""
    yield _relevance(db, run_id)
    if shards:
        faults = [fault for index, ids in shards for fault in _aggregate(db, run_id, index, ids)]
        many = f"{len(shards)} shard{'s' if len(shards) > 1 else ''}"
        yield judged("aggregates", faults, f"those of {many} are what the rows add up to")


def _relevance(db: Database, run_id: str) -> VerifiedLine:
    faults: list[str] = []
    read, closed, last = 0, 0, ""
    try:
        for attribution in readers.iter_attributions(db, run_id):
            read, last = read + 1, attribution.item_id
            closed += attribution.ledger is not None
            faults += [
                f"item {attribution.item_id!r}, target {attribution.target!r}: {text}"
                for text in _inconsistency(attribution)
            ]
    except (DamagedRowError, ValueError, TypeError, KeyError, IndexError, zlib.error) as error:
        after = f"after item {last!r}" if last else "at the first item"
        faults.append(f"an attribution {after} cannot be decoded: {error}")
    good = f"{read:,} attributions decode, {closed:,} ledgers agree with their relevance and logit"
    return judged("stored relevance", faults, good)


def _inconsistency(attribution: Attribution) -> Iterator[str]:
    """The contradictions within one attribution."""
    if not np.isfinite(attribution.relevance).all():
        yield "relevance is not finite"
        return
    ledger = attribution.ledger
    if ledger is None:
        return
    entries = fsum((ledger.inputs, ledger.special, ledger.embeddings, ledger.biases, ledger.rules))
    room = _FLOAT64 * max(ledger.magnitude, 1e-6)
    if abs(entries - ledger.total) > room:
        yield f"its ledger adds up to {entries:.6g}, the total says {ledger.total:.6g}"
    if abs(attribution.logit - ledger.total - ledger.gap) > _FLOAT32 * max(ledger.magnitude, 1e-6):
        yield (
            f"logit {attribution.logit:.6g} is not total {ledger.total:.6g} plus gap "
            f"{ledger.gap:.3g}"
        )
    summed, booked = _summed(attribution)
    sizes = np.abs(np.asarray(attribution.relevance, dtype=np.float64))
    room = ROUNDING * float(sizes.sum()) + _FLOAT32 * ledger.magnitude
    if abs(summed - booked) > room:
        yield f"relevance sums to {summed:.6g}, its ledger says {booked:.6g}"


def _summed(attribution: Attribution) -> tuple[float, float]:
    """Relevance over all stored positions, and what the ledger books for them."""
    assert attribution.ledger is not None
    total = float(np.asarray(attribution.relevance, dtype=np.float64).sum())
    if isinstance(attribution.features, PatchGrid) and not attribution.prefix_relevance:
        return total, attribution.ledger.inputs
    return total + fsum(
        attribution.prefix_relevance
    ), attribution.ledger.inputs + attribution.ledger.special


def _aggregate(db: Database, run_id: str, index: int, ids: list[str]) -> Iterator[str]:
    """Yield where a shard's aggregate differs from what its rows give."""
    try:
        saved = ShardAggregate.from_json(run_totals.aggregate(db, run_id, index))
        rebuilt, room = _rebuilt(db, run_id, ids)
    except (
        DamagedRowError,
        ConfigurationError,
        ValueError,
        KeyError,
        TypeError,
        zlib.error,
    ) as error:
        yield f"shard {index}: {error}"
        return
    for name in ("items", "truncated", "predictions"):
        if getattr(saved, name) != getattr(rebuilt, name):
            yield f"shard {index}: its {name} are not those of its items"
    yield from (f"shard {index}: {text}" for text in _words(saved, rebuilt, room))
    saved_sums, rows = _entities(saved), _mentions(db, run_id, ids)
    for key in sorted(saved_sums.keys() | rows.keys()):
        (n, relevance), (m, other) = saved_sums.get(key, (0, 0.0)), rows.get(key, (0, 0.0))
        if n != m or abs(relevance - other) > _FLOAT64 * (n + abs(relevance)):
            yield (
                f"shard {index}: {key[1]!r} of group {key[0]!r} has {n} mentions of "
                f"{relevance:.6g}, its rows {m} of {other:.6g}"
            )


def _rebuilt(db: Database, run_id: str, ids: list[str]) -> tuple[ShardAggregate, Room]:
    """The words, pictures and predictions of these items, and what storing may have changed."""
    by_item: dict[str, list[Attribution]] = defaultdict(list)
    room: dict[tuple[str, str], float] = defaultdict(float)
    for attribution in readers.iter_attributions(db, run_id, item_ids=ids):
        by_item[attribution.item_id].append(attribution)
        sizes = np.abs(np.asarray(attribution.relevance, dtype=np.float64)).ravel()
        if not isinstance(attribution.features, PatchGrid):
            sizes = sizes[[token.word is not None for token in attribution.features]]
        room[attribution.target, attribution.class_name] += _FLOAT32 * float(sizes.sum())
    items = readers.iter_items(db, run_id, item_ids=ids)
    outcomes = [item for item in items if isinstance(item, ItemOutcome)]
    aggregate = ShardAggregate()
    aggregate.add_all(outcomes, [each for outcome in outcomes for each in by_item[outcome.item_id]])
    return aggregate, room


def _words(saved: ShardAggregate, rebuilt: ShardAggregate, room: Room) -> Iterator[str]:
    if saved.class_keys != rebuilt.class_keys:
        yield "its classes are not those of its attributions"
        return
    for key in saved.class_keys:
        words_saved, other = saved.words(*key), rebuilt.words(*key)
        counts = [
            [(w.word, w.documents, w.mentions) for w in words] for words in (words_saved, other)
        ]
        far = max(
            (abs(a.relevance - b.relevance) for a, b in zip(words_saved, other, strict=False)),
            default=0,
        )
        if counts[0] != counts[1] or far > room[key]:
            yield f"words of target {key[0]!r}, class {key[1]!r}, differ by {far:.3g}"
    for before, after in zip(saved.heatmaps(), rebuilt.heatmaps(), strict=True):
        far = float(np.abs(before.relevance - after.relevance).max(initial=0.0))
        if before.count != after.count or far > room[before.target, before.class_name]:
            yield f"the mean picture of {before.class_name!r} differs by {far:.3g}"


def _entities(saved: ShardAggregate) -> Mentioned:
    entities: dict[tuple[str, str, str, str], tuple[int, float]] = {}
    for stratum in saved.entities.strata:
        for row in saved.entities.rows([stratum]):
            key = (row.group, row.entity, stratum.target, stratum.class_name)
            n, summed = entities.get(key, (0, 0.0))
            entities[key] = (n + row.mentions, summed + row.mean * row.mentions)
    return entities


def _mentions(db: Database, run_id: str, ids: list[str]) -> Mentioned:
    mentions: dict[tuple[str, str, str, str], tuple[int, float]] = {}
    for mention in readers.iter_mentions(db, run_id, item_ids=ids):
        key = (mention.group, mention.entity, mention.target, mention.class_name)
        n, summed = mentions.get(key, (0, 0.0))
        mentions[key] = (n + 1, summed + mention.relevance)
    return mentions
