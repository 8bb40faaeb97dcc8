"""The drawings of one class: its words as a cloud, and its relevance by place in the text."""

from collections.abc import Sequence
from dataclasses import dataclass

from transexplain.reports import live
from transexplain.reports.charts import Series, Stroke, stroke
from transexplain.reports.class_records import ClassView
from transexplain.reports.escaping import encodable
from transexplain.reports.live import Drawing

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
    return live.lines(
        [means, sizes],
        x_title="share of the text before",
        y_title="mean of a position",
        label=f"Mean relevance for {encodable(name)} by place in the text: {first:+.3f} at the "
        f"beginning, {last:+.3f} at the end; the numbers are in the table beside it.",
    )


def _span(values: Sequence[float]) -> float:
    return (max(values) - min(values)) or 1.0
