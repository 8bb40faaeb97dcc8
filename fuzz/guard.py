"""What no input may do, whatever its bytes: the oracle that all ways in share.

A target may return, or raise an error of `transexplain.errors` whose message a person can read.
Anything else is a finding: another exception, too much time or memory, a file outside the
sandbox, a process, a connection, an unpickled class, code compiled from data, a module that nobody
requested.
"""

import collections
import contextlib
import dataclasses
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from transexplain.errors import TransExplainError

#: characters of a message, whatever the input's size
LONGEST_MESSAGE = 2_500
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_REPOSITORY = Path(__file__).resolve().parents[1]
#: never right, whatever the arguments
_FORBIDDEN = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.kill",
        "os.posix_spawn",
        "os.putenv",
        "os.spawn",
        "os.startfile",
        "os.system",
        "pickle.find_class",
        "pty.spawn",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "socket.sendto",
        "subprocess.Popen",
        "urllib.Request",
        "webbrowser.open",
    }
)
#: event -> which of its arguments are paths that are written
_WRITING = {
    "os.chmod": (0,),
    "os.link": (0, 1),
    "os.mkdir": (0,),
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.rmdir": (0,),
    "os.symlink": (0, 1),
    "os.truncate": (0,),
    "shutil.rmtree": (0,),
}
_LISTING = ("os.listdir", "os.scandir")
#: modules that compile code of their own, with names that they have checked
_MAKERS = (collections.__file__, dataclasses.__file__)
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SYSTEM = ("/usr/share/zoneinfo", "/dev/null", "/dev/urandom", "/proc/self", "/proc/cpuinfo")


class BrokenPromiseError(AssertionError):
    """What a way in promises does not hold for an input."""


class Escaped(BaseException):
    """The code reached for something outside; no `except Exception` may swallow it."""


