"""Changes of the whole process while some work is under way: settings of Python and of libraries.

Where several threads want the same change, the first to begin makes it and the last to end undoes
it.
"""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

_ALLOCATIONS = 50_000  #: records made between two garbage collections; Python's default is 700
#: seconds after which a thread lets another one run: who comes back from a device has a batch to
#: begin, and would wait for Python's usual 5 ms while the records of the last one are made
_TURN = 0.0005

_Of = ParamSpec("_Of")
_Gives = TypeVar("_Gives")
Change = Callable[[], AbstractContextManager[None]]


def shared(change: Change) -> Change:
    """The same change as blocks that may nest, and overlap in threads."""
    lock, undo = threading.Lock(), ExitStack()
    blocks = 0

    @contextmanager
    def block() -> Iterator[None]:
        nonlocal blocks
        with lock:
            if not blocks:
                undo.enter_context(change())
            blocks += 1
        try:
            yield
        finally:
            with lock:
                blocks -= 1
                if not blocks:
                    undo.close()

    return block


@shared
@contextmanager
def few_collections() -> Iterator[None]:
    """A block in which garbage is looked for rarely.

    The records of a shard all stay, and a collection of everything reads through what torch and
    the model hold, too: at the default it took a third of the time of a text.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _ALLOCATIONS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@shared
@contextmanager
def short_turns() -> Iterator[None]:
    """A block in which threads change after half a millisecond, where others wait."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _TURN))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def outside_inference_mode(function: Callable[_Of, _Gives]) -> Callable[_Of, _Gives]:
    """The function with gradients to be had, as torch's decorator; torch is imported on call."""

    @wraps(function)
    def called(*args: _Of.args, **keys: _Of.kwargs) -> _Gives:
        import torch

        with torch.inference_mode(False):
            return function(*args, **keys)

    return called
