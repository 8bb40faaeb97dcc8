"""The longest text that a model takes, and windows over longer ones."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from transexplain.errors import ItemError, ModelLoadError
from transexplain.models.configs import read_json
from transexplain.models.loaded_model import Encoded, LongText, Window, Windows
from transexplain.types.items import PatchGrid, own_positions
from transexplain.types.tokens import Token

#: tokenizers without a limit say 10^30
SANE = 10_000_000
_POSITION_TABLES = ("wpe", "embed_positions", "position_embeddings", "position_embedding")
_CONFIG_NAMES = ("max_position_embeddings", "n_positions", "max_sequence_length")


#: characters of a text after normalisation: tokenizers take 200 bytes for each
_LONGEST = 1 << 23
#: how many times as long a tokenizer may make a text, and positions that its template may add
_GROWTH, _ADDED = 64, 4096
_LIGATURE = 64  #: bytes: no character stands for more letters


def check_length(text: str, growth: float) -> None:
    """Raise ItemError `too-long` for a text that a tokenizer would make far too long."""
    if len(text) * growth > _LONGEST:
        raise ItemError(
            "too-long",
            f"the text has {len(text):,} characters, each of which the tokenizer may make "
            f"{growth:,.0f}; at most {_LONGEST:,} are read",
        )


def growth_of(tokenizer: Any | None) -> float:
    """How many times as long the normalizers of a tokenizer may make a text; 1 without any."""
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    state = normalizer.__getstate__() if normalizer is not None else None
    return _growth(json.loads(state)) if isinstance(state, bytes) else 1.0


def check_growth(folder: Path) -> None:
    """Raise ModelLoadError for a tokenizer in `folder` that multiplies texts.

    It would multiply its own added tokens as soon as it is loaded.
    """
    try:
        content = read_json(folder / "tokenizer.json")
        growth = _growth(content.get("normalizer"))
        # how often the template repeats a single text, and the positions that it adds
        copies, added = 1, 0
        for step in _steps_of(content.get("post_processor"), "processors"):
            pieces, special = step.get("single") or (), step.get("special_tokens") or {}
            copies *= max(1, sum("Sequence" in piece for piece in pieces))
            names = (piece["SpecialToken"]["id"] for piece in pieces if "SpecialToken" in piece)
            added += sum(len(special[name]["ids"]) for name in names if name in special)
    except (ModelLoadError, AttributeError, TypeError, ValueError):
        return  # there is none, or its library says what is wrong
    if growth * copies > _GROWTH or added > _ADDED:
        raise ModelLoadError(
            f"{folder / 'tokenizer.json'} makes a text up to {growth * copies:,.0f} times as long "
            f"and adds {added:,} positions, which no tokenizer of a model does"
        )


def _growth(normalizer: Any) -> float:
    return prod(map(_factor, _steps_of(normalizer, "normalizers")))


def _steps_of(step: Any, several: str) -> Iterator[Mapping[str, Any]]:
    """A step of a tokenizer's file; of a sequence its steps."""
    if isinstance(step, Mapping) and isinstance(step.get(several), list):
        for inner in step[several]:
            yield from _steps_of(inner, several)
    elif isinstance(step, Mapping):
        yield step


def _factor(step: Mapping[str, Any]) -> float:
    """Of a normalizer whose file says what it writes; Unicode's own forms do not add up."""
    if step.get("type") == "Prepend":
        return 1.0 + len(str(step.get("prepend"))) / _LIGATURE
    if step.get("type") == "Precompiled":
        longest = _longest_piece(str(step.get("precompiled_charsmap")))
        return float(longest) if longest > _LIGATURE else 1.0
    if step.get("type") != "Replace":
        return 1.0
    content, pattern = len(str(step.get("content"))), step.get("pattern")
    text = pattern.get("String") if isinstance(pattern, Mapping) else None
    # an expression may match nothing at all, before every character
    return max(1.0, content / len(text)) if isinstance(text, str) and text else 1.0 + content


