"""Exports a run as a part of the technical documentation of Annex IV of Regulation (EU) 2024/1689.

The points are named in our own words; what each asks for stands in the Regulation. The data of an
audit are testing data, so they belong to point 2(g); 2(d) is about the data of training.
"""

from collections.abc import Iterable, Iterator, Sequence

from transexplain.extras.filings import bias_scenarios, impact_by_category
from transexplain.extras.filings.impact_by_category import impact_of
from transexplain.extras.filings.local_law_144 import data_facts, impact_tables
from transexplain.reports.exports.export_run import Redaction, explained_summary
from transexplain.reports.exports.run_facts import (
    accuracy,
    checks,
    compared,
    coverage,
    difference,
    errors,
    untested,
    verdict_counts,
    verdicts,
)
from transexplain.reports.page import moment
from transexplain.reports.phrasing import (
    markdown_text,
    method_of,
    number,
    percent,
    short,
    signed,
    sureness,
)
from transexplain.reports.report_records import Summary
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun

_NO_ADVICE = (
    "This block gives the facts of one audit under the points of Annex IV to which they belong. It "
    "is no legal advice, it does not make documentation complete, and it does not say that a "
    "system conforms to the Regulation, or that the Regulation applies to it. Whoever signs has to "
    "check it and to add intended purpose, dates and names."
)
_NOT_FILLED = (
    "1(a) to 1(h): the system as a whole: purpose, provider, versions, what it works with, forms "
    "of delivery, hardware, interface, instructions",
    "2(a) to 2(c): how it was developed, its design choices, architecture and computing resources",
    "2(d): the data it was trained on, and how; the data of this audit stand under 2(g)",
    "2(e), 2(f), 2(h): human oversight, changes planned in advance, cybersecurity",
    "2(g): robustness, other requirements of Chapter III, Section 2, and the names of who signs",
    "3: the accuracy to be expected for the intended purpose, human oversight, what the input data "
    "have to be",
    "4: why these metrics are the right ones for this system",
    "5: the risk management system of Article 9",
    "6: changes over the lifetime (`transexplain compare` gives facts about one change of the "
    "model)",
    "7 and 8: standards applied and the declaration of conformity",
    "9: how performance is judged after release, with the plan for monitoring it (`transexplain "
    "schedule` repeats an audit)",
)


