"""Labels of tokens, and the entities that they make: `B-PER I-PER` is one entity of type PER.

A model that labels tokens is read word by word, by the label of each word's first token, as such
models are trained. Labels with a prefix (B, I, and E, L, S, U of longer schemes) make entities of
one word or more; labels without one, such as parts of speech, make an entity of every word. `O` is
no label.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ItemError, TargetError
from transexplain.text.parsing import UnreadableError, read_json
from transexplain.types.items import Item, ResolvedTarget, Target
from transexplain.types.plans import AT_POSITIONS, Classification, ModelRef
from transexplain.types.targets import ClassNames
from transexplain.types.tokens import NO_WORD, Tokens

_BEGINS, _WITHIN = ("B", "S", "U"), ("I", "E", "L")
_NONE = "O"
ANSWER = "answer"  #: what a model for question answering finds
#: how notes on explanations begin, of labels and of answers
_NOTES = ("explains the label of characters ", "explains the answer, characters ")
_FORM = "a list of [start, end, type] in characters of the text"


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggedSpan:
    """Characters of a text that have one type."""

    start: int
    end: int
    type: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggedEntity:
    """An entity in a text, by the first token of each of its words."""

    span: TaggedSpan
    labels: tuple[int, ...]  #: index of each word's label
    positions: tuple[int, ...]  #: of each word's first token


@dataclass(frozen=True, slots=True)
class LabelScheme:
    """The labels of a model (C,), and what they mean."""

    labels: tuple[str, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """The types of entities, in the order of their first labels."""
        return tuple(dict.fromkeys(kind for _, kind in self._parts() if kind))

    @property
    def classifications(self) -> tuple[Classification, ...]:
        """Each type as the labels that it has; those that are called as their only label left out.

        So a target may name a type as it names a class.
        """
        parts = list(self._parts())
        members = {
            type_: tuple(
                label for label, (_, kind) in zip(self.labels, parts, strict=True) if kind == type_
            )
            for type_ in self.types
        }
        return tuple(
            Classification(name=prefix, classes=labels)
            for prefix, labels in members.items()
            if prefix not in self.labels
        )

    def entities(
        self, logits: NDArray[np.floating[Any]], tokens: Tokens, second_at: int | None = None
    ) -> list[TaggedEntity]:
        """The entities that logits (T, C) give a text, or both of a pair, in reading order."""
        del second_at
        places = first_positions(tokens)
        chosen = np.argmax(logits[places], axis=1).tolist() if len(places) else []
        found: list[list[int]] = []  # numbers of words
        parts = list(self._parts())
        before = ""
        for number, label in enumerate(chosen):
            prefix, kind = parts[label]
            if kind and prefix in _WITHIN and kind == before:
                found[-1].append(number)
            elif kind:
                found.append([number])
            before = kind
        return [
            TaggedEntity(
                span=TaggedSpan(
                    start=_characters(tokens, places[words[0]])[0],
                    end=_characters(tokens, places[words[-1]])[1],
                    type=parts[chosen[words[0]]][1],
                ),
                labels=tuple(chosen[word] for word in words),
                positions=tuple(places[word] for word in words),
            )
            for words in found
        ]

    def spelled(self, span: TaggedSpan, tokens: Tokens) -> TaggedEntity | None:
        """The entity that characters of a text are; None where the model sees no word of them.

        Raises ItemError bad-label for a type that the model does not label.
        """
        places = first_positions(tokens)
        words = [_characters(tokens, place) for place in places]
        inside = [
            place
            for place, (start, end) in zip(places, words, strict=True)
            if start < span.end and end > span.start
        ]
        if not inside:
            return None
        prefixes = {
            place: prefix for place, (prefix, kind) in enumerate(self._parts()) if kind == span.type
        }
        if not prefixes:
            raise ItemError(
                "bad-label",
                f"the model labels no {span.type[:80]!r}; its types are {', '.join(self.types)}",
            )
        # the first word begins the entity, the others are within
        begins, within = (
            next((place for place, prefix in prefixes.items() if prefix in some), min(prefixes))
            for some in (_BEGINS, _WITHIN)
        )
        labels = (begins, *(within for _ in inside[1:]))
        return TaggedEntity(span=span, labels=labels, positions=tuple(inside))

    def _parts(self) -> Iterator[tuple[str, str]]:
        """The prefix and the type of each label; both "" for `O`."""
        for label in self.labels:
            prefix, dash, kind = label.partition("-")
            if dash and prefix in (*_BEGINS, *_WITHIN):
                yield prefix, kind
            else:
                yield "", "" if label.upper() == _NONE else label

    def check(self, item: Item) -> None:
        """Every text may have entities."""

    def written(self, cell: str, text: str = "", second_at: int | None = None) -> list[TaggedSpan]:
        """The entities that a cell of the data names; raises ItemError bad-label."""
        del text, second_at  # they are given by their characters
        try:
            read = read_json(cell)
        except UnreadableError:
            read = None
        if not isinstance(read, list):
            raise ItemError("bad-label", f"the label {cell[:80]!r} is not {_FORM}")
        return [_written(entity) for entity in read]


def class_names(model: ModelRef, own: Sequence[Classification] = ()) -> ClassNames:
    """The classes of a model with a user's own, or with the types of the entities that it labels.

    Raises TargetError for classifications of a model that labels tokens.
    """
    if model.head not in AT_POSITIONS:
        return ClassNames(model.classes, own)
    types = named_types(model)
    if own and tuple(own) != types:
        raise TargetError(
            "classifications sum logits of one item, and this model labels tokens; name types of "
            "entities instead, such as class:PER"
        )
    return ClassNames(model.classes, types)


def named_types(model: ModelRef) -> tuple[Classification, ...]:
    """What a model that answers at positions finds, as sums of its labels; an answer is both."""
    if model.head == "span":
        return (Classification(name=ANSWER, classes=model.classes),)
    return LabelScheme(model.classes).classifications


def explained_characters(notes: Sequence[str]) -> tuple[int, int] | None:
    """Return which characters an explanation of an entity or an answer is of, by its notes."""
    for note in notes:
        for begin in _NOTES:
            if note.startswith(begin):
                start, _, end = note.removeprefix(begin).partition(" to ")
                return int(start), int(end)
    return None


def _written(entry: Any) -> TaggedSpan:
    values = entry
    if isinstance(entry, dict):
        kind = entry.get("type", entry.get("label", entry.get("entity_group")))
        values = [entry.get("start"), entry.get("end"), kind]
    fits = isinstance(values, list) and len(values) == 3 and isinstance(values[2], str)
    if not fits or not all(type(value) is int for value in values[:2]) or not values[0] < values[1]:
        shown = json.dumps(entry, ensure_ascii=False)[:80]
        raise ItemError("bad-label", f"the entity {shown} is not one of {_FORM}")
    return TaggedSpan(start=values[0], end=values[1], type=values[2])


def first_positions(tokens: Tokens) -> list[int]:
    """The position of each word's first token, in reading order."""
    words = tokens.words
    own = np.flatnonzero((words != NO_WORD) & ~tokens.special)
    _, first = np.unique(words[own], return_index=True)
    return sorted(own[first].tolist())


