"""Items to attributions, in stages: read and encode, plan and pad, compute, finish.

`explain_items` is the loop of one thread. `StagedItems` is the same for the threads of an audit's
shard: while the device computes a batch, the next is padded and the last finished.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.errors import ConfigurationError, EngineError, ItemError
from transexplain.explaining.batch_sizes import Room, batches_of, is_out_of_memory
from transexplain.explaining.explain_request import (
    Explained,
    Member,
    Request,
    Stopped,
    encoded_of,
    finished,
    model_failure,
    portions,
    read_together,
)
from transexplain.explaining.long_texts import explain_in_windows
from transexplain.interpreter import short_turns
from transexplain.methods import facts_of
from transexplain.methods.at_input_layer import steps_of
from transexplain.methods.batch_explanation import BatchExplanation, Records
from transexplain.models.invariance import is_measured
from transexplain.models.loaded_model import Encoded, LoadedModel, Padded, failure
from transexplain.text.error_frames import traceback_of
from transexplain.types.items import Attribution, Item, ItemFailure, ResolvedTarget
from transexplain.types.observer import Observer
from transexplain.types.plans import AT_POSITIONS
from transexplain.types.targets import parse_target

#: the end of an item, or the call that makes its records
End = Explained | Callable[[], Explained]


def _end_of_row(
    request: Request, member: Member, explained: BatchExplanation, row: int
) -> Explained:
    records = explained.attributions
    finite = isinstance(records, Records) and records.are_finite
    return finished(request, member, explained.logits[row], records[row], finite=finite)


def _made(end: End) -> Explained:
    return end if isinstance(end, Explained) else end()


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
    stages = StagedItems(model, items, request, alone, threads=False)
    for portion in stages.explained(observer or Silent()):
        yield from portion.taken()


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


class _Portion:
    """Items that were read together: those that can be explained, and the ends of the others."""

    def __init__(
        self, model: LoadedModel, entries: list[Item | ItemFailure | Encoded], request: Request
    ) -> None:
        """Encode those that are not yet; no device is needed.

        `entries` is emptied, so that what was read of an item goes when its end is made.
        """
        self.done: dict[int, End] = {}  #: ends by place
        self.whole: list[Member] = []  #: items that the model reads in one pass
        self.long: list[Member] = []  #: in windows
        self._model, self._request, self._count = model, request, len(entries)
        self._accept(entries)
        entries.clear()
        self.budget = 0  #: positions of a batch that it is planned for; 0: it is not
        self.batches: deque[list[Member]] = deque()

    def _accept(self, entries: Sequence[Item | ItemFailure | Encoded]) -> None:
        request, scheme = self._request, self._request.scheme
        classes: dict[str | None, tuple[int, ...] | None] = {}  # by label
        labelled = any(target.kind == "label" for target in request.targets)
        items = [entry for entry in entries if isinstance(entry, Item)]
        encodings = iter(request.encode(self._model, items) if items else ())
        for place, entry in enumerate(entries):
            encoded = next(encodings) if isinstance(entry, Item) else entry
            if not isinstance(encoded, Encoded):
                item = entry if isinstance(entry, Item) else None
                self.done[place] = Explained(item=item, failure=encoded)
                continue
            item = encoded.item
            try:
                if scheme is not None:
                    scheme.check(item)
                if item.label not in classes:
                    classes[item.label] = request.classes_of(item)
            except ItemError as error:
                self.done[place] = Explained(item=item, failure=failure(item, error))
                continue
            labels = classes[item.label]
            if labels is None and labelled:
                self.done[place] = Explained(item=item, failure=_no_label(item))
            else:
                (self.long if encoded.windows else self.whole).append(
                    Member(place, encoded, labels)
                )

    def plan(self, budget: int) -> None:
        """Cut what the model reads in one pass into batches of at most `budget` positions."""
        left, self.budget = [*self.whole, *chain.from_iterable(self.batches)], budget
        self.whole.clear()
        planned = batches_of(self._model, encoded_of(left), budget)
        self.batches = deque([left[index] for index in batch] for batch in planned)

    def finish(self, members: Sequence[Member]) -> None:
        """Make the records of these, whose batch is over."""
        for member in members:
            self.done[member.place] = _made(self.done[member.place])

    def ends(self) -> Iterator[Explained]:
        """The ends of all items, in order."""
        return (_made(self.done[place]) for place in range(self._count))

    def taken(self) -> Iterator[Explained]:
        """The ends once more, each of which is forgotten here.

        One by one, as to free thousands at once would hold up all threads.
        """
        return (_made(self.done.pop(place)) for place in range(self._count))


def _no_label(item: Item) -> ItemFailure:
    label = "no label" if item.label is None else f"label {item.label!r}, which is no class"
    return ItemFailure(
        item_id=item.id,
        index=item.index,
        kind="no-label",
        message=f"the target `label` was requested but item {item.id!r} has {label}",
    )


class StagedItems:
    """Items that are read, planned and padded, explained by the device, and finished.

    With `threads` the next batch is padded in one of its own, and records are made in another:
    call `prepare` where there is time, then `run` once; `close` where it comes to no `run`. A few
    hundred items are ahead of the device at most.
    """

    def __init__(
        self,
        model: LoadedModel,
        items: Iterable[Item | ItemFailure | Encoded],
        request: Request,
        alone: Collection[str] = (),
        *,
        keep: int = 0,
        threads: bool = True,
    ) -> None:
        """Arguments as of `explain_items`; raises ConfigurationError as it does.

        What was read of the first `keep` items stays, for who explains them once more.
        """
        check_modality(model, request)
        self._model, self.request, self._keep = model, request, keep
        self._portions: Iterator[_Portion] = map(
            self._read, portions(items, read_together(model), alone)
        )
        self.first: dict[str, Encoded] = {}  #: the first `keep` items that can be explained, by id
        # what ends the process while it is padded ahead would be blamed on the batch before
        self._padding = ThreadPoolExecutor(1, "padding") if threads and not alone else None
        self._padded: tuple[list[Member], Future[Padded]] | None = None
        self._finishing = OtherThread() if threads else None

    def _read(self, entries: list[Item | ItemFailure | Encoded]) -> _Portion:
        portion = _Portion(self._model, entries, self.request)
        for member in portion.whole[: self._keep - len(self.first)]:
            self.first[member.encoded.item.id] = member.encoded
        return portion

    def prepare(self) -> None:
        """Read the first items, and plan and pad their first batch, while the device has others.

        Raises what reading them raises.
        """
        first = next(self._portions, None)
        if first is None:
            return
        self._portions = chain((first,), self._portions)
        if is_measured(self._model):  # otherwise the plan needs passes of the model
            first.plan(Room(self.request.batch_tokens, self._model).positions)
            if first.batches:
                self._pad(first.batches[0])

    def run(
        self,
        take: Callable[[Explained], None],
        *,
        observer: Observer | None = None,
        early: Callable[[Iterator[Explained]], None] = lambda ends: None,
    ) -> Callable[[], None]:
        """Explain all items; each end is made, and given to `take`, in another thread.

        `take` is called for one item after the other, in their order. `early` is called in this
        thread with the ends of the items that were read together, in their order; those that it
        asks for are made here.

        Returns, after the last batch, what waits for the last call of `take`, and raises what one
        of them raised. Raises as `explain_items`, and what `take` raised so far.
        """
        finishing = self._finishing
        assert finishing is not None

        def take_all(portion: _Portion) -> None:
            for end in portion.taken():
                take(end)

        try:
            for portion in self.explained(observer or Silent()):
                early(portion.ends())
                finishing.soon(partial(take_all, portion))
        except BaseException:
            self.close()
            finishing.stop()
            raise
        self.close()
        return finishing.over

    def close(self) -> None:
        """Let the threads end after what they have in hand; nothing is asked for any more."""
        if self._padding is not None:
            self._padding.shutdown(wait=False, cancel_futures=True)
        if self._finishing is not None:
            self._finishing.end()

    def explained(self, observer: Observer) -> Iterator[_Portion]:
        """Yield the items that were read together with their ends; raises as `explain_items`."""
        self._observer, self._room = observer, Room(self.request.batch_tokens, self._model)
        for portion in self._portions:
            ends = [end for end in portion.done.values() if isinstance(end, Explained)]
            if failed := [end.item_id for end in ends]:
                observer.item_done(*failed)
            while portion.whole or portion.batches:
                self._explain_next(portion)
            ends_of_long = explain_in_windows(portion.long, self.request, observer, self._room)
            portion.done.update((member.place, end) for member, end in ends_of_long)
            portion.long.clear()
            yield portion

    def _explain_next(self, portion: _Portion) -> None:
        """Explain the next batch of what the model reads in one pass."""
        room = self._room
        if room.positions > portion.budget:
            portion.plan(room.positions)
        batches = portion.batches
        members = batches.popleft()
        encoded = encoded_of(members)
        if not room.holds(encoded):
            batches.extendleft(reversed(_halves(members)))
            return
        if self._observer.should_stop():
            raise Stopped
        padded, self._padded = self._padded, None
        if batches:
            self._pad(batches[0])
        with room.timed(encoded):
            ends = self._explain_batch(members, padded)
        portion.done.update(zip([member.place for member in members], ends, strict=True))
        if self._finishing is not None:
            self._finishing.soon(partial(portion.finish, members))
        self._observer.item_done(*[entry.item.id for entry in encoded])

    def _pad(self, members: list[Member]) -> None:
        if self._padding is not None:
            padded = self._padding.submit(self._model.padded, encoded_of(members))
            self._padded = members, padded

    def _explain_batch(
        self, members: list[Member], padded: tuple[list[Member], Future[Padded]] | None = None
    ) -> list[End]:
        """Explain a batch; on an error halve it, so that only the item at fault is lost.

        `padded` are the members of a batch that was padded ahead, which may be this one.
        """
        model, request = self._model, self.request

        def resolve(logits: NDArray[np.floating[Any]]) -> list[list[ResolvedTarget]]:
            return request.resolve(model, logits, members)

        self._observer.batch_started([member.encoded.item.id for member in members])
        try:
            if padded is not None and padded[0] is members:
                batch = padded[1].result()()
            else:
                batch = model.collate(encoded_of(members))
            explained = request.run(model, batch, resolve)
        except (EngineError, ConfigurationError):
            raise
        except Exception as error:  # noqa: BLE001 - becomes the item's error row
            trace = traceback_of(error) if len(members) == 1 else ""
            failed = error.with_traceback(None)
        else:
            return [
                partial(_end_of_row, request, member, explained, row)
                for row, member in enumerate(members)
            ]
        if is_out_of_memory(failed):
            freed = self._room.was_too_small_for(encoded_of(members))
            if freed and len(members) == 1:
                with steps_of(model).eagerly():
                    return self._explain_batch(members)
        if len(members) == 1:
            return [model_failure(members[0].encoded.item, failed, trace)]
        return [end for half in _halves(members) for end in self._explain_batch(half)]


def _halves(members: list[Member]) -> tuple[list[Member], list[Member]]:
    middle = len(members) // 2
    return members[:middle], members[middle:]


#: calls that may wait: who makes them faster than they are done waits, so that memory is bounded
WAITING = 64


class OtherThread:
    """A thread that makes the calls it is given, in their order."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "finishing")
        self._calls: deque[Future[None]] = deque()

    def soon(self, call: Callable[[], None]) -> None:
        """Have it called, in the context of now; raises what an earlier call raised."""
        while self._calls and (self._calls[0].done() or len(self._calls) > WAITING):
            self._calls.popleft().result()
        self._calls.append(self._executor.submit(copy_context().run, _in_short_turns, call))

    def end(self) -> None:
        """Let it end after the calls that it has."""
        self._executor.shutdown(wait=False)

    def stop(self) -> None:
        """Wait for the call that it makes; the others are not made."""
        self._executor.shutdown(cancel_futures=True)

    def over(self) -> None:
        """Wait for the last call; raises what the first of them raised that failed."""
        try:
            while self._calls:
                self._calls.popleft().result()
        finally:
            self.stop()


def _in_short_turns(call: Callable[[], None]) -> None:
    with short_turns():
        call()


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
