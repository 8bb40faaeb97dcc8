"""The single numbers of a run, by name: what a gate asks for, and what people draw over time."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from transexplain.analysis.groups.counterfactuals import Counterfactual
from transexplain.analysis.groups.measures import Measure
from transexplain.analysis.groups.outcomes import Outcome
from transexplain.reports.exports.run_facts import compared, state_counts, verdict_counts
from transexplain.reports.report_records import Summary
from transexplain.reports.summary import caveats
from transexplain.reports.verdict_words import gone, newly
from transexplain.types.findings import GroupStatistic


def largest_difference(summary: Summary) -> GroupStatistic | None:
    """The comparison of relevance with the largest |difference|; None: there is none."""
    return next((row for row in compared(summary.groups) if row.difference is not None), None)


def evenness(row: Outcome) -> float:
    """The smaller selection rate over the larger one; 1 where both are 0."""
    low, high = sorted((row.own.selected.share, row.other.selected.share))
    return low / high if high else 1.0


def outcomes_of(summary: Summary) -> Sequence[Outcome]:
    """The rates by group; nothing without groups."""
    return summary.groups.outcomes if summary.groups else ()


def most_uneven(summary: Summary) -> Outcome | None:
    """The favourable prediction with the least `evenness` among those of enough items."""
    judged = [row for row in outcomes_of(summary) if has_interval(row.measure("impact ratio"))]
    return min(judged, key=evenness, default=None)


def has_interval(measure: Measure | None) -> bool:
    """Return whether a measure rests on enough texts or items for an interval."""
    return measure is not None and measure.interval is not None


def widest_rates(summary: Summary) -> tuple[Outcome, Measure] | None:
    """The widest difference of rates, of predictions or of errors, among those of enough items."""
    differences = (
        (row, measure)
        for row in outcomes_of(summary)
        for measure in row.measures
        if has_interval(measure) and measure.name != "impact ratio"
    )
    return max(differences, key=lambda pair: abs(pair[1].value), default=None)


def largest_swap(
    summary: Summary, size: Callable[[Counterfactual], float]
) -> Counterfactual | None:
    """The comparison by swaps (or regions) with the largest |size| among those of enough texts."""
    rows = summary.groups.counterfactuals if summary.groups else ()
    known = [row for row in rows if row.enough]
    return max(known, key=lambda row: abs(size(row)), default=None)


def changed(row: Counterfactual) -> float:
    """The share of predictions that swapping changes, less that within a group; 0: of a number."""
    measure = row.measure("changed")
    return measure.value if measure else 0.0


def only_scores(summary: Summary) -> bool:
    """Return whether categories differ by scores alone: everybody is predicted one class."""
    return len(summary.audited.classes) == 1


def lowest_category(summary: Summary) -> float | None:
    """The lowest impact ratio of any category of people; None: no table compares any."""
    impact = summary.sections.get("impact")
    tables = impact.compared(scored=only_scores(summary)) if impact else ()
    return min((ratio for rows, why in tables if not why for ratio, _ in rows), default=None)


def unjudged(summary: Summary) -> list[str]:
    """Groups that are mentioned and that rates and swaps, or relevance, say nothing of."""
    if summary.groups is None:
        return []
    judged = {row.group for row in outcomes_of(summary) if any(map(has_interval, row.measures))}
    judged |= {row.group for row in summary.groups.counterfactuals if row.enough}
    names = [row.group for row in summary.groups.verdicts if row.group not in judged]
    few = {row.group for row in compared(summary.groups) if row.verdict != "suppressed"}
    names += [row.group for row in summary.groups.verdicts if row.group not in few]
    return list(dict.fromkeys(names))


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMetric:
    """One number of a run."""

    name: str  #: one of `METRICS`
    value: float
    target: str = ""  #: that it is of; "": of the run
    part: str = ""  #: class, metric or verdict that it is of; "": none
    unit: str = ""
    items: int | None = None  #: that it was measured on; None: does not apply


_RELEVANCE = "the unit of relevance"
#: name -> its unit ("": that of the metric in `part`), and what it is
METRICS: Mapping[str, tuple[str, str]] = {
    "items": ("items", "rows of the data"),
    "items_explained": ("items", "of them, explained"),
    "items_failed": ("items", "of them, failed"),
    "items_pending": ("items", "neither, because the run was cancelled or shards gave up"),
    "items_truncated": ("items", "explained, but longer than the model reads"),
    "items_labelled": ("items", "explained, with a label of a class"),
    "items_correct": ("items", "of these, predicted as labelled"),
    "shards_dead": ("shards", "that gave up"),
    "failed_share": ("share", "items without an explanation; gate: `max_failed`"),
    "truncated_share": ("share", "explained items that were cut; gate: `max_truncated`"),
    "accuracy": ("share", "correct / labelled; gate: `min_accuracy`"),
    "attributions": ("attributions", "with a ledger"),
    "relative_gap_worst": ("share", "largest |gap| / sum of the ledger's |terms|"),
    "relative_gap_mean": ("share", "its mean over attributions"),
    "relative_gap_tolerance": ("share", "for the model's number type"),
    "gaps_above": ("attributions", "above the tolerance; gate: `max_gap_above`"),
    "relevance_error": ("share", "mean |logit - sum of relevance| / |logit|, of all positions"),
    "relevance_correlation": ("correlation", "of logit and sum of relevance over attributions"),
    "biases_share": ("share", "of the mean sizes of the ledger's entries that biases take"),
    "class_sensitivity": (
        "0 to 1",
        "0: the same map whatever class is explained, 0.5: unrelated maps; gate: "
        "`min_class_sensitivity`",
    ),
    "class_items": ("items", "explanations of the class in `part`"),
    "class_logit": ("logits", "mean logit of the class in `part`"),
    "largest_difference": (
        _RELEVANCE,
        "largest |difference of relevance| of any group; gate: `max_difference`",
    ),
    "impact_ratio_lowest": (
        "ratio",
        "of the rates of a favourable prediction, either way, of any group and stratum; gate: "
        "`min_impact_ratio`",
    ),
    "rate_difference_largest": (
        "share",
        "largest |difference of rates|, of a prediction or of its errors, of any group and "
        "stratum; gate: `max_rate_difference`",
    ),
    "category_ratio_lowest": (
        "ratio",
        "impact ratio of any category of people; gate: `min_category_ratio`",
    ),
    "swap_logit_largest": (
        "logits",
        "largest |mean change of log-odds| by swapping; gate: `max_swap_logit`",
    ),
    "swap_probability_largest": (
        "probability",
        "largest |mean change of the probability|; gate: `max_swap_probability`",
    ),
    "swap_changed_largest": (
        "share",
        "largest share of predictions changed by swapping, less that within a group; gate: "
        "`max_swap_changed`",
    ),
    "verdicts": ("groups", "whose verdict is that in `part`: flagged, open, clear"),
    "mention_states": (
        "groups",
        "whose mention has the state in `part`: changes, does not change, open; gate: `verdicts`",
    ),
    "outcome_states": (
        "groups",
        "whose outcome has the state in `part`: differ, do not differ, open; gate: `verdicts`",
    ),
    "comparisons": (
        "comparisons",
        "of relevance, with the verdict in `part`; gate: `relevance`",
    ),
    "groups_unjudged": ("groups", "mentioned, but too rarely; gate: `forbid_suppressed`"),
    "verdict_gaps": ("gaps", "in what the verdicts rest on; gate: `forbid_gaps`"),
    "faithfulness": ("", "mean of the metric in `part` for the audit's method"),
    "faithfulness_random": ("", "the same for random relevance"),
    "faithfulness_difference": ("", "the first minus the second, on common items"),
    "faithfulness_p": ("p", "of that difference, adjusted over the metrics"),
    "beats_random": ("yes is 1", "beyond chance; gate: `faithfulness`"),
    "agreement": (
        "correlation",
        "median rank correlation of the cheap with the exact method, for the class in `part`",
    ),
    "agreement_error": ("share", "median relative error of the cheap method, likewise"),
    "changed_predictions": (
        "share",
        "items in common with the run before that are predicted otherwise",
    ),
    "groups_newly_flagged": ("groups", "that stand out now and did not in the run before"),
    "groups_no_longer_flagged": ("groups", "that stood out in the run before and do not now"),
}


#: metric -> the field of a summary's counts
_COUNTS = {
    "items": "total",
    "items_explained": "done",
    "items_failed": "failed",
    "items_pending": "pending",
    "items_truncated": "truncated",
    "items_labelled": "labelled",
    "items_correct": "correct",
    "shards_dead": "dead_shards",
}


def run_metrics(summary: Summary) -> list[RunMetric]:
    """Every number that the run has; what was not measured is left out."""
    return [*_counts(summary), *_evidence(summary), *_classes(summary), *_groups(summary)]


def _made(
    name: str,
    value: float | None,
    items: int | None = None,
    *,
    of: tuple[str, str] = ("", ""),
    unit: str | None = None,
) -> Iterator[RunMetric]:
    """A metric of a target and a part, or none where it has no value."""
    if value is not None:
        yield RunMetric(
            name=name,
            value=float(value),
            target=of[0],
            part=of[1],
            unit=METRICS[name][0] if unit is None else unit,
            items=items,
        )


def _counts(summary: Summary) -> Iterator[RunMetric]:
    counts = summary.counts
    for name, field in _COUNTS.items():
        yield from _made(name, getattr(counts, field))
    share = (counts.total - counts.done) / counts.total if counts.total else 0.0
    yield from _made("failed_share", share, counts.total)
    if counts.done:
        yield from _made("truncated_share", counts.truncated / counts.done, counts.done)
    yield from _made("accuracy", counts.accuracy, counts.labelled)
    before = summary.previous
    if before is not None and before.common:
        yield from _made(
            "changed_predictions", before.other_prediction / before.common, before.common
        )
    if before is not None and summary.groups is not None:
        yield from _made(
            "groups_newly_flagged", len({change.group for change in newly(before.verdicts)})
        )
        yield from _made(
            "groups_no_longer_flagged", len({change.group for change in gone(before.verdicts)})
        )


def _evidence(summary: Summary) -> Iterator[RunMetric]:
    ledgers, sensitivity = summary.conservation, summary.class_sensitivity
    if ledgers is not None:
        yield from _made("attributions", ledgers.attributions)
        for name in ("worst", "mean", "tolerance"):
            yield from _made(f"relative_gap_{name}", getattr(ledgers, name))
        if ledgers.tolerance is not None:
            yield from _made("gaps_above", ledgers.above)
        yield from _made("relevance_error", ledgers.relevance_error, ledgers.attributions)
        yield from _made("relevance_correlation", ledgers.correlation, ledgers.attributions)
        yield from _made("biases_share", ledgers.size_shares.get("biases"))
    if sensitivity is not None:
        yield from _made("class_sensitivity", sensitivity.mean, sensitivity.items)
    for row in summary.faithfulness.rows if summary.faithfulness else ():
        of, unit = (row.target, row.metric), row.unit
        yield from _made("faithfulness", row.mean, row.items, of=of, unit=unit)
        yield from _made("faithfulness_random", row.random, row.items, of=of, unit=unit)
        yield from _made("faithfulness_difference", row.difference, row.common, of=of, unit=unit)
        yield from _made("faithfulness_p", row.p, row.common, of=of)
        yield from _made("beats_random", row.beats, row.common, of=of)


def _classes(summary: Summary) -> Iterator[RunMetric]:
    for view in summary.classes:
        of = (view.target, view.class_name)
        yield from _made("class_items", view.items, of=of)
        yield from _made("class_logit", view.mean_logit, view.items, of=of)
    for class_name in summary.mixed.classes if summary.mixed else ():
        of = (class_name.target, class_name.class_name)
        yield from _made("agreement", class_name.correlation, class_name.items, of=of)
        yield from _made("agreement_error", class_name.error, class_name.items, of=of)


def _worst(summary: Summary) -> Iterator[RunMetric]:
    if difference := largest_difference(summary):
        size, unit = abs(difference.difference or 0.0), summary.audited.unit
        yield from _made("largest_difference", size, difference.documents, unit=unit)
    if uneven := most_uneven(summary):
        items = uneven.own.selected.total + uneven.other.selected.total
        yield from _made("impact_ratio_lowest", evenness(uneven), items)
    if widest := widest_rates(summary):
        row, measure = widest
        items = row.own.selected.total + row.other.selected.total
        yield from _made("rate_difference_largest", abs(measure.value), items)
    yield from _made("category_ratio_lowest", lowest_category(summary))
    if swap := largest_swap(summary, lambda row: row.effect):
        yield from _made("swap_logit_largest", abs(swap.effect), swap.documents)
    if swap := largest_swap(summary, lambda row: row.probability):
        yield from _made("swap_probability_largest", abs(swap.probability), swap.documents)
    if swap := largest_swap(summary, changed):
        yield from _made("swap_changed_largest", changed(swap), swap.documents)


def _groups(summary: Summary) -> Iterator[RunMetric]:
    yield from _worst(summary)
    if summary.groups is None:
        return
    yield from _made("groups_unjudged", len(unjudged(summary)))
    yield from _made("verdict_gaps", len(list(caveats(summary))))
    for state, count in verdict_counts(summary.groups).items():
        yield from _made("verdicts", count, of=("", state))
    for name, states in state_counts(summary.groups).items():
        for answer, count in states.items():
            yield from _made(f"{name}_states", count, of=("", answer))
    for verdict, count in sorted(Counter(row.verdict for row in compared(summary.groups)).items()):
        yield from _made("comparisons", count, of=("", verdict))
