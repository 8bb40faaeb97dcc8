"""One call of a torch function: its arguments, its place in the model's code, and its value where
an earlier pass has computed it.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from transexplain.engine.operators import operator_of, weight_place
from transexplain.engine.tensor_record import tensors_in
from transexplain.errors import EngineError


@dataclass(frozen=True, slots=True)
class Call:
    """A torch function with its arguments; parameters are detached already."""

    func: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    carriers: tuple[Tensor, ...]  #: the arguments that carry relevance, each once

    def run(self) -> Any:
        """Call the function as the model did."""
        return self.func(*self.args, **self.kwargs)

    def argument(self, position: int, name: str, default: Any) -> Any:
        """An argument given by position or by name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    def product(self) -> Tensor:
        """As `run_detached`, of a linear operator; no view to autograd, as models write into it.

        Some versions of torch give a view of the product's own memory.
        """
        output: Tensor = self.run_detached()
        if output._is_view():
            output = torch.ops.aten._unsafe_view.default(output, output.shape)
        return output

    def run_detached(self, *, but: tuple[int, str] | None = None) -> Any:
        """Call the function with its carriers held constant, all `but` one argument.

        The argument is given by position and name, because one tensor may be several arguments.
        """
        constant = {id(carrier): carrier.detach() for carrier in self.carriers}
        held = self.substituted(constant)
        if but is None:
            return held.run()
        position, name = but
        if position < len(self.args):
            args = (*held.args[:position], self.args[position], *held.args[position + 1 :])
            return replace(held, args=args).run()
        return replace(held, kwargs={**held.kwargs, name: self.kwargs[name]}).run()

    def substituted(self, by_id: Mapping[int, Tensor]) -> "Call":
        """The same call with some tensors, known by identity, replaced."""

        return replace(
            self,
            args=tuple(_swapped(value, by_id) for value in self.args),
            kwargs={key: _swapped(value, by_id) for key, value in self.kwargs.items()},
        )

    @property
    def in_place(self) -> bool:
        """Whether the function writes into its first argument: `relu_`, `__iadd__`, `inplace`."""
        if self.name.startswith("__"):
            return self.name.startswith("__i")
        if self.name.endswith("_") or self.kwargs.get("inplace"):
            return True
        by_position = operator_of(self.name).inplace_flag
        return by_position and any(value is True for value in self.args[1:])

    def out_of_place(self) -> "Call":
        """The same call, writing into a copy where it writes."""
        if not self.in_place:
            return self
        func = self.func
        return replace(self, func=lambda x, *args, **kwargs: func(x.clone(), *args, **kwargs))

    def written(self, out: Tensor) -> Tensor:
        """`out` where the model expects it: in the first argument of an in-place function."""
        if not self.in_place:
            return out
        x: Tensor = self.argument(0, "input", None)
        return x.copy_(out)

    def elementwise(self) -> Callable[[Tensor], Tensor]:
        """The function of its first argument alone, writing into a copy where it writes."""
        func, args, copied = self.func, self.args[1:], self.in_place
        rest = {key: value for key, value in self.kwargs.items() if key != "input"}
        return lambda x: func(x.clone() if copied else x, *args, **rest)


def carried(call: Call) -> int:
    """Return how many of the arguments carry; one tensor may stand twice."""
    return sum(tensor.requires_grad for tensor in tensors_in((call.args, dict(call.kwargs))))


def _swapped(value: Any, by_id: Mapping[int, Tensor]) -> Any:
    # no inner function: one that calls itself is a reference cycle and would keep the graph alive
    if isinstance(value, Tensor):
        return by_id.get(id(value), value)
    if isinstance(value, list | tuple):
        return type(value)(_swapped(part, by_id) for part in value)
    return value


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
    if not working:
        return ""
    names = {id(part): name for name, part in (root or working[-1]).named_modules()}
    known = (names[id(part)] for part in working if id(part) in names)
    return next(known, "") or type(working[0]).__name__


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


class LinearValues:
    """The outputs of linear operators in the order of their calls."""

    def __init__(self) -> None:
        self._values: list[tuple[tuple[Any, ...], Tensor, int]] = []
        self._next = 0

    def note(self, name: str, args: tuple[Any, ...], out: Any) -> None:
        """Keep an output, if `name` is a linear operator."""
        if weight_place(name) is not None and isinstance(out, Tensor):
            kept = out.detach()
            self._values.append((_key(name, args), kept, kept._version))

    def take(self, call: Call) -> Tensor | None:
        """A copy of what the same call gave; None where the passes differ, or it was written into.

        The n-th linear operator of this pass gets the value of the n-th of the other.
        """
        if self._next >= len(self._values):
            return None
        key, value, version = self._values[self._next]
        self._next += 1
        # a model may write into an output after it was kept
        if key != _key(call.name, call.args) or value._version != version:
            return None
        return value.clone()


def _key(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return which operator it is: its name, and the place of its weight."""
    place = weight_place(name)
    weight = args[place[0]] if place is not None and place[0] < len(args) else None
    return (name, weight.data_ptr(), tuple(weight.shape)) if isinstance(weight, Tensor) else (name,)