def _longest_piece(charsmap: str) -> int:
    """Bytes of the longest text that a map of SentencePiece writes for a character.

    It is the size of a tree in 4 bytes, the tree, and the texts, each with a NUL behind it.
    """
    try:
        data = base64.b64decode(charsmap)
    except ValueError:
        return 0
    return max(map(len, data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")))


def capacity(module: nn.Module, tokenizer: Any | None) -> int | None:
    """Positions (special ones included) that `module` and `tokenizer` take; None: any number.

    Raises ModelLoadError where the tokenizer's limit is no number.
    """
    tables = [
        _rows(table)
        for name, table in module.named_modules()
        if isinstance(table, nn.Embedding) and name.rpartition(".")[2] in _POSITION_TABLES
    ]
    # relative and rotary positions have no table, only what the model was trained for
    bounds = tables or _configured(module)
    longest = 0 if tokenizer is None else tokenizer.model_max_length
    if not isinstance(longest, int | float):
        raise ModelLoadError(
            f"tokenizer_config.json: model_max_length is {longest!r:.80}, which is no number"
        )
    if 0 < longest < SANE:
        bounds.append(int(longest))
    return min(bounds, default=None)


def saved_truncation(tokenizer: Any) -> int | None:
    """Positions that the tokenizer's own file cuts texts at; None where it does not say.

    Only for a tokenizer fresh from its file: calling one changes this setting.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    length = (getattr(backend, "truncation", None) or {}).get("max_length")
    special = tokenizer.num_special_tokens_to_add() if length is not None else 0
    return int(length) if length is not None and length > special else None


def _rows(table: nn.Embedding) -> int:
    rows = table.num_embeddings
    if table.padding_idx is not None:
        return rows - table.padding_idx - 1  # RoBERTa counts positions from padding_idx + 1
    offset = getattr(table, "offset", 0)  # BART and OPT keep the first rows for padding
    return rows - offset if isinstance(offset, int) else rows


def _configured(module: nn.Module) -> list[int]:
    config = getattr(module, "config", None)
    lengths = (getattr(config, name, None) for name in _CONFIG_NAMES)
    return [value for value in lengths if isinstance(value, int) and 0 < value < SANE][:1]


def in_windows(whole: Encoded, room: int | None, long_text: LongText) -> Encoded:
    """The text with its windows, where it needs more than `room` positions and windows are wanted.

    A window ends where a word ends, unless one word fills it. All windows but the last are as
    long as that allows. Of a pair every window has a part of the longer text and all of the other.
    Raises ItemError `too-long` where nothing but special positions fits.
    """
    tokens = whole.features
    if not isinstance(long_text, Windows) or room is None or whole.length <= room:
        return whole
    if isinstance(tokens, PatchGrid):
        raise TypeError("windows are for texts; this item is a picture")
    # the text between the special tokens; of a pair the longer one
    inside = own_positions(tokens)
    if whole.item.second_at is not None:
        behind = np.array([token.start >= whole.item.second_at for token in tokens])
        inside = max(inside & ~behind, inside & behind, key=np.count_nonzero)
    own = np.flatnonzero(inside)
    front, back = (int(own[0]), int(own[-1]) + 1) if len(own) else (0, 0)
    capacity = room - front - (whole.length - back)
    if capacity < 1:
        raise ItemError(
            "too-long",
            f"the special tokens of this text, and of a pair the shorter text, fill the {room} "
            "positions of a window",
        )
    words = [token.word for token in tokens[front:back]]
    spans = cut(words, capacity, long_text.stride)
    windows = []
    for number, (begin, end) in enumerate(spans):
        places = np.r_[:front, front + begin : front + end, back : whole.length]
        windows.append(Window(_part(whole, tokens, places, number), places))
    return replace(whole, windows=tuple(windows))


def cut(words: Sequence[int | None], capacity: int, stride: int | None) -> list[tuple[int, int]]:
    """The first token of every window and the one behind its last, between words.

    Args:
        words: (T,) which word each token belongs to; None: to none.
        capacity: tokens of one window.
        stride: tokens from the beginning of a window to that of the next, or a few less to begin
            with a word; None: windows do not overlap.

    Returns windows in order that cover all tokens; each begins and ends behind the one before.
    """
    spans: list[tuple[int, int]] = []
    begin = end = 0
    while end < len(words):
        if spans:
            begin = end if stride is None else _begin(words, begin, min(begin + stride, end), end)
        reached = _word_start(words, begin + capacity, begin)
        if reached > end:  # otherwise the window before contains this one
            spans.append((begin, reached))
            end = reached
    return spans


def _begin(words: Sequence[int | None], last: int, wanted: int, end: int) -> int:
    """Where the next window begins: at `wanted`, or at the nearest word start before or behind."""
    start = _word_start(words, wanted, last)
    while _inside_word(words, start) and start < end:  # the word is longer than the stride
        start += 1
    return wanted if _inside_word(words, start) else start


def _word_start(words: Sequence[int | None], at: int, lowest: int) -> int:
    """The start of the word that `at` is in; `at` itself where that is not above `lowest`."""
    if at >= len(words):
        return len(words)
    end = at
    while end > lowest and _inside_word(words, end):
        end -= 1
    return end if end > lowest else at


def _inside_word(words: Sequence[int | None], at: int) -> bool:
    """Return whether a cut before token `at` would split a word."""
    return 0 < at < len(words) and words[at] is not None and words[at] == words[at - 1]


def _part(
    whole: Encoded, tokens: Sequence[Token], places: NDArray[np.intp], number: int
) -> Encoded:
    def row(name: str, values: Tensor) -> Tensor:
        # positions count from the beginning of the window
        return values[: len(places)] if name == "position_ids" else values[places]

    return Encoded(
        # random numbers belong to an item: every window has its own
        item=replace(whole.item, id=f"{whole.item.id}, window {number + 1}"),
        inputs={name: row(name, values) for name, values in whole.inputs.items()},
        features=tuple(tokens[place] for place in places),
        length=len(places),
        truncated=False,
    )
