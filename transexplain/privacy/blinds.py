"""Three ways to keep a text out of the store: hashes of its words, nothing, or blanks in it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from transexplain.privacy.hooks import Hook, Span, spans_by
from transexplain.privacy.keys import TextKey
from transexplain.privacy.spans import blanked, covered, widened, word_ranges
from transexplain.types import Token

BLANK = "\N{FULL BLOCK}"


class Blind(Protocol):
    """What is stored in place of each kind of string."""

    def text(self, item_id: str, text: str | None) -> str | None:
        """Of an item's text."""

    def tokens(
        self, item_id: str, text: str | None, tokens: tuple[Token, ...]
    ) -> tuple[Token, ...]:
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

    def tokens(
        self, item_id: str, text: str | None, tokens: tuple[Token, ...]
    ) -> tuple[Token, ...]:
        """Tokens with the hash of their word, special ones too."""
        return tuple(
            replace(token, text="" if word is None else self.key.word(word))
            for token, word in zip(tokens, _words_once(text, tokens), strict=True)
        )

    def surface(self, item_id: str, surface: str, place: Span) -> str:
        """Its hash; of several words as of one."""
        return self.key.word(surface) if surface else ""

    def entity(self, name: str) -> str:
        """Its hash, of the name as it is spelled: tables tell spellings apart, too."""
        return self.key.value("entity", name)

    def meta(self, meta: Mapping[str, str]) -> dict[str, str]:
        """Hashes of the values, by their columns."""
        return {column: self.key.value(column, str(value)) for column, value in meta.items()}

    def message(self, message: str) -> str:
        """That it is not stored: nobody could tell a message from its hash."""
        return "not stored (store_text: hashed)"

    def words(self, item_id: str, words: Sequence[str]) -> list[str | None]:
        """Their hashes."""
        return [self.key.word(word) for word in words]


@dataclass(frozen=True, slots=True)
class Nothing:
    """No text is stored, only where its words begin and end."""

    def text(self, item_id: str, text: str | None) -> None:
        """None: a text is not stored."""

    def tokens(
        self, item_id: str, text: str | None, tokens: tuple[Token, ...]
    ) -> tuple[Token, ...]:
        """Tokens without their texts."""
        return tuple(replace(token, text="") for token in tokens)

    def surface(self, item_id: str, surface: str, place: Span) -> str:
        """Nothing."""
        return ""

    def entity(self, name: str) -> str:
        """Nothing; a plan with such entities is refused, see orchestrator/privacy.py."""
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
    """Texts are stored with blanks where a hook says so; a word that is touched goes as a whole."""

    hook: Hook
    #: item id -> what to blank, of items whose text the hook has read and found something in
    spans: dict[str, tuple[Span, ...]] = field(default_factory=dict)
    hidden: dict[str, set[str]] = field(default_factory=dict)  #: and the words there, lower case

    def read(self, item_id: str, text: str) -> None:
        """Ask the hook about an item's text; raises as `spans_by`."""
        if found := widened(text, spans_by(self.hook, text)):
            self.spans[item_id] = found
            self.hidden[item_id] = {text[start:end].lower() for start, end in found}

    def place(self, item_id: str, text: str | None, tokens: tuple[Token, ...]) -> None:
        """Widen what is blanked of an item to the words that the model read."""
        found = self.spans.get(item_id)
        if found and text is not None:
            ranges = [one for one in word_ranges(tokens) if covered(one, found)]
            self.spans[item_id] = found = widened(text, (*found, *ranges))
            self.hidden[item_id] |= {text[start:end].lower() for start, end in found}

    def text(self, item_id: str, text: str | None) -> str | None:
        """The text with blanks, as long as it was."""
        return None if text is None else blanked(text, self.spans.get(item_id, ()), BLANK)

    def tokens(
        self, item_id: str, text: str | None, tokens: tuple[Token, ...]
    ) -> tuple[Token, ...]:
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


def _words_once(text: str | None, tokens: tuple[Token, ...]) -> Iterator[str | None]:
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
