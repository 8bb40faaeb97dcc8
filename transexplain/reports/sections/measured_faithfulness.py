"""Whether the method is faithful here: what was measured of its explanations."""

from collections.abc import Mapping
from typing import Any

from transexplain.evaluations import Approximation
from transexplain.reports import approximating
from transexplain.reports.faithfulness_records import Faithfulness, FaithfulnessRow
from transexplain.reports.records import ClassSensitivity, Conservation
from transexplain.reports.redaction import RedactionRules, empty, kept, within
from transexplain.reports.section import Section

_RULES: Mapping[type, RedactionRules] = {
    Conservation: RedactionRules(
        fields={
            "worst_item": empty(""),
            **kept("attributions worst mean tolerance above average average_size"),
        }
    ),
    ClassSensitivity: RedactionRules(fields=kept("mean items")),
    Faithfulness: RedactionRules(fields={"rows": within, **kept("method items")}),
    FaithfulnessRow: RedactionRules(
        fields=kept(
            "target metric title unit better of_content items missing mean interval random "
            "difference difference_interval common p beats"
        )
    ),
    Approximation: RedactionRules(
        fields=kept("teacher mode items rank_correlation relative_error forwards")
    ),
}


def _measured(report: Any) -> bool:
    return bool(
        report.counts.done
        and (report.conservation or report.faithfulness or report.class_sensitivity)
    )


def _present(report: Any) -> bool:
    return _measured(report) or bool(report.counts.done and report.approximates)


SECTION = Section(
    template="evidence.html.j2",
    links=(("evidence", "Faithfulness"),),
    redaction=_RULES,
    present=_present,
    linked=_measured,
    drawing=lambda _report: {"approximation": approximating.told},
)
