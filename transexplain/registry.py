"""Tables of names: each entry is a `"module:attribute"` string, imported on first use."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from transexplain.errors import ConfigurationError, did_you_mean, installing


class Registry(Mapping[str, str]):
    """What exists of one kind (methods, metrics, report formats), by name.

    Reading the names imports nothing, so a table can drive command-line choices.
    """

    def __init__(self, kind: str, table: Mapping[str, str]) -> None:
        self.kind = kind
        self._table = dict(table)

    def __getitem__(self, name: str) -> str:
        try:
            return self._table[name]
        except KeyError:
            raise ConfigurationError(self._unknown(name)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def add(self, name: str, place: str) -> None:
        """Enter `place` (`module:attribute`) under `name`, for this process."""
        self._table[name] = place

    def load(self, name: str) -> Any:
        """The object behind `name`; raises ConfigurationError for a name not in the table."""
        return load(self[name])

    def _unknown(self, name: str) -> str:
        hint = did_you_mean(str(name), self._table) or "."
        return f"unknown {self.kind} {name!r}{hint} Known: {', '.join(self._table)}"


def require(package: str, extra: str) -> None:
    """Raise ConfigurationError where an optional package is missing; it names the command."""
    try:
        spec = find_spec(package)
    except ValueError:  # a module that was put in place without a specification
        return
    if spec is None:
        raise ConfigurationError(
            f"{package} is not installed, which this needs: {installing(extra)}"
        )


def load(place: str) -> Any:
    """Return what stands at `module:attribute`."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)
