"""Targets: parses what to explain against class names, and resolves it for an item.

A short form such as `contrast:a-b` is matched against the names that exist, so names may hold
hyphens; more than one reading is an error. The mapping form always works. A class by itself, by
name or number, is short for `class:<name>`. A name is read first; `index:<number>` is the class of
that number, whatever it is called.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import TargetError, did_you_mean
from transexplain.text.parsing import UnreadableError, read_json
from transexplain.types.items import ResolvedTarget, Target
from transexplain.types.plans import Classification

_DIGITS = 9
_BY_INDEX = "index:"
#: targets that are one word
_ALONE = ("predicted", "label", "all")
_WORDS = (
    "predicted, label, all, class:<name>, top:<k>, contrast:<a>-<b>, a classification, a class "
    "by name, by number or as index:<number>, or of a model that labels tokens {span: [start, end, "
    "type]}"
)
#: what a target is given as: the short form, the number of a class, or the mapping form
TargetLike = str | int | Mapping[str, Any]
#: classes that a misspelt contrast is looked for among: their pairs grow as the square
_PAIRED = 30


class ClassNames:
    """The classes of a model together with the user's own classifications."""

    def __init__(
        self, classes: Sequence[str], classifications: Sequence[Classification] = ()
    ) -> None:
        self.classes = tuple(classes)
        self.own: dict[str, tuple[int, ...]] = {}
        for entry in classifications:
            if entry.name in self.classes:
                raise TargetError(
                    f"classification {entry.name!r} has the name of a class of the model; rename it"
                )
            self.own[entry.name] = tuple(self.class_index(name) for name in entry.classes)

    def class_index(self, name: str) -> int:
        """Index of a class by its name, by `index:<number>`, or by its number alone.

        Raises TargetError: there is no such class, or its number alone may be meant as a name.
        """
        if name in self.classes:
            return self.classes.index(name)
        number = _number(name.removeprefix(_BY_INDEX))
        if number is None or number >= len(self.classes):
            hint = did_you_mean(name, (*self.classes, *self.own)) or "."
            raise TargetError(f"unknown class {name!r}{hint} The model has: {self.listing()}")
        if not name.startswith(_BY_INDEX) and any(
            class_name.isdecimal() for class_name in self.classes
        ):
            raise TargetError(
                f"no class is named {name!r}, and the model names classes by numbers: "
                f"{self.listing()}. Write {_BY_INDEX}{number} for class {self.classes[number]!r}"
            )
        return number

    def members(self, name: str) -> tuple[int, ...]:
        """Class indices behind a class name, number or classification."""
        return self.own[name] if name in self.own else (self.class_index(name),)

    def known(self, name: str) -> bool:
        """Return whether `name` is a class (by name or number) or a classification."""
        try:
            return bool(self.members(name))
        except TargetError:
            return False

    def listing(self) -> str:
        """The classes, the first 20, and the classifications, for a message."""
        names = [*self.classes[:20], *(["..."] if len(self.classes) > 20 else []), *self.own]
        return ", ".join(names)


def parse_target(spec: TargetLike, names: ClassNames) -> Target:
    """Read a target specification.

    A word such as `all` is the target of that name also where a class is called so; write
    `class:all` for the class.

    Args:
        spec: the short form, a class by name or number, the mapping form
            (`{"contrast": ["not-hate", "hate"]}`) or the mapping form as JSON text.
        names: what classes there are.

    Raises:
        TargetError: unknown class, two readings, or no target at all.
    """
    text, kind, argument = _read(spec)
    if kind in _ALONE and argument is None:
        return Target(spec=text, kind=kind)  # type: ignore[arg-type]
    if kind == "span" and argument is not None:
        return _span(text, argument, names)
    if kind == "class" and str(argument) in names.own:
        return Target(spec=text, kind="group", plus=names.own[str(argument)], name=str(argument))
    if kind == "class" and argument is not None:
        return _class_target(str(argument), names)
    if kind == "top" and argument is not None:
        return Target(spec=text, kind="top", k=_count(argument, names))
    if kind == "contrast" and argument is not None:
        return _contrast(text, argument, names)
    name = str(argument) if kind == "classification" else text
    if name in names.own:
        return Target(spec=text, kind="group", plus=names.own[name], name=name)
    alone = f"{_BY_INDEX}{argument}" if kind == "index" and text not in names.classes else text
    if alone in names.classes or _number(alone.removeprefix(_BY_INDEX)) is not None:
        return _class_target(alone, names)
    raise TargetError(_unknown(text, names))


