"""The sections of an audit's report: a table in the order of the page.

A section is a record in a module and a template: how it is collected, its sentences, its
redaction and its drawing. A new section is those two and a line in this table.
"""

from transexplain.registry import Registry

SECTIONS = Registry(
    "section",
    {
        "untested": "transexplain.reports.sections.untested:SECTION",
        "data": "transexplain.reports.sections.item_fates:SECTION",
        "labels": "transexplain.reports.sections.audited_run:LABELS",
        "evidence": "transexplain.reports.sections.measured_faithfulness:SECTION",
        "mixed": "transexplain.reports.sections.mixed_section:SECTION",
        "classes": "transexplain.reports.sections.class_views:SECTION",
        "texts_by_length": "transexplain.reports.sections.item_fates:LENGTHS",
        "scenarios": "transexplain.extras.filings.bias_scenarios:SECTION",
        "groups": "transexplain.reports.sections.group_section:SECTION",
        "impact": "transexplain.extras.filings.impact_by_category:SECTION",
        "previous": "transexplain.reports.sections.previous_run:SECTION",
        "examples": "transexplain.reports.sections.gallery_items:SECTION",
        "unreadable": "transexplain.reports.sections.item_fates:UNREADABLE",
        "failures": "transexplain.reports.sections.item_fates:FAILURES",
        "about": "transexplain.reports.sections.audited_run:SECTION",
        "manifest": "transexplain.reports.sections.audited_run:MANIFEST",
    },
)
