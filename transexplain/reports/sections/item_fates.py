"""Counts of items (explained, failed, truncated, correct), the confusion matrix, and the accuracy,
also by length of the text.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transexplain.analysis.groups.intervals import wilson
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.errors import ObjectStoreError
from transexplain.reports.phrasing import counted
from transexplain.reports.redaction import (
    Redactor,
    empty,
    inside,
    is_large,
    published,
    within,
)
from transexplain.reports.report_section import Section, SectionSource, Statement, statements
from transexplain.store import ranked_items, run_totals, runs, shard_digests, sink_files
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureExample:
    """One item that could not be explained."""

    item_id: str
    message: str
    traceback: str = ""  #: where it was raised, without texts and values; "": not kept


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureKind:
    """Items that failed for the same reason."""

    kind: str
    count: int
    examples: tuple[FailureExample, ...]


_EXAMPLES = 5


def failures(db: Database, run_id: str) -> tuple[FailureKind, ...]:
    """By kind, the most frequent first, with the first items of each."""
    kinds = ranked_items.failure_examples(db, run_id, _EXAMPLES)
    return tuple(
        FailureKind(
            kind=kind,
            count=count,
            examples=tuple(
                FailureExample(item_id=o.item_id, message=o.message, traceback=o.traceback)
                for o in some
            ),
        )
        for kind, (count, some) in sorted(kinds.items(), key=lambda e: (-e[1][0], e[0]))
    )


FAILURES = Section(
    template="failures.html.j2",
    links=(("failures", "Failures"),),
    redaction={
        FailureKind: published("kind", least="count", examples=empty(())),
    },
    of_summary={"failures": within},
    present=lambda report: bool(report.failures),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FateCounts:
    """The counts of items by their fate."""

    total: int
    done: int
    failed: int
    pending: int  #: neither done nor failed: the run is not over, or shards are dead
    dead_shards: int
    truncated: int
    labelled: int
    correct: int  #: predicted as labelled
    accuracy: float | None  #: correct / labelled; None where no item has a label


@dataclass(frozen=True, kw_only=True, slots=True)
class Confusion:
    """Items by label and predicted class; only explained ones."""

    labels: tuple[str, ...]  #: rows; "" stands for items without a label
    predicted: tuple[str, ...]  #: columns
    counts: tuple[tuple[int | None, ...], ...]  #: None: fewer than `Summary.fewest`, but not 0
    omitted: int  #: items in rows or columns left out because there are too many classes


def counts_of(db: Database, run: AuditRun) -> FateCounts:
    """Count the items of a run that were explained, failed, cut, and predicted as labelled."""
    progress = runs.progress(db, run.id)
    correct, labelled = run_totals.accuracy(db, run.id) or (0, 0)
    return FateCounts(
        total=progress.items_total,
        done=progress.items_done,
        failed=progress.items_failed,
        pending=progress.items_total - progress.items_done - progress.items_failed,
        dead_shards=progress.states.get("dead", 0),
        truncated=run_totals.truncated(db, run.id),
        labelled=labelled,
        correct=correct,
        accuracy=correct / labelled if labelled else None,
    )


_CONFUSION = 16  # labels and predicted classes in the table


def confusion(total: ShardAggregate, names: Sequence[str]) -> Confusion:
    """Items by label and prediction, in the model's order of classes; items without label last."""
    predictions = total.predictions
    place = {name: number for number, name in enumerate(names)}
    rows: Counter[str] = Counter()
    columns: Counter[str] = Counter()
    for (label, predicted), count in predictions.items():
        rows[label or ""] += count
        columns[predicted] += count

    def ordered(counts: Counter[str]) -> tuple[str, ...]:
        kept = [name for name, _ in counts.most_common(_CONFUSION)]
        return tuple(sorted(kept, key=lambda n: (n == "", place.get(n, len(place)), n)))

    labels, answers = ordered(rows), ordered(columns)
    counts = tuple(
        tuple(predictions.get((label or None, answer), 0) for answer in answers) for label in labels
    )
    inside = sum(map(sum, counts))
    return Confusion(
        labels=labels,
        predicted=answers,
        counts=counts,
        omitted=sum(predictions.values()) - inside,
    )


def _cells(
    counts: tuple[tuple[int | None, ...], ...], _confusion: Confusion, redactor: Redactor
) -> tuple[tuple[int | None, ...], ...]:
    return tuple(
        tuple(None if n is None or 0 < n < redactor.fewest else n for n in row) for row in counts
    )


_FEWEST = 20  #: labelled items that a comparison with chance needs


def _sentences(report: Any) -> Iterator[Statement]:
    counts: FateCounts = report.counts
    chance = by_chance(report.confusion) if counts.labelled >= _FEWEST else None
    above = chance is None or wilson(counts.correct, counts.labelled)[0] > chance
    return statements(
        "data_headline.txt.j2",
        audited=report.audited,
        counts=counts,
        kinds=[f"{kind.count:,} {kind.kind}" for kind in report.failures],
        no_more_than_chance=None if above else chance,
    )


