"""The relevance of each class: lists of words, also weighted by rarity, and places in the text."""

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from transexplain.analysis.groups.shard_aggregate import (
    ClassKey,
    MeanHeatmap,
    SeenTotals,
    ShardAggregate,
)
from transexplain.reports import charts
from transexplain.reports.charts import Drawing, Series, Stroke, stroke
from transexplain.reports.heatmap import Grid, data_uri, grid_of, tile
from transexplain.reports.phrasing import encodable
from transexplain.reports.redaction import (
    published,
    within,
)
from transexplain.reports.report_section import Section

#: articles, pronouns, prepositions, conjunctions and auxiliaries; no negation, no quantity and no
#: word of degree is among them, since these carry what a classifier may rest on
_LISTED = """
a an the this that these those
i me my mine myself we us our ours ourselves you your yours yourself yourselves
he him his himself she her hers herself it its itself they them their theirs themselves
who whom whose which what one oneself
about above across after against along among around as at before behind below beneath beside
between beyond by during for from in inside into like near of off on onto out outside over
past per since through throughout to toward towards under until up upon via with within
and or if because while whereas although though so than then when where whether how why there
be am is are was were been being do does did doing done have has had having
can could may might must shall should will would
s 's t 't d 'd ll 'll m 'm re 're ve 've
"""
_FUNCTION_WORDS = frozenset(_LISTED.split())


def says_little(word: str) -> bool:
    """Return whether a word is punctuation or a function word; lists of words show it last."""
    bare = word.strip().casefold()
    if bare in _FUNCTION_WORDS:
        return True
    return not any(unicodedata.category(letter)[0] in "LN" for letter in bare)


@dataclass(frozen=True, kw_only=True, slots=True)
class RareWord:
    """One word of a class, weighted by how rare it is."""

    word: str  #: lower case
    score: float  #: mean x rarity
    mean: float  #: relevance per mention, in the unit
    rarity: float  #: inverse document frequency over all classes: ln(N / documents)
    mentions: int  #: in explanations of this class
    documents: int  #: of this class
    also: tuple[str, ...] = ()  #: other classes that have it among their top words


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """The words that a class shares with another."""

    target: str
    class_name: str
    share: float  #: of the class's top words that are top words of this one


TOP = 20  #: words of a class
RAISING, LOWERING = 40, 20  #: words of a class in its drawings


def rare_words(
    keys: Sequence[ClassKey], total: ShardAggregate, explained: Counter[ClassKey], minimum: int
) -> list[dict[str, Any]]:
    """The fields of each `ClassView` on its words by mean relevance x rarity, and those shared.

    The rarity of a word is its inverse document frequency, ln(N / documents), natural logarithm
    (Spaerck Jones, 1972): N is the number of explanations for the target over all its classes,
    documents is how many of them are of a text with the word. A word of every text weighs 0 and is
    left out, and so is one that on average lowers the class. Classes are compared within targets
    of the same kind (`predicted`; all `class:` targets together).

    Args:
        keys: (target, class) of the classes that a report shows.
        total: the aggregates of the run.
        explained: (target, class) -> explanations.
        minimum: documents that a word must be in.
    """
    targets = {target: _documents(target, total) for target, _ in keys}
    counts = {
        target: sum(count for key, count in explained.items() if key[0] == target)
        for target in targets
    }
    weighed = [_weighed(key, total, counts[key[0]], targets[key[0]], minimum) for key in keys]
    ranked = [tuple(word for word in words if word.score > 0.0)[:TOP] for words in weighed]
    fields = []
    for place, words in enumerate(weighed):
        kind = keys[place][0].partition(":")[0]
        others = [
            (key, frozenset(word.word for word in theirs))
            for number, (key, theirs) in enumerate(zip(keys, ranked, strict=True))
            if number != place and key[0].partition(":")[0] == kind
        ]
        raising = [word for word in words if word.score > 0.0][:RAISING]
        lowering = [word for word in words if word.score < 0.0][-LOWERING:]
        fields.append({"weighted": (*raising, *lowering), **_compared(ranked[place], others)})
    return fields


def _documents(target: str, total: ShardAggregate) -> Counter[str]:
    """In how many explanations for a target every word is, whatever the class."""
    documents: Counter[str] = Counter()
    for key in total.class_keys:
        if key[0] == target:
            for word in total.words(*key):
                documents[word.word] += word.documents
    return documents


def _weighed(
    key: ClassKey,
    total: ShardAggregate,
    explanations: int,
    documents: Counter[str],
    minimum: int,
) -> list[RareWord]:
    """The words of a class that weigh anything, largest score first, ties by the word itself."""
    weighed = []
    for totals in total.words(*key):
        mean = totals.relevance / totals.mentions
        rarity = math.log(explanations / documents[totals.word])
        if totals.documents >= minimum and mean * rarity != 0.0:
            weighed.append(
                RareWord(
                    word=totals.word,
                    score=mean * rarity,
                    mean=mean,
                    rarity=rarity,
                    mentions=totals.mentions,
                    documents=totals.documents,
                )
            )
    return sorted(weighed, key=lambda word: (-word.score, word.word))


