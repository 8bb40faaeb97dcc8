"""Bias scenarios: the harms that the audit looks for, as the responsible person described them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from transexplain.reports.phrasing import named
from transexplain.reports.redaction import RedactionRules, published
from transexplain.reports.report_section import Section, SectionSource, Statement
from transexplain.reports.tables import Column, Table, record_columns
from transexplain.types.plans import Scenario

#: field of a scenario -> its title in the report
PARTS: Mapping[str, str] = {
    "harm": "Harm",
    "affected": "Who is affected",
    "measure": "Measure",
    "threshold": "Threshold",
    "mitigation": "Mitigation",
    "owner": "Owner",
    "review_date": "Review date",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class StatedScenario:
    """One scenario, and what it lacks."""

    scenario: Scenario
    missing: tuple[str, ...]  #: keys of `groups.scenario` that were not given
    overdue: bool  #: the review date lies before the day that the run was begun

    def parts(self) -> Iterable[tuple[str, str]]:
        """Title and text of every part; the text is empty where none was given."""
        return ((title, getattr(self.scenario, name)) for name, title in PARTS.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class BiasScenarios:
    """The scenarios of a plan, in its order."""

    scenarios: tuple[StatedScenario, ...]


def _collect(source: SectionSource) -> BiasScenarios | None:
    """None where the plan has none."""
    begun = f"{datetime.fromtimestamp(source.run.created, UTC):%Y-%m-%d}"
    scenarios = tuple(
        StatedScenario(
            scenario=scenario,
            missing=tuple(name for name in PARTS if not getattr(scenario, name)),
            overdue=bool(scenario.review_date) and scenario.review_date < begun,
        )
        for scenario in source.run.plan.scenario
    )
    return BiasScenarios(scenarios=scenarios) if scenarios else None


def scenarios_of(report: Any) -> tuple[StatedScenario, ...]:
    """The scenarios that a summary has."""
    record: BiasScenarios | None = report.sections.get("scenarios")
    return record.scenarios if record else ()


def gap_sentence(scenario: StatedScenario) -> str:
    """Return what a scenario lacks; empty where it lacks nothing."""
    names = named([PARTS[name].lower() for name in scenario.missing])
    lacking = [f"Not given: {names}."] if names else []
    late = ["The review date had passed when the run was begun."] if scenario.overdue else []
    return " ".join((*lacking, *late))


def lines(summary: Any) -> Iterator[str]:
    """The bias scenarios of the specification in sentences, each with what it lacks."""
    for scenario in scenarios_of(summary):
        parts = " ".join(
            f"{title}: {text.rstrip('.')}." for title, text in scenario.parts() if text
        )
        yield f"{parts} {gap_sentence(scenario)}".rstrip()


def _tables(record: BiasScenarios) -> Iterator[Table]:
    columns = (
        *record_columns(Scenario, 0),
        Column("missing", lambda row: "; ".join(row[1].missing)),
        Column("overdue", lambda row: row[1].overdue),
    )
    rows = ((stated.scenario, stated) for stated in record.scenarios)
    yield Table(name="scenarios", columns=columns, rows=rows)


def _sentences(report: Any) -> Iterable[Statement]:
    for stated in scenarios_of(report):
        if stated.overdue:
            yield Statement(
                kind="problem",
                text=f"A bias scenario was to be reviewed by {stated.scenario.review_date}, before "
                f"this run: {stated.scenario.harm}",
            )


_RULES: Mapping[type, RedactionRules] = {
    BiasScenarios: published(),
    StatedScenario: published("missing"),
    # written for readers, not taken from the data
    Scenario: published(" ".join(PARTS)),
}

SECTION = Section(
    template="bias_scenarios.html.j2",
    links=(("scenarios", "Scenarios"),),
    redaction=_RULES,
    present=lambda report: bool(scenarios_of(report)),
    drawing=lambda _report: {"gap_sentence": gap_sentence},
    sentences=_sentences,
    tables=_tables,
    record=BiasScenarios,
    collect=_collect,
)
