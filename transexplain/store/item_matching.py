"""Says which explained items are those that somebody looks for."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from transexplain.store.part_columns import Ints
from transexplain.store.part_reading import Part
from transexplain.types.items import Attribution, PatchGrid
from transexplain.types.words import spans_of

LAST_ROW = 2**31 - 1  #: no row lies behind


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemSearch:
    """What an item has to be; what is empty is not looked at."""

    text: str = ""  #: part of its text, in any case
    word: str = ""  #: a whole word of it, in any case, that an explanation has a relevance for
    predicted: str = ""
    label: str = ""  #: class, or as the dataset spells it
    group: str = ""  #: that it mentions
    entity: str = ""  #: that it mentions, of `group` where one is given


def places_in(part: Part, wanted: ItemSearch) -> Ints:
    """Where the items of a part stand that are what is wanted, ascending."""
    keep = np.ones(len(part), dtype=bool)
    if wanted.group or wanted.entity:
        keep &= part.mentioning(wanted.group or None, wanted.entity or None)
    if wanted.predicted:
        keep &= part.named("predicted", wanted.predicted)
    if wanted.label:
        keep &= part.named("label", wanted.label) | part.named("raw_label", wanted.label)
    if wanted.text:
        _hold(part, keep, wanted.text.casefold(), unknown=False)
    if wanted.word:
        _hold(part, keep, wanted.word.casefold(), unknown=True)
    places = np.flatnonzero(keep)
    return _with_word(part, places, wanted.word) if wanted.word else places


def _hold(part: Part, keep: Any, needle: str, *, unknown: bool) -> None:
    """Leave out items whose text does not hold `needle`; `unknown`: keep those without a text."""
    held = np.flatnonzero(keep).tolist()
    texts = part.texts if held else []
    for place in held:
        text = texts[place]
        keep[place] = unknown if text is None else needle in text.casefold()


def _with_word(part: Part, places: Ints, word: str) -> Ints:
    found = word_relevance(part, places, word)
    having: Ints = places[np.array([bool(one) for one in found], dtype=bool)]
    return having


def word_relevance(part: Part, places: Ints, word: str) -> list[list[tuple[float, float]]]:
    """Of each of these items, for each explanation with the word: `relevance_of_word`."""
    found: list[list[tuple[float, float]]] = [[] for _ in places]
    if len(places):
        for place, one in part.only(places).attributions():
            found[place] += relevance_of_word([one], word)
    return found


def relevance_of_word(explained: Iterable[Attribution], word: str) -> Iterator[tuple[float, float]]:
    """(relevance, sum of |relevance| over all words) of each explanation that has the word.

    All its mentions are added up. Pictures have no words.
    """
    needle = word.casefold()
    for one in explained:
        if isinstance(one.features, PatchGrid):
            continue
        text, spans = spans_of(one)
        here = [w.relevance for w in spans if text[w.start : w.end].casefold() == needle]
        if here:
            yield sum(here), sum(abs(w.relevance) for w in spans)
