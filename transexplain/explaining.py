"""Items to attributions in batches: the loop under both `explain` and an audit's shard."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError, EngineError
from transexplain.methods import bound
from transexplain.methods.base import BatchExplanation
from transexplain.methods.batching import batches_of
from transexplain.models.base import Encoded, LoadedModel
from transexplain.plans import AuditPlan, MethodSpec, Modality, Observer
from transexplain.targets import ClassNames, label_index, parse_target, resolve_target
from transexplain.types import (
    Attribution,
    Item,
    ItemFailure,
    ItemOutcome,
    ResolvedTarget,
    Target,
)

#: items that are read and sorted by length together; pictures are large and all of one length
WINDOWS: Mapping[Modality, int] = {"text": 256, "image": 32, "nodes": 32}


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to explain and how, whatever the items."""

    method: MethodSpec
    targets: tuple[Target, ...]
    names: ClassNames
    labels: Mapping[str, str] = field(default_factory=dict)
    long_text: Literal["truncate", "error"] = "truncate"
    max_length: int | None = None
    batch_tokens: int = 2048

    @classmethod
    def from_plan(cls, plan: AuditPlan) -> "Request":
        """Parse the plan's targets; raises TargetError."""
        names = ClassNames(plan.model.classes, plan.classifications)
        return cls(
            method=plan.method,
            targets=tuple(parse_target(spec, names) for spec in plan.targets),
            names=names,
            labels=plan.labels,
            long_text=plan.long_text,
            max_length=plan.max_length,
            batch_tokens=plan.batch_tokens,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """One item's end: its outcome with attributions, or its failure."""

    item: Item | None
    outcome: ItemOutcome | None = None
    attributions: tuple[Attribution, ...] = ()
    failure: ItemFailure | None = None


class Silent:
    """The observer of a caller who does not watch."""

    def batch_started(self, item_ids: Sequence[str]) -> None:
        """Nothing."""

    def item_done(self, item_id: str) -> None:
        """Nothing."""

    def should_stop(self) -> bool:
        """Never."""
        return False


class Stopped(Exception):  # noqa: N818 - not an error: the observer asked for it
    """The observer's `should_stop` ended the work before the shard was complete."""


def explain_items(
    model: LoadedModel,
    items: Iterable[Item | ItemFailure],
    request: Request,
    *,
    observer: Observer | None = None,
) -> Iterator[Explained]:
    """Explain items in batches of similar length; results come in the order of the items.

    Items are taken in windows, so that neither a long stream nor large pictures fill the memory.
    A failing item costs only itself: the batch it is in is halved until it is alone.

    Raises:
        Stopped: the observer asked to stop.
        EngineError: the model has an operator without a rule.
    """
    stream = iter(items)
    while window := list(islice(stream, WINDOWS[model.modality])):
        yield from _explain_window(model, window, request, observer or Silent())


def _explain_window(
    model: LoadedModel, given: list[Item | ItemFailure], request: Request, watch: Observer
) -> list[Explained]:
    done: dict[int, Explained] = {}
    accepted: list[tuple[int, Encoded, int | None]] = []
    for position, encoded in _encoded(model, given, request):
        if isinstance(encoded, ItemFailure):
            done[position] = _failed(given[position], encoded, watch)
            continue
        label = label_index(encoded.item.label, request.names, request.labels)
        if label is None and any(target.kind == "label" for target in request.targets):
            done[position] = _failed(encoded.item, _no_label(encoded.item), watch)
        else:
            accepted.append((position, encoded, label))
    for batch in batches_of(model, [entry[1] for entry in accepted], request.batch_tokens):
        if watch.should_stop():
            raise Stopped
        members = [accepted[index] for index in batch]
        watch.batch_started([encoded.item.id for _, encoded, _ in members])
        for (position, encoded, _), result in zip(
            members, _explain_batch(model, members, request), strict=True
        ):
            done[position] = result
            watch.item_done(encoded.item.id)
    return [done[position] for position in range(len(given))]


def _encoded(
    model: LoadedModel, given: Sequence[Item | ItemFailure], request: Request
) -> Iterator[tuple[int, Encoded | ItemFailure]]:
    places = [place for place, entry in enumerate(given) if isinstance(entry, Item)]
    readable = [entry for entry in given if isinstance(entry, Item)]
    encoded = model.encode(readable, long_text=request.long_text, max_length=request.max_length)
    yield from zip(places, encoded, strict=True)
    yield from (
        (place, entry) for place, entry in enumerate(given) if isinstance(entry, ItemFailure)
    )


def _failed(item: Item | ItemFailure, failure: ItemFailure, watch: Observer) -> Explained:
    watch.item_done(failure.item_id)
    return Explained(item=item if isinstance(item, Item) else None, failure=failure)


def _no_label(item: Item) -> ItemFailure:
    given = "no label" if item.label is None else f"label {item.label!r}, which is no class"
    return ItemFailure(
        item_id=item.id,
        index=item.index,
        kind="no-label",
        message=f"the target `label` was asked but item {item.id!r} has {given}",
    )


Member = tuple[int, Encoded, int | None]


def _explain_batch(
    model: LoadedModel, members: Sequence[Member], request: Request
) -> list[Explained]:
    """Explain a batch; on an error halve it, so that only the item at fault is lost."""
    try:
        explained = _run_method(model, members, request)
    except (EngineError, ConfigurationError):
        raise
    except Exception as error:  # noqa: BLE001 - becomes the item's error row
        if len(members) > 1:
            middle = len(members) // 2
            halves = (members[:middle], members[middle:])
            return [one for half in halves for one in _explain_batch(model, half, request)]
        return [_model_failure(members[0][1].item, error)]
    return [
        _finish(model, member, explained.logits[row], explained.attributions[row])
        for row, member in enumerate(members)
    ]


def _run_method(
    model: LoadedModel, members: Sequence[Member], request: Request
) -> BatchExplanation:
    def resolve(logits: NDArray[np.floating[Any]]) -> list[list[ResolvedTarget]]:
        return [
            [
                resolved
                for target in request.targets
                for resolved in resolve_target(target, row, model.classes, label)
            ]
            for row, (_, _, label) in zip(logits, members, strict=True)
        ]

    method: Callable[..., BatchExplanation] = bound(request.method)
    return method(model, model.collate([encoded for _, encoded, _ in members]), resolve)


def _model_failure(item: Item, error: Exception) -> Explained:
    message = f"the model failed on item {item.id!r}: {type(error).__name__}: {error}"
    failure = ItemFailure(item_id=item.id, index=item.index, kind="model-error", message=message)
    return Explained(item=item, failure=failure)


def _finish(
    model: LoadedModel,
    member: Member,
    logits: NDArray[np.float64],
    attributions: Sequence[Attribution],
) -> Explained:
    _, encoded, label = member
    item = encoded.item
    if not (np.isfinite(logits).all() and all(map(_is_finite, attributions))):
        return _model_failure(item, ArithmeticError("logits or relevance are not finite"))
    return Explained(
        item=item,
        attributions=tuple(attributions),
        outcome=ItemOutcome(
            item_id=item.id,
            index=item.index,
            label=None if label is None else model.classes[label],
            predicted=model.classes[int(np.argmax(logits))],
            logits=tuple(logits.tolist()),
            truncated=encoded.truncated,
            positions=encoded.length,
            text=item.content if isinstance(item.content, str) else None,
            source=item.source,
            meta=item.meta,
        ),
    )


def _is_finite(attribution: Attribution) -> bool:
    ledger = attribution.ledger
    return bool(
        np.isfinite(attribution.relevance).all()
        and (ledger is None or np.isfinite([ledger.total, ledger.magnitude]).all())
    )
