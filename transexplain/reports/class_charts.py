"""The drawings of one class: its words as a cloud and on a plane, and its relevance by place in
the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from transexplain.reports import charts
from transexplain.reports.charts import Drawing, Series, Stroke, stroke
from transexplain.reports.escaping import encodable
from transexplain.reports.row_records import ClassView, RareWord

if TYPE_CHECKING:
    import altair as alt


_LABELLED = 14  #: words that are named at most
_LONGEST = 18  #: characters of such a name
#: of the plane's width and height: a name takes as much for each character, and for its line
_LETTER, _LINE = 0.03, 0.1


def plane(view: ClassView, name: str) -> Drawing | None:
    """Words by rarity and mean relevance, sized by their texts; None where there are few.

    Args:
        view: of the class.
        name: what the class is called in a sentence.
    """
    words = view.weighted
    if len(words) < 3:
        return None
    strongest = max(words, key=lambda word: abs(word.mean))
    return Drawing(
        label=f"{len(words)} words of {encodable(name)} by rarity and mean relevance; the "
        f"strongest is {encodable(strongest.word)} with {strongest.mean:+.2f}.",
        still=charts.drawn(_plane(words, live=False)),
        specification=charts.specification(_plane(words, live=True)),
    )


def _plane(words: Sequence[RareWord], *, live: bool) -> "alt.LayerChart":
    import altair as alt

    layers = alt.layer(_zero(live=live), _dots(words, live=live), _names(words, live=live))
    return charts.sized(cast("alt.LayerChart", layers))


def _base(words: Sequence[RareWord]) -> "alt.Chart":
    import altair as alt

    across = alt.X(
        "x:Q",
        title="rarity",
        axis=alt.Axis(format="~g", tickCount=6),
        scale=alt.Scale(zero=False, padding=36),
    )
    up = alt.Y(
        "y:Q",
        title="mean relevance",
        axis=alt.Axis(tickCount=6),
        scale=alt.Scale(padding=18),
    )
    return alt.Chart({"values": _values(words)}).encode(x=across, y=up)


def _values(words: Sequence[RareWord]) -> list[dict[str, Any]]:
    return [
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


def _dots(words: Sequence[RareWord], *, live: bool) -> "alt.Chart":
    """Filled or hollow by sign: colour is not all that tells it, even after a zoom."""
    import altair as alt

    signs = alt.Scale(domain=[True, False], range=["var(--pos)", "var(--neg)"])
    dots = _base(words).mark_point(opacity=0.75, aria=False, clip=live, strokeWidth=1.5)
    found: alt.Chart = dots.encode(
        color=alt.Color("raises:N", legend=None, scale=signs),
        fill=alt.Fill("raises:N", legend=None, scale=signs),
        fillOpacity=alt.condition("datum.raises", alt.value(0.55), alt.value(0.1)),
        size=alt.Size("texts:Q", legend=None, scale=alt.Scale(type="sqrt", range=[24, 260])),
    )
    if not live:
        return found
    chart = found.encode(
        tooltip=[
            alt.Tooltip("word:N", title="word"),
            alt.Tooltip("y:Q", title="mean relevance", format="+.3f"),
            alt.Tooltip("x:Q", title="rarity", format=".2f"),
            alt.Tooltip("texts:Q", title="texts", format=","),
        ]
    )
    return chart.add_params(charts.zoom())


def _names(words: Sequence[RareWord], *, live: bool) -> "alt.Chart":
    import altair as alt

    names = _base(_named(words)).mark_text(
        dy=-11, fontSize=11.5, aria=False, clip=live, stroke="var(--page)", strokeWidth=3
    )
    found: alt.Chart = names.encode(text="name:N", color=alt.value("var(--ink)"))
    return found


def _zero(*, live: bool) -> "alt.Chart":
    import altair as alt

    rule = alt.Chart({"values": [{"y": 0}]}).mark_rule(color="var(--faint)", aria=False, clip=live)
    found: alt.Chart = rule.encode(y="y:Q")
    return found


def _short(word: str) -> str:
    text = encodable(word)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _named(words: Sequence[RareWord]) -> list[RareWord]:
    """The words of the largest |score| whose names do not run into each other."""
    across = _extent([word.rarity for word in words])
    up = _extent([*(word.mean for word in words), 0.0])
    taken: list[tuple[float, float, float]] = []
    found: list[RareWord] = []
    for word in sorted(words, key=lambda one: (-abs(one.score), one.word)):
        x, y = word.rarity / across, word.mean / up
        half = _LETTER * len(_short(word.word)) / 2
        if all(abs(x - a) > half + b or abs(y - c) > _LINE for a, b, c in taken):
            taken.append((x, half, y))
            found.append(word)
        if len(found) == _LABELLED:
            break
    return found


def _extent(values: Sequence[float]) -> float:
    return (max(values) - min(values)) or 1.0


_SIZES = 5  #: of type, in the cloud


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudWord:
    """One word of a cloud."""

    word: str
    size: int  #: 1 to 5
    score: float  #: mean x rarity
    documents: int


def cloud(view: ClassView) -> tuple[CloudWord, ...]:
    """The words that raise a class, in alphabetical order, sized by mean x rarity.

    Sizes part the range of the words shown into equal steps.
    """
    words = [word for word in view.weighted if word.score > 0.0]
    least = min((word.score for word in words), default=0.0)
    span = _span([word.score for word in words]) if words else 1.0
    return tuple(
        CloudWord(
            word=word.word,
            size=1 + round((_SIZES - 1) * (word.score - least) / span),
            score=word.score,
            documents=word.documents,
        )
        for word in sorted(words, key=lambda one: (one.word.casefold(), one.word))
    )


def colour(view: ClassView, classes: Sequence[str], place: int) -> str:
    """The colour of a class, a CSS value; the same for every target."""
    known = view.class_name in classes
    return stroke(classes.index(view.class_name) if known else place).colour


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
        stroke=Stroke(colour="var(--of)", dash=(1, 0)),  # the class's own, from its block
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


def _span(values: Sequence[float]) -> float:
    return (max(values) - min(values)) or 1.0
