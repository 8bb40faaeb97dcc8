"""How far the cheap method of a mixed audit can be trusted."""

from collections.abc import Mapping

from transexplain.bias.mixed import ClassAgreement, Mixed, MixedGroup
from transexplain.reports.mixed import agreement
from transexplain.reports.redaction import RedactionRules, at_least, kept, within
from transexplain.reports.section import Section

_RULES: Mapping[type, RedactionRules] = {
    Mixed: RedactionRules(
        stands=at_least("items"),
        fields={"classes": within, "groups": within, **kept("method exact share items failed")},
    ),
    ClassAgreement: RedactionRules(
        stands=at_least("items"),
        fields=kept("target class_name items correlation spread error cheap exact"),
    ),
    MixedGroup: RedactionRules(
        stands=lambda one, fewest: min(one.items, one.documents) >= fewest,
        fields=kept(
            "group target class_name mentions documents items cheap weight correction corrected "
            "interval alone alone_interval needed reason"
        ),
    ),
}


SECTION = Section(
    template="mixed.html.j2",
    links=(("mixed", "Cheap and exact"),),
    redaction=_RULES,
    present=lambda report: report.mixed is not None,
    drawing=lambda _report: {"agreement": agreement},
)