def by_chance(confusion: Confusion) -> float | None:
    """The accuracy of random predictions with the same frequencies as the model's.

    sum over classes of share of labels x share of predictions, as in Cohen's kappa (1960). None
    where it would mean nothing: items of less than two labels, or counts that are not all there.
    """
    rows = [
        (label, row) for label, row in zip(confusion.labels, confusion.counts, strict=True) if label
    ]
    if confusion.omitted or len(rows) < 2:
        return None
    labels: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    for label, row in rows:
        for name, count in zip(confusion.predicted, row, strict=True):
            if count is None:
                return None
            labels[label] += count
            predicted[name] += count
    total = labels.total()
    return sum(labels[name] * predicted[name] for name in labels) / total**2 if total else None


SECTION = Section(
    template="data.html.j2",
    links=(("data", "Data"),),
    redaction={
        FateCounts: published(),
        Confusion: published("labels predicted", counts=_cells),
    },
    of_summary=inside("counts confusion"),
    sentences=_sentences,
)


_NAMED = 10  #: shards and files in the lists


@dataclass(frozen=True, kw_only=True, slots=True)
class UnreadableItems:
    """Shards that were lost, doubled, swapped or changed, and lost files of a sink."""

    items: int  #: of these shards
    parts: tuple[str, ...]  #: which they are and what is wrong, the first ones
    more: int  #: shards beyond those
    files: tuple[str, ...]  #: of the sink that are not there, though the store has their results
    more_files: int  #: files beyond those
    run_id: str


def unreadable(db: Database, run_id: str) -> UnreadableItems | None:
    """The damaged shards of a run, of which every byte is read; None: all is as it was saved."""
    damaged = shard_digests.damaged(db, run_id)
    files = [] if sink_files.alone(db, run_id) else _lost_files(db, run_id)
    if not damaged and not files:
        return None
    return UnreadableItems(
        items=sum(shard.stop - shard.start for shard in damaged),
        parts=tuple(map(str, damaged[:_NAMED])),
        more=len(damaged[_NAMED:]),
        files=tuple(files[:_NAMED]),
        more_files=len(files[_NAMED:]),
        run_id=run_id,
    )


def _lost_files(db: Database, run_id: str) -> list[str]:
    try:
        return [file.name for file in sink_files.missing(db, run_id)]
    except ObjectStoreError as error:
        return [f"none of them can be seen ({error})"]


def damage(items: UnreadableItems | None) -> str:
    """Return what a reader has to know before anything else; "": nothing."""
    if items is None or not items.parts:
        return ""
    many = len(items.parts) + items.more
    return (
        f"Do not rely on this report: the stored results of {counted(many, 'shard')} "
        f"({counted(items.items, 'item')}) are not those that were saved. "
        f"`transexplain resume {items.run_id}` computes them again."
    )


def unreadable_statements(items: UnreadableItems | None) -> Iterator[Statement]:
    """Yield what a headline says first."""
    if text := damage(items):
        assert items is not None
        more = " and others" if items.more or len(items.parts) > 1 else ""
        yield Statement(kind="problem", text=f"{text} Damaged: {items.parts[0]}{more}.")
    if items is not None and items.files:
        more = f" and {items.more_files} more" if items.more_files else ""
        yield Statement(
            kind="problem",
            text=f"Files of the sink are missing: {', '.join(items.files)}{more}. The results are "
            f"in the database; `transexplain resume {items.run_id}` writes the files again.",
        )


UNREADABLE = Section(
    template="unreadable.html.j2",
    links=(),
    redaction={
        UnreadableItems: published("parts files run_id"),
    },
    present=lambda report: "unreadable" in report.sections,
    sentences=lambda report: unreadable_statements(report.sections.get("unreadable")),
    record=UnreadableItems,
    collect=lambda source: unreadable(source.db, source.run.id),
)


PARTS = 4  #: of about as many texts each
_ENOUGH = 30  #: labelled texts that a sentence about a part needs


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


def _of_lengths(report: Any) -> Iterable[Statement]:
    """Only where the intervals of the shortest and of the longest texts do not meet."""
    record: TextsByLength | None = report.sections.get("texts_by_length")
    parts = record.parts if record else ()
    ends = [
        part for part in (*parts[:1], *parts[-1:]) if part.interval and part.labelled >= _ENOUGH
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


def _of_many(value: Any, part: LengthPart, redactor: Redactor) -> Any:
    """Nothing about answers where those right, or those wrong, are few."""
    return value if is_large(part.correct or 0, part.labelled, redactor.fewest) else None


LENGTHS = Section(
    template="texts_by_length.html.j2",
    links=(("lengths", "Lengths"),),
    redaction={
        TextsByLength: published(),
        LengthPart: published(
            least="items",
            correct=_of_many,
            accuracy=_of_many,
            interval=_of_many,
        ),
    },
    # a redacted one may have lost parts
    present=lambda report: len(getattr(report.sections.get("texts_by_length"), "parts", ())) > 1,
    sentences=_of_lengths,
    record=TextsByLength,
    collect=_collect,
)
