"""Three ways to keep a text out of the store: hash its words, store nothing, or blank parts
of it.
"""

import hmac
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Protocol

from transexplain.errors import ConfigurationError
from transexplain.privacy import Hook, Span, spans_by
from transexplain.settings import secret
from transexplain.types.tokens import Token, Tokens

TEXT_KEY = "TRANSEXPLAIN_TEXT_KEY"
_FEWEST = 16  #: bytes
_DIGITS = 12  #: of a stored hash: 48 bits; two of a million words share one with 0.2 %
_FINGERPRINT = 16  #: digits of the key's fingerprint


@dataclass(frozen=True, slots=True)
class TextKey:
    """A secret of at least 16 bytes, with the hashes that it makes of texts."""

    _secret: bytes = field(repr=False)

    @classmethod
    def from_environment(cls, fingerprint: str = "") -> "TextKey":
        """The key of `TRANSEXPLAIN_TEXT_KEY`, or of the file in `TRANSEXPLAIN_TEXT_KEY_FILE`.

        Raises ConfigurationError where there is none, it is short, or it is not the one with this
        `fingerprint`; no message holds the key.
        """
        text = secret("TEXT_KEY")
        if text is None:
            raise ConfigurationError(
                f"store_text is hashed, but {TEXT_KEY} is not set; set it, or {TEXT_KEY}_FILE, to "
                f"a random secret of at least {_FEWEST} bytes, the same for every worker"
            )
        given = text.encode("utf-8", "surrogateescape")
        if len(given) < _FEWEST:
            raise ConfigurationError(
                f"{TEXT_KEY} has {len(given)} bytes; it must have at least {_FEWEST}. "
                "`openssl rand -hex 32` makes one"
            )
        key = cls(given)
        if fingerprint and not hmac.compare_digest(key.fingerprint, fingerprint):
            raise ConfigurationError(
                f"{TEXT_KEY} is not the key of this run: its fingerprint is {key.fingerprint}, "
                f"the plan has {fingerprint}. Set the key that the run was planned with"
            )
        return key

    @property
    def fingerprint(self) -> str:
        """A name of the key that does not reveal it."""
        return self._mac("fingerprint", "")[:_FINGERPRINT]

    def word(self, text: str) -> str:
        """12 hexadecimal digits, the same for the same word in upper or lower case."""
        return self._mac("word", text.lower())[:_DIGITS]

    def value(self, column: str, text: str) -> str:
        """12 hexadecimal digits of a value, which another column's value never shares by rule."""
        return self._mac(f"value of {column}", text)[:_DIGITS]

    def _mac(self, purpose: str, text: str) -> str:
        # a lone surrogate has no bytes in UTF-8; the purpose's length keeps the two parts apart
        message = f"{len(purpose)}:{purpose}{text}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._secret, message, "sha256").hex()


_WORD = re.compile(r"\w+")


def widened(text: str, spans: Iterable[Span]) -> tuple[Span, ...]:
    """The spans with the words that they touch, joined where they meet, without empty ones."""
    given = [span for span in joined(spans) if span[0] < span[1]]
    if not given:
        return ()
    words = [match.span() for match in _WORD.finditer(text)]
    return tuple(joined((*given, *(word for word in words if covered(word, given)))))


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, those that overlap or meet made one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def covered(place: Span, spans: Sequence[Span]) -> bool:
    """Whether a place shares a character with one of `joined` spans, or is empty within it."""
    start, end = place
    near = bisect_left(spans, start, key=itemgetter(1))
    return any(
        (start < last and first < end) or (start == end and first <= start <= last)
        for first, last in spans[near : near + 2]
    )


def blanked(text: str, spans: Iterable[Span], blank: str) -> str:
    """The text, as long as it was, with a blank for every character of the spans."""
    parts, cursor = [], 0
    for start, end in joined(spans):
        parts += [text[cursor:start], blank * (end - start)]
        cursor = end
    return "".join([*parts, text[cursor:]])


def word_ranges(tokens: Iterable[Token]) -> Iterator[Span]:
    """Where each word of the model's begins and ends."""
    found: dict[int, Span] = {}
    for token in tokens:
        if token.word is not None:
            start, end = found.get(token.word, (token.start, token.end))
            found[token.word] = (min(start, token.start), max(end, token.end))
    yield from found.values()


BLANK = "\N{FULL BLOCK}"


class Blind(Protocol):
    """The replacement that is stored for each kind of string."""

    def text(self, item_id: str, text: str | None) -> str | None:
        """Of an item's text."""

    def tokens(self, item_id: str, text: str | None, tokens: Sequence[Token]) -> Sequence[Token]:
        """Of an item's positions; their places and words stay."""

    def surface(self, item_id: str, surface: str, place: Span) -> str:
        """Of a mention's spelling."""

    def entity(self, name: str) -> str:
        """Of the name of an entity that the data mark."""

    def meta(self, meta: Mapping[str, str]) -> dict[str, str]:
        """Of an item's metadata."""

    def message(self, message: str) -> str:
        """Of an error's words, which may quote a text."""

    def words(self, item_id: str, words: Sequence[str]) -> list[str | None]:
        """Of words without their places, as metrics keep them; None: nothing."""


