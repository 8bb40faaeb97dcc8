"""Where in a model's own code an operator was called."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from torch import Tensor, nn

from transexplain.errors import EngineError

_ENGINE = "transexplain.engine"


def call_site(root: nn.Module | None = None) -> str:
    """`file.py:line in function (layer.3.attention)`, for use inside a torch function mode.

    The line is that of the first caller outside torch and the engine; the name is that of the
    innermost module at work, qualified within `root` (default: the outermost module at work).
    """
    place = ""
    for frame in _frames():
        if not place and not _inside(frame, "torch", _ENGINE):
            code = frame.f_code
            place = f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}"
    name = module_at_work(root)
    return f"{place or 'outside any Python code'}{f' ({name})' if name else ''}"


def module_at_work(root: nn.Module | None = None) -> str:
    """The name within `root` of the innermost module whose forward is running; '' for none."""
    working: list[nn.Module] = []
    for frame in _frames():
        # every module whose forward is running has a frame, the innermost first
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and owner not in working:
            working.append(owner)
    return _qualified(working, root)


class RefusalError(EngineError):
    """An operator that a composite has no rule for: which, on what, why, and where."""

    def __init__(self, operator: str, carriers: Sequence[Tensor], composite: str, why: str) -> None:
        self.operator, self.why, self.where = operator, why, call_site()
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in carriers)
        super().__init__(
            f"operator {operator!r} on {shapes}, called at {self.where}, cannot be explained by "
            f"{composite!r}: {why}. Use a method that needs no propagation through it, or report "
            "the model; `transexplain doctor` lists every such operator"
        )


def _frames() -> Iterator[FrameType]:
    """The stack from here outwards, as far as the engine's own caller."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not _inside(frame, f"{_ENGINE}.propagate"):
        yield frame
        frame = frame.f_back


def _inside(frame: FrameType, *packages: str) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _qualified(working: list[nn.Module], root: nn.Module | None) -> str:
    if not working:
        return ""
    names = {id(part): name for name, part in (root or working[-1]).named_modules()}
    known = (names[id(part)] for part in working if id(part) in names)
    return next(known, "") or type(working[0]).__name__
