"""Labels of a dataset: which class of a model each of them is.

Labels are compared by what they mean and not by how a format spells them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

from transexplain.errors import TargetError
from transexplain.types.targets import ClassNames

#: numbers as programs write them: no zeros before others, which are part of a code such as 007
_NUMERAL = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_LONGEST = 400  #: characters of a label that may be a number
#: the specification's word for "the label i is the model's class i"
BY_INDEX = "by-index"


def label_index(label: str | None, names: ClassNames, mapping: Mapping[str, str]) -> int | None:
    """Class index of a dataset's label: by `mapping`, else by name; else None.

    What is spelled exactly so is taken first; then letters of either case are the same, and so are
    1, 1.0 and 1e0. A number that nothing is called by is no class: the dataset's numbers are its
    own (stars, say), and its third class need not be the model's. So is a label of two readings.
    """
    if label is None:
        return None
    if label in mapping:
        return names.class_index(mapping[label])
    if label in names.classes:
        return names.classes.index(label)
    key = folded(label)
    read = {mapping[spelled] for spelled in mapping if folded(spelled) == key}
    if read:
        return names.class_index(read.pop()) if len(read) == 1 else None
    # transformers calls the class 3 LABEL_3 where nobody named it
    spelled = (key, f"label_{key}") if key.isdecimal() else (key,)
    places = [place for place, name in enumerate(names.classes) if folded(name) in spelled]
    return places[0] if len(places) == 1 else None


def folded(label: str) -> str:
    """Return what labels are compared by: without case and space, a number without idle zeros."""
    return label.strip().casefold() if len(label) > _LONGEST else _folded(label.strip())


@lru_cache(maxsize=4096)
def _folded(text: str) -> str:
    if not _NUMERAL.fullmatch(text):
        return text.casefold()
    digits = format(Decimal(text), "f")
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return "0" if digits == "-0" else digits


def label_mapping(
    labels: Mapping[Any, Any] | Literal["by-index"],
    classes: Sequence[str],
    called: Sequence[str] = (),
) -> dict[str, str]:
    """Dataset label -> class, written out where labels are numbers.

    Args:
        labels: as a specification has it.
        classes: of the model.
        called: the names that the data give to the numbers 0, 1, ... of its labels, if they do.

    Raises TargetError where indices would give a label to another class than its name does.
    """
    names = ClassNames(classes)
    by_name = {str(place): label_index(name, names, {}) for place, name in enumerate(called)}
    if isinstance(labels, str):
        others = [
            (name, place) for name, place in by_name.items() if place not in (None, int(name))
        ]
        if others or not _may_be_indices((), classes):
            raise TargetError(
                "labels: by-index would give labels to other classes than their names do: the data "
                f"have {_numbered(called) or 'numbers'}; the model has {_numbered(classes)}. Leave "
                "labels out, or map each: {label: class}"
            )
        return {str(number): name for number, name in enumerate(classes)}
    mapping = {str(label): str(name) for label, name in labels.items()}
    known = {folded(label) for label in mapping}
    for number, place in by_name.items():
        name = called[int(number)]
        if number not in known and name in mapping:
            mapping[number] = mapping[name]
        elif number not in known and place is not None:
            mapping[number] = classes[place]
    return mapping


def label_remedy(
    unknown: Iterable[str],
    classes: Sequence[str],
    called: Sequence[str],
    mapping: Mapping[str, str],
) -> str:
    """Return what to do about labels that are no class; arguments as of `label_mapping`."""
    remedy = "Map them with `labels: {dataset label: class}`"
    if called:
        return f"{remedy}: the data have {_numbered(called)}; the model has {_numbered(classes)}"
    if mapping or not _may_be_indices(unknown, classes):
        return remedy
    return f"{remedy}, or write `labels: by-index` if they are the model's: {_numbered(classes)}"


def _may_be_indices(labels: Iterable[str], classes: Sequence[str]) -> bool:
    """Whether all labels are numbers of classes, and no class is called by another number."""
    numbers = {*map(folded, labels)}
    called = [folded(name).removeprefix("label_") for name in classes]
    return numbers <= {str(place) for place in range(len(classes))} and all(
        name == str(place) or not name.isdecimal() for place, name in enumerate(called)
    )


def _numbered(names: Sequence[str]) -> str:
    """The first 20 of some names behind their numbers: `0 bad, 1 good`."""
    more = ", ..." if len(names) > 20 else ""
    return ", ".join(f"{place} {name}" for place, name in enumerate(names[:20])) + more
