"""Lexicons: named groups of entities with their spellings, provenance and ambiguity."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args

from transexplain.bias.lexicon_files import BUILTIN, read_lexicon
from transexplain.bias.words import pieces
from transexplain.errors import LexiconError
from transexplain.types import Ambiguity, EntityGroup

_KEYS = {"term": ("term", "entity", "ambiguous"), "terms": ("entity", "terms", "ambiguous")}


def load_lexicon(source: Path | str) -> tuple[EntityGroup, ...]:
    """Read entity groups from a file, or those of `builtin:NAME`.

    YAML and JSON hold `group: [terms]` or `group: {source: ..., terms: [...]}`, where a term is
    a text, `{term: Will, ambiguous: true}`, or several spellings of one entity,
    `{entity: United States, terms: [USA, U.S.]}`. CSV and TSV have the columns group and term,
    and may have entity, ambiguous and source. Any of them may be `.gz`. A spelling listed twice
    in a group counts once. What a term says nothing about is ambiguous where it is one
    capitalised word of the shipped list of names that are ordinary words too.

    Raises:
        LexiconError: the file cannot be read, a group is given twice or has no terms, a term is
            not text, or a spelling stands for two entities.
    """
    content = read_lexicon(source)
    return tuple(_group(str(source), name, body) for name, body in content.items())


def _group(source: str, name: Any, body: Any) -> EntityGroup:
    if not isinstance(name, str) or not name.strip():
        raise LexiconError(f"{source}: group name {name!r} is not text; put it in quotes")
    where = f"{source}: group {name!r}"
    provenance: Any = ""
    terms = body
    if isinstance(body, dict):
        if unknown := body.keys() - {"source", "terms"}:
            raise LexiconError(
                f"{where} has unknown keys {sorted(map(str, unknown))}; known: source, terms"
            )
        provenance, terms = body.get("source") or "", body.get("terms")
    if not isinstance(terms, list) or not terms:
        raise LexiconError(f"{where} needs a list of at least one term")
    if not isinstance(provenance, str):
        raise LexiconError(f"{source}: the source of group {name!r} is not text; put it in quotes")
    reading = _Reading(where)
    for entry in terms:
        reading.add(entry)
    return reading.group(name, provenance)


class _Reading:
    """One group while its entries are read."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._entities: dict[str, str] = {}  #: spelling -> entity
        self._flags: dict[str, Ambiguity | bool | None] = {}  #: None: not stated

    def add(self, entry: Any) -> None:
        """Take one entry of the list: a spelling, one with flags, or an entity with several."""
        if not isinstance(entry, dict):
            self._spelling(entry, None, None)
            return
        form = "terms" if "terms" in entry else "term"
        if form not in entry or (unknown := sorted(map(str, entry.keys() - set(_KEYS[form])))):
            fault = "lacks `term`" if form not in entry else f"has unknown keys {unknown}"
            raise LexiconError(
                f"{self._where}: entry {entry!r} {fault}; write "
                "{term: ..., entity: ..., ambiguous: ...} or {entity: ..., terms: [...]}"
            )
        entity, flag = entry.get("entity"), self._flag(entry)
        if form == "term":
            self._spelling(entry["term"], entity, flag)
            return
        if entity is None or not isinstance(entry["terms"], list) or not entry["terms"]:
            raise LexiconError(
                f"{self._where}: entry {entry!r} needs an entity and a list of its spellings"
            )
        for one in entry["terms"]:
            own = self._flag(one) if isinstance(one, dict) else None
            term = one.get("term") if isinstance(one, dict) else one
            self._spelling(term, entity, flag if own is None else own)

    def group(self, name: str, source: str) -> EntityGroup:
        """All that was read."""
        ambiguous = {term: self._ambiguity(term) for term in self._entities}
        return EntityGroup(
            name=name,
            terms=tuple(self._entities),
            source=source,
            entities={t: entity for t, entity in self._entities.items() if entity != t},
            ambiguous={term: kind for term, kind in ambiguous.items() if kind is not None},
        )

    def _spelling(self, term: Any, entity: Any, flag: Ambiguity | bool | None) -> None:
        spelling = self._text(term, "term")
        named = spelling if entity is None else self._text(entity, "entity")
        if self._entities.setdefault(spelling, named) != named:
            raise LexiconError(
                f"{self._where}: term {spelling!r} stands for {self._entities[spelling]!r} and "
                f"for {named!r}; keep one"
            )
        if flag is not None or spelling not in self._flags:
            self._flags[spelling] = flag

    def _text(self, value: Any, what: str) -> str:
        if not isinstance(value, str):
            raise LexiconError(
                f"{self._where}: {what} {value!r} was read as {type(value).__name__}, "
                "not text; put it in quotes"
            )
        spelling = " ".join(value.split())
        if not pieces(spelling):
            raise LexiconError(f"{self._where} has an empty {what}")
        return spelling

    def _flag(self, entry: Mapping[str, Any]) -> Ambiguity | bool | None:
        flag = entry.get("ambiguous")
        if flag is None or isinstance(flag, bool) or flag in get_args(Ambiguity):
            return flag
        named = entry.get("term", entry.get("entity"))
        raise LexiconError(
            f"{self._where}: term {named!r}: ambiguous is {flag!r}; write true, false or place"
        )

    def _ambiguity(self, term: str) -> Ambiguity | None:
        flag = self._flags[term]
        usual = ordinary_words().get(term.casefold()) if term[0].isupper() else None
        if isinstance(flag, bool):
            return (usual or "name") if flag else None
        return flag or usual


@cache
def ordinary_words() -> dict[str, Ambiguity]:
    """Names that are ordinary words too, in lower case, and what they name."""
    content = read_lexicon(f"{BUILTIN}ordinary_words")
    return {
        word.casefold(): cast("Ambiguity", kind)
        for kind, body in content.items()
        for word in body["terms"]
    }
