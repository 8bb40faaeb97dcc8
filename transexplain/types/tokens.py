"""The positions of a text: one record for each, or arrays over all of them."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

NO_WORD = -1  #: in `Tokens.words`, where a position belongs to no word
_ARRAYS = ("starts", "ends", "words", "special")


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """One position of a text."""

    text: str
    start: int  #: character offset into the original text
    end: int
    special: bool = False  #: CLS, SEP and their like
    word: int | None = None  #: index of the word it belongs to; None for special tokens


class FewSpellings(Sequence[str]):
    """Spellings of those of T positions that have no characters of a text; others are ""."""

    __slots__ = ("given", "length")

    def __init__(self, length: int, given: Mapping[int, str]) -> None:
        """`given`: position (from 0 to `length`, exclusive) -> its spelling."""
        self.length, self.given = length, given

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self.given.get(index, "") for index in range(self.length)[place]]
        return self.given.get(range(self.length)[place], "")

    def __iter__(self) -> Iterator[str]:
        return iter(self[:])


class Tokens(Sequence[Token]):
    """The positions of one text as arrays (T,); a `Token` is made when somebody asks for it.

    Equal to any sequence of equal tokens. The arrays are not to be changed.
    """

    __slots__ = ("ends", "pieces", "special", "starts", "text", "words")

    def __init__(
        self,
        *,
        starts: NDArray[np.int32],
        ends: NDArray[np.int32],
        words: NDArray[np.int32],
        special: NDArray[np.bool_],
        pieces: Sequence[str],
        text: str | None = None,
    ) -> None:
        """Keep what is given.

        Args:
            starts: character offsets into the original text.
            ends: the same, exclusive.
            words: index of the word of each position, `NO_WORD` where it has none.
            special: CLS, SEP and their like.
            pieces: how each position is spelled.
            text: the original; where it is given, positions are spelled as it spells them, and
                special or empty ones as `pieces` has them.
        """
        self.starts, self.ends, self.words, self.special = starts, ends, words, special
        self.pieces, self.text = pieces, text

    @classmethod
    def of(cls, tokens: "Sequence[Token]") -> "Tokens":
        """The same positions as arrays; `tokens` itself where it has them already."""
        if isinstance(tokens, Tokens):
            return tokens
        return cls(
            starts=np.array([token.start for token in tokens], dtype=np.int32),
            ends=np.array([token.end for token in tokens], dtype=np.int32),
            words=np.array(
                [NO_WORD if token.word is None else token.word for token in tokens], dtype=np.int32
            ),
            special=np.array([token.special for token in tokens], dtype=bool),
            pieces=[token.text for token in tokens],
        )

    @property
    def texts(self) -> list[str]:
        """How each position is spelled (T,)."""
        text = self.text
        if text is None:
            return list(self.pieces)
        spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        own = zip(spans, self.pieces, self.special.tolist(), strict=True)
        return [
            piece if special else text[start:end] or piece for (start, end), piece, special in own
        ]

    @classmethod
    def with_text(
        cls,
        text: str | None,
        odd: Mapping[int, str],
        *,
        starts: NDArray[np.int32],
        ends: NDArray[np.int32],
        words: NDArray[np.int32],
        special: NDArray[np.bool_],
    ) -> "Tokens":
        """Positions that are spelled as `text` spells them, but for the `odd` ones.

        Without a text those are spelled "". It is the inverse of `spellings_beside`.
        """
        held: str | None = text
        if text is None or not all(_own(len(text), starts, ends, special)[place] for place in odd):
            spans = zip(starts.tolist(), ends.tolist(), strict=True)
            pieces = ["" if text is None else text[start:end] for start, end in spans]
            held = None
        else:
            pieces = [""] * len(starts)
            for place in np.flatnonzero(special).tolist():
                pieces[place] = text[starts[place] : ends[place]]
        for place, piece in odd.items():
            pieces[place] = piece
        return cls(starts=starts, ends=ends, words=words, special=special, pieces=pieces, text=held)

    def _unlike(self, text: str | None) -> dict[int, str]:
        """`spellings_beside` of one text that need not be the one that spells them."""
        if text is None:
            return {place: piece for place, piece in enumerate(self.texts) if piece}
        spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        spellings = enumerate(zip(self.texts, spans, strict=True))
        return {place: piece for place, (piece, (a, b)) in spellings if piece != text[a:b]}

    def spelled(self, texts: Sequence[str]) -> "Tokens":
        """The same positions with other spellings (T,)."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return Tokens(**arrays, pieces=texts)

    def at(self, places: NDArray[np.integer[Any]]) -> "Tokens":
        """The positions at `places`, in that order."""
        arrays = {name: getattr(self, name)[places] for name in _ARRAYS}
        pieces = [self.pieces[place] for place in places.tolist()]
        return Tokens(**arrays, pieces=pieces, text=self.text)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, place: int) -> Token: ...

    @overload
    def __getitem__(self, place: slice) -> "Tokens": ...

    def __getitem__(self, place: int | slice) -> "Token | Tokens":
        if isinstance(place, slice):
            return self.at(np.arange(len(self))[place])
        start, end, word = int(self.starts[place]), int(self.ends[place]), int(self.words[place])
        special, piece = bool(self.special[place]), self.pieces[place]
        if self.text is not None and not special:
            piece = self.text[start:end] or piece
        return Token(
            text=piece, start=start, end=end, special=special, word=None if word < 0 else word
        )

    def __iter__(self) -> Iterator[Token]:
        columns = (self.starts, self.ends, self.words, self.special)
        rows = zip(self.texts, *(column.tolist() for column in columns), strict=True)
        for text, start, end, word, special in rows:
            yield Token(
                text=text, start=start, end=end, special=special, word=None if word < 0 else word
            )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Tokens):
            return self.texts == other.texts and all(
                np.array_equal(getattr(self, name), getattr(other, name)) for name in _ARRAYS
            )
        if isinstance(other, list | tuple):
            return tuple(self) == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def spellings_beside(tokens: Sequence[Tokens], texts: Sequence[str | None]) -> list[dict[int, str]]:
    """For each of N texts: position -> how it is spelled, where the text has something else there.

    Without a text: where it is not "".
    """
    words: list[dict[int, str]] = [{} for _ in tokens]
    same: list[tuple[Tokens, str, dict[int, str]]] = []
    for token, text, odd in zip(tokens, texts, words, strict=True):
        if text is not None and token.text == text:
            if isinstance(token.pieces, FewSpellings):
                odd.update((place, piece) for place, piece in token.pieces.given.items() if piece)
            else:
                same.append((token, text, odd))
        else:
            odd.update(token._unlike(text))
    if not same:
        return words
    counts = np.array([len(token) for token, _, _ in same])
    starts, ends, special = (
        np.concatenate([getattr(token, name) for token, _, _ in same])
        for name in ("starts", "ends", "special")
    )
    lengths = np.repeat([len(text) for _, text, _ in same], counts)
    flat = np.flatnonzero(_own(lengths, starts, ends, special))
    of = np.repeat(np.arange(len(same)), counts)[flat]
    places = flat - (np.cumsum(counts) - counts)[of]
    columns = (of, places, starts[flat], ends[flat], special[flat])
    for item, place, start, end, apart in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        token, text, odd = same[item]
        there = text[start:end]
        piece = token.pieces[place] if apart or not there else there
        if piece != there:
            odd[place] = piece
    return words


def _own(
    length: int | NDArray[np.int64],
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
    special: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """(T,) which have spellings of their own beside a text of a length: special and empty ones."""
    return special | (ends <= starts) | (starts >= length) | (starts < 0)


Span = tuple[int, int]


class Overlaps:
    """Spans (start, end), none of them empty, searched in logarithmic time."""

    def __init__(self, spans: Iterable[Span]) -> None:
        ordered = sorted((start, end, place) for place, (start, end) in enumerate(spans))
        self._starts = [start for start, _, _ in ordered]
        self._ends = [end for _, end, _ in ordered]
        self._places = [place for _, _, place in ordered]
        self._reached = list(accumulate(self._ends, max))  # the last end up to each of them

    def of(self, start: int, end: int) -> list[int]:
        """The places, ascending, of the spans that share a character with this one."""
        first, stop = bisect_right(self._reached, start), bisect_left(self._starts, end)
        near = range(first, stop)
        return sorted(self._places[place] for place in near if self._ends[place] > start)
