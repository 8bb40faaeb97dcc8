"""Drawings of records: reports make them, which the package hands over to the records' types."""

from collections.abc import Callable
from typing import Any

Drawer = Callable[..., Any]
_loaders: list[Callable[[str], Drawer]] = []


def hand_over(load: Callable[[str], Drawer]) -> None:
    """Draw by `load(kind)` from now on; it imports what a kind (`html`, `plot`) needs."""
    _loaders[:] = [load]


def draw(kind: str, record: Any, *arguments: Any, **options: Any) -> Any:
    """The drawing of a record that the function of this kind makes."""
    (load,) = _loaders
    return load(kind)(record, *arguments, **options)


class Drawable:
    """A record that notebooks show."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """What a notebook shows: coloured words, a heatmap or both, with a legend."""
        return str(draw("html", self))
