"""The explanation of a stream of items in stages, for the threads of a pipeline."""

import queue
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from itertools import chain

from transexplain.explaining.batch_sizes import Room
from transexplain.explaining.explain_request import (
    Explained,
    PaddingAhead,
    Request,
    portions,
    read_together,
)
from transexplain.explaining.item_loop import (
    Later,
    Portion,
    Silent,
    check_modality,
    explained,
    made,
)
from transexplain.interpreter import short_turns
from transexplain.models.invariance import is_measured
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.items import Item, ItemFailure
from transexplain.types.observer import Observer

Call = Callable[[], None]
#: calls that may wait: who makes them faster than they are done waits, so that memory is bounded
WAITING = 64


class OtherThread(threading.Thread):
    """A thread that makes the calls it is given, in their order, from its `start` to its `end`."""

    def __init__(self) -> None:
        super().__init__(name="finishing", daemon=True)
        self._calls: queue.Queue[Call | None] = queue.Queue(WAITING)
        self._error: BaseException | None = None
        self._ended = False

    def soon(self, call: Call) -> None:
        """Have it called, in the context of now; raises what an earlier call raised."""
        if self._error is not None:
            raise self._error
        self._calls.put(partial(copy_context().run, call))

    def end(self) -> None:
        """Let it end after the calls that it has; none is made after one that raised."""
        if not self._ended:
            self._ended = True
            self._calls.put(None)

    def over(self) -> None:
        """Wait for the last call; raises what one of them raised."""
        self.join()
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        """Make the calls."""
        with short_turns():
            while (call := self._calls.get()) is not None:
                if self._error is None:
                    try:
                        call()
                    except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
                        self._error = error


class StagedItems:
    """Items that are prepared in one thread, explained in the device's, and finished in a third.

    Call `prepare` where there is time, then `run` once; `close` where it comes to no `run`. A few
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
    ) -> None:
        """Arguments as of `explain_items`; raises ConfigurationError as it does.

        What was read of the first `keep` items stays, for who explains them once more.
        """
        check_modality(model, request)
        self._model, self._request = model, request
        self._portions: Iterator[Portion] = map(
            self._portion, portions(items, read_together(model), alone)
        )
        self._keep = keep
        self.first: dict[str, Encoded] = {}  #: the first `keep` items that can be explained, by id
        # what ends the process while it is padded ahead would be blamed on the batch before
        self._ahead = PaddingAhead(model, beside=not alone)
        self._finishing = OtherThread()
        self._finishing.start()

    def _portion(self, given: list[Item | ItemFailure | Encoded]) -> Portion:
        portion = Portion(self._model, given, self._request)
        for item in portion.whole[: self._keep - len(self.first)]:
            self.first[item.encoded.item.id] = item.encoded
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
            first.plan(Room(self._request.batch_tokens, self._model).positions)
            if first.batches:
                self._ahead.begin(first.batches[0])

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
        request, watch = self._request, observer or Silent()
        room = Room(request.batch_tokens, self._model)

        def taken(ends: list[Explained | Later]) -> None:
            ends.reverse()
            while ends:  # one by one, as to free thousands at once would hold up all threads
                take(made(ends.pop()))

        try:
            for portion in self._portions:
                ends = explained(portion, request, watch, room, self._ahead, self._soon)
                early(map(made, ends))
                self._finishing.soon(partial(taken, ends))
                del ends  # the other thread frees them
        except BaseException:
            self.close()
            self._finishing.join()
            raise
        self.close()
        return self._finishing.over

    def _soon(self, ends: Sequence[Explained | Later]) -> None:
        self._finishing.soon(partial(_all_made, ends))

    def close(self) -> None:
        """Let the threads end after what they have in hand; nothing is asked for any more."""
        self._ahead.close()
        self._finishing.end()


def _all_made(ends: Sequence[Explained | Later]) -> None:
    for end in ends:
        made(end)
