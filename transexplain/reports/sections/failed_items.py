"""Items that could not be explained, by their kind."""

from collections.abc import Mapping

from transexplain.reports.redaction import RedactionRules, at_least, empty, kept
from transexplain.reports.report_records import FailureKind
from transexplain.reports.report_section import Section

_RULES: Mapping[type, RedactionRules] = {
    FailureKind: RedactionRules(
        stands=at_least("count"), fields={"examples": empty(()), **kept("kind count")}
    ),
}


SECTION = Section(
    template="failures.html.j2",
    links=(("failures", "Failures"),),
    redaction=_RULES,
    present=lambda report: bool(report.failures),
)
