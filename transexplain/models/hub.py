"""Models from a hub: only plain data files, pinned to the commit they came from, fetched in
silence.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transexplain.errors import ModelLoadError

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


_ID = re.compile(r"(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
#: no pickle, no Python file ever leaves the hub
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.model"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """A hub model on this disk."""

    folder: Path
    source: str  #: `org/name@commit`


def is_hub_id(source: str) -> bool:
    """Whether `source` is spelt like `org/name` or `org/name@revision`."""
    return _ID.fullmatch(source) is not None and not source.startswith(".")


def fetch(source: str, *, remedy: str) -> Fetched:
    """The files of a hub id, from the cache or the net; ModelLoadError ends with `remedy`."""
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError, RevisionNotFoundError

    found = _ID.fullmatch(source)
    if found is None:
        raise ModelLoadError(f"{source!r} is no hub id (org/name or org/name@revision); {remedy}")
    repo, revision = found["repo"], found["revision"]
    try:
        with quiet():
            folder = Path(
                huggingface_hub.snapshot_download(
                    repo, revision=revision, allow_patterns=_WANTED, ignore_patterns=["*/*"]
                )
            )
    except RevisionNotFoundError as error:
        raise ModelLoadError(f"{repo} has no revision {revision!r} on the hub") from error
    except (HFValidationError, OSError, RuntimeError) as error:
        first_line = str(error).partition("\n")[0]
        raise ModelLoadError(
            f"{source!r} is no directory here, no model in the hub cache, and cannot be fetched "
            f"({type(error).__name__}: {first_line}); {remedy}"
        ) from error
    commit = folder.name if _COMMIT.fullmatch(folder.name) else revision
    return Fetched(folder=folder, source=f"{repo}@{commit}" if commit else repo)
