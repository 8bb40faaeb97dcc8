"""Scores explanations by perturbation curves: which parts are hidden, and what the model says."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError, EngineError
from transexplain.evaluating.metrics import curve_of
from transexplain.evaluating.metrics.metric_table import Array, Case, Masks, Scored, unmeasured
from transexplain.evaluating.metrics.perturbation_curves import PerturbationCurve, too_small
from transexplain.evaluating.metrics.segmentation import upsampled
from transexplain.evaluating.perturbed_logits import PerturbedLogits
from transexplain.explaining import Stopped
from transexplain.methods.presence import Baseline, Over
from transexplain.types.items import PatchGrid
from transexplain.types.scores import MetricScore, MetricSpec


def score_of(label: str, metric: str, case: Case, scored: Scored) -> MetricScore:
    """The record of an explanation's score by `metric`; `label` names the method."""
    return MetricScore(
        item_id=case.item.id,
        method=label,
        target=case.attribution.target,
        metric=metric,
        value=scored.value,
        curve=scored.curve,
        reason=scored.reason,
        detail=scored.detail,
    )


def not_scored(item_id: str, label: str, target: str, metric: str, reason: str) -> MetricScore:
    """The record of an explanation that is not there."""
    return MetricScore(
        item_id=item_id, method=label, target=target, metric=metric, value=None, reason=reason
    )


#: number of the item, label of the method, explanation
Entry = tuple[int, str, Case]
#: (T,) the feature of every position
Owner = NDArray[np.int64]


def curve_scores(
    specs: Sequence[MetricSpec],
    questions: PerturbedLogits,
    entries: Sequence[Entry],
    measures: Callable[[MetricSpec, int], bool],
) -> Iterator[MetricScore]:
    """The scores of every explanation by the metrics `specs`, all of kind `curve`.

    All curves over one baseline are run together, whatever methods and metrics the masks of an
    item come from. `measures` gives whether a metric is computed on an item
    of the dataset.
    """
    curves = [(spec, curve_of(spec)) for spec in specs]
    for place in dict.fromkeys((curve.baseline, curve.over) for _, curve in curves):
        some = [(spec, one) for spec, one in curves if (one.baseline, one.over) == place]
        wanted = [
            (entry, [pair for pair in some if measures(pair[0], entry[2].item.index)])
            for entry in entries
        ]
        for part in _parts(wanted, questions.features(place[1])):
            yield from _of_place(part, questions, *place)


_Wanted = tuple[Entry, Sequence[tuple[MetricSpec, PerturbationCurve]]]
#: bytes of masks that are held at once
MASKS_AT_ONCE = 2**27


def _parts(given: Sequence[_Wanted], owners: Sequence[Owner]) -> Iterator[Sequence[_Wanted]]:
    """`given` in parts whose masks fit in memory: those of pixels are large."""
    begin, held = 0, 0
    for place, (entry, curves) in enumerate(given):
        size = len(owners[entry[0]]) * sum(len(curve.shares) for _, curve in curves)
        if held and held + size > MASKS_AT_ONCE:
            yield given[begin:place]
            begin, held = place, 0
        held += size
    yield given[begin:]


def _of_place(
    given: Sequence[_Wanted],
    questions: PerturbedLogits,
    baseline: Baseline,
    over: Over,
) -> Iterator[MetricScore]:
    owners = questions.features(over)
    requested: list[list[Masks]] = [[] for _ in questions.encoded]
    wanted: list[tuple[Entry, str, PerturbationCurve, slice]] = []
    for entry, curves in given:
        row, label, case = entry
        weights = feature_weights(case, owners[row], over)
        small = too_small(len(weights))
        for spec, curve in curves:
            why = small or _unlabelled(curve, case)
            if why is not None:
                yield score_of(label, spec.label, case, why)
                continue
            masks = curve.masks(weights)
            begin = sum(map(len, requested[row]))
            requested[row].append(masks)
            wanted.append((entry, spec.label, curve, slice(begin, begin + len(masks))))
    joined = [np.concatenate(masks) if masks else None for masks in requested]
    answers = _answers(questions, joined, baseline, over)
    for (row, label, case), name, curve, part in wanted:
        found = answers[row]
        index = case.label if curve.of == "label" else case.attribution.class_index
        assert index is not None
        scored = (
            unmeasured(found)
            if isinstance(found, str)
            else curve.score(case.logits, found[part], index)
        )
        yield score_of(label, name, case, scored)


def _unlabelled(curve: PerturbationCurve, case: Case) -> Scored | None:
    """Why a curve of the label's class cannot be drawn; None: it can, or it is of another."""
    if curve.of != "label" or case.label is not None:
        return None
    return unmeasured(
        "the item has no label" if case.item.label is None else "the label is no class of the model"
    )


def feature_weights(case: Case, owner: Owner, over: Over = "tokens") -> Array:
    """(F,) the relevance of every feature: the sum over its positions; of a pixel interpolated."""
    grid = case.attribution.features
    if isinstance(grid, PatchGrid):
        # every patch is a feature, or every pixel
        if over != "pixels":
            return case.relevance
        relevance = np.asarray(case.attribution.relevance, dtype=np.float64)
        return upsampled(relevance, grid.height, grid.width).reshape(-1)
    count = int(owner.max(initial=-1)) + 1
    found = np.bincount(owner[owner >= 0], weights=case.relevance, minlength=count)
    return np.asarray(found, dtype=np.float64)


def _answers(
    questions: PerturbedLogits, masks: Sequence[Masks | None], baseline: Baseline, over: Over
) -> list[Array | str]:
    """The logits (N, C) of every item, or why it has none; a bad item affects no other."""
    try:
        return list(questions.ask(masks, baseline, over))
    except (ConfigurationError, EngineError, Stopped):
        raise
    except Exception as error:  # noqa: BLE001 - becomes the reason of the item's scores
        requested = [row for row, mask in enumerate(masks) if mask is not None]
        if len(requested) == 1:
            reason = f"{type(error).__name__}: {error}"
            return [reason for _ in masks]
        middle = requested[len(requested) // 2]
        first = [mask if row < middle else None for row, mask in enumerate(masks)]
        second = [mask if row >= middle else None for row, mask in enumerate(masks)]
        left = _answers(questions, first, baseline, over)
        right = _answers(questions, second, baseline, over)
        return [*left[:middle], *right[middle:]]
