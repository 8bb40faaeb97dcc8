"""What every section of a specification can do."""

from collections.abc import Callable, Mapping
from operator import methodcaller
from pathlib import Path
from typing import ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Strict(BaseModel):
    """A mapping that may hold no key beside its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Section(Strict):
    """A part of a specification: what a person may write there, and what becomes of it."""

    #: the key that a bare text stands for: `model: path` is `model: {source: path}`
    shorthand: ClassVar[str | None] = None
    #: command-line option, as the verbs name it -> key of this section
    options: ClassVar[Mapping[str, str]] = {}

    def absolute(self) -> Self:
        """The section with paths that are found from every folder."""
        return self._each(methodcaller("absolute"))

    def resolved(self) -> Self:
        """The section with what only the files that it names can say, such as their digests.

        Raises ConfigurationError where a file is missing or wrong.
        """
        return self._each(methodcaller("resolved"))

    def _each(self, change: "Callable[[Section], Section]") -> Self:
        """The section with every section in it changed; itself where nothing changes."""
        inner = {name: value for name, value in self if isinstance(value, Section)}
        changed = {name: change(value) for name, value in inner.items()}
        changed = {name: value for name, value in changed.items() if value is not inner[name]}
        return self.model_copy(update=changed) if changed else self


def from_text(section: type[Section]) -> BeforeValidator:
    """Let a bare text stand for a section with its shorthand key."""
    key = section.shorthand
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


def absolute_path(path: str) -> str:
    """A path that is found from every folder."""
    return str(Path(path).expanduser().absolute())


def absolute_if_there(source: str) -> str:
    """The absolute path of a file or folder that exists; hub ids and the like as they are."""
    return absolute_path(source) if Path(source).expanduser().exists() else source
