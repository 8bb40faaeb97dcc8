"""The relevance of each class: lists of words, mean heatmaps and positions in the text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transexplain.analysis.groups.class_totals import ClassKey, MeanHeatmap, SeenTotals
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports import charts
from transexplain.reports.charts import Drawing, Series, Stroke, stroke
from transexplain.reports.heatmap import Grid, data_uri, grid_of, tile
from transexplain.reports.phrasing import encodable
from transexplain.reports.redaction import (
    RedactionRules,
    Redactor,
    at_least,
    inside,
    kept,
    within,
)
from transexplain.reports.report_section import Section
from transexplain.reports.sections.rare_words import RULES as RARE_WORDS
from transexplain.reports.sections.rare_words import (
    Overlap,
    RareWord,
    cloud,
    plane,
    rare_words,
    says_little,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionPart:
    """One of the equal stretches that every text of a class is cut into, over all texts."""

    mean: float | None  #: relevance per position, in the unit; None: no text has one here
    mean_size: float | None  #: |relevance| per position
    positions: int  #: averaged over
    texts: int  #: that have a position here


@dataclass(frozen=True, kw_only=True, slots=True)
class WordRow:
    """One word over all items of a class."""

    word: str  #: lower case; the name of a node as it is
    mean: float  #: relevance per mention
    total: float
    mentions: int
    documents: int
    magnitude: float  #: sum of |relevance|
    function: bool = False  #: punctuation or a function word; listed after the others


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassView:
    """The words and places that the model looks at when one class is explained."""

    target: str
    class_name: str
    items: int
    mean_logit: float
    minimum: int  #: documents that a word must be in to be listed
    raising_by_mean: tuple[WordRow, ...]
    raising_by_total: tuple[WordRow, ...]
    lowering_by_mean: tuple[WordRow, ...]
    lowering_by_total: tuple[WordRow, ...]
    heatmap: Grid | None  #: mean relevance, rows x cols; images only
    rare: tuple[RareWord, ...] = ()  #: top words by mean relevance x rarity; texts only
    rare_overlap: tuple[Overlap, ...] = ()  #: with other classes, the largest first; none of 0
    rare_shared: float | None = None  #: share of `rare` that any other has; None: none to compare
    #: words of the largest |mean x rarity|, raising and lowering ones; texts only
    weighted: tuple[RareWord, ...] = ()
    #: from the beginning of a text to its end; empty: a picture, or not measured (an older run)
    positions: tuple[PositionPart, ...] = ()


WORDS = 10  #: in each list
CLASSES = 24  #: (target, class) pairs shown
MINIMUM = 5  #: documents that a word must be in, in a corpus large enough
_SMALL = 100  # items; with fewer, two documents are enough


def views(
    total: ShardAggregate, seen: SeenTotals, targets: Sequence[str], modality: str = "text"
) -> tuple[tuple[ClassView, ...], int]:
    """A view of each (target, class), by target as requested, then the most frequent class first.

    Of graphs names of nodes take the place of words; they stand in no order. The second value
    counts the pairs left out.
    """
    place = {target: number for number, target in enumerate(targets)}
    keys = sorted(
        {*total.class_keys, *seen.count},
        key=lambda key: (place.get(key[0], len(place)), -seen.count[key], key),
    )
    grids = sorted(total.heatmaps(), key=lambda grid: grid.count)
    heatmaps = {(grid.target, grid.class_name): grid for grid in grids}  # of the most frequent size
    minimum = MINIMUM if total.items >= _SMALL else 2
    shown = sorted(sorted(keys, key=lambda key: -seen.count[key])[:CLASSES], key=keys.index)
    rare = rare_words(shown, total, seen.count, minimum)
    shown_views = tuple(
        _view(total, seen, key, heatmaps.get(key), minimum, words, of_text=modality == "text")
        for key, words in zip(shown, rare, strict=True)
    )
    return shown_views, len(keys) - len(shown)


def _view(
    total: ShardAggregate,
    seen: SeenTotals,
    key: ClassKey,
    heatmap: MeanHeatmap | None,
    minimum: int,
    rare: Mapping[str, Any],
    *,
    of_text: bool,
) -> ClassView:
    words = [
        WordRow(
            word=word.word,
            mean=word.relevance / word.mentions,
            total=word.relevance,
            mentions=word.mentions,
            documents=word.documents,
            magnitude=word.magnitude,
            function=of_text and says_little(word.word),
        )
        for word in total.words(*key)
        if word.documents >= minimum
    ]
    return ClassView(
        target=key[0],
        class_name=key[1],
        items=seen.count[key],
        mean_logit=seen.mean_logit(key),
        minimum=minimum,
        raising_by_mean=_top(words, lambda word: word.mean),
        raising_by_total=_top(words, lambda word: word.total),
        lowering_by_mean=_top(words, lambda word: -word.mean),
        lowering_by_total=_top(words, lambda word: -word.total),
        heatmap=grid_of(heatmap.relevance) if heatmap else None,
        **rare,
        positions=tuple(
            PositionPart(
                mean=part.relevance / part.positions if part.positions else None,
                mean_size=part.magnitude / part.positions if part.positions else None,
                positions=part.positions,
                texts=part.texts,
            )
            for part in (total.positions(*key) if of_text else ())
        ),
    )


def _top(words: Sequence[WordRow], number: Callable[[WordRow], float]) -> tuple[WordRow, ...]:
    """The words with the largest positive number, ties by the word itself.

    Punctuation and function words do not head a list: those that would be among its words follow
    them, and words that say more take their places.
    """
    ranked = sorted((word for word in words if number(word) > 0.0), key=lambda w: w.word)
    ranked.sort(key=number, reverse=True)
    telling = [word for word in ranked if not word.function][:WORDS]
    return (*telling, *(word for word in ranked[:WORDS] if word.function))


def _minimum(value: int, _view: ClassView, redactor: Redactor) -> int:
    return max(value, redactor.fewest)


def _omitted(value: int, summary: Any, redactor: Redactor) -> int:
    classes: tuple[ClassView, ...] = summary.classes
    return value + sum(class_name.items < redactor.fewest for class_name in classes)


_RULES: Mapping[type, RedactionRules] = {
    ClassView: RedactionRules(
        stands=at_least("items"),
        fields={
            "minimum": _minimum,
            **inside(
                "raising_by_mean raising_by_total lowering_by_mean lowering_by_total "
                "rare rare_overlap weighted positions"
            ),
            **kept("target class_name items mean_logit heatmap rare_shared"),
        },
    ),
    WordRow: RedactionRules(
        stands=at_least("documents"),
        fields=kept("word mean total mentions documents magnitude function"),
    ),
    PositionPart: RedactionRules(fields=kept("mean mean_size positions texts")),
    **RARE_WORDS,
}


def _word_lists(view: ClassView) -> Iterator[dict[str, Any]]:
    """The lists of top words: each with its title, what it is by, its sign, and its largest."""
    for title, by, sign, rows in (
        ("Raise it, per mention", "mean", "pos", view.raising_by_mean),
        ("Raise it, in total", "total", "pos", view.raising_by_total),
        ("Lower it, per mention", "mean", "neg", view.lowering_by_mean),
        ("Lower it, in total", "total", "neg", view.lowering_by_total),
    ):
        largest = max((abs(getattr(row, by)) for row in rows), default=0.0)
        yield {"title": title, "by": by, "sign": sign, "rows": rows, "largest": largest}


def mean_heatmap(grid: Grid, scale: float) -> str:
    """The mean heatmap of a class as a `data:` address."""
    return data_uri(tile(np.asarray(grid), width=208, scale=scale))


def positions(view: ClassView, name: str) -> Drawing | None:
    """Mean relevance by place in the text; None where it was not measured.

    Args:
        view: of the class.
        name: what the class is called in a sentence.
    """
    parts = [part for part in view.positions if part.positions]
    if not parts:
        return None
    count = len(view.positions)
    centres = tuple((number + 0.5) / count for number in range(count))
    means = Series(
        x=centres,
        y=tuple(part.mean for part in view.positions),
        stroke=Stroke(colour="var(--ink)", dash=(1, 0)),
        name="relevance",
    )
    sizes = Series(
        x=centres,
        y=tuple(part.mean_size for part in view.positions),
        stroke=stroke(0, "random"),
        name="size of relevance, whatever its sign",
    )
    first, last = parts[0].mean or 0.0, parts[-1].mean or 0.0
    return charts.line_drawing(
        [means, sizes],
        x_title="share of the text before",
        y_title="mean of a position",
        label=f"Mean relevance for {encodable(name)} by place in the text: {first:+.3f} at the "
        f"beginning, {last:+.3f} at the end; the numbers are in the table beside it.",
    )


def _drawing(report: Any) -> Mapping[str, Any]:
    grids = {place: view.heatmap for place, view in enumerate(report.classes) if view.heatmap}
    scales: dict[str, float] = {}  # target -> its largest |mean relevance| of a patch in any class
    for place, grid in grids.items():
        target = report.classes[place].target
        scales[target] = max(scales.get(target, 0.0), *(abs(cell) for row in grid for cell in row))
    heatmaps = {
        place: mean_heatmap(grid, scales[report.classes[place].target])
        for place, grid in grids.items()
    }
    return {
        "heatmaps": heatmaps,
        "word_lists": lambda view: list(_word_lists(view)),
        "plane_of": plane,
        "cloud_of": cloud,
        "positions_of": positions,
    }


SECTION = Section(
    template="classes.html.j2",
    links=(("classes", "Classes"),),
    redaction=_RULES,
    of_summary={"classes": within, "classes_omitted": _omitted},
    present=lambda report: bool(report.classes),
    drawing=_drawing,
)