@dataclass(frozen=True, slots=True)
class Hashed:
    """Words become keyed hashes: the first piece of a word holds the word's, the others nothing."""

    key: TextKey

    def text(self, item_id: str, text: str | None) -> None:
        """None: a text is not stored."""

    def tokens(self, item_id: str, text: str | None, tokens: Sequence[Token]) -> Sequence[Token]:
        """Tokens with the hash of their word, special ones too."""
        return Tokens.of(tokens).spelled(
            ["" if word is None else self.key.word(word) for word in _words_once(text, tokens)]
        )

    def surface(self, item_id: str, surface: str, place: Span) -> str:
        """Its hash; of several words as of one."""
        return self.key.word(surface) if surface else ""

    def entity(self, name: str) -> str:
        """The hash of the name as it is spelled, so that tables distinguish spellings."""
        return self.key.value("entity", name)

    def meta(self, meta: Mapping[str, str]) -> dict[str, str]:
        """Hashes of the values, by their columns."""
        return {column: self.key.value(column, str(value)) for column, value in meta.items()}

    def message(self, message: str) -> str:
        """A note that it is not stored: a message could not be read from its hash."""
        return "not stored (store_text: hashed)"

    def words(self, item_id: str, words: Sequence[str]) -> list[str | None]:
        """Their hashes."""
        return [self.key.word(word) for word in words]


@dataclass(frozen=True, slots=True)
class Nothing:
    """No text is stored, only where its words begin and end."""

    def text(self, item_id: str, text: str | None) -> None:
        """None: a text is not stored."""

    def tokens(self, item_id: str, text: str | None, tokens: Sequence[Token]) -> Sequence[Token]:
        """Tokens without their texts."""
        return Tokens.of(tokens).spelled([""] * len(tokens))

    def surface(self, item_id: str, surface: str, place: Span) -> str:
        """Nothing."""
        return ""

    def entity(self, name: str) -> str:
        """Nothing; orchestrator/spec/privacy_section.py refuses plans with such entities."""
        return ""

    def meta(self, meta: Mapping[str, str]) -> dict[str, str]:
        """Nothing."""
        return {}

    def message(self, message: str) -> str:
        """That it is not stored."""
        return "not stored (store_text: none)"

    def words(self, item_id: str, words: Sequence[str]) -> list[str | None]:
        """Nothing."""
        return [None] * len(words)


@dataclass(slots=True)
class Blanked:
    """Texts are stored with blanks where a hook marks them; a word that is touched is blanked as
    a whole.
    """

    hook: Hook
    #: item id -> what to blank, of items whose text the hook has read and found something in
    spans: dict[str, tuple[Span, ...]] = field(default_factory=dict)
    hidden: dict[str, set[str]] = field(default_factory=dict)  #: and the words there, lower case

    def read(self, item_id: str, text: str) -> None:
        """Call the hook with an item's text; raises as `spans_by`."""
        if found := widened(text, spans_by(self.hook, text)):
            self.spans[item_id] = found
            self.hidden[item_id] = {text[start:end].lower() for start, end in found}

    def place(self, item_id: str, text: str | None, tokens: Sequence[Token]) -> None:
        """Widen what is blanked of an item to the words that the model read."""
        found = self.spans.get(item_id)
        if found and text is not None:
            ranges = [one for one in word_ranges(tokens) if covered(one, found)]
            self.spans[item_id] = found = widened(text, (*found, *ranges))
            self.hidden[item_id] |= {text[start:end].lower() for start, end in found}

    def text(self, item_id: str, text: str | None) -> str | None:
        """The text with blanks, as long as it was."""
        return None if text is None else blanked(text, self.spans.get(item_id, ()), BLANK)

    def tokens(self, item_id: str, text: str | None, tokens: Sequence[Token]) -> Sequence[Token]:
        """Blanked tokens belong to no word, so that no table counts them."""
        spans = self.spans.get(item_id)
        if not spans:
            return tokens
        return tuple(
            replace(token, text=BLANK * len(token.text), word=None)
            if covered((token.start, token.end), spans)
            else token
            for token in tokens
        )

    def surface(self, item_id: str, surface: str, place: Span) -> str:
        """Blanks where any of it is blanked."""
        spans = self.spans.get(item_id, ())
        return BLANK * len(surface) if covered(place, spans) else surface

    def entity(self, name: str) -> str:
        """The name; a plan with entities that the data mark is refused."""
        return name

    def meta(self, meta: Mapping[str, str]) -> dict[str, str]:
        """Values with blanks."""
        return {column: self._string(str(value)) for column, value in meta.items()}

    def message(self, message: str) -> str:
        """The message with blanks."""
        return self._string(message)

    def words(self, item_id: str, words: Sequence[str]) -> list[str | None]:
        """Those that are in nothing that is blanked."""
        hidden = self.hidden.get(item_id, ())
        return [None if any(word in one for one in hidden) else word for word in words]

    def _string(self, text: str) -> str:
        try:
            return blanked(text, widened(text, spans_by(self.hook, text)), BLANK)
        except Exception:  # noqa: BLE001 - a hook may raise anything; then nothing of it is stored
            return BLANK * len(text)


def _words_once(text: str | None, tokens: Sequence[Token]) -> Iterator[str | None]:
    """At the first piece of a word the whole of it, as `Attribution.words` reads it; else None."""
    whole: dict[int, str] = {}
    starts: dict[int, int] = {}
    for token in tokens:
        if token.word is None:
            continue
        start = starts.setdefault(token.word, token.start)
        pieces = whole.get(token.word, "") + token.text
        whole[token.word] = pieces if text is None else text[start : token.end]
    given: set[int] = set()
    for token in tokens:
        if token.word is None:
            yield token.text
        else:
            yield None if token.word in given else whole[token.word]
            given.add(token.word)
