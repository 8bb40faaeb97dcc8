"""The sentences of a report, made of its figures: so that they always say what these say."""

from dataclasses import replace

from transexplain.reports.evaluation.faithfulness import sentences
from transexplain.reports.headline import headline
from transexplain.reports.previous import differences
from transexplain.reports.records import Summary
from transexplain.reports.scope import untested
from transexplain.reports.sections import SECTIONS
from transexplain.reports.verdict import verdict


def with_sentences(summary: Summary) -> Summary:
    """`summary` with its headline, its verdict and what was not tested written anew."""
    lines = (
        *headline(
            summary.audited,
            summary.counts,
            summary.conservation,
            summary.class_sensitivity,
            summary.groups,
            summary.failures,
            summary.approximates,
        ),
        *sentences(summary.faithfulness, summary.audited.modality),
        *differences(summary.previous, summary.counts),
        *(one for name in SECTIONS for one in SECTIONS.load(name).sentences(summary)),
    )
    return replace(summary, headline=lines, verdict=verdict(summary), untested=untested(summary))
