"""Explains items by several methods, and scores every explanation by several metrics."""

import dataclasses
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError, EngineError
from transexplain.evaluating.evaluation_bench import Evaluation, Heartbeat, MethodBench
from transexplain.evaluating.metrics import bound_metric, curve_of, metric_facts
from transexplain.evaluating.metrics.metric_table import Array, Case, Masks, Scored, unmeasured
from transexplain.evaluating.metrics.perturbation_curves import (
    PerturbationCurve,
    probabilities,
    too_small,
)
from transexplain.evaluating.metrics.rationale import oracle
from transexplain.explaining import Explained, Stopped
from transexplain.explaining.batch_sizes import Room, batches_of, give_back, is_out_of_memory
from transexplain.explaining.explain_request import Member, finished, model_failure, portions
from transexplain.explaining.long_texts import Part, parts_of, redrawn_in_windows
from transexplain.methods.at_input_layer import POSITIONS_AT_ONCE, as_array, logits_again
from transexplain.methods.presence import Baseline, Over, Presence, owners_of
from transexplain.methods.random import redrawn
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.text.error_frames import traceback_of
from transexplain.types.items import Item, ItemFailure, PatchGrid
from transexplain.types.observer import Observer
from transexplain.types.plans import Join, Modality
from transexplain.types.scores import (
    ORACLE,
    PREDICTION,
    EvaluatedMethod,
    MetricScore,
    MetricSpec,
    joined_draws,
)

#: called before every batch; it may raise to end the work
Beat = Callable[[], None]
_AT_ONCE = 2 * POSITIONS_AT_ONCE


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PerturbedLogits:
    """The logits of some items with features of theirs absent.

    A long text is run window by window; its logits are the windows' logits joined as they were
    for its explanation.
    """

    model: LoadedModel
    encoded: Sequence[Encoded]
    parts: Sequence[Part]
    batches: Sequence[Sequence[int]]  #: parts that may share a pass
    logits: tuple[Array, ...]  #: (C,) of every part, with everything present
    whole: tuple[Array, ...]  #: (C,) of every item, with everything present
    beat: Beat

    @classmethod
    def of(cls, model: LoadedModel, encoded: Sequence[Encoded], join: Join, beat: Beat) -> Self:
        """Encode once, run the unperturbed items once."""
        parts = parts_of(encoded, join)
        batches = batches_of(model, [part.encoded for part in parts], _AT_ONCE)
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


def _perturbed_logits(model: LoadedModel, parts: Sequence[Part], rows: Sequence[int]) -> Array:
    """(N, C) the logits of the parts `rows`, which share a pass."""
    return as_array(logits_again(model, model.collate([parts[row].encoded for row in rows])))


