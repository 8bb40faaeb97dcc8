"""Accuracy by length of the text: whether the model answers long texts as well as short ones."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transexplain.analysis.groups.intervals import wilson
from transexplain.reports.redaction import (
    Redactor,
    published,
)
from transexplain.reports.report_section import Section, SectionSource, Statement
from transexplain.store import run_totals

PARTS = 4  #: of about as many texts each
_FEWEST = 30  #: labelled texts that a sentence about a part needs


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthPart:
    """Texts of neighbouring lengths; texts of one length are never in two parts."""

    shortest: int  #: positions, special tokens among them
    longest: int
    items: int
    truncated: int  #: longer than the model reads; their length is what it read
    labelled: int
    correct: int | None  #: predicted as labelled; None: too few to be published
    accuracy: float | None  #: correct / labelled; None where none has a label
    interval: tuple[float, float] | None  #: of the accuracy, 95 %, Wilson


@dataclass(frozen=True, kw_only=True, slots=True)
class TextsByLength:
    """The texts of a run in at most `PARTS` parts, the shortest first."""

    parts: tuple[LengthPart, ...]


def _collect(source: SectionSource) -> TextsByLength | None:
    """None for pictures and graphs, and where all texts have one length."""
    if source.run.plan.model.modality != "text":
        return None
    parts = tuple(_parts(list(run_totals.by_positions(source.db, source.run.id))))
    return TextsByLength(parts=parts) if len(parts) > 1 else None


_Length = tuple[int, int, int, int, int]  #: positions, items, labelled, correct, truncated


def _parts(lengths: Sequence[_Length]) -> Iterator[LengthPart]:
    """The texts of a length belong to the part that the middle one of them lies in."""
    items, before = sum(length[1] for length in lengths), 0
    by_part: dict[int, list[_Length]] = {}
    for length in lengths:
        by_part.setdefault(PARTS * (2 * before + length[1]) // (2 * items), []).append(length)
        before += length[1]
    return map(_part, by_part.values())


def _part(lengths: Sequence[_Length]) -> LengthPart:
    items, labelled, correct, truncated = (
        sum(length[at] for length in lengths) for at in range(1, 5)
    )
    return LengthPart(
        shortest=lengths[0][0],
        longest=lengths[-1][0],
        items=items,
        truncated=truncated,
        labelled=labelled,
        correct=correct,
        accuracy=correct / labelled if labelled else None,
        interval=wilson(correct, labelled) if labelled else None,
    )


def _sentences(report: Any) -> Iterable[Statement]:
    """Only where the intervals of the shortest and of the longest texts do not meet."""
    record: TextsByLength | None = report.sections.get("texts_by_length")
    parts = record.parts if record else ()
    ends = [
        part for part in (*parts[:1], *parts[-1:]) if part.interval and part.labelled >= _FEWEST
    ]
    if len(ends) < 2 or ends[0] is ends[1] or record is None:
        return
    short, long = ends
    low, high = sorted(end.interval or (0.0, 1.0) for end in ends)
    if low[1] < high[0]:
        yield Statement(
            kind="fact",
            text=f"Accuracy depends on length: {short.accuracy:.3f} on texts of up to "
            f"{short.longest:,} tokens, {long.accuracy:.3f} from {long.shortest:,} on.",
        )


def _of_many(value: Any, length_part: LengthPart, redactor: Redactor) -> Any:
    """Nothing about answers where those right, or those wrong, are few."""
    counts = (length_part.correct or 0, length_part.labelled - (length_part.correct or 0))
    return value if all(count == 0 or count >= redactor.fewest for count in counts) else None


SECTION = Section(
    template="texts_by_length.html.j2",
    links=(("lengths", "Lengths"),),
    redaction={
        TextsByLength: published(inside="parts"),
        LengthPart: published(
            "shortest longest items truncated labelled",
            least="items",
            correct=_of_many,
            accuracy=_of_many,
            interval=_of_many,
        ),
    },
    # a redacted one may have lost parts
    present=lambda report: len(getattr(report.sections.get("texts_by_length"), "parts", ())) > 1,
    sentences=_sentences,
    record=TextsByLength,
    collect=_collect,
)
