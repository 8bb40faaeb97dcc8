"""What the model looks at, class by class, with words weighted by rarity, and how its predictions
meet the labels.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from transexplain.analysis.groups.class_totals import ClassKey, MeanHeatmap, PartTotal, SeenTotals
from transexplain.analysis.groups.shard_aggregate import ShardAggregate, WordTotal
from transexplain.reports.gallery import grid_of
from transexplain.reports.row_records import (
    ClassView,
    Confusion,
    Overlap,
    PositionPart,
    RareWord,
    WordRow,
)

TOP = 20  #: words of a class
RAISING, LOWERING = 40, 20  #: words of a class in its drawings


@dataclass(frozen=True, slots=True)
class _Corpus:
    """In how many explanations for one target every word is, whatever the class."""

    explanations: int
    documents: Counter[str]

    def rarity(self, word: str) -> float:
        return math.log(self.explanations / self.documents[word])


def with_rare_words(
    views: Sequence[ClassView], total: ShardAggregate, explained: Counter[tuple[str, str]]
) -> tuple[ClassView, ...]:
    """`views` with each class's words by mean relevance x rarity, and what classes share of them.

    The rarity of a word is its inverse document frequency, ln(N / documents), natural logarithm
    (Spaerck Jones, 1972): N is the number of explanations for the target over all its classes,
    documents is how many of them are of a text with the word. A word of every text weighs 0 and is
    left out, and so is one that on average lowers the class. Classes are compared within targets
    of the same kind (`predicted`; all `class:` targets together).

    Args:
        views: of the classes that a report shows.
        total: the aggregates of the run.
        explained: (target, class) -> explanations.
    """
    corpora = {
        target: _corpus(target, total, explained) for target in {view.target for view in views}
    }
    weighed = [_weighed(view, total, corpora[view.target]) for view in views]
    ranked = [tuple(word for word in words if word.score > 0.0)[:TOP] for words in weighed]
    return tuple(
        _compared(
            replace(view, weighted=_ends(words)), ranked[place], _others(place, views, ranked)
        )
        for place, (view, words) in enumerate(zip(views, weighed, strict=True))
    )


def _corpus(target: str, total: ShardAggregate, explained: Counter[tuple[str, str]]) -> _Corpus:
    documents: Counter[str] = Counter()
    for key in total.class_keys:
        if key[0] == target:
            for one in total.words(*key):
                documents[one.word] += one.documents
    return _Corpus(sum(count for key, count in explained.items() if key[0] == target), documents)


def _weighed(view: ClassView, total: ShardAggregate, corpus: _Corpus) -> list[RareWord]:
    """The words of `view` that weigh anything, largest score first, ties by the word itself."""
    found = []
    for one in total.words(view.target, view.class_name):
        mean, rarity = one.relevance / one.mentions, corpus.rarity(one.word)
        if one.documents >= view.minimum and mean * rarity != 0.0:
            found.append(
                RareWord(
                    word=one.word,
                    score=mean * rarity,
                    mean=mean,
                    rarity=rarity,
                    mentions=one.mentions,
                    documents=one.documents,
                )
            )
    return sorted(found, key=lambda word: (-word.score, word.word))


def _ends(words: Sequence[RareWord]) -> tuple[RareWord, ...]:
    """The words that raise the class most, then those that lower it most."""
    raising = [word for word in words if word.score > 0.0][:RAISING]
    return (*raising, *[word for word in words if word.score < 0.0][-LOWERING:])


_Others = list[tuple[ClassView, frozenset[str]]]


def _others(
    place: int, views: Sequence[ClassView], ranked: Sequence[tuple[RareWord, ...]]
) -> _Others:
    kind = _kind(views[place].target)
    return [
        (view, frozenset(word.word for word in words))
        for number, (view, words) in enumerate(zip(views, ranked, strict=True))
        if number != place and _kind(view.target) == kind
    ]


def _compared(view: ClassView, words: tuple[RareWord, ...], others: _Others) -> ClassView:
    marked = tuple(
        replace(
            word, also=tuple(other.class_name for other, theirs in others if word.word in theirs)
        )
        for word in words
    )
    if not marked or not others:
        return replace(view, rare=marked)
    shares = [
        Overlap(
            target=other.target,
            class_name=other.class_name,
            share=sum(word.word in theirs for word in words) / len(words),
        )
        for other, theirs in others
    ]
    shares.sort(key=lambda one: -one.share)
    return replace(
        view,
        rare=marked,
        rare_overlap=tuple(one for one in shares if one.share),
        rare_shared=sum(bool(word.also) for word in marked) / len(marked),
    )


def _kind(target: str) -> str:
    return target.partition(":")[0]


WORDS = 10  #: in each list
CLASSES = 24  #: (target, class) pairs shown
MINIMUM = 5  #: documents that a word must be in, in a corpus large enough
_SMALL = 100  # items; below, two documents are enough
_CONFUSION = 16  # labels and predicted classes in the table


def views(
    total: ShardAggregate, seen: SeenTotals, targets: Sequence[str]
) -> tuple[tuple[ClassView, ...], int]:
    """A view of each (target, class), by target as asked, then the most frequent class first.

    The second value counts the pairs left out.
    """
    place = {target: number for number, target in enumerate(targets)}
    keys = sorted(
        {*total.class_keys, *seen.count},
        key=lambda key: (place.get(key[0], len(place)), -seen.count[key], key),
    )
    heatmaps = _most_frequent(total.heatmaps())
    minimum = MINIMUM if total.items >= _SMALL else 2
    shown = sorted(sorted(keys, key=lambda key: -seen.count[key])[:CLASSES], key=keys.index)
    found = [_view(total, seen, key, heatmaps.get(key), minimum) for key in shown]
    return with_rare_words(found, total, seen.count), len(keys) - len(shown)


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
        tuple(predictions.get((label or None, said), 0) for said in answers) for label in labels
    )
    inside = sum(map(sum, counts))
    return Confusion(
        labels=labels,
        predicted=answers,
        counts=counts,
        omitted=sum(predictions.values()) - inside,
    )


def _view(
    total: ShardAggregate,
    seen: SeenTotals,
    key: ClassKey,
    heatmap: MeanHeatmap | None,
    minimum: int,
) -> ClassView:
    words = [_word(one) for one in total.words(*key) if one.documents >= minimum]
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
        positions=tuple(_part(one) for one in total.positions.parts(*key)),
    )


def _part(one: PartTotal) -> PositionPart:
    return PositionPart(
        mean=one.relevance / one.positions if one.positions else None,
        mean_size=one.magnitude / one.positions if one.positions else None,
        positions=one.positions,
        texts=one.texts,
    )


def _word(one: WordTotal) -> WordRow:
    return WordRow(
        word=one.word,
        mean=one.relevance / one.mentions,
        total=one.relevance,
        mentions=one.mentions,
        documents=one.documents,
    )


def _top(words: Sequence[WordRow], number: Callable[[WordRow], float]) -> tuple[WordRow, ...]:
    """The words with the largest positive number, ties by the word itself."""
    ranked = sorted((word for word in words if number(word) > 0.0), key=lambda w: w.word)
    return tuple(sorted(ranked, key=number, reverse=True)[:WORDS])


def _most_frequent(heatmaps: Sequence[MeanHeatmap]) -> Mapping[ClassKey, MeanHeatmap]:
    """One heatmap per class: of the grid that most pictures had."""
    found: dict[ClassKey, MeanHeatmap] = {}
    for one in sorted(heatmaps, key=lambda heatmap: heatmap.count):
        found[one.target, one.class_name] = one
    return found