def _compared(
    words: tuple[RareWord, ...], others: Sequence[tuple[ClassKey, frozenset[str]]]
) -> dict[str, Any]:
    """The top words of a class with the other classes that have them, and how many each has."""
    marked = tuple(
        replace(
            word,
            also=tuple(class_name for (_, class_name), theirs in others if word.word in theirs),
        )
        for word in words
    )
    if not marked or not others:
        return {"rare": marked}
    shares = [
        Overlap(
            target=target,
            class_name=class_name,
            share=sum(word.word in theirs for word in words) / len(words),
        )
        for (target, class_name), theirs in others
    ]
    shares.sort(key=lambda overlap: -overlap.share)
    return {
        "rare": marked,
        "rare_overlap": tuple(share for share in shares if share.share),
        "rare_shared": sum(bool(word.also) for word in marked) / len(marked),
    }


_LABELS = 14  #: words that are named at most
_LONGEST = 18  #: characters of such a name
#: of the plane's width and height: a name takes as much for each character, and for its line
_LETTER, _LINE = 0.03, 0.1


def plane(words: Sequence[RareWord], name: str) -> Drawing | None:
    """Words by rarity and mean relevance, sized by their texts; None where there are few.

    `name` is what the class is called in a sentence. Dots are filled or hollow by sign, so that the
    sign does not rest on colour alone.
    """
    if len(words) < 3:
        return None
    strongest = max(words, key=lambda word: abs(word.mean))
    places = {
        "x": charts.axis("x", "rarity", charts.NUMBER, zero=False, padding=36),
        "y": charts.axis("y", "mean relevance", padding=18),
    }
    signs = charts.choices("raises", [True, False], ["var(--pos)", "var(--neg)"])
    shown = charts.tips(
        ("y", "mean relevance", "+.3f"),
        ("x", "rarity", ".2f"),
        ("texts", "texts", ","),
        word="word",
    )
    return charts.drawing(
        f"{len(words)} words of {encodable(name)} by rarity and mean relevance; the "
        f"strongest is {encodable(strongest.word)} with {strongest.mean:+.2f}.",
        {
            "data": {"values": [{"y": 0}]},
            "mark": {"type": "rule", "color": "var(--faint)"},
            "encoding": {"y": {"field": "y", "type": "quantitative"}},
        },
        {
            "data": _values(words),
            "mark": {"type": "point", "opacity": 0.75, "strokeWidth": 1.5},
            "encoding": {
                **places,
                "color": signs,
                "fill": signs,
                "fillOpacity": {"condition": {"test": "datum.raises", "value": 0.55}, "value": 0.1},
                "size": {
                    "field": "texts",
                    "type": "quantitative",
                    "legend": None,
                    "scale": {"type": "sqrt", "range": [24, 260]},
                },
                "tooltip": shown,
            },
            "params": [charts.ZOOM],
        },
        {
            "data": _values(_labelled(words)),
            "mark": {
                "type": "text",
                "dy": -11,
                "fontSize": 11.5,
                "stroke": "var(--page)",
                "strokeWidth": 3,
            },
            "encoding": {
                **places,
                "text": {"field": "name", "type": "nominal"},
                "color": {"value": "var(--ink)"},
            },
        },
    )


def _values(words: Sequence[RareWord]) -> charts.Spec:
    return {
        "values": [
            {
                "x": word.rarity,
                "y": word.mean,
                "texts": word.documents,
                "word": encodable(word.word),
                "name": _short(word.word),
                "raises": word.mean > 0,
            }
            for word in words
        ]
    }


def _labelled(words: Sequence[RareWord]) -> list[RareWord]:
    """The words of the largest scores whose names have room beside each other."""
    across = _extent([word.rarity for word in words])
    up = _extent([*(word.mean for word in words), 0.0])
    taken: list[tuple[float, float, float]] = []
    labelled: list[RareWord] = []
    for word in sorted(words, key=lambda rare: (-abs(rare.score), rare.word)):
        x, y = word.rarity / across, word.mean / up
        half = _LETTER * len(_short(word.word)) / 2
        if all(abs(x - a) > half + b or abs(y - c) > _LINE for a, b, c in taken):
            taken.append((x, half, y))
            labelled.append(word)
    return labelled[:_LABELS]


def _short(word: str) -> str:
    text = encodable(word)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _extent(values: Sequence[float]) -> float:
    return (max(values) - min(values)) or 1.0


_SIZES = 5  #: of type, in the cloud


def cloud(words: Sequence[RareWord]) -> list[tuple[RareWord, int]]:
    """Those of `words` that raise their class, in alphabetical order, with their size of type.

    Punctuation and function words are not among them.
    """
    raising = [word for word in words if word.score > 0.0 and not says_little(word.word)]
    raising.sort(key=lambda rare: (rare.word.casefold(), rare.word))
    return list(zip(raising, type_sizes([word.score for word in raising]), strict=True))


def type_sizes(scores: Sequence[float]) -> list[int]:
    """Of the words of a cloud, 1 to 5: equal steps between the least and the largest score."""
    least, extent = min(scores, default=0.0), _extent(scores) if scores else 1.0
    return [1 + round((_SIZES - 1) * (score - least) / extent) for score in scores]


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

    `name` is what the class is called in a sentence.
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
    redaction={
        ClassView: published(
            "target class_name heatmap",
            least="items",
            minimum=lambda value, _view, redactor: max(value, redactor.fewest),
        ),
        WordRow: published("word", least="documents"),
        PositionPart: published(),
        RareWord: published("word also", least="documents"),
        Overlap: published("target class_name"),
    },
    of_summary={
        "classes": within,
        "classes_omitted": lambda value, summary, redactor: (
            value + sum(view.items < redactor.fewest for view in summary.classes)
        ),
    },
    present=lambda report: bool(report.classes),
    drawing=_drawing,
)
