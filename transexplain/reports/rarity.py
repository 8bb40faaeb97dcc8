"""What is particular to a class: its words weighted by rarity, set against other classes'."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from transexplain.bias.aggregates import ShardAggregate
from transexplain.reports.class_records import ClassView, Overlap, RareWord

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
