"""What the model answers for items that mention a group: no attribution replaces outcomes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from transexplain.bias.entity_totals import EntityTotals, Stratum
from transexplain.bias.intervals import Interval, wilson

ALL_ITEMS = "all items"

Answers = Mapping[tuple[str | None, str], int]  #: (label or None, predicted class) -> items


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A share of items, with its 95 % Wilson interval."""

    count: int
    total: int
    interval: Interval

    @property
    def share(self) -> float:
        """count / total."""
        return self.count / self.total


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """How often one class is predicted, against the reference."""

    class_name: str
    rate: Rate
    impact_ratio: float | None  #: this rate over the reference's; None: the reference has none


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupOutcome:
    """Predictions over the items that mention a group, or over the reference's."""

    group: str
    items: int
    error: Rate | None  #: predicted otherwise than labelled; None: no item has a label
    selection: tuple[Selection, ...]  #: by class, in alphabetical order


def outcomes(
    totals: EntityTotals, answers: Answers, reference: str | None
) -> tuple[GroupOutcome, ...]:
    """One row per mentioned group, by name, after that of the reference.

    Args:
        totals: of the run; a stratum holds label and predicted class.
        answers: of all explained items.
        reference: group; None, or one that is not mentioned: all items.
    """
    groups = _by_group(totals)
    base = groups.get(reference or "", Counter(dict(answers)))
    name = reference if reference in groups else ALL_ITEMS
    first = _outcome(name, base, base)
    rest = (_outcome(group, groups[group], base) for group in sorted(groups) if group != name)
    return (first, *rest) if first.items else ()


def _by_group(totals: EntityTotals) -> dict[str, Counter[tuple[str | None, str]]]:
    """Items by group, label and prediction; each item once, whatever was explained of it."""
    found: dict[str, Counter[tuple[str | None, str]]] = {}
    for stratum in _once(totals.strata):
        for group, count in totals.documents([stratum]).items():
            found.setdefault(group, Counter())[stratum.label or None, stratum.predicted] += count
    return found


def _once(strata: list[Stratum]) -> list[Stratum]:
    """The strata of one explanation per item: of its predicted class, or of the one contrast."""
    first = [one for one in strata if one.target == strata[0].target]
    predicted = [one for one in first if one.class_name == one.predicted]
    name = first[0].class_name if first else ""
    return predicted or [one for one in first if one.class_name == name]


def _outcome(group: str, answers: Answers, base: Answers) -> GroupOutcome:
    items = sum(answers.values())
    labelled = {key: count for key, count in answers.items() if key[0] is not None}
    wrong = sum(count for (label, said), count in labelled.items() if label != said)
    classes = sorted({said for _, said in (*base, *answers)})
    return GroupOutcome(
        group=group,
        items=items,
        error=_rate(wrong, sum(labelled.values())) if labelled else None,
        selection=tuple(_selection(name, answers, base) for name in classes) if items else (),
    )


def _selection(class_name: str, answers: Answers, base: Answers) -> Selection:
    rate = _rate(_said(class_name, answers), sum(answers.values()))
    usual = _said(class_name, base) / sum(base.values())
    return Selection(
        class_name=class_name, rate=rate, impact_ratio=rate.share / usual if usual else None
    )


def _said(class_name: str, answers: Answers) -> int:
    return sum(count for (_, said), count in answers.items() if said == class_name)


def _rate(count: int, total: int) -> Rate:
    return Rate(count=count, total=total, interval=wilson(count, total))
