"""The record of a report: the records of all its sections.

`schema_version` rises when a key changes its meaning or goes; new keys do not raise it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transexplain.analysis.groups.mixed_audits import Mixed
from transexplain.reports.report_section import Statement
from transexplain.reports.sections.audited_run import Audited, Provenance
from transexplain.reports.sections.class_views import ClassView
from transexplain.reports.sections.gallery_items import Gallery
from transexplain.reports.sections.group_section import Groups
from transexplain.reports.sections.item_fates import Confusion, FailureKind, FateCounts, damage
from transexplain.reports.sections.measured_faithfulness import (
    ClassSensitivity,
    Conservation,
    Faithfulness,
)
from transexplain.reports.sections.previous_run import Previous
from transexplain.reports.sections.untested import Untested
from transexplain.types.scores import Approximation

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Everything a report says about one run."""

    headline: tuple[Statement, ...]
    audited: Audited
    counts: FateCounts
    conservation: Conservation | None
    class_sensitivity: ClassSensitivity | None  #: None: not measured (one class, or an older run)
    classes: tuple[ClassView, ...]
    classes_omitted: int  #: (target, class) pairs with fewer items than those shown
    confusion: Confusion
    groups: Groups | None  #: None: the audit named no groups
    gallery: Gallery
    failures: tuple[FailureKind, ...]
    notes: tuple[str, ...]  #: methods and assumptions
    faithfulness: Faithfulness | None = None  #: None: nothing was measured about explanations
    previous: Previous | None = None  #: None: the run names none, or it was deleted since
    verdict: Statement | None = None  #: the whole in one sentence
    untested: tuple[Untested, ...] = ()
    provenance: Provenance | None = None
    mixed: Mixed | None = None  #: None: the method explained alone
    approximates: Approximation | None = None  #: None: the method computes what it says
    fewest: int | None = (
        None  #: items that a row of a redacted report rests on; None: nothing is left out
    )
    sections: Mapping[str, Any] = field(default_factory=dict)  #: name -> record of a section
    schema_version: int = SCHEMA_VERSION

    @property
    def whole(self) -> bool:
        """Return whether every stored result is as it was saved."""
        return not damage(self.sections.get("unreadable"))
