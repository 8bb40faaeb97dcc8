"""Perturbation curves of many explanations at once, whose perturbed inputs share batches."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from transexplain.errors import ConfigurationError, EngineError
from transexplain.evaluating.asking import Questions
from transexplain.evaluating.records import score_of
from transexplain.evaluations import MetricScore, MetricSpec
from transexplain.explaining import Stopped
from transexplain.methods.absence import Baseline
from transexplain.methods.presence import Over
from transexplain.metrics import curve_of
from transexplain.metrics.case import Array, Case, Masks, unmeasured
from transexplain.metrics.curves import PerturbationCurve, too_small
from transexplain.types import PatchGrid

#: number of the item, label of the method, explanation
Entry = tuple[int, str, Case]


def curve_scores(
    specs: Sequence[MetricSpec],
    questions: Questions,
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
        yield from _of_place(wanted, questions, *place)


def _of_place(
    given: Sequence[tuple[Entry, Sequence[tuple[MetricSpec, PerturbationCurve]]]],
    questions: Questions,
    baseline: Baseline,
    over: Over,
) -> Iterator[MetricScore]:
    owners = questions.features(over)
    asked: list[list[Masks]] = [[] for _ in questions.encoded]
    wanted: list[tuple[Entry, str, PerturbationCurve, slice]] = []
    for entry, curves in given:
        row, label, case = entry
        weights = feature_weights(case, owners[row])
        small = too_small(len(weights))
        for spec, curve in curves:
            if small is not None:
                yield score_of(label, spec.label, case, small)
                continue
            masks = curve.masks(weights)
            begin = sum(map(len, asked[row]))
            asked[row].append(masks)
            wanted.append((entry, spec.label, curve, slice(begin, begin + len(masks))))
    joined = [np.concatenate(masks) if masks else None for masks in asked]
    answers = _answers(questions, joined, baseline, over)
    for (row, label, case), name, curve, part in wanted:
        found = answers[row]
        index = case.attribution.class_index
        assert index is not None
        scored = (
            unmeasured(found)
            if isinstance(found, str)
            else curve.score(case.logits, found[part], index)
        )
        yield score_of(label, name, case, scored)


def feature_weights(case: Case, owner: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Array:
    """(F,) the relevance of every feature: the sum over its positions."""
    relevance = np.asarray(case.attribution.relevance, dtype=np.float64)
    if isinstance(case.attribution.features, PatchGrid):
        return relevance.reshape(-1)  # every patch is a feature
    held = owner >= 0
    count = int(owner.max(initial=-1)) + 1
    found = np.bincount(owner[held], weights=relevance[held], minlength=count)
    return np.asarray(found, dtype=np.float64)


def _answers(
    questions: Questions, masks: Sequence[Masks | None], baseline: Baseline, over: Over
) -> list[Array | str]:
    """The logits (N, C) of every item, or why it has none; one bad item costs itself only."""
    try:
        return list(questions.ask(masks, baseline, over))
    except (ConfigurationError, EngineError, Stopped):
        raise
    except Exception as error:  # noqa: BLE001 - becomes the reason of the item's scores
        asked = [row for row, mask in enumerate(masks) if mask is not None]
        if len(asked) == 1:
            reason = f"{type(error).__name__}: {error}"
            return [reason for _ in masks]
        middle = asked[len(asked) // 2]
        first = [mask if row < middle else None for row, mask in enumerate(masks)]
        second = [mask if row >= middle else None for row, mask in enumerate(masks)]
        left = _answers(questions, first, baseline, over)
        right = _answers(questions, second, baseline, over)
        return [*left[:middle], *right[middle:]]
