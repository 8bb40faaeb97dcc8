"""What the data is like, where its items went, and how entities were found in it."""

from collections.abc import Mapping

from transexplain.reports.redaction import RedactionRules, Redactor, kept
from transexplain.reports.report_records import Counts
from transexplain.reports.report_section import Section
from transexplain.reports.row_records import Confusion


def _cells(
    counts: tuple[tuple[int | None, ...], ...], _confusion: Confusion, redactor: Redactor
) -> tuple[tuple[int | None, ...], ...]:
    fewest = redactor.fewest
    return tuple(
        tuple(None if count is None or 0 < count < fewest else count for count in row)
        for row in counts
    )


_RULES: Mapping[type, RedactionRules] = {
    Counts: RedactionRules(
        fields=kept(
            "total done failed pending dead_shards truncated labelled correct accuracy",
        )
    ),
    Confusion: RedactionRules(fields={"counts": _cells, **kept("labels predicted omitted")}),
}


SECTION = Section(template="data.html.j2", links=(("data", "Data"),), redaction=_RULES)
