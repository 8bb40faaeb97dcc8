"""What totals over a run need of a part, a few bytes an item: most reports decode no part."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from transexplain.store.part_columns import decoded, encoded, squeezed, unsqueezed
from transexplain.store.rows import LEDGER_ENTRIES
from transexplain.types.items import ItemOutcome
from transexplain.types.relevance_sums import RelevanceSums, bin_of

Rows = NDArray[np.int64]


class LedgerSums(msgspec.Struct, array_like=True, frozen=True):
    """The ledgers of a part added up."""

    items: int  #: that have one or more
    count: int
    worst: float  #: the largest relative gap
    row: int  #: of the item that has it, the first among equals
    item: bytes  #: its id
    gaps: float  #: sum of the relative gaps
    sums: list[float]  #: of each entry
    absolute: list[float]  #: of each entry's size
    relevance: RelevanceSums  #: beside the logits


class GroupItems(msgspec.Struct, array_like=True, frozen=True):
    """Which items of a part mention a group, and how well their ledgers close."""

    group: bytes
    items: bytes  #: a bit for each item of the part
    with_ledger: int  #: of these items
    ledgers: int
    gaps: float  #: sum of the relative gaps

    @property
    def name(self) -> str:
        """The group."""
        return decoded(self.group) or ""

    def places(self, count: int) -> Rows:
        """Which of the part's `count` items."""
        bits = np.unpackbits(np.frombuffer(self.items, dtype=np.uint8), count=count)
        return np.flatnonzero(bits)


class PartSummary(msgspec.Struct, array_like=True, frozen=True):
    """One part."""

    attributions: int
    mentions: int
    scores: int
    #: positions, items, labelled ones, rightly predicted ones, truncated ones
    lengths: list[tuple[int, int, int, int, int]]
    #: label in the dataset, class or None, items
    raw_labels: list[tuple[bytes, bytes | None, int]]
    sizes: list[tuple[int, int]]  #: bin of `relevance_sums.bin_of`, explanations
    largest: float  #: of the sizes
    margin: float | None  #: the largest of the wrong answers; None: none is wrong
    ledgers: LedgerSums | None
    groups: list[GroupItems]

    def packed(self) -> bytes:
        """As it is stored."""
        return squeezed(msgspec.msgpack.encode(self))


_DECODER = msgspec.msgpack.Decoder(PartSummary)


def summary_of(packed: bytes) -> PartSummary:
    """What `packed` gave; raises ValueError where it is damaged."""
    return _DECODER.decode(unsqueezed(packed))


def summarised(
    outcomes: Sequence[ItemOutcome],
    *,
    counts: tuple[int, int, int],
    sizes: NDArray[np.float64],
    margin: float | None,
    ledgers: NDArray[np.float64],
    ledgered: Rows,
    logits: NDArray[np.float64],
    mentioned: Mapping[str, Collection[int]],
) -> PartSummary:
    """The summary of the items of a part.

    Args:
        outcomes: by ascending row.
        counts: attributions, mentions and scores.
        sizes: of each attribution.
        margin: the largest of the wrong answers.
        ledgers: (N, 8) the entries of each in the order of `LEDGER_ENTRIES`.
        ledgered: (N,) place of the item of each.
        logits: (N,) that each explains.
        mentioned: group -> places of the items that mention it.
    """
    entries = dict(zip(LEDGER_ENTRIES, ledgers.T, strict=True))
    gaps = relative_gaps(entries)
    return PartSummary(
        attributions=counts[0],
        mentions=counts[1],
        scores=counts[2],
        lengths=_lengths(outcomes),
        raw_labels=_raw_labels(outcomes),
        sizes=sorted(Counter(map(bin_of, sizes.tolist())).items()),
        largest=float(sizes.max(initial=0.0)),
        margin=margin,
        ledgers=_ledgers(outcomes, ledgers, ledgered, gaps, relevance_sums(entries, logits)),
        groups=[
            _group(name, places, len(outcomes), ledgered, gaps)
            for name, places in mentioned.items()
        ],
    )


def relative_gaps(entries: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """(N,) as `Ledger.relative_gap`, of the entries by name."""
    gaps, magnitudes = np.abs(entries["gap"]), entries["magnitude"]
    return np.where(magnitudes == 0.0, gaps, gaps / np.where(magnitudes == 0.0, 1.0, magnitudes))


def relevance_sums(
    entries: Mapping[str, NDArray[np.float64]], logits: NDArray[np.float64]
) -> RelevanceSums:
    """The relevance of all positions, special ones too, beside the logits (N,)."""
    return RelevanceSums.of(logits, entries["inputs"] + entries["special"])


def margin_of(outcome: ItemOutcome, places: Mapping[str, int]) -> float | None:
    """By how much the predicted class beats the labelled one, in logits; None: it is not wrong.

    `places` are the indices of the classes' logits; a class without one has no margin, which is 0.
    """
    if outcome.label is None or outcome.label == outcome.predicted:
        return None
    label, predicted = places.get(outcome.label), places.get(outcome.predicted)
    if label is None or predicted is None or not outcome.logits:
        return 0.0
    return outcome.logits[predicted] - outcome.logits[label]


def _lengths(outcomes: Sequence[ItemOutcome]) -> list[tuple[int, int, int, int, int]]:
    kinds = Counter(
        (one.positions, one.label is not None, one.label == one.predicted, one.truncated)
        for one in outcomes
    )
    found: dict[int, list[int]] = {}
    for (positions, labelled, right, truncated), many in kinds.items():
        row = found.setdefault(int(positions), [0, 0, 0, 0])
        row[0] += many
        row[1] += many * labelled
        row[2] += many * (labelled and right)
        row[3] += many * bool(truncated)
    return [(length, *row) for length, row in sorted(found.items())]  # type: ignore[misc]


def _raw_labels(outcomes: Sequence[ItemOutcome]) -> list[tuple[bytes, bytes | None, int]]:
    counts = Counter((one.raw_label, one.label) for one in outcomes if one.raw_label is not None)
    return [(encoded(raw) or b"", encoded(name), many) for (raw, name), many in counts.items()]


def _ledgers(
    outcomes: Sequence[ItemOutcome],
    ledgers: NDArray[np.float64],
    ledgered: Rows,
    gaps: NDArray[np.float64],
    relevance: RelevanceSums,
) -> LedgerSums | None:
    if not len(gaps):
        return None
    worst = int(gaps.argmax())  # the first among equals
    item = outcomes[int(ledgered[worst])]
    return LedgerSums(
        items=len(np.unique(ledgered)),
        count=len(gaps),
        worst=float(gaps[worst]),
        row=int(item.index),
        item=encoded(item.item_id) or b"",
        gaps=float(gaps.sum()),
        sums=ledgers.sum(axis=0).tolist(),
        absolute=np.abs(ledgers).sum(axis=0).tolist(),
        relevance=relevance,
    )


def _group(
    name: str, places: Collection[int], items: int, ledgered: Rows, gaps: NDArray[np.float64]
) -> GroupItems:
    inside = np.zeros(items, dtype=bool)
    inside[list(places)] = True
    own = inside[ledgered]
    return GroupItems(
        group=encoded(name) or b"",
        items=np.packbits(inside).tobytes(),
        with_ledger=len(np.unique(ledgered[own])),
        ledgers=int(own.sum()),
        gaps=float(gaps[own].sum()),
    )
