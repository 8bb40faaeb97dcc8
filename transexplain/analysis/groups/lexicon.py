"""Reads lexicons: groups, their entities and the terms that name them, from a file or a shipped
list.
"""

import csv
import gzip
import hashlib
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, cast, get_args

from transexplain.analysis.groups.group_cells import family
from transexplain.analysis.groups.word_pieces import exact_key, folded_key, pieces
from transexplain.errors import LexiconError, did_you_mean, reason_of
from transexplain.files.paths import AnyPath, any_path
from transexplain.text.parsing import LARGEST, read_json, read_yaml, refuse_unstorable
from transexplain.types.items import Ambiguity, EntityGroup
from transexplain.types.plans import SourceFile

#: what names a lexicon that comes with the software, e.g. `builtin:gender`
BUILTIN = "builtin:"
_TREES = (".yaml", ".yml", ".json")
TABLES = {".csv": ",", ".tsv": "\t"}
#: files beside the lexicons that other modules read
_NO_LEXICONS = ("ordinary_words", "gender-pairs")
_COLUMNS = ("group", "term", "entity", "ambiguous", "source")
#: words of a cell `ambiguous`; an empty cell leaves it to the list of ordinary words
_FLAGS: dict[str, Any] = {
    **dict.fromkeys(("yes", "true", "1", "name"), True),
    **dict.fromkeys(("no", "false", "0"), False),
    "place": "place",
}


def read_lexicon(source: AnyPath | str) -> dict[Any, Any]:
    """The groups of a file by name, or of `builtin:NAME`; their bodies are not checked yet.

    Raises:
        LexiconError: it cannot be read, holds no groups, or names one twice.
    """
    name, text = source_text(source)
    try:
        content = _parse(name, text)
        refuse_unstorable(content)
    except (ValueError, csv.Error) as error:
        raise LexiconError(f"{source}: {error}") from None
    if not isinstance(content, dict) or not content:
        raise LexiconError(f"{source}: expected a mapping of group names to lists of terms")
    return content


def source_text(source: AnyPath | str) -> tuple[str, str]:
    """A name whose suffix is the file's format, and its text; raises LexiconError."""
    if str(source).startswith(BUILTIN):
        return _shipped(str(source).removeprefix(BUILTIN))
    return str(source).lower().removesuffix(".gz"), _text(any_path(source))


def lexicon_file(source: AnyPath | str) -> SourceFile:
    """The digest of a lexicon's bytes, by its absolute path or as `builtin:NAME`.

    Raises LexiconError where it cannot be read.
    """
    if str(source).startswith(BUILTIN):
        name, data = str(source), _shipped(str(source).removeprefix(BUILTIN))[1].encode()
    else:
        path = any_path(source).absolute()
        name = str(path).encode("utf-8", "backslashreplace").decode()
        try:
            data = path.read_bytes()
        except OSError as error:
            raise LexiconError(f"{path}: cannot be read: {reason_of(error)}") from error
    return SourceFile(path=name, sha256=hashlib.sha256(data).hexdigest())


def shipped() -> list[str]:
    """Names of the lexicons that come with the software."""
    folder = resources.files("transexplain.analysis.groups") / "lexicons"
    names = (entry.name.removesuffix(".yaml") for entry in folder.iterdir())
    return sorted(name for name in names if name not in _NO_LEXICONS and not name.startswith("_"))


def _shipped(name: str) -> tuple[str, str]:
    if name not in (*shipped(), *_NO_LEXICONS):
        known = [BUILTIN + lexicon for lexicon in shipped()]
        near = did_you_mean(name, shipped()) or ";"
        raise LexiconError(f"there is no lexicon {BUILTIN}{name}{near} known: {', '.join(known)}")
    file = resources.files("transexplain.analysis.groups") / "lexicons" / f"{name}.yaml"
    return file.name, file.read_text(encoding="utf-8")


def _text(path: AnyPath) -> str:
    name = path.name.lower().removesuffix(".gz")
    if not name.endswith((*_TREES, *TABLES)):
        known = ", ".join((*_TREES, *TABLES))
        raise LexiconError(f"{path}: a lexicon is one of {known}, plain or .gz")
    try:
        with path.open("rb") as file:
            packed = path.name.lower().endswith(".gz")
            data = (gzip.GzipFile(fileobj=file) if packed else file).read(LARGEST + 1)
        if len(data) > LARGEST:
            raise LexiconError(f"{path}: a lexicon has at most {LARGEST:,} bytes")
        return data.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise LexiconError(f"{path}: cannot be read: {reason_of(error)}") from error
    except UnicodeDecodeError as error:
        raise LexiconError(f"{path}: not UTF-8 ({error}); save it as UTF-8") from error