def _characters(tokens: Tokens, place: int) -> tuple[int, int]:
    """The characters, from and to, of the word that begins at a position."""
    of_word = tokens.words == tokens.words[place]
    return int(tokens.starts[of_word].min()), int(tokens.ends[of_word].max())


def entity_targets(
    target: Target, predicted: Sequence[TaggedEntity], given: Sequence[TaggedEntity]
) -> list[ResolvedTarget]:
    """Return what a target explains of one text: the summed logits of each entity's labels.

    `predicted` is every entity that is found, a type or label those of them that have it, `label`
    every one that is given, `span` the marked one (in `given`, alone).
    """
    chosen: list[ResolvedTarget] = []
    for entity in given if target.kind in ("label", "span") else predicted:
        pairs = [
            (label, place)
            for label, place in zip(entity.labels, entity.positions, strict=True)
            if target.kind not in ("class", "group") or label in target.plus
        ]
        if pairs:
            chosen.append(
                ResolvedTarget(
                    spec=target.spec,
                    rank=len(chosen),
                    class_index=None,
                    class_name=target.name if target.kind == "class" else entity.span.type,
                    coefficients=tuple((label, 1.0) for label, _ in pairs),
                    positions=tuple(place for _, place in pairs),
                    note=f"{_NOTES[entity.span.type == ANSWER]}{entity.span.start} to "
                    f"{entity.span.end}",
                )
            )
    return chosen
