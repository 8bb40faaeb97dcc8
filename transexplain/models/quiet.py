"""Silence the loading chatter of transformers for the length of one block."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0
_before: tuple[int, bool] = (0, False)


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """A panic in the Rust code of a tokenizer becomes a RuntimeError.

    It is raised as a BaseException, which would end the process like Ctrl-C.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RuntimeError(f"the tokenizer broke: {error}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no advice below errors inside; the user's settings are back after.

    Blocks may nest and overlap in threads: the first one in saves the settings and the last one
    out puts them back.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    from transformers.utils import logging

    global _inside, _before  # noqa: PLW0603  (transformers keeps its settings per process too)
    with _lock:
        if _inside == 0:
            _before = (logging.get_verbosity(), logging.is_progress_bar_enabled())
            logging.set_verbosity_error()
            logging.disable_progress_bar()
        _inside += 1


def _leave() -> None:
    from transformers.utils import logging

    global _inside  # noqa: PLW0603
    with _lock:
        _inside -= 1
        if _inside == 0:
            verbosity, bars = _before
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()