def _class_target(text: str, names: ClassNames) -> Target:
    """A class by its name or number, as `class:<name>`; raises TargetError."""
    index = names.class_index(text)
    name = names.classes[index]
    return Target(spec=f"class:{name}", kind="class", plus=(index,), name=name)


def _unknown(text: str, names: ClassNames) -> str:
    """That there is no such target, the one that it is most like, and what there is."""
    bare, short = (*names.classes, *names.own), names.classes[:_PAIRED]
    known = (*_ALONE, *bare, *(f"class:{name}" for name in bare))
    if text.partition(":")[0] not in _ALONE and "-" in text:
        known += tuple(f"contrast:{plus}-{other}" for plus in short for other in short)
    hint = did_you_mean(text[:80], known) or "."
    return f"unknown target {text!r}{hint} A target is {_WORDS}. Classes: {names.listing()}"


def short_form(spec: TargetLike, names: ClassNames) -> str:
    """A target as people write it, `contrast:a-b`; as JSON where that would not mean the same.

    Raises TargetError as `parse_target`.
    """
    meant = parse_target(spec, names)
    _, kind, argument = _read(spec)
    if meant.kind == "class":
        return meant.spec
    value = "-".join(map(str, argument)) if isinstance(argument, list | tuple) else argument
    short = kind if value is None else f"{kind}:{value}"
    try:
        same = replace(parse_target(short, names), spec=meant.spec) == meant
    except TargetError:
        same = False
    return short if same else meant.spec


def _read(spec: TargetLike) -> tuple[str, str, Any]:
    """A target as text, its kind or first word, and what stands behind the colon."""
    given: Any = spec  # a caller may pass any type
    if not isinstance(given, bool) and isinstance(given, Integral):
        spec = str(given)
    if not isinstance(spec, str | Mapping):
        raise TargetError(
            f"a target cannot be {spec!r:.80} ({type(spec).__name__}); it is {_WORDS}"
        )
    kind, argument = kind_and_argument(spec, _WORDS)
    return spec if isinstance(spec, str) else json.dumps(dict(spec)), kind, argument


def kind_and_argument(spec: str | Mapping[str, Any], words: str) -> tuple[str, Any]:
    """The first word of a target and what stands behind the colon; None: there is no colon.

    A mapping, or one as JSON text, has one key. `words` says in a message what a target is. Raises
    TargetError.
    """
    mapping: Any = spec
    if isinstance(spec, str) and spec.lstrip().startswith("{"):
        try:
            mapping = read_json(spec)
        except UnreadableError as error:
            raise TargetError(f"target {spec[:80]!r} is not valid JSON: {error}") from None
    if isinstance(mapping, Mapping):
        if len(mapping) != 1:
            raise TargetError(f"target {mapping!r:.80} must have exactly one key; it is {words}")
        return next(iter(mapping.items()))
    kind, colon, argument = str(mapping).partition(":")
    return kind, argument if colon else None


def _count(argument: Any, names: ClassNames) -> int:
    number = _number(str(argument))
    if number is not None and 1 <= number <= len(names.classes):
        return number
    raise TargetError(
        f"top:{str(argument)[:80]} must be between 1 and {len(names.classes)}, the classes"
    )


def _span(text: str, argument: Any, names: ClassNames) -> Target:
    """A marked span of a text: `span:10-15:PER` or `{"span": [10, 15, "PER"]}`."""
    given = argument
    if isinstance(argument, str):
        place, _, kind = argument.partition(":")
        given = [*place.split("-"), kind]
    numbers = (
        [_number(str(value)) for value in given[:2]] if isinstance(given, list | tuple) else []
    )
    if len(numbers) != 2 or len(given) != 3 or None in numbers or not numbers[0] < numbers[1]:  # type: ignore[operator]
        raise TargetError(
            f"target {text!r} is no span; write span:10-15:PER or {{span: [10, 15, PER]}}, in "
            "characters of the text"
        )
    name = str(given[2])
    begin, end = int(str(given[0])), int(str(given[1]))
    return Target(spec=text, kind="span", plus=names.members(name), name=name, span=(begin, end))


