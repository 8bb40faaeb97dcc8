"""What is explained: target specifications read against class names, then against an item.

A short form such as `contrast:a-b` is matched against the names that exist, so names may hold
hyphens; more than one reading is an error. The mapping form always works.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import TargetError
from transexplain.parsing import UnreadableError, read_json
from transexplain.types.items import ResolvedTarget, Target
from transexplain.types.plans import Classification

_DIGITS = 9
_WORDS = "predicted, label, all, class:<name>, top:<k>, contrast:<a>-<b> or a classification"


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
        """Index of a class given by name or number; raises TargetError."""
        readings = {i for i, known in enumerate(self.classes) if known == name}
        if (number := _number(name)) is not None and number < len(self.classes):
            readings.add(number)
        if len(readings) == 1:
            return readings.pop()
        if readings:
            raise TargetError(
                f"class {name!r} is the name of one class and the number of another; "
                "use the names of the classes"
            )
        raise TargetError(f"unknown class {name!r}. The model has: {self._listing()}")

    def members(self, name: str) -> tuple[int, ...]:
        """Class indices behind a class name, number or classification."""
        return self.own[name] if name in self.own else (self.class_index(name),)

    def known(self, name: str) -> bool:
        """Whether `name` is a class (by name or number) or a classification."""
        try:
            return bool(self.members(name))
        except TargetError:
            return False

    def _listing(self) -> str:
        names = [*self.classes[:20], *(["..."] if len(self.classes) > 20 else []), *self.own]
        return ", ".join(names)


def parse_target(spec: str | Mapping[str, Any], names: ClassNames) -> Target:
    """Read a target specification.

    Args:
        spec: the short form, the mapping form (`{"contrast": ["not-hate", "hate"]}`) or the
            mapping form as JSON text.
        names: what classes there are.

    Raises:
        TargetError: unknown class, two readings, or no target at all.
    """
    text = spec if isinstance(spec, str) else json.dumps(dict(spec))
    kind, argument = _split(spec)
    if kind in ("predicted", "label", "all") and argument is None:
        return Target(spec=text, kind=kind)  # type: ignore[arg-type]
    if kind == "class" and argument is not None:
        index = names.class_index(str(argument))
        return Target(spec=text, kind="class", plus=(index,), name=names.classes[index])
    if kind == "top" and argument is not None:
        return Target(spec=text, kind="top", k=_count(argument, names))
    if kind == "contrast" and argument is not None:
        return _contrast(text, argument, names)
    name = str(argument) if kind == "classification" else text
    if name in names.own:
        return Target(spec=text, kind="group", plus=names.own[name], name=name)
    raise TargetError(f"unknown target {text!r}; a target is {_WORDS}")


def short_form(spec: str | Mapping[str, Any], names: ClassNames) -> str:
    """A target as people write it, `contrast:a-b`; as JSON where that would not mean the same.

    Raises TargetError as `parse_target`.
    """
    meant = parse_target(spec, names)
    kind, argument = _split(spec)
    value = "-".join(map(str, argument)) if isinstance(argument, list | tuple) else argument
    short = kind if value is None else f"{kind}:{value}"
    try:
        same = replace(parse_target(short, names), spec=meant.spec) == meant
    except TargetError:
        same = False
    return short if same else meant.spec


def _split(spec: str | Mapping[str, Any]) -> tuple[str, Any]:
    if isinstance(spec, str) and spec.lstrip().startswith("{"):
        try:
            read = read_json(spec)
        except UnreadableError as error:
            raise TargetError(f"target {spec[:80]!r} is not valid JSON: {error}") from None
        spec = read
    if isinstance(spec, Mapping):
        if len(spec) != 1:
            raise TargetError(f"target {spec!r} must have exactly one key; a target is {_WORDS}")
        return next(iter(spec.items()))
    kind, colon, argument = str(spec).partition(":")
    return kind, argument if colon else None


def _count(argument: Any, names: ClassNames) -> int:
    number = _number(str(argument))
    if number is not None and 1 <= number <= len(names.classes):
        return number
    raise TargetError(
        f"top:{str(argument)[:80]} must be between 1 and {len(names.classes)}, the classes"
    )


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
        raise TargetError(
            f"target {text!r} names no two known classes. The model has: "
            f"{', '.join((*names.classes[:20], *names.own))}"
        )
    left, right = readings[0]
    plus, minus = names.members(left), names.members(right)
    if set(plus) & set(minus):
        raise TargetError(f"target {text!r} has a class on both sides")
    return Target(spec=text, kind="contrast", plus=plus, minus=minus, name=f"{left}-{right}")


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
    if target.kind in ("class", "contrast", "group"):
        coefficients = [(i, 1.0) for i in target.plus] + [(i, -1.0) for i in target.minus]
        index = target.plus[0] if target.kind == "class" else None
        return [
            ResolvedTarget(
                spec=target.spec,
                rank=0,
                class_index=index,
                class_name=target.name,
                coefficients=tuple(coefficients),
            )
        ]
    return [
        ResolvedTarget(
            spec=target.spec,
            rank=rank,
            class_index=index,
            class_name=classes[index],
            coefficients=((index, 1.0),),
        )
        for rank, index in enumerate(_chosen(target, logits, label))
    ]


def _chosen(target: Target, logits: NDArray[np.floating[Any]], label: int | None) -> list[int]:
    if target.kind == "all":
        return list(range(len(logits)))
    if target.kind == "label":
        if label is None:
            raise TargetError("the target `label` needs a label for every item")
        return [label]
    # a stable order, so that ties rank the same on every machine
    return [int(index) for index in np.argsort(-logits, kind="stable")[: target.k]]


def label_index(label: str | None, names: ClassNames, mapping: Mapping[str, str]) -> int | None:
    """Class index of a dataset's label: by `mapping`, else by name, number, or name in any case.

    Where there is a mapping, a number that it leaves out is no class: the dataset's numbers are
    its own then, and its third class need not be the model's.
    """
    if label is None:
        return None
    if label in mapping:
        return names.class_index(mapping[label])
    if mapping and label not in names.classes and label.strip().isdecimal():
        return None
    try:
        return names.class_index(label)
    except TargetError:
        folded = [i for i, name in enumerate(names.classes) if name.casefold() == label.casefold()]
        return folded[0] if len(folded) == 1 else None
