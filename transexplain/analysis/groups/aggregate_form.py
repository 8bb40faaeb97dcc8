"""Checks the JSON of a shard's aggregate: what a row of the database must hold to be read."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, convert

from transexplain.analysis.groups.exact_totals import MOST_LIMBS
from transexplain.errors import ConfigurationError

_Count = Annotated[int, Meta(ge=0)]
_Above = Annotated[int, Meta(ge=1)]
#: NaN is in no interval
_Finite = Annotated[float, Meta(ge=-1.7976931348623157e308, le=1.7976931348623157e308)]
_Row = tuple[int, int, int, int]
_LARGEST = 2**1000  #: units of a sum


class _Of(Struct, forbid_unknown_fields=True):
    """The part of a total that belongs to one target and class."""

    target: str
    class_name: str


def _check_size(sums: Iterable[int]) -> None:
    """Raise ValueError for a sum that no float can hold."""
    if any(abs(total) > _LARGEST for total in sums):
        raise ValueError("a sum beyond 2**1000")


class _Heatmap(_Of):
    shape: tuple[_Above, _Above]
    count: _Above
    cells: list[int]

    def __post_init__(self) -> None:
        if len(self.cells) != self.shape[0] * self.shape[1]:
            raise ValueError(f"{len(self.cells)} cells in a heatmap of {self.shape}")
        _check_size(self.cells)


class _Positions(_Of):
    parts: list[_Row]

    def __post_init__(self) -> None:
        _check_size(chain.from_iterable(self.parts))


class _Table(Struct):
    """Columns of numbers; what they hold is checked where they are read."""

    limbs: list[Annotated[int, Meta(ge=1, le=MOST_LIMBS)]]
    numbers: str


class _List(_Table):
    names: list[str]


class _Words(_List):
    target: str
    class_name: str


class _Named(_Table):
    names: dict[str, list[str]]


class _Histograms(_Table):
    names: dict[str, list[int]]


class _Clustered(_Table):
    names: dict[str, dict[str, list[str]]]  #: cluster, group, entities


class _Entities(Struct):
    stratum: tuple[str, str, str, str, str]
    entities: _Named
    documents: dict[str, int]
    meetings: _Named
    histograms: _Histograms
    clustered: _Clustered | UnsetType = UNSET


class _Randomised(Struct):
    items: _Count
    failed: _Count
    real: list[_Entities]
    randomised: list[_Entities]  #: by the first draw of weights
    further: list[list[_Entities]] = []


class _Ablation(_Of):
    item_id: str
    group: str
    entity: str
    flipped: bool
    change: _Finite
    relevance: _Finite


class _Observation(Struct, forbid_unknown_fields=True):
    document: str
    group: str
    entity: str
    cluster: str
    slice: str
    template: bool
    own: bool
    positions: _Count
    predicted: str
    log_odds: list[_Finite]


class _Region(Struct, forbid_unknown_fields=True):
    document: str
    place: _Count
    group: str
    entity: str
    cluster: str
    slice: str
    predicted: str
    log_odds: list[_Finite]
    without: list[str]
    hidden: list[list[_Finite]]

    def __post_init__(self) -> None:
        known = len(self.log_odds)
        if len(self.hidden) != len(self.without) or any(len(way) != known for way in self.hidden):
            raise ValueError("a hidden region with answers to some ways alone")


class _Agreement(_Of):
    item_id: str
    correlation: _Finite | None
    error: _Finite | None
    cheap: _Finite
    exact: _Finite


class _Paired(_Of):
    item_id: str
    predicted: str
    label: str
    slice: str
    group: str
    entity: str
    mentions: _Count
    cheap: _Finite
    exact: _Finite


class _Exact(Struct):
    items: _Count
    failed: _Count
    agreements: list[_Agreement]
    mentions: list[_Paired]


class _Checked(Struct):
    removals: list[_Ablation]
    observations: list[_Observation]
    randomised: _Randomised
    regions: list[_Region] = []
    candidates: list[_Observation] = []
    unpaired: dict[str, _Above] = {}
    exact: _Exact | None = None


class _Seen(Struct):
    classes: list[tuple[str, str, _Count, int]]
    leaves: list[str]
    units: list[str]

    def __post_init__(self) -> None:
        _check_size(summed for *_, summed in self.classes)


class _Repeats(Struct):
    below: str
    texts: list[tuple[_Count, _Above]]


class _Aggregate(Struct, kw_only=True):
    """The whole aggregate, its long tables in columns."""

    items: _Count
    truncated: _Count
    sensitivity: tuple[_Count, int]
    predictions: list[tuple[str | None, str, _Count]]
    words: list[_Words]
    heatmaps: list[_Heatmap]
    positions: list[_Positions]
    entities: list[_Entities]
    second: list[_Entities]
    checked: _Checked
    dropped: list[tuple[str, str, _Count]]
    spellings: list[tuple[str, str, str, _Above]] = []
    seen: _Seen
    gaps: list[tuple[str, _Count, _Above, int]]
    outcomes: list[_List]
    repeats: _Repeats | None = None


def check_form(content: Mapping[str, Any]) -> None:
    """Raise ConfigurationError, naming the place, where `content` is no aggregate."""
    try:
        convert(content, _Aggregate)
    except (ValueError, RecursionError) as error:  # ValidationError is a ValueError
        raise _damaged(error) from None


@contextmanager
def reading_tables() -> Iterator[None]:
    """Turn Python's errors on long tables, which are not checked first, into the same error."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _damaged(error) from None


def _damaged(error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"a shard's saved aggregate cannot be read: {error}; restore the database from a backup, "
        "or run the audit again"
    )