def _number(text: str) -> int | None:
    """The number that a text is; None: none, or one of more digits than classes ever need."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


def _contrast(text: str, argument: Any, names: ClassNames) -> Target:
    if isinstance(argument, str):
        cuts = [i for i, letter in enumerate(argument) if letter == "-"]
        pairs = [(argument[:i], argument[i + 1 :]) for i in cuts]
        readings = [pair for pair in pairs if names.known(pair[0]) and names.known(pair[1])]
    else:
        pair = argument if isinstance(argument, list | tuple) and len(argument) == 2 else ()
        readings = [(str(pair[0]), str(pair[1]))] if pair else []
    if len(readings) > 1:
        ways = " or ".join(f"{left!r} against {right!r}" for left, right in readings)
        raise TargetError(
            f"target {text!r} can be read as {ways}; write {{contrast: [first, second]}}"
        )
    if not readings:
        short = (*names.classes[:_PAIRED], *names.own)
        hint = did_you_mean(
            text[:80], (f"contrast:{plus}-{other}" for plus in short for other in short)
        )
        raise TargetError(
            f"target {text!r} names no two known classes{hint or '.'} The model has: "
            f"{names.listing()}"
        )
    left, right = readings[0]
    plus, minus = names.members(left), names.members(right)
    if set(plus) & set(minus):
        raise TargetError(f"target {text!r} has a class on both sides")
    sides = (
        name if name in names.own else names.classes[names.class_index(name)]
        for name in (left, right)
    )
    return Target(spec=text, kind="contrast", plus=plus, minus=minus, name="-".join(sides))


def resolve_target(
    target: Target, logits: NDArray[np.floating[Any]], classes: Sequence[str], label: int | None
) -> list[ResolvedTarget]:
    """The sums of logits that `target` means for one item.

    Args:
        target: parsed target.
        logits: (C,) of the item.
        classes: class names.
        label: class index of the item's label, needed by `label` only.
    """
    return resolve_targets(target, logits[None], classes, [None if label is None else (label,)])[0]


def resolve_targets(
    target: Target,
    logits: NDArray[np.floating[Any]],
    classes: Sequence[str],
    labels: Sequence[tuple[int, ...] | None],
    floors: Sequence[float] | None = None,
) -> list[list[ResolvedTarget]]:
    """As `resolve_target`, for B items at once: `logits` (B, C), `labels` (B,) of each item.

    With `floors` (C,) the model gives several labels: `predicted` are all whose logit reaches its
    floor, the likeliest first, and there may be none.
    """
    if target.kind in ("class", "contrast", "group"):
        coefficients = [(i, 1.0) for i in target.plus] + [(i, -1.0) for i in target.minus]
        index = target.plus[0] if target.kind == "class" else None
        resolved_target = ResolvedTarget(
            spec=target.spec,
            rank=0,
            class_index=index,
            class_name=target.name,
            coefficients=tuple(coefficients),
        )
        return [[resolved_target] for _ in labels]
    chosen = _chosen(target, logits, labels, floors)
    made = {
        (rank, index): ResolvedTarget(
            spec=target.spec,
            rank=rank,
            class_index=index,
            class_name=classes[index],
            coefficients=((index, 1.0),),
        )
        for rank, index in {ranked for row in chosen for ranked in enumerate(row)}
    }
    return [[made[ranked] for ranked in enumerate(row)] for row in chosen]


def _chosen(
    target: Target,
    logits: NDArray[np.floating[Any]],
    labels: Sequence[tuple[int, ...] | None],
    floors: Sequence[float] | None,
) -> list[list[int]]:
    """The classes of each item, by rank."""
    if target.kind == "all":
        return [list(range(logits.shape[1]))] * len(labels)
    if target.kind == "label":
        if None in labels:
            raise TargetError("the target `label` needs a label for every item")
        return [list(of_item) for of_item in labels if of_item is not None]
    if target.kind == "predicted" and floors is not None:
        return [predicted_labels(row, floors) for row in logits]
    if target.k == 1:  # of equals the first, as below
        return [[index] for index in np.argmax(logits, axis=1).tolist()]
    # a stable order, so that ties rank the same on every machine
    ranked: list[list[int]] = np.argsort(-logits, axis=1, kind="stable")[:, : target.k].tolist()
    return ranked


def predicted_labels(logits: NDArray[np.floating[Any]], floors: Sequence[float]) -> list[int]:
    """The labels whose logits (C,) reach their floors (C,), the likeliest first."""
    order = np.argsort(-logits, kind="stable").tolist()
    return [place for place in order if logits[place] >= floors[place]]


# ---- targets of language models: which tokens are explained, at which places

AnswerKind = Literal["next", "token", "contrast", "continuation", "generate"]
_GENERATED = 16  #: tokens, unless a target says how many
_MOST = 4096
_ANSWER_WORDS = (
    "next (the token that the model predicts), next:<token>, contrast:<a>-<b>, "
    "continuation:<text>, continuation (the prompt's own) or generate:<number of tokens>"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerTarget:
    """What is explained of a language model, before a prompt is known."""

    spec: str  #: as requested
    kind: AnswerKind
    tokens: tuple[str, ...] = ()  #: of `token` and `contrast`
    text: str | None = None  #: of `continuation`; None: the prompt's own
    ids: tuple[int, ...] = ()  #: of `continuation`, where tokens are given in the place of a text
    count: int = _GENERATED  #: of `generate`
    exact: bool = False  #: texts begin as they are written, without a space before them


def parse_answer_target(spec: Any) -> AnswerTarget:
    """Read a target of a language model.

    In the short form a word follows the prompt after a space, where there is none yet. The mapping
    form, `{"next": " he"}`, `{"contrast": [" he", " she"]}`, takes texts as they are; there a
    continuation may be a list of token numbers. A token may be given by its number: `next:#318`.
    Raises TargetError.
    """
    if isinstance(spec, AnswerTarget):
        return spec
    text, kind, argument, exact = _parts(spec)
    if kind in ("next", "predicted") and argument is None:
        return AnswerTarget(spec=text, kind="next")
    if kind == "next" and isinstance(argument, str) and argument:
        return AnswerTarget(spec=text, kind="token", tokens=(argument,), exact=exact)
    if kind == "contrast" and argument is not None:
        return AnswerTarget(spec=text, kind="contrast", tokens=_pair(text, argument), exact=exact)
    if kind == "continuation":
        return _continuation(text, argument, exact=exact)
    if kind == "generate":
        count = _GENERATED if argument is None else _number(str(argument)) or 0
        if not 1 <= count <= _MOST:
            raise TargetError(f"target {text!r}: the number of tokens is between 1 and {_MOST}")
        return AnswerTarget(spec=text, kind="generate", count=count)
    hint = did_you_mean(kind, ("next", "contrast", "continuation", "generate")) or "."
    raise TargetError(
        f"unknown target {text!r}{hint} A target of a language model is {_ANSWER_WORDS}"
    )


def _parts(spec: Any) -> tuple[str, str, Any, bool]:
    """The target as text, its first word, what follows, and whether texts are taken as they are."""
    if not isinstance(spec, str | Mapping):
        raise TargetError(f"a target cannot be {spec!r:.80}; it is {_ANSWER_WORDS}")
    kind, argument = kind_and_argument(spec, _ANSWER_WORDS)
    if isinstance(spec, str) and not spec.lstrip().startswith("{"):
        return spec, kind, argument, False
    shown = "-".join(map(str, argument)) if isinstance(argument, list | tuple) else argument
    return f"{kind}:{shown}", str(kind), argument, True


def _pair(text: str, argument: Any) -> tuple[str, str]:
    given = argument.split("-") if isinstance(argument, str) else argument
    if not isinstance(given, list | tuple) or len(given) != 2 or not all(given):
        raise TargetError(
            f"target {text!r} does not name two tokens; it is contrast:<a>-<b>, or, where a token "
            'holds a hyphen, {"contrast": [" a", " b"]}'
        )
    return str(given[0]), str(given[1])


def _continuation(text: str, argument: Any, *, exact: bool) -> AnswerTarget:
    if argument is None:
        return AnswerTarget(spec=text, kind="continuation")
    if isinstance(argument, str) and argument:
        return AnswerTarget(spec=text, kind="continuation", text=argument, exact=exact)
    if (
        isinstance(argument, list | tuple)
        and argument
        and all(type(token) is int for token in argument)
    ):
        return AnswerTarget(spec=text, kind="continuation", ids=tuple(argument))
    raise TargetError(
        f"the continuation cannot be {argument!r:.80}; it is a text or a list of tokens"
    )
