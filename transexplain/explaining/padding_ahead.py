"""The batch that comes next, padded in another thread while the device has this one."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from transexplain.explaining.explain_request import Member
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel, Padded


class PaddingAhead:
    """Batches of one model; each may be padded in a thread before it is asked for."""

    def __init__(self, model: LoadedModel, *, beside: bool) -> None:
        """Without a thread `beside` nothing is padded before it is asked for."""
        self._model = model
        self._executor = ThreadPoolExecutor(1, "padding") if beside else None
        self._next: tuple[list[Member], Future[Padded]] | None = None

    def close(self) -> None:
        """Pad no more; nobody waits for what is being padded."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def begin(self, members: list[Member]) -> None:
        """Pad these: they are the next ones."""
        if self._executor is not None:
            padding = self._executor.submit(self._model.padded, encoded_of(members))
            self._next = members, padding

    def batch(self, members: list[Member]) -> Callable[[], Batch]:
        """What gives the batch of these, on the device; the call raises as `collate`."""
        known, self._next = self._next, None
        if known is None or known[0] is not members:
            return lambda: self._model.collate(encoded_of(members))
        return partial(_moved, known[1])


def _moved(padding: Future[Padded]) -> Batch:
    return padding.result()()


def encoded_of(members: Sequence[Member]) -> list[Encoded]:
    """The encoded items of these members, in order."""
    return [member.encoded for member in members]