def _of_part(
    mask: Masks,
    part: Part,
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
        from transexplain.evaluating.metrics.segmentation import upsampled

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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Measuring:
    """Some items that are measured together, and their perturbed logits."""

    evaluation: Evaluation
    observer: Observer
    questions: PerturbedLogits

    def scores(self, rows: Sequence[int]) -> Iterator[MetricScore]:
        """The score of every metric for every method's explanations of the items `rows`."""
        surest = [probabilities(self.questions.whole[row][None]).max() for row in rows]
        limit = self.evaluation.plan.confidence
        sure = [row for row, most in zip(rows, surest, strict=True) if most > limit]
        for row in set(rows) - set(sure):
            reason = "the model is not sure enough of its prediction"
            for method in self._methods_of(row):
                yield from self._same_scores(row, method.label, None, reason)
        entries: list[Entry] = []
        for method in self.evaluation.plan.methods:
            mine = [row for row in sure if method in self._methods_of(row)]
            first = yield from self._of_draw(method, 0, mine)
            entries += first
            for draw in range(1, method.draws):
                entries += yield from self._of_draw(method, draw, mine, first)
        yield from self._of_predictions(sure)
        marked = list(_oracles(entries))
        yield from self._of_maps(ORACLE, [case for _, _, case in marked], of_content=True)
        yield from curve_scores(
            self._specs("curve"), self.questions, [*entries, *marked], self.evaluation.measures
        )

    def _of_draw(
        self, method: EvaluatedMethod, draw: int, rows: Sequence[int], first: Sequence[Entry] = ()
    ) -> Generator[MetricScore, None, list[Entry]]:
        """Yield the scores that need no curve; return what curves are drawn of.

        What does not depend on where the relevance lies is measured on the first draw alone, and
        so is what explains again. A later draw takes all but its relevance from the `first`, so
        that no model is run for it.
        """
        bench = MethodBench(
            model=self.questions.model,
            method=method.drawn(draw),
            request=self.evaluation.request,
            observer=self.observer,
        )
        known = {row for row, _, _ in first}
        if draw == 0 and rows and self._timed():
            bench.warm_up(self._item(rows[0]))
        explained = yield from self._explained(bench, [row for row in rows if row not in known])
        seed = bench.method.method.params.get("seed", 0)
        explained += [(row, self._redrawn(row, case, seed)) for row, _, case in first]
        cases = [case for _, case in explained]
        yield from self._of_maps(method.label, cases, of_content=draw > 0)
        if draw == 0:
            yield from self._of_models(bench, cases)
        return [(row, method.label, case) for row, case in explained]

    def _redrawn(self, row: int, case: Case, seed: int) -> Case:
        """The case of random relevance with another draw."""
        encoded, attribution = self.questions.encoded[row], case.attribution
        if encoded.windows:
            made = redrawn_in_windows(
                attribution, encoded, self.evaluation.request.long_text_join, seed
            )
        else:
            made = redrawn(attribution, seed)
        return dataclasses.replace(case, attribution=made)

    def _of_predictions(self, rows: Sequence[int]) -> Iterator[MetricScore]:
        """The seconds of a prediction alone, beside the methods."""
        specs = self._timed()
        if not specs or not rows:
            return
        seconds = self.questions.seconds(self.evaluation.request.batch_tokens)
        for row in rows:
            yield from self._same_scores(row, PREDICTION, seconds[row], specs=specs)

    def _timed(self) -> list[MetricSpec]:
        return [
            metric for metric in self.evaluation.plan.metrics if metric_facts(metric.name).timed
        ]

    def _item(self, row: int) -> Item:
        return self.questions.encoded[row].item

    def _methods_of(self, row: int) -> list[EvaluatedMethod]:
        index = self._item(row).index
        plan = self.evaluation.plan
        return [method for method in plan.methods if self.evaluation.measures(method, index)]

    def _specs(self, kind: str) -> list[MetricSpec]:
        return [
            metric
            for metric in self.evaluation.plan.metrics
            if metric_facts(metric.name).kind == kind
        ]

    def _explained(
        self, bench: MethodBench, rows: Sequence[int]
    ) -> Generator[MetricScore, None, list[tuple[int, Case]]]:
        """Yield what cannot be scored; return (row, Case) of every explanation."""
        cases: list[tuple[int, Case]] = []
        whole = self.questions.whole
        explained = bench.explain([self._item(row) for row in rows])
        for row, (attributions, seconds) in zip(rows, explained, strict=True):
            if isinstance(attributions, str):
                yield from self._same_scores(row, bench.method.label, None, attributions)
                continue
            item = self._item(row)
            (label,) = self.evaluation.request.classes_of(item) or (None,)
            case = partial(Case, item=item, logits=whole[row], seconds=seconds, label=label)
            cases += [(row, case(attribution=attribution)) for attribution in attributions]
        return cases

    def _of_maps(
        self, label: str, cases: Sequence[Case], *, of_content: bool = False
    ) -> Iterator[MetricScore]:
        """`of_content`: only by metrics that say something of where the relevance lies."""
        for spec in self._specs("map"):
            if of_content and not metric_facts(spec.name).of_oracle:
                continue
            measure = bound_metric(spec)
            for case in self._measured(spec, cases):
                if metric_facts(spec.name).needs_evidence and case.item.evidence is None:
                    scored = unmeasured("no evidence is marked in the item")
                else:
                    scored = measure(case)
                yield score_of(label, spec.label, case, scored)

    def _of_models(self, bench: MethodBench, cases: Sequence[Case]) -> Iterator[MetricScore]:
        for spec in self._specs("model"):
            some = self._measured(spec, cases)
            scores = bound_metric(spec)(bench, some) if some else []
            for case, scored in zip(some, scores, strict=True):
                yield score_of(bench.method.label, spec.label, case, scored)

    def _measured(self, spec: MetricSpec, cases: Sequence[Case]) -> list[Case]:
        """The cases that a metric with a limit of items is computed on."""
        return [case for case in cases if self.evaluation.measures(spec, case.item.index)]

    def _same_scores(
        self,
        row: int,
        label: str,
        value: float | None,
        reason: str = "",
        specs: Sequence[MetricSpec] | None = None,
    ) -> Iterator[MetricScore]:
        """One value of an item for all its targets, by `specs` or all metrics."""
        item = self._item(row)
        for target in self.evaluation.request.targets:
            for spec in self.evaluation.plan.metrics if specs is None else specs:
                if self.evaluation.measures(spec, item.index):
                    yield MetricScore(
                        item_id=item.id,
                        method=label,
                        target=target.spec,
                        metric=spec.label,
                        value=value,
                        reason=reason,
                    )


def _oracles(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The human rationale as an explanation, once for each item and target."""
    first = {(row, case.attribution.target): case for row, _, case in reversed(entries)}
    for (row, _), case in sorted(first.items()):
        marked = None if case.item.evidence is None else oracle(case)
        if marked is not None:
            shown = dataclasses.replace(case, attribution=marked, seconds=0.0)
            yield row, ORACLE, shown


#: items that are measured together: their perturbed inputs fill many passes
TOGETHER: Mapping[Modality, int] = {"text": 64, "image": 32, "nodes": 32}


def evaluate_items(
    model: LoadedModel,
    items: Iterable[Item | ItemFailure],
    evaluation: Evaluation,
    *,
    observer: Observer,
    alone: Collection[str] = (),
) -> Iterator[Explained]:
    """Measure the explanations of items; results come in the order of the items.

    The items `alone` (ids) are measured each by itself.

    Raises:
        Stopped: the observer requested a stop.
        EngineError: the model has an operator without a rule.
        ConfigurationError: a method, a metric or a baseline does not fit the model.
    """
    for given in portions(items, TOGETHER[model.modality], alone):
        encoded = iter(
            evaluation.request.encode(model, [entry for entry in given if isinstance(entry, Item)])
        )
        ready = [next(encoded) if isinstance(entry, Item) else entry for entry in given]
        whole = [case for case in ready if not isinstance(case, ItemFailure)]
        ends = iter(_measured(model, whole, evaluation, observer) if whole else ())
        for case in ready:
            end = Explained.of(case) if isinstance(case, ItemFailure) else next(ends)
            observer.item_done(end.item_id)
            yield end


def _measured(
    model: LoadedModel, encoded: Sequence[Encoded], evaluation: Evaluation, observer: Observer
) -> list[Explained]:
    """The ends of some items that are measured together; one by one where that fails."""
    request, ids = evaluation.request, [entry.item.id for entry in encoded]

    def beat() -> None:
        if observer.should_stop():
            raise Stopped
        observer.check_started(ids)

    if observer.should_stop():
        raise Stopped
    observer.batch_started(ids)
    try:
        questions = PerturbedLogits.of(model, encoded, request.long_text_join, beat)
    except (ConfigurationError, Stopped):
        raise
    except Exception as error:  # noqa: BLE001 - becomes the item's error row
        trace = traceback_of(error)
        failed = error.with_traceback(None)  # its frames hold the tensors
    else:
        return list(_scored(questions, evaluation, observer))
    if is_out_of_memory(failed):
        give_back(model)
    if len(encoded) == 1:
        return [model_failure(encoded[0].item, failed, trace)]
    return [end for entry in encoded for end in _measured(model, [entry], evaluation, observer)]


def _scored(
    questions: PerturbedLogits, evaluation: Evaluation, observer: Observer
) -> Iterator[Explained]:
    request, encoded = evaluation.request, questions.encoded
    outcomes = [
        finished(request, Member(0, entry, request.classes_of(entry.item)), logits, ())
        for entry, logits in zip(encoded, questions.whole, strict=True)
    ]
    usable = [row for row, end in enumerate(outcomes) if end.failure is None]
    scores: dict[str, list[MetricScore]] = {entry.item.id: [] for entry in encoded}
    measuring = Measuring(evaluation=evaluation, observer=Heartbeat(observer), questions=questions)
    for score in measuring.scores(usable):
        scores[score.item_id].append(score)
    for entry, end in zip(encoded, outcomes, strict=True):
        of_item = () if end.failure else joined_draws(scores[entry.item.id])
        yield dataclasses.replace(end, scores=of_item)
