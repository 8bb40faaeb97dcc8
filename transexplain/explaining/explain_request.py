"""The request for explanations (method, targets, parameters), and the result for one item."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.explaining.batch_sizes import is_out_of_memory
from transexplain.methods import bound
from transexplain.methods.batch_explanation import BatchExplanation
from transexplain.models.loaded_model import Encoded, LoadedModel, LongText, Windows
from transexplain.types.items import (
    Attribution,
    Item,
    ItemFailure,
    ItemOutcome,
    ResolvedTarget,
    Target,
)
from transexplain.types.label_sets import SeveralLabels, label_set
from transexplain.types.plans import AuditPlan
from transexplain.types.read_lengths import Join, LongTexts, check_long_texts
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import (
    ClassNames,
    label_index,
    parse_target,
    predicted_labels,
    resolve_targets,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to explain and how, whatever the items.

    Raises ConfigurationError where the parameters of long texts contradict each other.
    """

    method: MethodSpec
    targets: tuple[Target, ...]
    names: ClassNames
    labels: Mapping[str, str] = field(default_factory=dict)
    labels_by_name: bool = False
    long_text: LongTexts = "truncate"
    max_length: int | None = None
    window: int | None = None
    stride: int | None = None
    long_text_join: Join = "mean"
    batch_tokens: int | None = None  #: None: see `AuditPlan.batch_budget`
    several: SeveralLabels | None = None  #: None: the model gives an item one class

    def __post_init__(self) -> None:
        """Refuse a wrong request before anything is computed."""
        check_long_texts(
            self.long_text,
            max_length=self.max_length,
            window=self.window,
            stride=self.stride,
            join=self.long_text_join,
        )

    @classmethod
    def from_plan(cls, plan: AuditPlan) -> "Request":
        """Parse the plan's targets; raises TargetError."""
        names = ClassNames(plan.model.classes, plan.classifications)
        return cls(
            method=plan.method,
            targets=tuple(parse_target(spec, names) for spec in plan.targets),
            names=names,
            labels=plan.labels,
            labels_by_name=plan.labels_by_name,
            long_text=plan.long_text,
            max_length=plan.max_length,
            window=plan.window,
            stride=plan.stride,
            long_text_join=plan.long_text_join,
            batch_tokens=plan.batch_budget,
            several=plan.several,
        )

    def classes_of(self, item: Item) -> tuple[int, ...] | None:
        """The classes that an item's label names; None: there is no label, or no such class.

        One class, or of a model of several labels any number, in the order of the classes.
        """
        if item.label is None:
            return None
        given: tuple[str, ...] = (item.label,)
        if self.several is not None:
            given = self.several.written(item.label, (*self.names.classes, *self.labels))
        by_name = self.labels_by_name
        found = [label_index(one, self.names, self.labels, by_name=by_name) for one in given]
        known = {one for one in found if one is not None}
        return None if None in found else tuple(sorted(known))

    def named(self, indices: Iterable[int]) -> str:
        """Classes of an item as its outcome names them: one, or a set of labels."""
        names = [self.names.classes[one] for one in sorted(indices)]
        return names[0] if self.several is None else label_set(names)

    def predicted(self, logits: NDArray[np.floating[Any]]) -> str:
        """What is predicted by logits (C,)."""
        if self.floors is None:
            return self.named([int(np.argmax(logits))])
        return self.named(predicted_labels(logits, self.floors))

    @property
    def floors(self) -> tuple[float, ...] | None:
        """(C,) the logit from which each label is predicted; None: the model gives one class."""
        return None if self.several is None else self.several.floors(self.names.classes)

    def encode(self, model: LoadedModel, items: Sequence[Item]) -> list[Encoded | ItemFailure]:
        """Each item as the model takes it, long texts in windows where that is wanted."""
        long_text: LongText = (
            Windows(stride=self.stride) if self.long_text == "window" else self.long_text
        )
        room = self.max_length if self.window is None else self.window
        return model.encode(items, long_text=long_text, max_length=room)

    def resolve(
        self,
        model: LoadedModel,
        logits: NDArray[np.floating[Any]],
        labels: Sequence[tuple[int, ...] | None],
    ) -> list[list[ResolvedTarget]]:
        """The targets of each of B items: `logits` (B, C), class indices of their labels (B,)."""
        floors = self.floors
        each = [resolve_targets(one, logits, model.classes, labels, floors) for one in self.targets]
        if len(each) == 1:
            return each[0]
        return [[one for found in each for one in found[row]] for row in range(len(labels))]

    @property
    def run(self) -> Callable[..., BatchExplanation]:
        """The method with its parameters; takes a model, a batch and `resolve`."""
        return bound(self.method)


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """One item's end: its outcome with attributions, or its failure."""

    item: Item | None
    outcome: ItemOutcome | None = None
    attributions: tuple[Attribution, ...] = ()
    failure: ItemFailure | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """An item that is ready to be explained."""

    place: int  #: among the items it was read with
    encoded: Encoded
    labels: tuple[int, ...] | None  #: class indices of its label, where it has one


class Stopped(Exception):  # noqa: N818 - not an error: the observer wants it
    """The observer's `should_stop` ended the work before the shard was complete."""


def model_failure(item: Item, error: Exception, traceback: str = "") -> Explained:
    """The end of an item that the model could not be run on, alone in its batch.

    `traceback` is that of the error, whose frames may be gone: they hold tensors.
    """
    kind, message = "model-error", f"the model failed on item {item.id!r}: "
    if is_out_of_memory(error):
        kind = "out-of-memory"
        shorter = "a smaller max_length or window, " if isinstance(item.content, str) else ""
        message = (
            f"item {item.id!r} alone needs more memory than there is ({shorter}dtype bfloat16 or a "
            "device with more of it may help): "
        )
    message += f"{type(error).__name__}: {error}"
    failure = ItemFailure(
        item_id=item.id, index=item.index, kind=kind, message=message, traceback=traceback
    )
    return Explained(item=item, failure=failure)


def finished(
    request: Request,
    member: Member,
    logits: NDArray[np.float64],
    attributions: Sequence[Attribution],
) -> Explained:
    """The result of an item with `logits` (C,); a failure where anything is not finite."""
    encoded, labels = member.encoded, member.labels
    item = encoded.item
    if not (np.isfinite(logits).all() and all(map(_is_finite, attributions))):
        return model_failure(item, ArithmeticError("logits or relevance are not finite"))
    return Explained(
        item=item,
        attributions=tuple(attributions),
        outcome=ItemOutcome(
            item_id=item.id,
            index=item.index,
            label=None if labels is None else request.named(labels),
            predicted=request.predicted(logits),
            logits=tuple(logits.tolist()),
            truncated=encoded.truncated,
            positions=encoded.length,
            text=item.content if isinstance(item.content, str) else None,
            source=item.source,
            meta=item.meta,
            raw_label=item.label,
        ),
    )


def _is_finite(attribution: Attribution) -> bool:
    ledger = attribution.ledger
    return bool(
        np.isfinite(attribution.relevance).all()
        and (ledger is None or (isfinite(ledger.total) and isfinite(ledger.magnitude)))
    )
