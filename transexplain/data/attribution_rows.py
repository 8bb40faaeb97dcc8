"""Reads one row of a file of attributions: which columns hold what, and which a row needs."""

import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from transexplain.data.source_files import OpenTable, printable
from transexplain.data.table_source import meta_json, spelled, text_of
from transexplain.errors import DataSourceError, ItemError, TargetError
from transexplain.files.paths import AnyPath
from transexplain.types.dataset_labels import folded, label_index
from transexplain.types.targets import ClassNames, parse_target
from transexplain.types.tokens import Token

#: what tokenizers write before a piece: WordPiece inside a word; byte-level BPE and SentencePiece
#: where one begins
MARKS = ("##", "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}", "\N{LOWER ONE EIGHTH BLOCK}")
_INSIDE = MARKS[0]
_UNKNOWN = ("[UNK]", "<unk>")
_SPECIAL = re.compile(r"\[[A-Z_]+\d*\]|</?\w+>|<\|\w+\|>")

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Folded:
    """A text in lower case, compatibility forms and accents taken off, letter by letter."""

    letters: str
    origin: Sequence[int]  #: place in the text of every letter, and at the end its length

    @classmethod
    def of(cls, text: str) -> "_Folded":
        letters = [fold(character) for character in text]
        origin = [place for place, folded in enumerate(letters) for _ in folded]
        return cls("".join(letters), [*origin, len(text)])

    def span(self, start: int, end: int) -> Span:
        """The part of the text that letters `start` to `end` come from, with its accents."""
        first, last = self.origin[start], self.origin[end - 1]
        return first, max(self.origin[end], last + 1)


