"""Loads the user's redaction function, which names the characters of a text that must not be
stored.

To import a module is to run it. So no module is imported because a specification, a plan or a row
of the database names it: the operator has to allow it by `TRANSEXPLAIN_REDACT_MODULES`, or it is
one file beside the specification, whose digest the plan keeps and whose text shows the mark.
"""

import ast
import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable
from importlib.abc import InspectLoader
from pathlib import Path
from types import CodeType, ModuleType

from transexplain.errors import ConfigurationError

Span = tuple[int, int]  #: characters of a text, from and to
Hook = Callable[[str], Iterable[Span]]

#: names of modules and packages, separated by commas, that this process may import
MODULES = "TRANSEXPLAIN_REDACT_MODULES"
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_MARK = "__transexplain_redaction_hook__"
_LARGEST = 1_000_000  #: bytes of a file


def redaction_hook(function: Hook) -> Hook:
    """Mark a function for `redact`: it takes a text and returns (start, end) in characters.

    Only marked functions are called, so that a specification cannot have texts given to whatever
    else can be imported.
    """
    setattr(function, _MARK, True)
    return function


def hook_file(name: str, folder: Path) -> tuple[Path, str] | None:
    """The file of a hook's module in the folder of a specification, and its sha256.

    None where the operator allows the module by name, or no such file is there.
    """
    module_name, _ = _split(name)
    path = folder.absolute() / f"{module_name}.py"
    if "." in module_name or _allowed(module_name):
        return None
    try:
        there = path.is_file()
    except OSError:  # no file can have such a name: it is too long
        return None
    return (path, hashlib.sha256(_bytes(path)).hexdigest()) if there else None


def load_hook(name: str, file: str = "", sha256: str = "") -> Hook:
    """The function that `package.module:function` names; raises ConfigurationError.

    Its module is in a file with this `sha256`; "": the operator allows it by name.
    """
    module_name, attribute = _split(name)
    if file:
        module = _run(Path(file), sha256, attribute)
    else:
        beside = f", and no file {module_name}.py lies beside the specification"
        module = allowed_module(module_name, "redact", MODULES, beside)
    detector = getattr(module, attribute, None)
    if not callable(detector):
        raise ConfigurationError(f"redact: {module_name} has no function {attribute!r}")
    if getattr(detector, _MARK, False) is not True:
        raise _unmarked(name)
    hook: Hook = detector
    return hook


def spans_by(hook: Hook, text: str) -> tuple[Span, ...]:
    """The spans that a hook names, sorted.

    Raises whatever the hook raises; ValueError where an answer is no (start, end) in the text.
    """
    spans = []
    for start, end in hook(text):
        # bool is an int in Python, but no position in a text
        if type(start) is not int or type(end) is not int or not 0 <= start <= end <= len(text):
            raise ValueError("the redaction hook named a span that is not within the text")
        spans.append((start, end))
    return tuple(sorted(spans))


def _split(name: str) -> tuple[str, str]:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"redact is {name!r}; write it as package.module:function")
    module_name, _, attribute = name.partition(":")
    return module_name, attribute


def _allowed(module_name: str, variable: str = MODULES) -> bool:
    names = (part.strip() for part in os.environ.get(variable, "").split(","))
    return any(
        name and (module_name == name or module_name.startswith(f"{name}.")) for name in names
    )


def allowed_module(module_name: str, key: str, variable: str, instead: str = "") -> ModuleType:
    """Import a module that the operator allows by an environment variable.

    The `variable` holds names of modules and packages, separated by commas. Messages name the `key`
    of the specification, and what was looked for `instead`. Raises ConfigurationError where the
    module is not allowed, or cannot be imported.
    """
    if not _allowed(module_name, variable):
        raise ConfigurationError(
            f"{key}: the module {module_name} is not imported: {variable} does not name it{instead}"
            f". Whoever operates this process may allow it: {variable}={module_name}"
        )
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's module may raise anything
        raise ConfigurationError(
            f"{key}: {module_name} cannot be imported ({type(error).__name__}: {error}); install "
            "it where the command and every worker run, or put its folder on PYTHONPATH"
        ) from None


class _Bytes(InspectLoader):
    """Loads a module from the bytes whose digest was compared, not from the disk once more."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = path, data

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self.data)

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.data, str(self.path))


def _run(path: Path, sha256: str, attribute: str) -> ModuleType:
    """The module that a file holds, run once in a process."""
    module_name = f"transexplain_redact_{sha256}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    data = _bytes(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ConfigurationError(
            f"redact: {path} is not the file of the plan (sha256 {sha256[:12]}); put that one "
            "back, or plan the run again (`schedule remove` and `schedule add` for a schedule)"
        )
    if not _shows_mark(data, attribute):
        raise _unmarked(f"{path}:{attribute}")
    spec = importlib.util.spec_from_loader(module_name, _Bytes(path, data))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[module_name]
        if not isinstance(error, Exception | SystemExit):
            raise
        raise ConfigurationError(
            f"redact: {path} cannot be run ({type(error).__name__}: {error})"
        ) from None
    return module


def _bytes(path: Path) -> bytes:
    try:
        # a pipe would be waited for
        if not (path.is_absolute() and path.is_file()):
            raise ConfigurationError(
                f"redact: there is no file {path}; every process that works on the run needs it "
                f"there, or allow its module by {MODULES} and plan the run again"
            )
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"redact: {path} cannot be read: {error}") from None
    if len(data) > _LARGEST:
        raise ConfigurationError(f"redact: {path} has more than {_LARGEST:,} bytes")
    return data


def _shows_mark(data: bytes, attribute: str) -> bool:
    """Whether the source text shows the mark on a function of this name, without running it."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    marks = [
        decorator.id if isinstance(decorator, ast.Name) else getattr(decorator, "attr", "")
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == attribute
        for decorator in node.decorator_list
    ]
    return redaction_hook.__name__ in marks


def _unmarked(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"redact: {name} is not marked as a redaction hook; put @redaction_hook of "
        "transexplain.text.privacy above it"
    )
