"""Is a word a name, or the ordinary word that is spelled alike? Capitals and neighbours decide."""

import re
from collections.abc import Sequence
from functools import cached_property

from transexplain.bias.openers import may_be_named_elsewhere, opens_as_name
from transexplain.bias.words import Piece
from transexplain.types import Ambiguity

_TITLES = frozenset(
    re.findall(
        r"\w+",
        "mr mrs ms mx dr prof professor sir lord lady president senator sen minister judge aunt "
        "uncle",
    )
)
_BEFORE_PLACES = frozenset(("in", "from", "to"))
#: symbols that a sentence goes on behind
_WITHIN = frozenset(",)&%-")
#: symbols that tie two words together
_BETWEEN = frozenset("'/+|")
#: words that headlines leave small, so that they do not show that capitals mean something
_SMALL = frozenset(
    re.findall(
        r"\w+", "a an and as at but by for from in nor of on or so the to up via vs with yet"
    )
)
_NO_PROSE = re.compile(r"(?:https?://|www\.|[@#])\S+")
#: of the words in prose, the share in small letters from which on a capital is a cue
_SMALL_SHARE = 1 / 8


_SENTENCE = 12  #: pieces after a name that are read to decide whether it is one


class Cues:
    """The cues of one text.

    A cue is one of: a capital, exactly as in the lexicon, that neither the beginning of a
    sentence nor a text in capitals explains; a title before it; a capitalised word right after
    it; a possessive; a sentence that goes on as it does from a name (see `openers`); and for a
    place `in`, `from` or `to` before it.
    """

    def __init__(self, text: str, found: Sequence[Piece]) -> None:
        self._text = text
        self._found = found

    def speak_for(self, first: int, last: int, exactly: bool, kind: Ambiguity) -> bool:
        """Whether the pieces `first` to `last` are meant as a name.

        `exactly`: their capitals are those of the lexicon.
        """
        if self._titled(first) or (kind == "place" and self._placed(first)):
            return True
        capital = exactly and self._found[first].capitals
        if not capital or self._outside_prose(self._found[first]):
            return False
        if not self._capitals_say_something:
            return False
        if not self._opens_sentence(first):
            return True
        return self._before_capital(last) or self._possessive(last) or self._goes_on(first, last)

    @cached_property
    def _capitals_say_something(self) -> bool:
        """False for texts in capitals, in title case, and for single words."""
        words = [
            piece
            for piece in self._found
            if piece.key[0].isalpha() and piece.key not in _SMALL and not self._outside_prose(piece)
        ]
        small = sum(0 not in piece.capitals for piece in words)
        return small > 0 and small >= _SMALL_SHARE * len(words)

    @cached_property
    def _addresses(self) -> list[tuple[int, int]]:
        return [match.span() for match in _NO_PROSE.finditer(self._text)]

    def _outside_prose(self, piece: Piece) -> bool:
        """Whether it stands in an address, a hashtag or an account's name."""
        return any(start <= piece.start < end for start, end in self._addresses)

    def _titled(self, first: int) -> bool:
        before = first - 1
        if before > 0 and self._found[before].key == ".":
            before -= 1
        if before < 0 or not self._found[first].spaced:
            return False
        title = self._found[before]
        return title.key in _TITLES and 0 in title.capitals

    def _placed(self, first: int) -> bool:
        before = self._found[first - 1].key if first else ""
        return before in _BEFORE_PLACES and self._found[first].spaced

    def _opens_sentence(self, first: int) -> bool:
        if first == 0:
            return True
        piece, before = self._found[first], self._found[first - 1]
        if "\n" in self._text[before.end : piece.start]:
            return True
        if before.key[0].isalnum():
            return self._is_handle(first - 1)
        if before.key == ".":
            return not self._abbreviates(first - 1)
        glued = not piece.spaced and not before.spaced
        return not (before.key in _WITHIN or (before.key in _BETWEEN and glued))

    def _goes_on(self, first: int, last: int) -> bool:
        """Whether the sentence that the pieces open goes on as it does from a name."""
        word = " ".join(piece.key for piece in self._found[first : last + 1])
        after = self._found[last + 1 : last + _SENTENCE]
        if opens_as_name(word, after):
            return True
        return may_be_named_elsewhere(word, after) and self._stands_within(first)

    def _stands_within(self, first: int) -> bool:
        """Whether the text has the word within a sentence, too, with a capital."""
        word = self._found[first]
        return any(
            piece.key == word.key
            and piece.capitals == word.capitals
            and not self._opens_sentence(place)
            and not self._outside_prose(piece)
            for place, piece in enumerate(self._found)
            if place != first
        )

    def _is_handle(self, place: int) -> bool:
        """`@anna` before a sentence is no part of it."""
        return place > 0 and self._found[place - 1].key == "@" and not self._found[place].spaced

    def _abbreviates(self, place: int) -> bool:
        """Whether the full stop at `place` stands behind an initial or a title."""
        if place == 0 or self._found[place].spaced:
            return False
        word = self._found[place - 1]
        return (len(word.key) == 1 and 0 in word.capitals) or word.key in _TITLES

    def _before_capital(self, last: int) -> bool:
        if last + 1 >= len(self._found):
            return False
        after = self._found[last + 1]
        gap = self._text[self._found[last].end : after.start]
        return 0 in after.capitals and after.key != "i" and bool(gap) and "\n" not in gap

    def _possessive(self, last: int) -> bool:
        rest = self._found[last + 1 : last + 3]
        return [piece.key for piece in rest] == ["'", "s"] and not any(p.spaced for p in rest)
