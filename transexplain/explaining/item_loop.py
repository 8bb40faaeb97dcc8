"""The loop over items: read some, encode them, explain them in batches of similar length."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError, EngineError, ItemError
from transexplain.explaining.batch_sizes import Room, batches_of, is_out_of_memory
from transexplain.explaining.explain_request import (
    Explained,
    Member,
    PaddingAhead,
    Request,
    Stopped,
    encoded_of,
    finished,
    model_failure,
    portions,
    read_together,
)
from transexplain.explaining.long_texts import explain_in_windows
from transexplain.methods import facts_of
from transexplain.methods.at_input_layer import steps_of
from transexplain.methods.batch_explanation import BatchExplanation, Records
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel, failure
from transexplain.text.error_frames import traceback_of
from transexplain.types.items import Attribution, Item, ItemFailure, ResolvedTarget
from transexplain.types.observer import Observer
from transexplain.types.plans import AT_POSITIONS
from transexplain.types.targets import parse_target


class Later:
    """The end of an item that a batch was computed with; its records are made when needed."""

    __slots__ = ("_given", "_made")

    def __init__(
        self, request: Request, member: Member, explained: BatchExplanation, row: int
    ) -> None:
        self._given: tuple[Request, Member, BatchExplanation, int] | None
        self._given = (request, member, explained, row)
        self._made: Explained | None = None

    def made(self) -> Explained:
        """The end itself; two threads that ask at once may each get one."""
        if (given := self._given) is not None:
            request, member, explained, row = given
            records = explained.attributions
            finite = isinstance(records, Records) and records.are_finite
            self._made = finished(
                request, member, explained.logits[row], records[row], finite=finite
            )
            self._given = None  # the arrays of the batch may go
        assert self._made is not None
        return self._made


class Silent:
    """An observer that ignores all reports and never stops."""

    def batch_started(self, item_ids: Sequence[str]) -> None:
        """Nothing."""

    def check_started(self, item_ids: Sequence[str]) -> None:
        """Nothing."""

    def item_done(self, *item_ids: str) -> None:
        """Nothing."""

    def should_stop(self) -> bool:
        """Never."""
        return False


def explain_items(
    model: LoadedModel,
    items: Iterable[Item | ItemFailure | Encoded],
    request: Request,
    *,
    observer: Observer | None = None,
    alone: Collection[str] = (),
) -> Iterator[Explained]:
    """Explain items in batches of similar length; results come in the order of the items.

    A few hundred items are read at a time, so that neither a long stream nor large pictures fill
    the memory; those that are encoded already stay so. A failing item costs only itself: the batch
    it is in is halved until it is alone. Where memory ran out, batches stay smaller. The items
    `alone` (ids) never share a batch.

    Raises:
        Stopped: the observer requested a stop.
        EngineError: the model has an operator without a rule.
        ConfigurationError: `window`, `stride` or the method does not fit the model.
    """
    check_modality(model, request)
    room, watch = Room(request.batch_tokens, model), observer or Silent()
    ahead = PaddingAhead(model, beside=False)
    for given in portions(items, read_together(model), alone):
        for end in explained(Portion(model, given, request), request, watch, room, ahead):
            yield made(end)


def made(end: Explained | Later) -> Explained:
    """The end with its records."""
    return end if isinstance(end, Explained) else end.made()


def check_modality(model: LoadedModel, request: Request) -> None:
    """Raise ConfigurationError where the method does not fit the model."""
    name = request.method.name
    takes = (facts := facts_of(name)).modalities
    if model.modality not in takes:
        raise ConfigurationError(
            f"method {name!r} is for {' and '.join(takes)}, and this model reads {model.modality}"
        )
    if model.ref.head in AT_POSITIONS and not facts.at_positions:
        raise ConfigurationError(
            f"method {name!r} explains one answer of an item, and this model answers at every "
            "position; choose one that explains logits there, such as lrp"
        )


class Portion:
    """Items that were read together: those that can be explained, and the ends of the others."""

    def __init__(
        self,
        model: LoadedModel,
        given: list[Item | ItemFailure | Encoded],
        request: Request,
    ) -> None:
        """Encode those that are not yet; no device is needed.

        `given` is emptied, so that what was read of an item goes when its end is made.
        """
        self.done: dict[int, Explained | Later] = {}  #: ends by place
        self.count = len(given)
        self.whole, self.long = _accepted(model, given, request, self.done)
        self.budget = 0  #: positions of a batch that it is planned for; 0: it is not
        self._model = model
        given.clear()
        self.batches: deque[list[Member]] = deque()

    def plan(self, budget: int) -> None:
        """Cut what the model reads in one pass into batches of at most `budget` positions."""
        left, self.budget = [*self.whole, *chain.from_iterable(self.batches)], budget
        self.whole.clear()
        planned = batches_of(self._model, [member.encoded for member in left], budget)
        self.batches = deque([left[index] for index in batch] for batch in planned)


def explained(
    portion: Portion,
    request: Request,
    watch: Observer,
    room: Room,
    ahead: PaddingAhead,
    soon: Callable[[Sequence[Explained | Later]], None] = lambda ends: None,
) -> list[Explained | Later]:
    """The ends of these items, in order; `soon` receives those of each batch when it is over.

    The portion is used up. Raises as `explain_items`.
    """
    ends = [end for end in portion.done.values() if isinstance(end, Explained)]
    if failed := [end.failure.item_id for end in ends if end.failure is not None]:
        watch.item_done(*failed)
    _explain_whole(portion, request, watch, room, ahead, soon)
    for member, result in explain_in_windows(portion.long, request, watch, room):
        portion.done[member.place] = result
    done, portion.done = portion.done, {}
    return [done[place] for place in range(portion.count)]


def _accepted(
    model: LoadedModel,
    given: Sequence[Item | ItemFailure | Encoded],
    request: Request,
    done: dict[int, Explained | Later],
) -> tuple[list[Member], list[Member]]:
    """The items that can be explained, in one pass and in windows; `done` gets the others' ends."""
    whole: list[Member] = []
    long: list[Member] = []
    classes: dict[str | None, tuple[int, ...] | None] = {}  # by label
    labelled = any(target.kind == "label" for target in request.targets)
    items = [entry for entry in given if isinstance(entry, Item)]
    encodings = iter(request.encode(model, items) if items else ())
    for place, entry in enumerate(given):
        encoded = next(encodings) if isinstance(entry, Item) else entry
        if not isinstance(encoded, Encoded):
            done[place] = _failed(entry, encoded)
            continue
        item = encoded.item
        try:
            request.check(item)
            if item.label not in classes:
                classes[item.label] = request.classes_of(item)
        except ItemError as error:
            done[place] = _failed(item, failure(item, error))
            continue
        labels = classes[item.label]
        if labels is None and labelled:
            done[place] = _failed(item, _no_label(item))
        else:
            (long if encoded.windows else whole).append(Member(place, encoded, labels))
    return whole, long


