"""One call of a torch function, as the mode saw it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor


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

    def run_detached(self, keep: Tensor | None = None) -> Any:
        """Call the function with every carrier but `keep` held constant."""
        return self.substituted({id(c): c.detach() for c in self.carriers if c is not keep}).run()

    def substituted(self, by_id: Mapping[int, Tensor]) -> "Call":
        """The same call with some tensors, known by identity, replaced."""

        return replace(
            self,
            args=tuple(_swapped(value, by_id) for value in self.args),
            kwargs={key: _swapped(value, by_id) for key, value in self.kwargs.items()},
        )

    def out_of_place(self) -> Callable[[Tensor], Tensor]:
        """The function of its first argument alone, never writing into it."""
        rest = {key: value for key, value in self.kwargs.items() if key not in ("input", "inplace")}
        if self.name.endswith("_"):
            return partial(_on_copy, self.func, self.args[1:], rest)
        return partial(_call_first, self.func, self.args[1:], rest)


def _swapped(value: Any, by_id: Mapping[int, Tensor]) -> Any:
    # no inner function: one that calls itself is a reference cycle and would keep the graph alive
    if isinstance(value, Tensor):
        return by_id.get(id(value), value)
    if isinstance(value, list | tuple):
        return type(value)(_swapped(part, by_id) for part in value)
    return value


def _call_first(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], x: Tensor) -> Any:
    return func(x, *args, **kwargs)


def _on_copy(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], x: Tensor) -> Any:
    return func(x.clone(), *args, **kwargs)
