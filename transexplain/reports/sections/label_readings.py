"""How labels of the data were matched with classes of the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transexplain.reports.redaction import RedactionRules, at_least, kept, within
from transexplain.reports.report_section import Section, Source
from transexplain.store import run_totals
from transexplain.types.plans import AT_POSITIONS, GENERATED

_MOST = 50  #: labels in the table; data with more have something else in this column


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelReading:
    """One label as the dataset spells it."""

    label: str
    class_name: str | None  #: None: it was read as no class, and its items as unlabelled
    items: int  #: explained ones


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelReadings:
    """The labels of a run's items, the most frequent first."""

    readings: tuple[LabelReading, ...]
    omitted: int  #: labels beyond those listed


def _collect(source: Source) -> LabelReadings | None:
    """None where no label is stored: the data has none, or the run is of older software.

    Where tokens are labelled or answers marked or generated, an item's label is a list of its
    entities or an answer, which is not shown.
    """
    if source.run.plan.model.head in (*AT_POSITIONS, GENERATED):
        return None
    found = run_totals.by_raw_label(source.db, source.run.id)
    if not found:
        return None
    readings = tuple(
        LabelReading(label=label, class_name=name, items=count)
        for label, name, count in found[:_MOST]
    )
    return LabelReadings(readings=readings, omitted=len(found) - len(readings))


_RULES: Mapping[type, RedactionRules] = {
    LabelReadings: RedactionRules(fields={"readings": within, **kept("omitted")}),
    LabelReading: RedactionRules(stands=at_least("items"), fields=kept("label class_name items")),
}


def _present(report: Any) -> bool:
    found = report.sections.get("labels")
    return found is not None and bool(found.readings)


SECTION = Section(
    template="labels.html.j2",
    links=(),
    redaction=_RULES,
    present=_present,
    record=LabelReadings,
    collect=_collect,
)
