"""Items that could not be explained, by their kind."""

from collections.abc import Mapping
from dataclasses import dataclass

from transexplain.reports.redaction import RedactionRules, at_least, empty, kept, within
from transexplain.reports.report_section import Section
from transexplain.store import noteworthy
from transexplain.store.database import Database


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureExample:
    """One item that could not be explained."""

    item_id: str
    message: str
    traceback: str = ""  #: where it was raised, without texts and values; "": not kept


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureKind:
    """Items that failed for the same reason."""

    kind: str
    count: int
    examples: tuple[FailureExample, ...]


_EXAMPLES = 5


def failures(db: Database, run_id: str) -> tuple[FailureKind, ...]:
    """By kind, the most frequent first, with the first items of each."""
    found = noteworthy.failure_examples(db, run_id, _EXAMPLES)
    return tuple(
        FailureKind(
            kind=kind,
            count=count,
            examples=tuple(
                FailureExample(item_id=o.item_id, message=o.message, traceback=o.traceback)
                for o in some
            ),
        )
        for kind, (count, some) in sorted(found.items(), key=lambda e: (-e[1][0], e[0]))
    )


_RULES: Mapping[type, RedactionRules] = {
    FailureKind: RedactionRules(
        stands=at_least("count"), fields={"examples": empty(()), **kept("kind count")}
    ),
}


SECTION = Section(
    template="failures.html.j2",
    links=(("failures", "Failures"),),
    redaction=_RULES,
    of_summary={"failures": within},
    present=lambda report: bool(report.failures),
)
