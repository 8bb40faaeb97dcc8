"""Finds the partner of a term for swaps: `she` for `he`, with its pronouns and its spelling."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from transexplain.analysis.groups.group_cells import family
from transexplain.analysis.groups.lexicon import BUILTIN, TABLES, source_text
from transexplain.analysis.groups.word_pieces import exact_key, folded_key, pieces
from transexplain.errors import LexiconError
from transexplain.parsing import read_json, read_yaml, refuse_unstorable
from transexplain.remote_paths import AnyPath
from transexplain.types.items import EntityGroup

Pair = tuple[str, str]

SHIPPED = f"{BUILTIN}gender-pairs"  #: for `builtin:gender`
_COLUMNS = ["word", "partner"]
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
    found: dict[frozenset[str], Pair] = {}
    for pair in pairs:
        _check(pair, [homes.get(exact_key(word), []) for word in pair])
        key = frozenset(map(exact_key, pair))
        if key in found:
            raise LexiconError(f"{_shown(pair)} is given twice; keep one")
        found[key] = pair
    return tuple(found.values())


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
        return _with_capitals_of(known[0 if _takes_possessive(following) else -1], word)


def _takes_possessive(following: str) -> bool:
    """Whether the text continues with a word that a possessive can stand before."""
    found = pieces(following[:100])
    if not found or following[:1] != " ":
        return False
    return found[0].key[0].isalnum() and found[0].key not in _NO_OWN


def _with_capitals_of(partner: str, word: str) -> str:
    if word.isupper() and (len(word) > 1 or partner.isupper()):
        return partner.upper()
    return partner[:1].upper() + partner[1:] if word[:1].isupper() else partner


def _check(pair: Pair, homes: Sequence[Sequence[str]]) -> None:
    for word, own in zip(pair, homes, strict=True):
        if not own:
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
            if [cell.strip().lower() for cell in first] != _COLUMNS:
                raise ValueError("line 1 has to name the columns word and partner, and no others")
            return rest
    return read_json(text) if name.endswith(".json") else read_yaml(text)


def _pair(source: str, entry: Any) -> Pair:
    if not isinstance(entry, list) or len(entry) != 2:
        raise LexiconError(f"{source}: entry {entry!r} is no pair; write [he, she]")
    for word in entry:
        if not isinstance(word, str) or not pieces(word):
            raise LexiconError(f"{source}: pair {entry!r}: {word!r} is no word; put it in quotes")
    word, partner = (" ".join(one.split()) for one in entry)
    return word, partner