def _parse(name: str, text: str) -> Any:
    if name.endswith(".json"):
        return read_json(text, _once)
    for suffix, delimiter in TABLES.items():
        if name.endswith(suffix):
            return _grouped(_table(text, delimiter))
    return read_yaml(text)


def _table(text: str, delimiter: str) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, cells by column) of every row that is not empty; raises ValueError."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    columns = [name.strip().lower() for name in next(reader, [])]
    unknown = [name for name in columns if name not in _COLUMNS]
    missing = [name for name in ("group", "term") if name not in columns]
    if unknown or missing or len(set(columns)) < len(columns):
        raise ValueError(
            f"line 1 names the columns {', '.join(columns) or '(none)'}; a lexicon has group and "
            f"term, may have entity, ambiguous and source, each once, and no others"
        )
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(columns):
            raise ValueError(
                f"line {reader.line_num} has {len(row)} cells, the first line {len(columns)}; put "
                "a term that holds the separator in quotes"
            )
        cells = (cell.strip() for cell in row)
        yield reader.line_num, dict(zip(columns, cells, strict=True))


def _grouped(rows: Iterable[tuple[int, dict[str, str]]]) -> dict[str, Any]:
    """The rows in the form that a YAML file has; a group's sources are joined."""
    groups: dict[str, Any] = {}
    for line, row in rows:
        for column in ("group", "term"):
            if not row[column]:
                raise ValueError(f"line {line} has no {column}; fill the cell or delete the line")
        flag = row.get("ambiguous", "").lower()
        if flag and flag not in _FLAGS:
            raise ValueError(
                f"line {line}: group {row['group']!r}, term {row['term']!r}: ambiguous is "
                f"{flag!r}; write yes, no or place, or leave it empty"
            )
        body = groups.setdefault(row["group"], {"sources": {}, "terms": []})
        body["sources"].setdefault(row.get("source", ""))
        entry: dict[str, Any] = {"term": row["term"], "ambiguous": _FLAGS.get(flag)}
        body["terms"].append({**entry, "entity": row.get("entity") or None})
    return {
        group: {"source": "; ".join(filter(None, body["sources"])), "terms": body["terms"]}
        for group, body in groups.items()
    }


