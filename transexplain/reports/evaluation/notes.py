"""How the numbers of an evaluation were made and what they cannot say, in short."""

from collections.abc import Iterator, Sequence

from transexplain.reports.evaluation.records import EvaluationSummary, Table
from transexplain.reports.evaluation.statistics import FEWEST
from transexplain.reports.evaluation.together import HALVES

_BASELINES = {
    ("auto", "text"): "the mask token, else the unknown token, else padding (auto)",
    ("mask", "text"): "the mask token",
    ("unk", "text"): "the unknown token",
    ("pad", "text"): "the padding token",
    ("remove", "text"): "nothing: hidden tokens are not attended to (remove)",
    ("auto", "image"): "0 in the model's input, the mean colour (auto)",
    ("mean", "image"): "0 in the model's input, the mean colour",
    ("black", "image"): "black",
    ("blur", "image"): "the picture, blurred",
}


def baseline(name: str, modality: str) -> str:
    """What stands in the place of hidden positions, in words."""
    return _BASELINES.get((name, modality), f"token {name}" if name.isdigit() else name)


def notes(summary: EvaluationSummary) -> tuple[str, ...]:
    """One paragraph each on what the numbers are and what they rest on."""
    return tuple(_notes(summary))


def _notes(summary: EvaluationSummary) -> Iterator[str]:
    evaluated, tables = summary.evaluated, summary.tables
    stand_ins = {baseline(t.baseline, evaluated.modality) for t in tables if t.baseline}
    if stand_ins:
        yield (
            "Curves ask the model about items of which a part is hidden, and the numbers depend on "
            f"what stands in the place of what is hidden. Here: {'; '.join(sorted(stand_ins))}."
        )
    yield (
        "Intervals are 95\u00a0% percentile bootstrap intervals over items, "
        f"{evaluated.resamples:,} resamples, seed {evaluated.seed}; with fewer than {FEWEST} items "
        "there is none. They say how much a mean would move with other items of this kind, not "
        "with another model."
    )
    yield (
        "Differences are to the method of the best mean among those that were measured on at least "
        "half as many items as the most measured one, item by item, on the items that both have. "
        "P-values permute the signs of the differences (all of them, or "
        f"{evaluated.permutations:,} draws) and are adjusted over the methods of a table by "
        "Benjamini and Hochberg, not over metrics. The best was chosen by the same items that it "
        "is compared on, so a narrow lead is a little overstated."
    )
    yield from _special(tables)
    yield (
        "Random relevance is a floor: a method that does not beat it says nothing of where the "
        "model looks that a dice would not. The rationale that people marked (oracle) is no "
        "ceiling: a model may go by something else than people do."
    )


def _special(tables: Sequence[Table]) -> Iterator[str]:
    if any(table.corpus for table in tables):
        yield (
            "The interval of a metric whose value is of all items together comes from its values "
            f"on {HALVES} random halves of the items; its differences have one from the same "
            "halves and no p-value."
        )
    if len({row.items for table in tables for row in table.rows}) > 1:
        yield (
            "Methods were measured on different numbers of items, which stand in each row: means "
            "are over all of a method's items, differences over common ones."
        )
    if any(table.metric == "runtime" for table in tables):
        yield (
            "Runtime is an item's share of its batch's wall clock: items of a batch are no "
            "independent draws, so its intervals and p-values are too sure of themselves."
        )
