"""The summary as one HTML file that needs nothing but a browser: no network, one script."""

from transexplain.reports import live
from transexplain.reports.heatmap import colour_bar, data_uri
from transexplain.reports.marked import marks_css
from transexplain.reports.page import page
from transexplain.reports.records import StatementKind, Summary
from transexplain.reports.section import Section
from transexplain.reports.sections import SECTIONS
from transexplain.reports.templating import script
from transexplain.reports.wording import spoken, things

#: what somebody has to know first
_FIRST: tuple[StatementKind, ...] = ("problem", "flagged", "clear", "unknown", "good", "fact")


def render(summary: Summary) -> str:
    """One self-contained HTML page; pictures that can be opened are embedded."""
    sections: list[Section] = [SECTIONS.load(name) for name in SECTIONS]
    shown = [one for one in sections if one.present(summary)]
    drawings = {name: drawn for one in shown for name, drawn in one.drawing(summary).items()}
    return page(
        "report.html.j2",
        **drawings,
        s=summary,
        audited=summary.audited,
        counts=summary.counts,
        sections=shown,
        links=[link for one in shown if one.is_linked(summary) for link in one.links],
        findings=sorted(summary.headline, key=lambda line: _FIRST.index(line.kind)),
        bar=data_uri(colour_bar()),
        scripts=(script("page.js"), *(live.scripts() if _has_charts(summary) else ())),
        marks_css=marks_css(),
        spoken=lambda target, name: spoken(target, name, summary.audited.classes),
        noun=lambda count: things(summary.audited.modality, count),
    )


def _has_charts(summary: Summary) -> bool:
    return any(view.heatmap is None for view in summary.classes)