def _once(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """A mapping that refuses a group that is given twice."""
    mapping: dict[Any, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"{key!r} is given twice; join the two lists")
        mapping[key] = value
    return mapping


_KEYS = {"term": ("term", "entity", "ambiguous"), "terms": ("entity", "terms", "ambiguous")}


def load_lexicon(source: AnyPath | str) -> tuple[EntityGroup, ...]:
    """Read entity groups from a file, also at a URL, or those of `builtin:NAME`.

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
        for spelling in entry["terms"]:
            flag_of_spelling = self._flag(spelling) if isinstance(spelling, dict) else None
            term = spelling.get("term") if isinstance(spelling, dict) else spelling
            self._spelling(term, entity, flag if flag_of_spelling is None else flag_of_spelling)

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


Pair = tuple[str, str]

SHIPPED = f"{BUILTIN}gender-pairs"  #: for `builtin:gender`
_PAIR_COLUMNS = ["word", "partner"]
#: words that `her` and `his` do not belong to: `I saw her and left`, `gave her to`
_NO_OWN = frozenset(
    re.findall(
        r"\S+",
        "a about after again against all along also although an and anymore anyway are around as "
        "at away back be because been before behind being both but by can could did do does down "
        "during either even ever every everywhere except for from had has have here how i if in "
        "inside into is it just like may me might must near never no nor not now of off on once "
        "only or out over she should since so some than that the their them then there these they "
        "this those though through till to today together tomorrow tonight too toward towards "
        "under until up upon us very was we were what when where whether which while who why will "
        "with within without would yesterday yet you your he him his her hers",
    )
)


def load_pairs(source: AnyPath | str) -> tuple[Pair, ...]:
    """Read pairs from a file, or those of `builtin:gender-pairs`.

    YAML and JSON hold a list of two words each, `[[he, she], [his, her]]`. CSV and TSV have the
    columns word and partner. Any of them may be `.gz`.

    Raises LexiconError: the file cannot be read, or an entry is not a pair of words.
    """
    name, text = source_text(source)
    try:
        content = _rows(name, text)
        refuse_unstorable(content)
    except (ValueError, csv.Error) as error:
        raise LexiconError(f"{source}: {error}") from None
    if not isinstance(content, list) or not content:
        raise LexiconError(f"{source}: expected a list of pairs of words, such as [[he, she]]")
    return tuple(_pair(str(source), entry) for entry in content)


def checked_pairs(pairs: Iterable[Pair], groups: Sequence[EntityGroup]) -> tuple[Pair, ...]:
    """The pairs as they are; their words are terms of two groups of one family.

    Raises LexiconError: a word is no term, both are in one group or in other families, or a pair
    comes twice.
    """
    homes: dict[str, list[str]] = {}
    for group in groups:
        for term in group.terms:
            homes.setdefault(exact_key(term), []).append(group.name)
    checked: dict[frozenset[str], Pair] = {}
    for pair in pairs:
        _check(pair, [homes.get(exact_key(word), []) for word in pair])
        key = frozenset(map(exact_key, pair))
        if key in checked:
            raise LexiconError(f"{_shown(pair)} is given twice; keep one")
        checked[key] = pair
    return tuple(checked.values())


class Partners:
    """The partner of every word of some pairs, in both directions.

    Where a word has several, the first stands before a word that it can belong to, the last
    elsewhere: with `[his, her], [him, her]`, `her` is `his` in `her brother` and `him` in `saw her
    today` or `saw her.`; with `[his, hers]` after these, `his` is `hers` in `a friend of his`.
    What it can belong to is any word right after it but articles, pronouns, prepositions,
    conjunctions, auxiliaries and adverbs of place and time.
    """

    def __init__(self, pairs: Iterable[Pair], *, folded: bool = False) -> None:
        """`folded`: words have their partners whatever their accents."""
        self._key = folded_key if folded else exact_key
        self._partners: dict[str, list[str]] = {}
        for word, other in pairs:
            self._partners.setdefault(self._key(word), []).append(other)
            self._partners.setdefault(self._key(other), []).append(word)

    def partner(self, word: str, following: str) -> str | None:
        """The word that replaces `word`, in its capitals; None where it has no partner.

        `following` is the text right behind it.
        """
        known = self._partners.get(self._key(word))
        if not known:
            return None
        partner = known[0 if _takes_possessive(following) else -1]
        if word.isupper() and (len(word) > 1 or partner.isupper()):
            return partner.upper()
        return partner[:1].upper() + partner[1:] if word[:1].isupper() else partner


def _takes_possessive(following: str) -> bool:
    """Return whether the text continues with a word that a possessive can stand before."""
    words = pieces(following[:100])
    if not words or following[:1] != " ":
        return False
    return words[0].key[0].isalnum() and words[0].key not in _NO_OWN


def _check(pair: Pair, homes: Sequence[Sequence[str]]) -> None:
    for word, homes_of_word in zip(pair, homes, strict=True):
        if not homes_of_word:
            raise LexiconError(f"{_shown(pair)}: {word!r} is no term of the groups used")
    left, right = homes
    if any(family(a) == family(b) and a != b for a in left for b in right):
        return
    both = Counter(left) & Counter(right)
    what = f"both are in {next(iter(both))}" if both else f"{left[0]} and {right[0]} are no family"
    raise LexiconError(f"{_shown(pair)}: {what}; a pair is of two groups of one family")


def _shown(pair: Pair) -> str:
    return f"the pair [{', '.join(pair)}]"


def _rows(name: str, text: str) -> Any:
    for suffix, delimiter in TABLES.items():
        if name.endswith(suffix):
            rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
            first, *rest = [row for row in rows if any(cell.strip() for cell in row)] or [[]]
            if [cell.strip().lower() for cell in first] != _PAIR_COLUMNS:
                raise ValueError("line 1 has to name the columns word and partner, and no others")
            return rest
    return read_json(text) if name.endswith(".json") else read_yaml(text)


def _pair(source: str, entry: Any) -> Pair:
    if not isinstance(entry, list) or len(entry) != 2:
        raise LexiconError(f"{source}: entry {entry!r} is no pair; write [he, she]")
    for word in entry:
        if not isinstance(word, str) or not pieces(word):
            raise LexiconError(f"{source}: pair {entry!r}: {word!r} is no word; put it in quotes")
    word, partner = (" ".join(side.split()) for side in entry)
    return word, partner
