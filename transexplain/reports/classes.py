"""What the model looks at, class by class, and how its predictions meet the labels."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from transexplain.bias.aggregates import ShardAggregate, WordTotal
from transexplain.bias.heatmap_totals import MeanHeatmap
from transexplain.bias.position_totals import PartTotal
from transexplain.bias.seen_totals import ClassKey, SeenTotals
from transexplain.reports.class_records import ClassView, Confusion, PositionPart, WordRow
from transexplain.reports.gallery import grid_of
from transexplain.reports.rarity import with_rare_words

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
