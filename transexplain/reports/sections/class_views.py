"""What the model looks at, class by class: its lists, its heatmaps and its redaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transexplain.reports import class_charts
from transexplain.reports.gallery import mean_heatmap
from transexplain.reports.redaction import RedactionRules, Redactor, at_least, kept, within
from transexplain.reports.report_section import Section
from transexplain.reports.row_records import ClassView, Overlap, PositionPart, RareWord, WordRow


def _minimum(value: int, _view: ClassView, redactor: Redactor) -> int:
    return max(value, redactor.fewest)


_RULES: Mapping[type, RedactionRules] = {
    ClassView: RedactionRules(
        stands=at_least("items"),
        fields={
            "minimum": _minimum,
            **dict.fromkeys(
                (
                    "raising_by_mean",
                    "raising_by_total",
                    "lowering_by_mean",
                    "lowering_by_total",
                    "rare",
                    "rare_overlap",
                    "weighted",
                    "positions",
                ),
                within,
            ),
            **kept("target class_name items mean_logit heatmap rare_shared"),
        },
    ),
    WordRow: RedactionRules(
        stands=at_least("documents"), fields=kept("word mean total mentions documents")
    ),
    RareWord: RedactionRules(
        stands=at_least("documents"),
        fields=kept("word score mean rarity mentions documents also"),
    ),
    Overlap: RedactionRules(fields=kept("target class_name share")),
    PositionPart: RedactionRules(fields=kept("mean mean_size positions texts")),
}


@dataclass(frozen=True, slots=True)
class WordList:
    """One list of top words."""

    title: str
    by: str  #: mean | total
    sign: str  #: pos | neg
    rows: tuple[WordRow, ...]
    largest: float


def _word_lists(view: ClassView) -> list[WordList]:
    return [
        _word_list("Raise it, per mention", "mean", "pos", view.raising_by_mean),
        _word_list("Raise it, in total", "total", "pos", view.raising_by_total),
        _word_list("Lower it, per mention", "mean", "neg", view.lowering_by_mean),
        _word_list("Lower it, in total", "total", "neg", view.lowering_by_total),
    ]


def _word_list(title: str, by: str, sign: str, rows: tuple[WordRow, ...]) -> WordList:
    largest = max((abs(getattr(row, by)) for row in rows), default=0.0)
    return WordList(title, by, sign, rows, largest)


def _heatmaps(views: Sequence[ClassView]) -> dict[int, str]:
    """Place of a class among `classes` -> its mean heatmap; all of a target on one scale."""
    found: dict[int, str] = {}
    for place, view in enumerate(views):
        if view.heatmap is not None:
            found[place] = mean_heatmap(view.heatmap, heatmap_scale(views, view.target))
    return found


def heatmap_scale(views: Sequence[ClassView], target: str) -> float:
    """The largest |mean relevance| of a patch in any class of `target`."""
    grids = [v.heatmap for v in views if v.heatmap and v.target == target]
    return max((abs(cell) for grid in grids for row in grid for cell in row), default=0.0)


def _drawing(report: Any) -> Mapping[str, Any]:
    return {
        "heatmaps": _heatmaps(report.classes),
        "word_lists": _word_lists,
        "class_charts": class_charts,
        "word_plane": class_charts,
    }


SECTION = Section(
    template="classes.html.j2",
    links=(("classes", "Classes"),),
    redaction=_RULES,
    present=lambda report: bool(report.classes),
    drawing=_drawing,
)
