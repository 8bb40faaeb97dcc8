"""Words of a class weighted by how rare they are: a table, a cloud and a plane."""

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from transexplain.analysis.groups.class_totals import ClassKey
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.reports import charts
from transexplain.reports.charts import Drawing
from transexplain.reports.phrasing import encodable
from transexplain.reports.redaction import RedactionRules, at_least, kept

if TYPE_CHECKING:
    import altair as alt


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


RULES: Mapping[type, RedactionRules] = {
    RareWord: RedactionRules(
        stands=at_least("documents"),
        fields=kept("word score mean rarity mentions documents also"),
    ),
    Overlap: RedactionRules(fields=kept("target class_name share")),
}


_LABELLED = 14  #: words that are named at most
_LONGEST = 18  #: characters of such a name
#: of the plane's width and height: a name takes as much for each character, and for its line
_LETTER, _LINE = 0.03, 0.1


@charts.unchecked
def plane(words: Sequence[RareWord], name: str) -> Drawing | None:
    """Words by rarity and mean relevance, sized by their texts; None where there are few.

    Args:
        words: of one class.
        name: what the class is called in a sentence.
    """
    if len(words) < 3:
        return None
    strongest = max(words, key=lambda word: abs(word.mean))
    return Drawing(
        label=f"{len(words)} words of {encodable(name)} by rarity and mean relevance; the "
        f"strongest is {encodable(strongest.word)} with {strongest.mean:+.2f}.",
        still=charts.drawn(_plane(words, interactive=False)),
        specification=charts.specification(_plane(words, interactive=True)),
    )


def _plane(words: Sequence[RareWord], *, interactive: bool) -> "alt.LayerChart":
    import altair as alt

    rule = alt.Chart({"values": [{"y": 0}]}).mark_rule(
        color="var(--faint)", aria=False, clip=interactive
    )
    layers = alt.layer(
        rule.encode(y="y:Q"),
        _dots(words, interactive=interactive),
        _names(words, interactive=interactive),
    )
    return charts.sized(cast("alt.LayerChart", layers))


def _base(words: Sequence[RareWord]) -> "alt.Chart":
    import altair as alt

    across = alt.X(
        "x:Q",
        title="rarity",
        axis=alt.Axis(format=charts.NUMBER, tickCount=6),
        scale=alt.Scale(zero=False, padding=36),
    )
    up = alt.Y(
        "y:Q",
        title="mean relevance",
        axis=alt.Axis(tickCount=6),
        scale=alt.Scale(padding=18),
    )
    values = [
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
    return alt.Chart({"values": values}).encode(x=across, y=up)


def _dots(words: Sequence[RareWord], *, interactive: bool) -> "alt.Chart":
    """Filled or hollow by sign, so that the sign does not rest on colour alone."""
    import altair as alt

    signs = alt.Scale(domain=[True, False], range=["var(--pos)", "var(--neg)"])
    dots = _base(words).mark_point(opacity=0.75, aria=False, clip=interactive, strokeWidth=1.5)
    points: alt.Chart = dots.encode(
        color=alt.Color("raises:N", legend=None, scale=signs),
        fill=alt.Fill("raises:N", legend=None, scale=signs),
        fillOpacity=alt.condition("datum.raises", alt.value(0.55), alt.value(0.1)),
        size=alt.Size("texts:Q", legend=None, scale=alt.Scale(type="sqrt", range=[24, 260])),
    )
    if not interactive:
        return points
    chart = points.encode(
        tooltip=[
            alt.Tooltip("word:N", title="word"),
            alt.Tooltip("y:Q", title="mean relevance", format="+.3f"),
            alt.Tooltip("x:Q", title="rarity", format=".2f"),
            alt.Tooltip("texts:Q", title="texts", format=","),
        ]
    )
    return chart.add_params(charts.zoom())


def _names(words: Sequence[RareWord], *, interactive: bool) -> "alt.Chart":
    import altair as alt

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
        if len(labelled) == _LABELLED:
            break
    names = _base(labelled).mark_text(
        dy=-11, fontSize=11.5, aria=False, clip=interactive, stroke="var(--page)", strokeWidth=3
    )
    labels: alt.Chart = names.encode(text="name:N", color=alt.value("var(--ink)"))
    return labels


def _short(word: str) -> str:
    text = encodable(word)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _extent(values: Sequence[float]) -> float:
    return (max(values) - min(values)) or 1.0


_SIZES = 5  #: of type, in the cloud


class CloudWord(NamedTuple):
    """One word of a cloud."""

    word: str
    size: int  #: 1 to 5
    score: float  #: mean x rarity
    documents: int


def cloud(words: Sequence[RareWord]) -> tuple[CloudWord, ...]:
    """Those of `words` that raise their class, in alphabetical order, sized by mean x rarity.

    Punctuation and function words are not among them. Sizes part the range of the words shown into
    equal steps.
    """
    raising = [word for word in words if word.score > 0.0 and not says_little(word.word)]
    raising.sort(key=lambda rare: (rare.word.casefold(), rare.word))
    sizes = type_sizes([word.score for word in raising])
    return tuple(
        CloudWord(word=word.word, size=size, score=word.score, documents=word.documents)
        for word, size in zip(raising, sizes, strict=True)
    )


def type_sizes(scores: Sequence[float]) -> list[int]:
    """Of the words of a cloud, 1 to 5: equal steps between the least and the largest score."""
    least, extent = min(scores, default=0.0), _extent(scores) if scores else 1.0
    return [1 + round((_SIZES - 1) * (score - least) / extent) for score in scores]
