"""The sections of an audit's report: a table in the order of the page.

A section is one module and one template: its record, how it is collected, its sentences, its
redaction and its drawing. A new one is those two files and a line in this table.
"""

from transexplain.registry import Registry

SECTIONS = Registry(
    "section",
    {
        "untested": "transexplain.reports.sections.untested:SECTION",
        "data": "transexplain.reports.sections.item_fates:SECTION",
        "labels": "transexplain.reports.sections.label_readings:SECTION",
        "evidence": "transexplain.reports.sections.measured_faithfulness:SECTION",
        "mixed": "transexplain.reports.sections.mixed_section:SECTION",
        "classes": "transexplain.reports.sections.class_views:SECTION",
        "texts_by_length": "transexplain.reports.sections.texts_by_length:SECTION",
        "scenarios": "transexplain.reports.sections.bias_scenarios:SECTION",
        "groups": "transexplain.reports.sections.group_section:SECTION",
        "impact": "transexplain.reports.sections.impact_by_category:SECTION",
        "previous": "transexplain.reports.sections.previous_run:SECTION",
        "examples": "transexplain.reports.sections.gallery_items:SECTION",
        "unreadable": "transexplain.reports.sections.unreadable_items:SECTION",
        "failures": "transexplain.reports.sections.failed_items:SECTION",
        "about": "transexplain.reports.sections.audited_run:SECTION",
        "manifest": "transexplain.reports.sections.manifest_section:SECTION",
    },
)
