"""A section of the report: how many answers were close, the two highest logits near each other."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from transexplain.reports.redaction import published
from transexplain.reports.report_section import Section, SectionSource, Statement
from transexplain.store.readers import iter_items
from transexplain.types.items import ItemOutcome

MARGIN = 0.1  #: logits; below it an answer is close


@dataclass(frozen=True, kw_only=True, slots=True)
class CloseAnswers:
    """Answers whose two highest logits differ by less than `MARGIN`."""

    items: int  #: explained ones
    close: int


def _collect(source: SectionSource) -> CloseAnswers | None:
    """None where the model has a single logit."""
    logits = [
        sorted(one.logits)[-2:]
        for one in iter_items(source.db, source.run.id)
        if isinstance(one, ItemOutcome)
    ]
    if not logits or len(logits[0]) < 2:
        return None
    close = sum(high - low < MARGIN for low, high in logits)
    return CloseAnswers(items=len(logits), close=close)


def _present(report: Any) -> bool:
    return "close_answers" in report.sections


def _sentences(report: Any) -> Iterable[Statement]:
    """Only where every second answer or more is close."""
    found: CloseAnswers | None = report.sections.get("close_answers")
    if found is not None and 2 * found.close >= found.items:
        text = f"{found.close:,} of {found.items:,} answers are close: within {MARGIN} logit."
        yield Statement(kind="fact", text=text)


SECTION = Section(
    template="close_answers.html.j2",
    links=(("close", "Close answers"),),
    redaction={CloseAnswers: published("items close", least="close")},
    present=_present,
    sentences=_sentences,
    record=CloseAnswers,
    collect=_collect,
)
