"""Reads specifications from YAML, applies `--set` overrides, and names every problem."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any, ClassVar, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from transexplain.errors import ConfigurationError, SpecError, did_you_mean, reason_of
from transexplain.files.paths import AnyPath, RemotePath, any_path, local_path
from transexplain.files.remote_files import is_url
from transexplain.text.parsing import (
    LARGEST,
    UnreadableError,
    read_text,
    read_yaml,
    refuse_unstorable,
    text_of,
)


class Strict(BaseModel):
    """A mapping without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_flags(cls, value: Any, info: ValidationInfo) -> Any:
        """Numbers are not written as `true` or `yes`, which would count as 1."""
        kinds = set(_kinds(cls.model_fields[info.field_name or ""].annotation))
        if isinstance(value, bool) and bool not in kinds and kinds & {int, float}:
            raise ValueError(f"takes a value, not {str(value).lower()}")
        return value


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of; yes and no among its literals are `bool`."""
    yield bool if isinstance(annotation, bool) else annotation
    for part in get_args(annotation):
        yield from _kinds(part)


class SpecSection(Strict):
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

    def _each(self, change: "Callable[[SpecSection], SpecSection]") -> Self:
        """The section with `change` applied to every section in it."""
        inner = {name: value for name, value in self if isinstance(value, SpecSection)}
        changed = {name: change(value) for name, value in inner.items()}
        changed = {name: value for name, value in changed.items() if value is not inner[name]}
        return self.model_copy(update=changed) if changed else self


def from_text(section: type[SpecSection]) -> BeforeValidator:
    """Let a bare text stand for a section with its shorthand key."""
    key = section.shorthand
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


def as_texts(value: Any) -> Any:
    """The names of classes and labels as a list of texts: YAML reads 1 as a number."""
    if isinstance(value, Mapping):
        return {str(key): str(entry) for key, entry in value.items()}
    several = value if isinstance(value, list | tuple) else [value]
    return [str(value) if type(value) is int else value for value in several]


def absolute_path(path: str) -> str:
    """A path that is found from every folder; a URL is one, unless it holds credentials.

    Raises RemoteFileError for a URL that no store has, or with credentials or a signature.
    """
    return str(any_path(path).absolute())


def absolute_if_exists(source: str) -> str:
    """The absolute path of a file or folder that exists; hub ids, URLs and the like as they are."""
    if is_url(source):
        return absolute_path(source)
    return absolute_path(source) if local_path(source).exists() else source


Spec = TypeVar("Spec", bound=SpecSection)
#: the sections of a specification by their key
Sections = Mapping[str, type[SpecSection]]


def read_document(path: AnyPath, what: str, begins: str) -> dict[str, Any]:
    """The mapping in a YAML file; SpecError names the file and how `what` begins."""
    try:
        if isinstance(path, RemotePath):
            text = text_of(path.read_bytes(LARGEST + 1))
        else:
            text = read_text(path)
    except (OSError, UnicodeDecodeError, UnreadableError) as error:
        raise SpecError(
            f"cannot read the {what} specification {path}: {reason_of(error)}; give a YAML file: "
            f"{begins}"
        ) from None
    document = yaml_value(text, str(path))
    if not isinstance(document, dict):
        raise SpecError(f"{path} holds no mapping; {begins}")
    return document


def apply_overrides(
    document: dict[str, Any],
    overrides: Mapping[str, Any],
    settings: Sequence[str],
    sections: Sections,
) -> None:
    """Set `overrides` (None: not given) and then `a.b=c` texts, whose values are YAML.

    Where a text stands for a section, `model: path` becomes `model: {source: path}` when a part of
    it is set. Raises SpecError.
    """
    for key, value in overrides.items():
        if value is not None:
            _assign(document, key.split("."), value, sections)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise SpecError(f"--set {setting!r} must have the form a.b=value")
        _assign(document, key.split("."), yaml_value(value, f"--set {key}"), sections)


def validated(spec: type[Spec], document: Mapping[str, Any], what: str, sections: Sections) -> Spec:
    """`document` as a `spec`; SpecError lists every wrong place of `what`."""
    try:
        return spec.model_validate(document)
    except ValidationError as error:
        raise SpecError(f"{what} is wrong:\n{explained(error, spec, sections)}") from None


def yaml_value(text: str, where: str) -> Any:
    """The value of a YAML text; SpecError begins with `where`."""
    try:
        value = read_yaml(text)
        refuse_unstorable(value)
    except UnreadableError as error:
        raise SpecError(f"{where} is not valid YAML: {error}") from None
    return value


def _assign(document: dict[str, Any], keys: list[str], value: Any, sections: Sections) -> None:
    for key in keys[:-1]:
        inner = document.get(key)
        shorthand = sections[key].shorthand if key in sections else None
        if isinstance(inner, str) and shorthand is not None:
            inner = {shorthand: inner}
        document[key] = dict(inner) if isinstance(inner, dict) else {}
        document = document[key]
    document[keys[-1]] = value


def explained(
    error: ValidationError, spec: type[Strict], sections: Mapping[str, type[Strict]]
) -> str:
    """A line for each wrong place, with the key that was probably meant."""
    paths: dict[str, list[str]] = {}
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"] if not _BRANCH.fullmatch(str(part)))
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "missing":
            message = "is missing"
        if problem["type"] == "extra_forbidden":
            section = _section_at(problem["loc"][:-1], spec, sections)
            near = did_you_mean(str(problem["loc"][-1]), section.model_fields)
            message = f"unknown key{near or ';'} known here: {', '.join(section.model_fields)}"
        paths.setdefault(place, []).append(message)
    return "\n".join(
        f"  {place}: {' or '.join(messages)}" if place else f"  {'; '.join(messages)}"
        for place, messages in paths.items()
    )


#: how pydantic names a way in which a value of several types may be read
_BRANCH = re.compile(r"constrained-\w+|literal\[.*\]")


def _section_at(
    place: tuple[int | str, ...], spec: type[Strict], sections: Mapping[str, type[Strict]]
) -> type[Strict]:
    """The innermost known section around a place; `spec` itself where there is none."""
    names = [part for part in place if isinstance(part, str)]
    paths = (".".join(names[:end]) for end in range(len(names), 0, -1))
    return next((sections[path] for path in paths if path in sections), spec)


def parameters(texts: Sequence[str] | None) -> dict[str, Any]:
    """`name=value` texts of `--param`, the values in YAML; raises ConfigurationError."""
    values: dict[str, Any] = {}
    for pair in texts or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"--param {pair!r} is not name=value")
        values[name] = yaml_value(value, f"--param {name}")
    return values
