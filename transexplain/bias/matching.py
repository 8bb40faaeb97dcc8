"""Finding the entities of a lexicon in a text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from transexplain.bias.words import Piece, pieces
from transexplain.errors import LexiconError
from transexplain.types import EntityGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """One entity found in a text."""

    group: str
    entity: str  #: the lexicon's spelling
    surface: str  #: as written in the text
    start: int  #: character offset into the text as given
    end: int


@dataclass(frozen=True, slots=True)
class _Term:
    group: int
    entity: str
    capitals: tuple[frozenset[int], ...]  #: per piece: positions that must be capitals

    @property
    def strictness(self) -> int:
        return sum(map(len, self.capitals))

    def accepts(self, found: Sequence[Piece]) -> bool:
        return all(need <= piece.capitals for need, piece in zip(self.capitals, found, strict=True))


@dataclass(slots=True)
class _Node:
    """Where a walk over pieces has led: the terms that end here, and how to go on."""

    terms: list[_Term] = field(default_factory=list)
    glued: dict[str, "_Node"] = field(default_factory=dict)  #: next piece without space
    spaced: dict[str, "_Node"] = field(default_factory=dict)  #: next piece after white space


class Matcher:
    """All terms of all groups in one tree over words: a text costs one look-up per word.

    A term matches whole words (Unicode), with any white space between its words. A capital in
    the term must be a capital in the text; its other letters match in any case. Within a group
    the longest term at the leftmost place wins and matches do not overlap; groups do not see
    each other, so one span may belong to several.

    Raises:
        LexiconError: a group name occurs twice, or a term holds no visible character.
    """

    def __init__(self, groups: Sequence[EntityGroup]) -> None:
        self._names = [group.name for group in groups]
        if len(set(self._names)) < len(self._names):
            twice = next(name for name in self._names if self._names.count(name) > 1)
            raise LexiconError(f"group {twice!r} is given twice; join the two lists")
        self._root = _Node()
        for index, group in enumerate(groups):
            for term in group.terms:
                self._plant(index, term, group.name)

    def find(self, text: str) -> list[Match]:
        """Every match in `text`, ordered by start, end and the lexicon's order of groups."""
        found = pieces(text)
        free_from = [0] * len(self._names)
        hits: list[tuple[int, int, int, str]] = []
        for position in range(len(found)):
            start = found[position].start
            for term, last in self._longest(found, position).values():
                if start < free_from[term.group]:
                    continue
                end = found[last].end
                free_from[term.group] = end
                hits.append((start, end, term.group, term.entity))
        return [
            Match(
                group=self._names[group],
                entity=entity,
                surface=text[start:end],
                start=start,
                end=end,
            )
            for start, end, group, entity in sorted(hits)
        ]

    def _plant(self, group: int, term: str, group_name: str) -> None:
        words = pieces(term)
        if not words:
            raise LexiconError(f"group {group_name!r} has an empty term")
        node = self._root.glued.setdefault(words[0].key, _Node())
        for word in words[1:]:
            node = (node.spaced if word.spaced else node.glued).setdefault(word.key, _Node())
        node.terms.append(_Term(group, term, tuple(word.capitals for word in words)))

    def _longest(self, found: list[Piece], position: int) -> dict[int, tuple[_Term, int]]:
        """Per group the longest term that starts at `position`, and its last piece."""
        best: dict[int, tuple[_Term, int]] = {}
        for node, last in self._walk(found, position):
            if not node.terms:
                continue
            window = found[position : last + 1]
            for term in sorted(node.terms, key=lambda t: t.strictness):
                if term.accepts(window):
                    best[term.group] = (term, last)
        return best

    def _walk(self, found: list[Piece], position: int) -> Iterator[tuple[_Node, int]]:
        node = self._root.glued.get(found[position].key)
        while node is not None:
            yield node, position
            position += 1
            if position == len(found):
                return
            piece = found[position]
            node = (node.spaced if piece.spaced else node.glued).get(piece.key)