def _failed(item: Item | ItemFailure | Encoded, failure: ItemFailure) -> Explained:
    return Explained(item=item if isinstance(item, Item) else None, failure=failure)


def _no_label(item: Item) -> ItemFailure:
    given = "no label" if item.label is None else f"label {item.label!r}, which is no class"
    return ItemFailure(
        item_id=item.id,
        index=item.index,
        kind="no-label",
        message=f"the target `label` was requested but item {item.id!r} has {given}",
    )


def _explain_whole(
    portion: Portion,
    request: Request,
    watch: Observer,
    room: Room,
    ahead: PaddingAhead,
    soon: Callable[[Sequence[Explained | Later]], None],
) -> None:
    """Items that the model reads in one pass, several in a batch; `done` gets their ends."""
    while portion.whole or portion.batches:
        if room.positions > portion.budget:
            portion.plan(room.positions)
        batches = portion.batches
        members = batches.popleft()
        encoded = encoded_of(members)
        if not room.holds(encoded):
            batches.extendleft(reversed(_halves(members)))
            continue
        if watch.should_stop():
            raise Stopped
        batch = ahead.batch(members)
        if batches:
            ahead.begin(batches[0])
        with room.timed(encoded):
            results = _explain_batch(members, request, watch, room, batch)
        del batch
        soon(results)
        watch.item_done(*[entry.item.id for entry in encoded])
        portion.done.update(zip([member.place for member in members], results, strict=True))
        del members, encoded, results  # the end of an item frees what was read of it


def _explain_batch(
    members: list[Member],
    request: Request,
    watch: Observer,
    room: Room,
    collated: Callable[[], Batch] | None = None,
) -> list[Explained | Later]:
    """Explain a batch; on an error halve it, so that only the item at fault is lost."""
    model = room.model

    def resolve(logits: NDArray[np.floating[Any]]) -> list[list[ResolvedTarget]]:
        return request.resolve(model, logits, members)

    watch.batch_started([member.encoded.item.id for member in members])
    try:
        batch = model.collate(encoded_of(members)) if collated is None else collated()
        explained = request.run(model, batch, resolve)
    except (EngineError, ConfigurationError):
        raise
    except Exception as error:  # noqa: BLE001 - becomes the item's error row
        trace = traceback_of(error) if len(members) == 1 else ""
        failed = error.with_traceback(None)
    else:
        return [Later(request, member, explained, row) for row, member in enumerate(members)]
    if is_out_of_memory(failed):
        freed = room.was_too_small_for(encoded_of(members))
        if freed and len(members) == 1:
            with steps_of(model).eagerly():
                return _explain_batch(members, request, watch, room)
    if len(members) == 1:
        return [model_failure(members[0].encoded.item, failed, trace)]
    return [
        explained
        for half in _halves(members)
        for explained in _explain_batch(half, request, watch, room)
    ]


def _halves(members: list[Member]) -> tuple[list[Member], list[Member]]:
    middle = len(members) // 2
    return members[:middle], members[middle:]


def explain_again(
    model: LoadedModel,
    request: Request,
    wanted: Sequence[tuple[Item | ItemFailure, tuple[str, ...] | None]],
    *,
    observer: Observer | None = None,
    alone: Collection[str] = (),
) -> list[Explained]:
    """Explain each item for targets of its own; None stands for those of the request.

    Items of the same targets share batches. The results are in the order of `wanted`: items, or why
    there is none, each with its targets as a plan writes them. Other arguments are those of
    `explain_items`, which says what is raised.
    """
    by_targets: dict[tuple[str, ...] | None, list[int]] = {}
    for number, (_, specs) in enumerate(wanted):
        by_targets.setdefault(specs, []).append(number)
    results: dict[int, Explained] = {}
    for specs, numbers in by_targets.items():
        own = request
        if specs is not None:
            targets = tuple(parse_target(spec, request.names) for spec in specs)
            own = replace(request, targets=targets)
        items = [wanted[number][0] for number in numbers]
        ends = explain_items(model, items, own, observer=observer, alone=alone)
        results.update(zip(numbers, ends, strict=True))
    return [results[number] for number in range(len(wanted))]


def same_class(attribution: Attribution) -> str:
    """The target that explains the class of an attribution, whatever is predicted now."""
    if attribution.class_index is None:
        return attribution.target
    return f"class:{attribution.class_name}"