class OutOfTime(BaseException):
    """The code used more processor time than an input of this size may."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What went wrong with one input."""

    signature: str  #: the same for inputs that find the same fault
    text: str  #: for a person, with the traceback


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one input may use."""

    seconds: float = 2.0  #: of processor time
    megabytes: int = 200  #: more than the process ever held before
    modules: tuple[str, ...] = ()  #: top-level modules that the code imports when first needed


@contextlib.contextmanager
def sandbox(parent: Path) -> Iterator[Path]:
    """Work in a folder of `parent`, beside another one whose file nobody may reach."""
    inside, outside, before = parent / "inside", parent / "outside", Path.cwd()
    for folder in (inside, outside):
        folder.mkdir()
    (outside / "secret.txt").write_text("nobody may read this", encoding="utf-8")
    temporary, tempfile.tempdir = tempfile.tempdir, str(inside)
    os.chdir(inside)
    try:
        yield inside
    finally:
        os.chdir(before)
        tempfile.tempdir = temporary


def promise(holds: object, what: str) -> None:
    """Raise BrokenPromiseError, which says `what`, unless it holds."""
    if not holds:
        raise BrokenPromiseError(what)


class Guard:
    """Runs a target on inputs, one at a time; `inside` is the folder of its `sandbox`.

    The hook cannot be taken out of the process again; between inputs it does nothing.
    """

    def __init__(self, target: Callable[[bytes], None], limits: Limits, inside: Path) -> None:
        self._target, self._limits = target, limits
        self._sandbox = f"{inside.resolve()}{os.sep}"
        places = (sys.prefix, sys.base_prefix, str(_REPOSITORY / "transexplain"), *sys.path)
        self._readable = tuple(
            os.path.realpath(place) for place in (*places, *_SYSTEM) if place not in ("", ".")
        )
        self._active = self._looking = False
        self._escapes: list[str] = []
        sys.addaudithook(self._audit)

    def attempt(self, data: bytes) -> Finding | None:
        """Give one input to the target; what is wrong, or None."""
        self._escapes.clear()
        before = _peak_megabytes()
        fault: BaseException | None = None
        compiles, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # of what it imports
        with _processor_time(self._limits.seconds):
            self._active = True
            try:
                self._target(data)
            except TransExplainError as error:
                fault = _unreadable(error)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - SystemExit, too, is a finding
                fault = error
            finally:
                self._active = False
                sys.dont_write_bytecode = compiles
        if self._escapes and not isinstance(fault, Escaped):
            fault = Escaped(self._escapes[0])
        grown = _peak_megabytes() - before
        if fault is None and grown > self._limits.megabytes:
            fault = BrokenPromiseError(f"{grown} MB of memory for {len(data)} bytes")
        return None if fault is None else _finding(fault)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active or self._looking:
            return
        self._looking = True
        try:
            wrong = self._wrong(event, arguments)
        finally:
            self._looking = False
        if wrong:
            self._escapes.append(wrong)
            raise Escaped(wrong)

    def _wrong(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        if event in _FORBIDDEN:
            return f"{event} {arguments!r}"
        if event == "open":
            path, _, flags = arguments
            writes = bool(flags and flags & _WRITE_FLAGS)
            return None if self._may(path, writes=writes) else f"open {path!r} (writes: {writes})"
        if event in _WRITING:
            paths = [arguments[place] for place in _WRITING[event]]
            return None if all(self._may(one, writes=True) for one in paths) else f"{event} {paths}"
        if event in _LISTING:
            return None if self._may(arguments[0], writes=False) else f"{event} {arguments[0]!r}"
        if event == "import":
            return self._import(str(arguments[0]))
        if event in ("exec", "compile") and not _is_made():
            return f"{event} {str(arguments[0])[:80]}"
        return None

    def _may(self, path: Any, *, writes: bool) -> bool:
        if path is None or isinstance(path, int):
            return True  # the working directory; a file that is open already
        real = os.path.realpath(os.fsdecode(path))
        if f"{real}{os.sep}".startswith(self._sandbox):
            return True
        return not writes and real.startswith(self._readable)

    def _import(self, name: str) -> str | None:
        first = name.partition(".")[0]
        known = first in sys.modules or first in self._limits.modules
        return None if known or _is_made() else f"import {name}"


def _is_made() -> bool:
    """Whether a module that may be imported is being executed, or a dataclass made."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if (code.co_name == "exec_module" and "importlib" in code.co_filename) or (
            code.co_filename in _MAKERS
        ):
            return True
        frame = frame.f_back
    return False


def _peak_megabytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


@contextlib.contextmanager
def _processor_time(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the code inside; its own clock, so a busy machine is no finding."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise OutOfTime(f"more than {seconds:g} s of processor time")

    previous = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def _unreadable(error: TransExplainError) -> BrokenPromiseError | None:
    """Why a person cannot use this message; None where one can."""
    message, kind = str(error), type(error).__name__
    wrong = None
    if not message.strip():
        wrong = "is empty"
    elif len(message) > LONGEST_MESSAGE:
        wrong = f"has {len(message)} characters"
    elif bad := _CONTROL.search(message):
        wrong = f"holds the control character {bad[0]!r}"
    if wrong is None:
        return None
    broken = BrokenPromiseError(f"the message of {kind} {wrong}: {message[:300]!r}")
    return broken.with_traceback(error.__traceback__)


def _finding(fault: BaseException) -> Finding:
    frames = traceback.extract_tb(fault.__traceback__)
    own = [one for one in frames if Path(one.filename).is_relative_to(_REPOSITORY)]
    places = [f"{Path(one.filename).name}:{one.name}:{one.lineno}" for one in own[-1:]]
    places += [f"{Path(one.filename).name}:{one.name}" for one in frames[-1:]]
    message = (
        re.sub(r"\d+", "N", str(fault))[:40]
        if isinstance(fault, BrokenPromiseError | Escaped)
        else ""
    )
    text = "".join(traceback.format_exception(fault, limit=-30))
    return Finding(signature=" ".join((type(fault).__name__, *places, message)), text=text)
