"""Token overlap: how many top words of one class are top words of another class, too.

The protocol is reconstructed from a description of Hou and Castanon 2023, section 3.2: the top
words of every class, weighted by inverse document frequency, should be other words than those of
the other classes. Classes about different things differ in their words whatever is explained, so
a value is read beside that of random relevance on the same items.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import fsum, log
from typing import Any

import numpy as np

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import Case, Scored, unmeasured

#: how many words are listed for each class, the axis of the curve
COUNTS = (5, 10, 20, 30, 40, 50, 75, 100)
#: words of each class that a reader is shown
SHOWN = 10


def token_overlap(case: Case, *, keep: int = 20) -> Scored:
    """What `overlap` needs of one item; the item alone has no value.

    The detail holds its class, its distinct words in lower case, those of most relevance first,
    and the relevance of the first `keep` (the sum over all places where a word stands). Words of
    no or negative relevance do not speak for the class: they are listed, but none is kept. Raises
    ConfigurationError.
    """
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
        raise ConfigurationError(f"keep is a whole number of at least 1, not {keep!r}")
    sums: dict[str, float] = defaultdict(float)
    for word in case.attribution.words():
        sums[word.text.strip().lower()] += word.relevance
    ordered = sorted(sums, key=lambda word: (-sums[word], word))
    kept = [sums[word] for word in ordered[:keep] if sums[word] > 0]
    if not ordered:
        return unmeasured("the item comes without words")
    return Scored(
        value=None,
        detail={"class": case.attribution.class_name, "words": ordered, "relevance": kept},
    )


def overlap(details: Sequence[Mapping[str, Any]]) -> Scored:
    """The mean share of words that the lists of two classes have in common, lower is better.

    A word's score for a class is the sum of its kept relevance over the items of that class, times
    log(N / n): n of all N items hold the word. Words of one item alone are left out: no two classes
    can share them, and as the rarest they would fill every list, whatever the method. At each of
    COUNTS the list of a class is its first k words of positive score, and the share is that of the
    shorter list of a pair (a class may have fewer than k words). The curve is the mean over the
    pairs of classes that have words, the value the mean of the curve; the detail holds the first
    words of every class. Details without words (items that failed) are left out.
    """
    given = [detail for detail in details if detail.get("words")]
    lists = _lists(given)
    if len(lists) < 2:
        return unmeasured("fewer than two classes have words that stand in several items")
    pairs = list(combinations(lists.values(), 2))
    curve = tuple(
        float(np.mean([_shared(one[:count], other[:count]) for one, other in pairs]))
        for count in COUNTS
    )
    shown = {name: words[:SHOWN] for name, words in lists.items()}
    return Scored(value=float(np.mean(curve)), curve=curve, detail=shown)


def _lists(details: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Per class its words of positive score, best first; classes without any are left out."""
    holding = Counter(word for detail in details for word in detail["words"])
    kept: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for detail in details:
        for word, relevance in zip(detail["words"], detail["relevance"], strict=False):
            kept[detail["class"]][word].append(relevance)
    lists = {}
    for name in sorted(kept):
        # exact sums: the order of the items makes no difference
        scores = {
            word: fsum(parts) * log(len(details) / holding[word])
            for word, parts in kept[name].items()
            if holding[word] > 1
        }
        positive = [word for word, score in scores.items() if score > 0]
        lists[name] = sorted(positive, key=lambda word: (-scores[word], word))
    return {name: words for name, words in lists.items() if words}


def _shared(one: Sequence[str], other: Sequence[str]) -> float:
    return len(set(one) & set(other)) / min(len(one), len(other))
