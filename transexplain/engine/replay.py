"""Outputs of linear operators that a second pass over the same batch does not compute again.

A method that needs both gradients and relevance runs the model twice; most of a forward pass is
linear layers, whose values are the same.
"""

from typing import Any

from torch import Tensor

from transexplain.engine.call import Call
from transexplain.engine.operators import weight_place


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
    """Which operator it is: its name, and the place of its weight."""
    place = weight_place(name)
    weight = args[place[0]] if place is not None and place[0] < len(args) else None
    return (name, weight.data_ptr(), tuple(weight.shape)) if isinstance(weight, Tensor) else (name,)
