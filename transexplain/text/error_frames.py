"""Where an error was raised, as text that may be stored: places in code, and nothing of the data.

An error's message may quote an item, so no message is in it: the message has its own place and its
own rules. Nor are local values, nor lines of anybody's own code, nor folders outside of packages.
"""

import linecache
import sys
import sysconfig
from collections import deque
from collections.abc import Iterator
from pathlib import PurePath
from types import CodeType, FrameType, TracebackType

LONGEST = 4_096  #: characters of a traceback
_FRAMES = 12  #: of one error, those nearest to where it was raised
_CHAIN = 4  #: errors, each the cause of the one before
_LINE = 120  #: characters of a line of code, or of a name
_OWN = ("transexplain", "workers", "orchestrator")
_PACKAGES = ("site-packages", "dist-packages")
_ELSEWHERE = "_frames_elsewhere"  # an attribute goes with an error through a pipe
_STANDARD = PurePath(sysconfig.get_path("stdlib"))


def traceback_of(error: BaseException) -> str:
    """The types of an error and of its causes, with the frames that they came through.

    The latest frame comes last. At most `LONGEST` characters, of which the last are kept; "" for
    an error that nobody raised.
    """
    some = list(_chain(error))
    if not any(error_.__traceback__ for error_ in some):
        return ""
    lines: list[str] = []
    for one in reversed(some):  # as Python prints them: the first cause first
        lines += ["which led to"] if lines else []
        lines += [*filter(None, [getattr(one, _ELSEWHERE, "")])]
        module = type(one).__module__
        prefix = "" if module == "builtins" else f"{_cut(module)}."
        lines += [*_frames(one.__traceback__), f"{prefix}{_cut(type(one).__qualname__)}"]
    return _last("\n".join(lines))


def keep_frames(error: BaseException) -> None:
    """Let `traceback_of` know the frames where the error is sent to another process."""
    setattr(error, _ELSEWHERE, "\n".join([*_frames(error.__traceback__), "in another process"]))


def frames_of_thread(ident: int | None) -> str:
    """What a thread of this process is doing now, as in `traceback_of`; "": there is none."""
    frame = sys._current_frames().get(ident) if ident is not None else None
    frames: deque[str] = deque(maxlen=_FRAMES)
    while frame is not None and len(frames) < _FRAMES:
        frames.appendleft(_place(frame, frame.f_lineno))
        frame = frame.f_back
    return _last("\n".join(frames))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, those too that a message leaves out."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and len(seen) < _CHAIN and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _frames(trace: TracebackType | None) -> Iterator[str]:
    last: deque[TracebackType] = deque(maxlen=_FRAMES)
    while trace is not None:
        last.append(trace)
        trace = trace.tb_next
    return (_place(frame.tb_frame, frame.tb_lineno) for frame in last)


def _place(frame: FrameType, line: int | None) -> str:
    code: CodeType = frame.f_code
    name, is_of_a_package = _file(code.co_filename)
    place = f"  {name}:{line or 0} in {_cut(code.co_qualname)}"
    text = linecache.getline(code.co_filename, line or 0).strip() if is_of_a_package else ""
    return f"{place}\n    {_cut(text)}" if text else place


def _file(path: str) -> tuple[str, bool]:
    """The path within its package; only the name of a file that is in none."""
    pure = PurePath(path)
    parts = pure.parts
    for folder in _PACKAGES:
        if folder in parts:
            return _cut("/".join(parts[parts.index(folder) + 1 :])), True
    for package in _OWN:
        if package in parts:
            place = len(parts) - 1 - parts[::-1].index(package)
            return _cut("/".join(parts[place:])), True
    if pure.is_relative_to(_STANDARD):
        return _cut(pure.relative_to(_STANDARD).as_posix()), True
    return _cut(pure.name), False


def _cut(text: str) -> str:
    return text if len(text) <= _LINE else f"{text[: _LINE - 3]}..."


def _last(text: str) -> str:
    """The end of a traceback, from the beginning of a line on, in characters that can be stored."""
    text = text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    if len(text) <= LONGEST:
        return text
    _, _, kept = text[4 - LONGEST :].partition("\n")
    return f"...\n{kept}"
