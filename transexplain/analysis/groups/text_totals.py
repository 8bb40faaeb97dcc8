"""Exact totals of many explained texts at once: by word, and by place in the text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from transexplain.data.item_clusters import MOST
from transexplain.randomness import keyed_number
from transexplain.store.exact_sums import Sums, Table, add_row, exact_sums, numbered
from transexplain.types.graphs import is_named
from transexplain.types.items import Attribution, PatchGrid
from transexplain.types.plans import AuditPlan
from transexplain.types.tokens import Tokens

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class TextBatch:
    """The positions of N explained texts, one text after the other (P,)."""

    attributions: Sequence[Attribution]
    tokens: Sequence[Tokens]
    of: Indices  #: which text a position is of
    words: NDArray[np.int32]  #: number of its word within the text, `NO_WORD` where it has none
    special: NDArray[np.bool_]
    relevance: NDArray[np.float64]

    @classmethod
    def join(cls, attributions: Sequence[Attribution]) -> "TextBatch":
        """Put texts together; at least one is given, and none is of a picture."""
        tokens = [
            Tokens.of(attribution.features)
            for attribution in attributions
            if not isinstance(attribution.features, PatchGrid)
        ]
        lengths = [len(token) for token in tokens]
        return cls(
            attributions=attributions,
            tokens=tokens,
            of=np.repeat(np.arange(len(tokens)), lengths),
            words=np.concatenate([token.words for token in tokens]),
            special=np.concatenate([token.special for token in tokens]),
            relevance=np.concatenate([row.relevance for row in attributions], dtype=np.float64),
        )


@dataclass(frozen=True, slots=True, eq=False)
class TextWords:
    """The words of N texts, those of one text after those of the other (W,)."""

    of: Indices  #: which text a word is of
    texts: list[str]  #: lower case; names of nodes as they are
    relevance: NDArray[np.float64]  #: sum over its positions, in the unit of the method


def words_of(batch: TextBatch) -> TextWords:
    """Every word of every text, as `Attribution.words` cuts it; those that are not stored apart."""
    places = np.flatnonzero(batch.words >= 0)
    if not len(places):
        return TextWords(np.zeros(0, dtype=np.intp), [], np.zeros(0))
    width = int(batch.words.max()) + 1
    keys = batch.of[places] * width + batch.words[places]
    words, first, number = _runs(keys)
    last = np.zeros(len(words), dtype=np.intp)
    last[number] = np.arange(len(places))  # of several numbers the last stays
    sums = np.bincount(number, weights=batch.relevance[places], minlength=len(words)).astype(
        np.float64
    )
    of = words // width
    starts = np.concatenate([token.starts for token in batch.tokens])[places[first]]
    ends = np.concatenate([token.ends for token in batch.tokens])[places[last]]
    stored = [attribution.text for attribution in batch.attributions]
    written = [text for text in stored if text is not None]
    spans = zip(of.tolist(), starts.tolist(), ends.tolist(), strict=True)
    if len(written) == len(stored):
        return TextWords(of, _written(written, spans), sums)
    pieces = _spellings(batch, places, number, len(words))
    texts = [
        _counted(pieces[word], start, end)
        if (whole := stored[text]) is None
        else whole[start:end].lower()
        for word, (text, start, end) in enumerate(spans)
    ]
    known = np.array(
        [
            bool(word) or stored[text] is not None
            for word, text in zip(texts, of.tolist(), strict=True)
        ],
        dtype=bool,
    )
    kept = [word for word, is_known in zip(texts, known.tolist(), strict=True) if is_known]
    return TextWords(of[known], kept, sums[known])


def _runs(keys: Indices) -> tuple[Indices, Indices, Indices]:
    """The different keys (N,) sorted, where each stands first, and which of them each one is."""
    if (keys[1:] < keys[:-1]).any():
        different, first, number = np.unique(keys, return_index=True, return_inverse=True)
        return different, first, number
    begins = np.append(True, keys[1:] != keys[:-1])  # equal ones stand together already
    first = np.flatnonzero(begins)
    return keys[first], first, np.cumsum(begins) - 1


_SPARSE = 16  #: a key in so many is used, or fewer: their counts would be mostly zeros


def _placed(keys: Indices) -> tuple[Indices, Indices, Indices]:
    """The different keys sorted, how often each is there, and (N,) which of them each one is."""
    if keys.max(initial=0) > _SPARSE * len(keys):
        different, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
        return different, counts, place
    counts = np.bincount(keys)
    different = np.flatnonzero(counts)
    return different, counts[different], (np.cumsum(counts > 0) - 1)[keys]


def _different(keys: Indices) -> Indices:
    """The different keys, sorted; `unique` without an index takes ten times as long."""
    ordered = np.sort(keys)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def _written(texts: Sequence[str], spans: Iterable[tuple[int, int, int]]) -> list[str]:
    """Return what stands in `texts` at spans (text, start, end), in lower case."""
    plain = [text.isascii() for text in texts]
    # whole texts where that moves no character
    small = [text.lower() if alike else text for text, alike in zip(texts, plain, strict=True)]
    if all(plain):
        return [small[text][start:end] for text, start, end in spans]
    return [
        small[text][start:end] if plain[text] else texts[text][start:end].lower()
        for text, start, end in spans
    ]


def _counted(spelled: str, start: int, end: int) -> str:
    """A word that is stored apart; "": it does not count.

    Nodes of graphs have no place in a text. They keep their case, and those without a name do not
    count.
    """
    if start == end:
        return spelled if is_named(spelled) else ""
    return spelled.lower()


def _spellings(batch: TextBatch, places: Indices, number: Indices, count: int) -> Sequence[str]:
    """The pieces of every word put together."""
    spellings = [""] * count
    pieces = [piece for token in batch.tokens for piece in token.texts]
    for place, word in zip(places.tolist(), number.tolist(), strict=True):
        spellings[word] += pieces[place]
    return spellings


def word_rows(words: TextWords, kinds: Indices) -> Iterator[tuple[int, Table]]:
    """Of every kind of text: (word,) -> [texts, mentions, relevance, |relevance|].

    `kinds` (N,) are the kinds of the texts; a kind without a word is left out. Raises ValueError
    where a relevance is not finite.
    """
    names, codes = numbered(words.texts)
    width = max(1, len(names))
    different, counts, place = _placed(kinds[words.of] * width + codes)
    size = max(1, len(different))
    texts = np.bincount(_different(words.of * size + place) % size, minlength=len(different))
    columns = (
        texts.tolist(),
        counts.tolist(),
        exact_sums(words.relevance, place, len(different)),
        exact_sums(np.abs(words.relevance), place, len(different)),
    )
    rows = list(map(list, zip(*columns, strict=True)))
    spelled = [(names[code],) for code in (different % width).tolist()]
    of, firsts = np.unique(different // width, return_index=True)
    bounds = pairwise([*firsts.tolist(), len(different)])
    for kind, (low, high) in zip(of.tolist(), bounds, strict=True):
        yield kind, dict(zip(spelled[low:high], rows[low:high], strict=True))


def part_rows(batch: TextBatch, kinds: Indices, count: int, parts: int) -> list[Table]:
    """Of each of `count` kinds: (part,) -> [texts, positions, relevance, |relevance|].

    Position i of n that are not special belongs to part floor(parts (i + 1/2) / n) of its text.
    Raises ValueError where a relevance is not finite.
    """
    real = ~batch.special
    of, relevance = batch.of[real], batch.relevance[real]
    lengths = np.bincount(of, minlength=len(batch.tokens))
    before = np.concatenate([[0], np.cumsum(lengths)])
    place = np.arange(len(of)) - before[of]
    part = parts * (2 * place + 1) // (2 * lengths[of])
    key, size = kinds[of] * parts + part, count * parts
    once = _different(of * parts + part)
    texts = np.bincount(kinds[once // parts] * parts + once % parts, minlength=size)
    columns = (
        texts.tolist(),
        np.bincount(key, minlength=size).tolist(),
        exact_sums(relevance, key, size),
        exact_sums(np.abs(relevance), key, size),
    )
    rows = list(map(list, zip(*columns, strict=True)))
    return [{(part,): rows[kind * parts + part] for part in range(parts)} for kind in range(count)]


#: texts that are drawn of a whole dataset, about; of fewer all are
DRAWN = 65_536
_ALL = 2**64


class TextRepeats:
    """The texts that were drawn.

    Total of `sums`: repeats, of each (hashes that are drawn, of 2**64): (hash,) -> [items].
    """

    def __init__(self, sums: Sums) -> None:
        self.sums = sums
        self._below: int | None = None  # None: no text is drawn

    def draw(self, plan: AuditPlan) -> None:
        """Draw texts of a plan from now on.

        None are where planning has read all texts, and where they are not stored as they are: who
        has a text could tell by its hash that it was among them.
        """
        rows, privacy = plan.dataset.rows, plan.privacy
        kept = privacy is None or (privacy.store_text == "full" and privacy.redact is None)
        if plan.dataset.manifest and rows > MOST and kept:
            self._below = min(_ALL, _ALL * DRAWN // rows)

    def add(self, texts: Iterable[str | None]) -> None:
        """Count those texts that are drawn."""
        if self._below is None:
            return
        counted = self.sums.table("repeats", (self._below,))
        for number in (keyed_number(text) for text in texts if text is not None):
            if number < self._below:
                add_row(counted, (number,), [1])

    @property
    def texts(self) -> list[int]:
        """Of each drawn text the items that have it."""
        tables = self.sums.strata("repeats").values()
        return [items for table in tables for (items,) in table.values()]

    @property
    def drawn(self) -> int:
        """Items whose text was drawn."""
        return sum(self.texts)

    @property
    def repeating(self) -> int:
        """Of these the items whose text another item has, too."""
        return sum(count for count in self.texts if count > 1)

    @property
    def below(self) -> int:
        """Hashes that are drawn, of 2**64; 0: none."""
        return max((below for (below,) in self.sums.strata("repeats")), default=0)