def fold(text: str) -> str:
    """`text` as the search compares it: NFKD in lower case, without combining marks."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).lower())
    return "".join(letter for letter in plain if not unicodedata.combining(letter))


def find_spans(text: str, tokens: Sequence[str], special: Sequence[bool | None]) -> list[Span]:
    """The characters (from, to) of every token, found from left to right.

    Case, accents and the marks of `MARKS` are ignored. Only what is no letter and no digit may
    lie between two tokens; a token for what the tokenizer did not know takes what lies before the
    next one. Special tokens, and those of white space alone, have an empty span.

    Args:
        text: the original text.
        tokens: in reading order.
        special: True for CLS, SEP and their like; None: it is known by its form and by not being
            found.

    Raises ItemError token-not-found, naming the first token that is not there.
    """
    folded, cursor = _Folded.of(text), 0
    spans: list[Span] = []
    unknown: int | None = None
    for place, (token, known) in enumerate(zip(tokens, special, strict=True)):
        if token in _UNKNOWN and not known:
            if unknown is not None:
                raise _not_found(place, token, "two unknown tokens in a row; give offsets")
            unknown = place
            spans.append((0, 0))
            continue
        match = None if known else _find(folded, token, cursor, jump=unknown is not None)
        if match is None:
            if not (known or is_frame(token)) and token.strip("".join(MARKS)).strip():
                raise _not_found(place, token, f"after {text[: folded.origin[cursor]][-20:]!r}")
            spans.append((folded.origin[cursor],) * 2)
            continue
        if unknown is not None:
            spans[unknown], unknown = _between(text, folded, cursor, match[0]), None
        spans.append(folded.span(*match))
        cursor = match[1]
    if unknown is not None:
        spans[unknown] = _between(text, folded, cursor, len(folded.letters))
    return spans


def is_frame(token: str) -> bool:
    """Return whether a token that stands for no part of the text has the form of a special one."""
    return token == "" or (token not in _UNKNOWN and bool(_SPECIAL.fullmatch(token)))


def as_tokens(
    text: str, tokens: Sequence[str], spans: Sequence[Span], special: Sequence[bool]
) -> Sequence[Token]:
    """Tokens with their words (T,): pieces belong together where letters or digits touch.

    Where the tokens carry WordPiece's mark it decides instead.
    """
    marked = any(token.startswith(_INSIDE) for token in tokens)
    found: list[Token] = []
    word, last = -1, -1  # the number of the word in hand, and the character it ends before
    for piece, (left, right), framing in zip(tokens, spans, special, strict=True):
        start, end = _trimmed(text, left, right)
        if framing or start == end:
            place = 0 if framing else start  # special tokens have no place in the text
            found.append(Token(text=piece, start=place, end=place, special=framing))
            continue
        goes_on = piece.startswith(_INSIDE) if marked else text[start].isalnum()
        inside = 0 <= start < last  # pieces of one character, such as the bytes of an emoji
        touches = start == last and goes_on and (marked or text[start - 1].isalnum())
        if not (inside or touches):
            word += 1
        last = max(last, end) if inside else end
        found.append(Token(text=text[start:end], start=start, end=end, word=word))
    return tuple(found)


def _find(folded: _Folded, token: str, cursor: int, *, jump: bool) -> Span | None:
    """The next place of `token`, with or without its mark; `jump`: anything may come before."""
    stripped = token.strip()
    forms = [stripped, *(stripped.removeprefix(m) for m in MARKS if stripped.startswith(m))]
    for form in map(fold, map(str.strip, forms)):
        start = folded.letters.find(form, cursor) if form else -1
        between = folded.letters[cursor:start]
        if start >= 0 and (jump or not any(letter.isalnum() for letter in between)):
            return start, start + len(form)
    return None


def _between(text: str, folded: _Folded, start: int, end: int) -> Span:
    return _trimmed(text, folded.origin[start], folded.origin[end])


def _trimmed(text: str, start: int, end: int) -> Span:
    """The span without white space at either end; an empty one where nothing else is in it."""
    cut = text[start:end]
    if not cut.strip():
        return start, start
    return end - len(cut.lstrip()), start + len(cut.rstrip())


def _not_found(place: int, token: str, why: str) -> ItemError:
    return ItemError(
        "token-not-found",
        f"token {place} ({token!r}) does not follow in the text: {why}; give offsets, or the "
        "text that these tokens were cut from",
    )


#: beyond it a sum of two numbers, and the number as stored, may be infinite
_LARGEST = float(np.finfo(np.float32).max)


def numbers_of(values: Sequence[Any], column: str) -> tuple[float, ...]:
    """The numbers in a cell; raises ItemError malformed-row or not-finite, with the place."""
    for place, value in enumerate(values):
        name = f"{column}[{place}]" if len(values) > 1 else column
        if isinstance(value, list):
            raise ItemError(
                "malformed-row",
                f"{name} is a list; a token has one number, so sum over the others",
            )
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise ItemError("malformed-row", f"{name} is {value!r}, not a number")
        if value is None or not abs(value) <= _LARGEST:  # NaN neither
            raise ItemError("not-finite", f"{name} is {value}")
    return tuple(map(float, values))


def span_of(pair: Any, text: str) -> Span:
    """The characters from and to that a cell names; raises ItemError malformed-row, bad-offsets."""
    whole = isinstance(pair, list) and len(pair) == 2 and all(type(place) is int for place in pair)
    if not whole:
        raise ItemError("malformed-row", f"an offset is {pair!r}, not [start, end]")
    start, end = pair
    if not 0 <= start <= end <= len(text):
        raise ItemError(
            "bad-offsets",
            f"the offset {pair} lies outside the text of {len(text)} characters (they count "
            "characters, not bytes)",
        )
    return start, end


def check_order(spans: Sequence[Span], special: Sequence[bool]) -> None:
    """Raise ItemError bad-offsets where tokens that are not special go back in the text."""
    starts = [
        start for (start, _), is_special in zip(spans, special, strict=True) if not is_special
    ]
    for before, after in pairwise(starts):
        if after < before:
            raise ItemError(
                "bad-offsets",
                f"a token at character {after} follows one at {before}; offsets are in reading "
                "order and count from the beginning of `text`",
            )


#: what a column means -> its names in a file, where none was given
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "sentence"),
    "second_at": ("second_at",),
    "tokens": ("tokens",),
    "offsets": ("offsets", "offset_mapping"),
    "scores": ("scores", "attributions"),
    "special": ("special", "special_tokens_mask"),
    "prediction": ("prediction", "predicted"),
    "class": ("class",),
    "target": ("target",),
    "logit": ("logit",),
    "logits": ("logits",),
    "label": ("label",),
    "id": ("id",),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FileColumns:
    """How a file of attributions is read.

    `named` is what the user called a column: meaning -> name. `classes` are the model's, by
    index; None: those that the file names.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    classes: ClassNames | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  #: the file's label -> class
    meta: tuple[str, ...] = ()  #: further columns kept with each item
    cluster: str | None = None  #: column, see `plans.DatasetSpec`
    template: str | None = None

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns of an item itself, without its attributions."""
        return tuple(name for name in (*self.meta, self.cluster, self.template) if name)

    def resolve(self, table: OpenTable, path: AnyPath) -> dict[str, str]:
        """Meaning -> column of the file `path`, for those that it has.

        Raises DataSourceError naming the columns there and those wanted: a column that was named
        or that every row needs is missing.
        """
        for meaning in self.named:
            if meaning not in COLUMNS:
                raise DataSourceError(
                    f"there is no meaning {meaning!r} for a column; known: {', '.join(COLUMNS)}"
                )
        has = f"it has {', '.join(map(repr, table.columns))}"
        for name in (*self.named.values(), *self.kept):
            if name not in table.columns:
                raise DataSourceError(f"{path} has no column {name!r}; {has}")
        columns = dict(self.named)
        for meaning, names in COLUMNS.items():
            here = [name for name in names if name in table.columns]
            if meaning not in columns and here:
                columns[meaning] = here[0]
        answers = {"prediction", "logits"} if self.classes else {"prediction"}
        needs = {
            "text": {"text"},
            "scores": {"scores"},
            "tokens (or offsets)": {"tokens", "offsets"},
            "prediction (or logits, with the classes named)": answers,
        }
        missing = [need for need, ways in needs.items() if not ways & columns.keys()]
        if missing:
            pieces = (
                " (input_ids are numbers of one tokenizer's pieces, as Thermostat keeps them: "
                "write its tokens and the text beside them)"
            )
            raise DataSourceError(
                f"{path} holds no attributions that can be read: it has no column for "
                f"{', no '.join(missing)}; {has}{pieces if 'input_ids' in table.columns else ''}. "
                "Say which column is which with --column, e.g. --column scores=attr"
            )
        if "logits" in columns and self.classes is None:
            raise DataSourceError(
                f"{path} has a column of logits, {columns['logits']!r}: name the classes in their "
                "order with --classes"
            )
        return columns


#: targets whose class is one of the model's
_OF_CLASS = ("predicted", "label", "all")
_NO_LOGIT = "the file gives no logit; the sum of the scores stands in its place"


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenAttribution:
    """The content of one row; the first nine fields are the same in every row of an item."""

    text: str
    second_at: int | None  #: see `pairs`
    tokens: Sequence[Token]
    prediction: str
    label: str | None
    logits: tuple[float, ...]  #: (C,), or none
    meta: str  #: JSON object of strings
    cluster: str | None
    template: str | None
    target: str
    class_name: str
    of_class: bool  #: False: a contrast or a group of classes
    logit: float
    scores: tuple[float, ...]  #: (T,)
    notes: tuple[str, ...]


class AttributionReader:
    """Reads the rows of one file; `columns` is meaning -> name, as its `resolve` gives it."""

    def __init__(
        self,
        requested: FileColumns,
        columns: Mapping[str, str],
        called: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`called`: meaning -> what the file calls the numbers 0, 1, ... in that column."""
        self._requested, self._columns = requested, columns
        self._called = {
            meaning: {str(number): name for number, name in enumerate(names)}
            for meaning, names in (called or {}).items()
        }
        self._labels = {folded(name): value for name, value in requested.labels.items()}
        self.unknown_labels: set[str] = set()  #: of all rows read so far

    @property
    def wanted(self) -> tuple[str, ...]:
        """Every column once."""
        return tuple(dict.fromkeys((*self._columns.values(), *self._requested.kept)))

    def id_of(self, cells: Mapping[str, Any], row: int) -> str:
        """The row's id: its number where the file has no such column.

        Raises ItemError null or invalid-utf8.
        """
        if "id" not in self._columns:
            return str(row)
        name = spelled(cells.get(self._columns["id"]), self._columns["id"])
        if name is None:
            raise ItemError("null", f"the id column {self._columns['id']!r} is null or empty")
        return name

    def read(self, cells: Mapping[str, Any]) -> GivenAttribution:
        """The attribution in a row.

        Raises ItemError null, empty-text, invalid-utf8, malformed-row, length-mismatch,
        not-finite, bad-offsets, token-not-found, unknown-class.
        """
        text = self._text(cells)
        tokens = self._tokens(cells, text)
        scores = self._numbers(cells, "scores")
        if scores is None:
            raise ItemError("null", f"column {self._columns['scores']!r} is null")
        if len(scores) != len(tokens):
            raise ItemError("length-mismatch", f"{len(scores)} scores for {len(tokens)} tokens")
        logits = self._logits(cells)
        prediction = self._prediction(cells, logits)
        label = self._label(cells)
        target, class_name = self._target(cells, prediction, label)
        of_class = target in _OF_CLASS or target.startswith(("class:", "top:"))
        logit = self._logit(cells, logits, class_name if of_class else None)
        names, second_at = self._requested.meta, self._cell(cells, "second_at")
        within = isinstance(second_at, int | float) and 1 <= second_at <= len(text)
        if second_at is not None and (not within or second_at % 1):
            raise ItemError(
                "malformed-row",
                f"column {self._columns['second_at']!r} holds {second_at!r:.40}, which is no place "
                f"in the text's {len(text)} characters where a second text may begin",
            )
        return GivenAttribution(
            text=text,
            second_at=None if second_at is None else int(second_at),
            tokens=tokens,
            prediction=prediction,
            label=label,
            logits=logits,
            meta=meta_json({name: spelled(cells.get(name), name) for name in names}),
            cluster=_cell(cells, self._requested.cluster),
            template=_cell(cells, self._requested.template),
            target=target,
            class_name=class_name,
            of_class=of_class,
            logit=math.fsum(scores) if logit is None else logit,
            scores=scores,
            notes=(_NO_LOGIT,) if logit is None else (),
        )

    def _text(self, cells: Mapping[str, Any]) -> str:
        column, given = self._columns["text"], self._cell(cells, "text")
        if given is None and (self._cell(cells, "tokens") or self._cell(cells, "offsets")):
            raise ItemError(
                "null",
                f"column {column!r} is null beside the tokens, as in an export of a run with "
                "store_text: hashed or none, or with --redact: texts were not stored, and an "
                "import needs them to find who is mentioned. Fill the column from the data, or "
                "run the audit again with the lexicon",
            )
        return text_of(given, column)

    def _cell(self, cells: Mapping[str, Any], meaning: str) -> Any:
        return cells.get(self._columns[meaning]) if meaning in self._columns else None

    def _list(self, cells: Mapping[str, Any], meaning: str) -> list[Any] | None:
        value = self._cell(cells, meaning)
        if value is not None and not isinstance(value, list):
            raise ItemError(
                "malformed-row",
                f"column {self._columns[meaning]!r} holds a {type(value).__name__}, not a list",
            )
        return value

    def _numbers(self, cells: Mapping[str, Any], meaning: str) -> tuple[float, ...] | None:
        values = self._list(cells, meaning)
        return None if values is None else numbers_of(values, self._columns[meaning])

    def _tokens(self, cells: Mapping[str, Any], text: str) -> Sequence[Token]:
        pieces, offsets = self._list(cells, "tokens"), self._list(cells, "offsets")
        if pieces is None and offsets is None:
            raise ItemError("null", "the row has neither tokens nor offsets")
        if pieces is not None and not all(isinstance(piece, str) for piece in pieces):
            raise ItemError("malformed-row", "a token is not a text")
        if pieces is not None and any(printable(piece) != piece for piece in pieces):
            raise ItemError("invalid-utf8", "a token holds half of a letter; write UTF-8")
        if not (pieces if pieces is not None else offsets):
            raise ItemError("length-mismatch", "the row has no tokens")
        spans = None if offsets is None else [span_of(pair, text) for pair in offsets]
        if pieces is None:
            pieces = [text[start:end] for start, end in spans or ()]
        given = self._special(cells, len(pieces))
        if spans is None:
            spans = find_spans(text, pieces, given)
        if len(spans) != len(pieces):
            raise ItemError("length-mismatch", f"{len(spans)} offsets for {len(pieces)} tokens")
        special = [
            known
            if known is not None
            else (start == end and (offsets is not None or is_frame(piece)))
            for known, (start, end), piece in zip(given, spans, pieces, strict=True)
        ]
        check_order(spans, special)
        return as_tokens(text, pieces, spans, special)

    def _special(self, cells: Mapping[str, Any], count: int) -> list[bool | None]:
        values = self._list(cells, "special")
        if values is None:
            return [None] * count
        if len(values) != count:
            raise ItemError("length-mismatch", f"{len(values)} special flags for {count} tokens")
        if not all(value in (0, 1) for value in values):
            raise ItemError("malformed-row", "a special flag is neither true nor false")
        return [bool(value) for value in values]

    def _name(self, cells: Mapping[str, Any], meaning: str) -> str | None:
        """A class as the model calls it; an index is read where the classes are known."""
        name = self._spelled(cells, meaning)
        return None if name is None else self._known(name, self._columns[meaning])

    def _spelled(
        self, cells: Mapping[str, Any], meaning: str, mapped: Collection[str] = ()
    ) -> str | None:
        """A class as the file names it; numbers that are `mapped` stay as they are."""
        name = spelled(self._cell(cells, meaning), self._columns.get(meaning, meaning))
        if name is None or folded(name) in mapped:
            return name
        return self._called.get(meaning, {}).get(folded(name), name)

    def _known(self, name: str, where: str) -> str:
        """The class of that name; raises ItemError unknown-class where it was not requested."""
        if self._requested.classes is None:
            return name
        try:
            return self._requested.classes.classes[self._requested.classes.class_index(name)]
        except TargetError as error:
            raise ItemError("unknown-class", f"{where}: {error}") from None

    def _logits(self, cells: Mapping[str, Any]) -> tuple[float, ...]:
        values = self._numbers(cells, "logits")
        names = self._requested.classes
        if values is None or names is None:
            return ()
        if len(values) != len(names.classes):
            raise ItemError(
                "length-mismatch", f"{len(values)} logits for {len(names.classes)} classes"
            )
        return values

    def _prediction(self, cells: Mapping[str, Any], logits: tuple[float, ...]) -> str:
        name = self._name(cells, "prediction")
        if name is None and logits and self._requested.classes is not None:
            return self._requested.classes.classes[int(np.argmax(logits))]
        if name is None:
            raise ItemError("null", "the row names no predicted class")
        return name

    def _label(self, cells: Mapping[str, Any]) -> str | None:
        label = self._spelled(cells, "label", self._labels)
        names = self._requested.classes
        if label is None:
            return None
        if names is None:
            return self._requested.labels.get(label, self._labels.get(folded(label), label))
        index = label_index(label, names, self._requested.labels)
        if index is None:
            self.unknown_labels.add(label)
            return None
        return names.classes[index]

    def _target(
        self, cells: Mapping[str, Any], prediction: str, label: str | None
    ) -> tuple[str, str]:
        """The target in the form of an audit, and the class that it means here."""
        target = spelled(self._cell(cells, "target"), self._columns.get("target", "target"))
        if target is None:
            name = self._name(cells, "class")
            return ("predicted", prediction) if name is None else (f"class:{name}", name)
        kind, _, argument = target.partition(":")
        if kind not in (*_OF_CLASS, "class", "top"):
            own = spelled(self._cell(cells, "class"), "class")
            if own is None and kind != "contrast":
                raise ItemError(
                    "unknown-class",
                    f"target {target!r} is neither predicted, label, class:NAME nor contrast:A-B, "
                    "and the row names no class for it",
                )
            if own is None and (names := self._requested.classes) is not None:
                try:
                    parse_target(target, names)
                except TargetError as error:
                    raise ItemError("unknown-class", str(error)) from None
            elif own is None and "-" not in argument.strip("-"):
                raise ItemError(
                    "unknown-class", f"target {target!r} names no two classes; write A-B"
                )
            return target, own or argument
        of = self._known(argument, f"target {target!r}") if kind == "class" and argument else None
        implied = {"predicted": prediction, "label": label, "class": of}.get(kind)
        name = self._name(cells, "class") or implied
        if name is None or (kind == "predicted" and name != prediction):
            why = f"is of class {name!r}" if name else "names no class"
            raise ItemError(
                "unknown-class", f"target {target!r} {why}, and the prediction is {prediction!r}"
            )
        return target, name

    def _logit(
        self, cells: Mapping[str, Any], logits: tuple[float, ...], class_name: str | None
    ) -> float | None:
        value = self._cell(cells, "logit")
        if value is not None:
            return numbers_of([value], self._columns["logit"])[0]
        if not logits or class_name is None or self._requested.classes is None:
            return None
        return logits[self._requested.classes.classes.index(class_name)]


def _cell(cells: Mapping[str, Any], column: str | None) -> str | None:
    return spelled(cells.get(column), column) if column else None
