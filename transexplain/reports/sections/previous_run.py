"""The run before, beside this one."""

from collections.abc import Mapping

from transexplain.reports.records import GroupChange, Previous
from transexplain.reports.redaction import RedactionRules, kept, within
from transexplain.reports.section import Section

_RULES: Mapping[type, RedactionRules] = {
    Previous: RedactionRules(
        fields={
            "counts": within,
            "groups": within,  # `_previous` leaves out those that the group table has not
            **kept(
                "run_id name state created model_changed data_changed method_changed common "
                "other_prediction"
            ),
        }
    ),
    GroupChange: RedactionRules(
        fields=kept("group target class_name before now flagged_before flagged_now")
    ),
}


SECTION = Section(
    template="previous.html.j2",
    links=(("previous", "The run before"),),
    redaction=_RULES,
    present=lambda report: report.previous is not None,
)
