"""One call of a torch function, as the mode saw it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor

from transexplain.engine.operators import operator_of


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
        return replace(self, func=partial(_on_a_copy, self.func))

    def written(self, out: Tensor) -> Tensor:
        """`out` where the model expects it: in the first argument of an in-place function."""
        if not self.in_place:
            return out
        x: Tensor = self.argument(0, "input", None)
        return x.copy_(out)

    def with_function(self, function: Callable[[Tensor], Tensor]) -> "Call":
        """A call of `function` on the first argument alone."""
        return replace(self, func=function, args=(self.argument(0, "input", None),), kwargs={})

    def elementwise(self) -> Callable[[Tensor], Tensor]:
        """The function of its first argument alone, writing into a copy where it writes."""
        rest = {key: value for key, value in self.kwargs.items() if key != "input"}
        return partial(_first_replaced, self.func, self.args[1:], rest, self.in_place)


def _on_a_copy(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    return func(x.clone(), *args, **kwargs)


def _swapped(value: Any, by_id: Mapping[int, Tensor]) -> Any:
    # no inner function: one that calls itself is a reference cycle and would keep the graph alive
    if isinstance(value, Tensor):
        return by_id.get(id(value), value)
    if isinstance(value, list | tuple):
        return type(value)(_swapped(part, by_id) for part in value)
    return value


def _first_replaced(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], copied: bool, x: Tensor
) -> Any:
    return func(x.clone() if copied else x, *args, **kwargs)
