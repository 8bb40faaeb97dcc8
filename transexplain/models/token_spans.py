"""Cuts texts into tokens: the characters and the word of every position that a tokenizer made."""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.types.tokens import NO_WORD, FewSpellings, Tokens


def tokens_of(
    texts: Sequence[str], encodings: Sequence[Any], seconds: Sequence[int] = ()
) -> list[Tokens]:
    """The positions of every text by its `tokenizers.Encoding`, (T,) each.

    Of pairs `seconds` are the characters that the second texts begin with.

    Offsets count characters (code points) of the original text, white space at either end of a
    token left out. A word ends where the tokenizer says so and at white space, so that
    tokenizers which never cut a text into words still give words.
    """
    if not texts:
        return []
    rows = np.concatenate([[0], np.cumsum([len(one) for one in encodings])])
    first = np.concatenate([[0], np.cumsum([len(one) for one in texts])])
    special = flat(one.special_tokens_mask for one in encodings).astype(bool)
    spans = flat(chain.from_iterable(one.offsets) for one in encodings).reshape(-1, 2)
    named = flat([NO_WORD if word is None else word for word in one.word_ids] for one in encodings)
    row = np.repeat(np.arange(len(texts)), np.diff(rows))
    if len(seconds):
        second = flat([number == 1 for number in one.sequence_ids] for one in encodings)
        spans += (second * np.asarray(seconds)[row])[:, None]
    blank = _blanks(texts)
    starts, ends = _trimmed(blank, spans + first[row, None])
    starts[special] = ends[special] = first[row[special]]
    words = _words(blank, starts, ends, named, np.flatnonzero(~special), row, first)
    starts, ends = ((one - first[row]).astype(np.int32) for one in (starts, ends))
    numbers = words.astype(np.int32)
    apart = _spelled_apart(encodings, special, ends <= starts, rows)  # special ones are empty
    bounds = pairwise(rows.tolist())
    return [
        Tokens(
            starts=starts[begin:end],
            ends=ends[begin:end],
            words=numbers[begin:end],
            special=special[begin:end],
            pieces=FewSpellings(end - begin, given),
            text=text,
        )
        for text, given, (begin, end) in zip(texts, apart, bounds, strict=True)
    ]


def _spelled_apart(
    encodings: Sequence[Any],
    special: NDArray[np.bool_],
    apart: NDArray[np.bool_],
    rows: NDArray[np.int64],
) -> list[dict[int, str]]:
    """For each text: position -> how the tokenizer spells it, where it is `apart` (P,) of the text.

    The spellings of a text are made only where they are needed: those of special positions are
    known by their ids once they were seen.
    """
    found: list[dict[int, str]] = [{} for _ in encodings]
    places = np.flatnonzero(apart)
    of = np.searchsorted(rows, places, side="right") - 1
    columns = (of.tolist(), (places - rows[of]).tolist(), special[places].tolist())
    known: dict[int, str] = {}
    latest, ids = -1, []
    for text, place, framing in zip(*columns, strict=True):
        if text != latest:
            latest, ids = text, encodings[text].ids
        spelling = known.get(ids[place]) if framing else None
        if spelling is None:
            spelling = encodings[text].tokens[place]
            if framing:
                known[ids[place]] = spelling
        found[text][place] = spelling
    return found


def flat(rows: Iterable[Iterable[int]]) -> NDArray[np.int64]:
    """The numbers of all rows, one row after the other."""
    return np.fromiter(chain.from_iterable(rows), dtype=np.int64)


def _blanks(texts: Sequence[str]) -> NDArray[np.bool_]:
    """(N,) which characters of all texts, one behind the other, are white space."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), dtype=np.uint32)
    known = _white_space()
    return known[np.minimum(codes, len(known) - 1)]


@cache
def _white_space() -> NDArray[np.bool_]:
    """Whether each code point is white space, up to the last that is, and one for all others."""
    return np.array([chr(code).isspace() for code in range(0x3002)])


def _trimmed(
    blank: NDArray[np.bool_], spans: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Spans (N, 2) without white space at their ends; those of nothing else stay as they are."""
    places = np.arange(len(blank) + 1)
    seen = np.append(~blank, True)
    after = np.minimum.accumulate(np.where(seen, places, len(blank))[::-1])[::-1]
    before = np.maximum.accumulate(np.where(seen, places, -1))
    starts, ends = spans.T
    begin, last = after[starts], before[np.maximum(ends - 1, 0)]
    visible = (begin < ends) & (starts < ends)
    return np.where(visible, begin, starts), np.where(visible, last + 1, ends)


def _words(
    blank: NDArray[np.bool_],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    named: NDArray[np.int64],
    plain: NDArray[np.int64],
    row: NDArray[np.int64],
    first: NDArray[np.int64],
) -> NDArray[np.int64]:
    """(N,) the number, within its text, of every position's word; `plain` are those with one."""
    words = np.full(len(starts), NO_WORD)
    if not len(plain):
        return words
    of = row[plain]
    opens = np.append(True, of[1:] != of[:-1])
    blanks = np.append(0, np.cumsum(blank))
    last_end = np.append(0, ends[plain][:-1])
    # what stands between this position and the one before; positions may overlap
    between = blanks[starts[plain]] - blanks[np.minimum(last_end, starts[plain])]
    begins = opens | np.append(True, named[plain][1:] != named[plain][:-1]) | (between > 0)
    count = np.cumsum(begins)
    words[plain] = count - np.maximum.accumulate(np.where(opens, count, 0))
    return words
