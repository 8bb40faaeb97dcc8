"""Several labels of one item: which a model predicts, and how they stand in one text.

A model of several labels has a sigmoid at each of its logits, so that every label is predicted by
itself. The labels of an item, predicted or given, are stored and shown as one text, in the order of
the model's classes: `insult + toxic`, or `(none)`. So everything that keeps, counts or compares one
class of an item does the same with a set of them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from transexplain.errors import ConfigurationError, ModelLoadError, did_you_mean
from transexplain.text.parsing import UnreadableError, read_json

#: between labels, and for an item without one
BETWEEN, NO_LABEL = " + ", "(none)"
USUAL_THRESHOLD = 0.5


def label_set(names: Iterable[str]) -> str:
    """Labels as one text."""
    return BETWEEN.join(names) or NO_LABEL


def set_members(text: str) -> tuple[str, ...]:
    """The labels of `label_set`; of one class it alone."""
    return () if text == NO_LABEL else tuple(text.split(BETWEEN))


def check_label_names(classes: Iterable[str]) -> None:
    """Raise ModelLoadError where the name of a label cannot stand in a set."""
    for name in classes:
        if BETWEEN in name or name == NO_LABEL:
            raise ModelLoadError(
                f"the label {name!r} of the model is written like several labels or none "
                f"(A{BETWEEN}B, {NO_LABEL}); rename it in id2label of its config.json"
            )


def thresholds_of(
    given: float | Mapping[str, float] | None, classes: Sequence[str]
) -> dict[str, float]:
    """The probability from which each label is predicted; empty where it is 0.5 for all.

    `given` is one number for all labels, or a number by label for some of them. Raises
    ConfigurationError for what is no label, and no probability between 0 and 1.
    """
    named = (
        {str(name): value for name, value in given.items()} if isinstance(given, Mapping) else {}
    )
    for name in named:
        if name not in classes:
            hint = did_you_mean(name, classes) or ";"
            raise ConfigurationError(
                f"thresholds: the model has no label {name!r}{hint} it has {', '.join(classes)}"
            )
    usual = given if isinstance(given, int | float) else USUAL_THRESHOLD
    thresholds = {name: float(named.get(name, usual)) for name in classes}
    for name, value in thresholds.items():
        if not 0 < value < 1:
            raise ConfigurationError(
                f"thresholds: {value:g} of {name!r} is no probability between 0 and 1"
            )
    return thresholds if set(thresholds.values()) != {USUAL_THRESHOLD} else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class SeveralLabels:
    """How the labels of an item are predicted, and how the data spells them."""

    #: label -> probability from which it is predicted; empty: `USUAL_THRESHOLD` for all
    thresholds: Mapping[str, float] = field(default_factory=dict)
    separator: str | None = None  #: between the labels of an item; None: one, or a JSON list

    def floors(self, classes: Sequence[str]) -> tuple[float, ...]:
        """(C,) the logit from which each label is predicted: log(p / (1 - p)) of its threshold."""
        odds = (self.thresholds.get(name, USUAL_THRESHOLD) for name in classes)
        return tuple(math.log(odd / (1 - odd)) for odd in odds)

    def written(self, cell: str, known: Sequence[str]) -> tuple[str, ...]:
        """The labels that a cell names, each once: one, a JSON list, or texts between separators.

        A cell that is the name of a `known` label is that one, whatever it holds.
        """
        if cell in known:
            return (cell,)
        parts: Iterable[object] = cell.split(self.separator) if self.separator else [cell]
        if cell.lstrip().startswith("["):
            try:
                read = read_json(cell)
            except UnreadableError:
                read = None
            parts = read if isinstance(read, list) else parts
        names = (str(part).strip() for part in parts)
        return tuple(dict.fromkeys(name for name in names if name and name != NO_LABEL))
