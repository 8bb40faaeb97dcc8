"""The loop over items: explain them by every method, then compute every metric."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from transexplain.errors import ConfigurationError
from transexplain.evaluating.evaluation_bench import Evaluation, Heartbeat
from transexplain.evaluating.measuring import Measuring
from transexplain.evaluating.metrics.measured_case import Array
from transexplain.evaluating.perturbed_logits import PerturbedLogits
from transexplain.explaining import Explained, Stopped
from transexplain.explaining.batch_sizes import free_caches, is_out_of_memory
from transexplain.explaining.explain_request import Member, finished, model_failure
from transexplain.explaining.item_loop import portions
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.items import Item, ItemFailure, ItemOutcome
from transexplain.types.observer import Observer
from transexplain.types.plans import Modality
from transexplain.types.scores import MetricScore
from transexplain.types.targets import label_index

#: items that are measured together: their perturbed inputs fill many passes
TOGETHER: Mapping[Modality, int] = {"text": 64, "image": 32, "nodes": 32}


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluated:
    """One item's end: its outcome and what was measured, or its failure."""

    outcome: ItemOutcome | None = None
    scores: tuple[MetricScore, ...] = ()
    failure: ItemFailure | None = None


def evaluate_items(
    model: LoadedModel,
    items: Iterable[Item | ItemFailure],
    evaluation: Evaluation,
    *,
    observer: Observer,
    alone: Collection[str] = (),
) -> Iterator[Evaluated]:
    """Measure the explanations of items; results come in the order of the items.

    The items `alone` (ids) are measured each by itself.

    Raises:
        Stopped: the observer asked to stop.
        EngineError: the model has an operator without a rule.
        ConfigurationError: a method, a metric or a baseline does not fit the model.
    """
    for given in portions(items, TOGETHER[model.modality], alone):
        yield from _Group(model, evaluation, observer).evaluate(given)


class _Group:
    """Some items that are measured together."""

    def __init__(self, model: LoadedModel, evaluation: Evaluation, observer: Observer) -> None:
        self.model, self.evaluation, self.observer = model, evaluation, observer
        self.request = evaluation.request
        self.specs = evaluation.plan.metrics

    def evaluate(self, given: Sequence[Item | ItemFailure]) -> Iterator[Evaluated]:
        """One end for each, in order."""
        items = [entry for entry in given if isinstance(entry, Item)]
        encoded = iter(self.request.encode(self.model, items))
        ready = [next(encoded) if isinstance(entry, Item) else entry for entry in given]
        whole = [one for one in ready if not isinstance(one, ItemFailure)]
        ends = iter(self._measured(whole)) if whole else iter(())
        for one in ready:
            end = Evaluated(failure=one) if isinstance(one, ItemFailure) else next(ends)
            self.observer.item_done(one.item_id if isinstance(one, ItemFailure) else one.item.id)
            yield end

    def _measured(self, encoded: Sequence[Encoded]) -> Sequence[Evaluated]:
        self._beat(encoded)
        questions = self._questions(encoded)
        if isinstance(questions, Exception):
            if len(encoded) == 1:
                failed = model_failure(encoded[0].item, questions)
                return [Evaluated(failure=failed.failure)]
            return [end for one in encoded for end in self._measured([one])]
        outcomes = [
            self._outcome(one, logits) for one, logits in zip(encoded, questions.whole, strict=True)
        ]
        usable = [row for row, end in enumerate(outcomes) if end.failure is None]
        scores: dict[str, list[MetricScore]] = {one.item.id: [] for one in encoded}
        measuring = Measuring(
            model=self.model,
            evaluation=self.evaluation,
            observer=Heartbeat(self.observer),
            encoded=encoded,
            questions=questions,
        )
        for score in measuring.scores(usable):
            scores[score.item_id].append(score)
        return [
            Evaluated(
                outcome=end.outcome,
                failure=end.failure,
                scores=() if end.failure else tuple(scores[one.item.id]),
            )
            for one, end in zip(encoded, outcomes, strict=True)
        ]

    def _questions(self, encoded: Sequence[Encoded]) -> PerturbedLogits | Exception:
        try:
            return PerturbedLogits.of(
                self.model, encoded, self.request.long_text_join, lambda: self._beat(encoded)
            )
        except (ConfigurationError, Stopped):
            raise
        except Exception as error:  # noqa: BLE001 - becomes the item's error row
            failed = error.with_traceback(None)  # its frames hold the tensors
        if is_out_of_memory(failed):
            free_caches()
        return failed

    def _beat(self, encoded: Sequence[Encoded]) -> None:
        if self.observer.should_stop():
            raise Stopped
        self.observer.batch_started([one.item.id for one in encoded])

    def _outcome(self, encoded: Encoded, logits: Array) -> Explained:
        label = label_index(encoded.item.label, self.request.names, self.request.labels)
        return finished(self.model, Member(0, encoded, label), logits, ())
