"""Scores explanations by perturbation curves: which parts are hidden, and what the model says."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError, EngineError
from transexplain.evaluating.metrics import curve_of
from transexplain.evaluating.metrics.metric_table import Array, Case, Masks, Scored, unmeasured
from transexplain.evaluating.metrics.perturbation_curves import PerturbationCurve, too_small
from transexplain.evaluating.metrics.segmentation import upsampled
from transexplain.explaining import Stopped
from transexplain.explaining.batch_sizes import Room, batches_of
from transexplain.explaining.long_texts import window_weights
from transexplain.methods.at_input_layer import POSITIONS_AT_ONCE, as_array, logits_again
from transexplain.methods.presence import Baseline, Over, Presence, owners_of
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.items import PatchGrid
from transexplain.types.plans import Join
from transexplain.types.scores import MetricScore, MetricSpec

#: called before every batch; it may raise to end the work
Beat = Callable[[], None]
_AT_ONCE = 2 * POSITIONS_AT_ONCE


class _Part(NamedTuple):
    """What one pass reads of an item: all of it, or one window."""

    owner: int  #: number of the item
    encoded: Encoded
    weight: float  #: of its logits in the item's


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PerturbedLogits:
    """The logits of some items with features of theirs absent.

    A long text is run window by window; its logits are the windows' logits joined as they were
    for its explanation.
    """

    model: LoadedModel
    encoded: Sequence[Encoded]
    parts: tuple[_Part, ...]
    batches: tuple[tuple[int, ...], ...]  #: parts that may share a pass
    logits: tuple[Array, ...]  #: (C,) of every part, with everything present
    whole: tuple[Array, ...]  #: (C,) of every item, with everything present
    beat: Beat

    @classmethod
    def of(cls, model: LoadedModel, encoded: Sequence[Encoded], join: Join, beat: Beat) -> Self:
        """Encode once, run the unperturbed items once."""
        items = enumerate(encoded)
        parts = tuple(
            part for number, entry in items for part in _window_parts(number, entry, join)
        )
        given = [part.encoded for part in parts]
        batches = tuple(tuple(rows) for rows in batches_of(model, given, _AT_ONCE))
        logits: dict[int, Array] = {}
        for rows in batches:
            beat()
            logits.update(zip(rows, _perturbed_logits(model, parts, rows), strict=True))
        whole = tuple(np.zeros(len(model.classes)) for _ in encoded)
        for row, part in enumerate(parts):
            whole[part.owner][:] += part.weight * logits[row]
        return cls(
            model=model,
            encoded=encoded,
            parts=parts,
            batches=batches,
            logits=tuple(logits[row] for row in range(len(parts))),
            whole=whole,
            beat=beat,
        )

    def seconds(self, positions: int | None) -> list[float]:
        """Of every item, how long its prediction takes: its share of its batches' wall clock.

        The items are run anew, in batches of as many `positions` as those that are explained: the
        first passes of a process also set up what later ones find.
        """
        budget = min(Room(positions, self.model).positions, _AT_ONCE)
        seconds = [0.0 for _ in self.encoded]
        for rows in batches_of(self.model, [part.encoded for part in self.parts], budget):
            self.beat()
            begun = time.perf_counter()
            _perturbed_logits(self.model, self.parts, rows)
            share = (time.perf_counter() - begun) / len(rows)
            for row in rows:
                seconds[self.parts[row].owner] += share
        return seconds

    def features(self, over: Over) -> list[NDArray[np.int64]]:
        """Per item (T,) which of its features a position belongs to, -1: always there."""
        return [owners_of(entry, over) for entry in self.encoded]

    def ask(self, masks: Sequence[Masks | None], baseline: Baseline, over: Over) -> list[Array]:
        """The logits of every item where the features in its masks are present.

        Args:
            masks: (N, F) for each item, N its own; None: it is not run.
            baseline: what stands in the place of what is absent; see `presence.absence`.
            over: what a feature is.

        Returns:
            (N, C) for each item; (0, C) for one that is not run. Raises ConfigurationError where
            the baseline does not fit the model, ItemError where a logit is not finite.
        """
        classes = range(len(self.model.classes))
        counts = [0 if mask is None else len(mask) for mask in masks]
        sums = [np.zeros((count, len(classes))) for count in counts]
        owners = self.features(over)
        for rows in self.batches:
            wanted = [row for row in rows if counts[self.parts[row].owner]]
            if not wanted:
                continue
            parts = [self.parts[row] for row in wanted]
            presence = Presence.of(
                self.model,
                self.model.collate([part.encoded for part in parts]),
                np.stack([self.logits[row] for row in wanted]),
                classes,
                baseline=baseline,
                over=over,
                beat=self.beat,
            )
            requested = []
            for part, own in zip(parts, presence.owners, strict=True):
                mask = masks[part.owner]
                assert mask is not None
                requested.append(_of_part(mask, part, owners[part.owner], own, self.encoded))
            answers = presence.logits_of(range(len(parts)), requested)
            for part, answer in zip(parts, answers, strict=True):
                sums[part.owner] += part.weight * answer
        return sums


def _perturbed_logits(model: LoadedModel, parts: Sequence[_Part], rows: Sequence[int]) -> Array:
    """(N, C) the logits of the parts `rows`, which share a pass."""
    return as_array(logits_again(model, model.collate([parts[row].encoded for row in rows])))


def _window_parts(number: int, encoded: Encoded, join: Join) -> list[_Part]:
    if not encoded.windows:
        return [_Part(number, encoded, 1.0)]
    weights = window_weights(encoded, join)
    return [
        _Part(number, window.encoded, float(weight))
        for window, weight in zip(encoded.windows, weights, strict=True)
    ]


def _of_part(
    mask: Masks,
    part: _Part,
    whole: NDArray[np.int64],
    own: NDArray[np.int64],
    encoded: Sequence[Encoded],
) -> Masks:
    """(N, F') the features of a window that are present, from those of its text (N, F)."""
    item = encoded[part.owner]
    if part.encoded is item:
        return mask
    places = next(window.places for window in item.windows if window.encoded is part.encoded)
    of_window = np.zeros(int(own.max(initial=-1)) + 1, dtype=np.intp)
    held = own >= 0
    of_window[own[held]] = whole[places[held]]
    return mask[:, of_window]


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
        some = [(spec, curve) for spec, curve in curves if (curve.baseline, curve.over) == place]
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
        logits = answers[row]
        index = case.label if curve.of == "label" else case.attribution.class_index
        assert index is not None
        scored = (
            unmeasured(logits)
            if isinstance(logits, str)
            else curve.score(case.logits, logits[part], index)
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
    sums = np.bincount(owner[owner >= 0], weights=case.relevance, minlength=count)
    return np.asarray(sums, dtype=np.float64)


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