def export(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """Raises ConfigurationError for an evaluation."""
    return render(explained_summary(db, run, redaction, "Annex IV block"))


def render(summary: Summary) -> str:
    """The block, in Markdown."""
    sentence = accuracy(summary)
    right = f"{sentence}." if sentence else "Not measured: no item has a label of a class."
    lines = [
        "# Annex IV of Regulation (EU) 2024/1689: facts from a bias audit",
        "",
        _NO_ADVICE,
        *_section("2(g) Testing data: what was audited", _data(summary)),
        *_section("2(g) Validation and testing: procedure", _procedure(summary)),
        *_section("2(g) Metrics: accuracy", [right]),
        *_section("2(g) Metrics: effects that may discriminate", _effects(summary)),
        *_impact(summary),
        *_section("2(g) Test log", _log(summary)),
        *_section("3 Accuracy for specific groups", errors(summary.groups)),
        *_section("3 Sources of risk: discrimination", _risks(summary)),
        *_section("3 Limitations", untested(summary)),
        "",
        "## Points that this audit does not fill",
        "",
        *(f"- {line}" for line in _NOT_FILLED),
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    items = list(lines) or ["Nothing was measured here."]
    yield from ("", f"## {title}", "")
    yield from (f"- {markdown_text(line)}" for line in items)


def _data(summary: Summary) -> Iterator[str]:
    audited = summary.audited
    yield f"Data set of the audit: {short(audited.dataset)}, sha256 {audited.fingerprint}."
    yield coverage(summary)
    if summary.counts.labelled:
        yield f"{summary.counts.labelled:,} items have a label of a class."
    confusion = summary.confusion
    for label, row in zip(confusion.labels, confusion.counts, strict=True):
        yield f"Labelled {label or 'not at all'}: {_labelled(row, summary.fewest)}."
    for group, source in (summary.groups.sources if summary.groups else {}).items():
        yield f"Group {group}, source of its terms: {short(source) or 'not given'}."


def _labelled(row: Sequence[int | None], fewest: int | None) -> str:
    """Count the items of a row of the confusion table; redacted cells are unknown."""
    shown, hidden = sum(count for count in row if count is not None), row.count(None)
    if not hidden:
        return f"{shown:,} items"
    cells = "a cell" if hidden == 1 else f"{hidden} cells"
    return f"{shown:,} items, and {cells} of fewer than {fewest} that cannot be reported"


def _procedure(summary: Summary) -> Iterator[str]:
    audited, groups = summary.audited, summary.groups
    origin = " (made elsewhere and imported)" if audited.task == "imported" else ""
    method = method_of(audited.method, summary.approximates)
    yield f"Explanations by {method}{origin}, for {', '.join(audited.targets)}."
    if groups is not None:
        yield (
            f"Entities of each group were compared with {groups.reference}: permutation of "
            f"entities, p adjusted for the number of comparisons ({groups.correction}), a "
            f"difference matters beyond ±{groups.practical:g} {audited.unit}."
        )
    yield from checks(summary)


def _effects(summary: Summary) -> Iterator[str]:
    groups = summary.groups
    if groups is None:
        return
    counts = verdict_counts(groups)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    yield f"Groups by verdict: {states}."
    for state in counts:
        yield from verdicts(groups, state)
    for outcome in groups.outcomes:
        rate, ratio = outcome.own.selected, outcome.impact_ratio
        against = (
            "" if ratio is None else f", {number(ratio)} times the rate of {outcome.reference}"
        )
        measure = outcome.measure("rate")
        sure = sureness(measure) if measure else ""
        within = f" in {outcome.stratum}" if outcome.stratum else ""
        yield (
            f"Items {'of' if outcome.whole else 'with'} {outcome.group}{within}: "
            f"{outcome.prediction} "
            f"is predicted for {percent(rate.share)} of {rate.total:,} items{against}; difference "
            f"{signed(100 * outcome.difference, 1)} points ({sure or 'too few for an interval'})."
        )
    for row in compared(groups):
        if row.flagged:
            yield difference(row, summary.audited)


def _impact(summary: Summary) -> Iterator[str]:
    """Rates by category of person, where the audit has any."""
    record = impact_of(summary)
    if record is not None:
        lines = (*data_facts(record), *impact_by_category.lines(summary))
        yield from _section("2(g) Metrics: impact ratios by category of person", lines)
        yield from impact_tables(record, 3)


def _log(summary: Summary) -> Iterator[str]:
    audited = summary.audited
    yield (
        f"Run {audited.run_id} ({audited.name}), begun {moment(audited.created)}, ended "
        f"{moment(audited.finished) if audited.finished else 'not yet'}, state {audited.state}."
    )
    yield f"Model {short(audited.model)}, sha256 {audited.model_digest or 'unknown'}."
    yield f"Plan, sha256 {audited.plan_digest}; TransExplain {audited.version}."
    name = f"{audited.name}-{audited.run_id}{'' if summary.fewest is None else '-redacted'}"
    yield (
        f"Signature: signature-{name}.json beside the report, where transexplain report "
        f"{audited.run_id} --sign KEY was called: it is dated, covers the files that were written "
        "with it, and is checked by transexplain verify --signature FILE --public-key FILE."
    )
    yield "Name of the person responsible, and date: to be added."


def _risks(summary: Summary) -> Iterator[str]:
    stated = [f"Bias scenario. {line}" for line in bias_scenarios.lines(summary)]
    yield from stated
    if not stated and (summary.groups is not None or impact_of(summary) is not None):
        yield "No bias scenario is written in the specification (groups.scenario)."
    flagged = list(verdicts(summary.groups, "flagged"))
    for sentence in flagged:
        yield f"{sentence} Judge what follows from it for the intended purpose."
    if summary.groups is not None and not flagged:
        yield "No group was flagged; see the limitations."
