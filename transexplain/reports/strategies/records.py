"""What the page and the JSON of strategy discovery hold."""

from collections.abc import Mapping
from dataclasses import dataclass

from transexplain.reports.gallery_records import GalleryItem
from transexplain.reports.records import Statement
from transexplain.strategies.records import Strategies

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Explored:
    """Which run was looked at."""

    name: str
    version: str  #: of TransExplain, when the report was made
    model: str
    classes: tuple[str, ...]
    dataset: str
    fingerprint: str  #: sha256 of the dataset's snapshot
    rows: int
    root: str  #: folder that picture paths are relative to
    method: str
    state: str  #: running | done | cancelled
    created: float  #: seconds since the epoch
    finished: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyReport:
    """One discovery with its sentences and its exemplars."""

    headline: tuple[Statement, ...]
    explored: Explored
    strategies: Strategies
    exemplars: Mapping[str, Mapping[str, GalleryItem]]  #: class -> item id -> what to show
    notes: tuple[str, ...]
    schema_version: int = SCHEMA_VERSION
