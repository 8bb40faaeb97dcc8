"""The function of a user that says which characters of a text must not be stored."""

import importlib
import re
from collections.abc import Callable, Iterable

from transexplain.errors import ConfigurationError

Span = tuple[int, int]  #: characters of a text, from and to
Hook = Callable[[str], Iterable[Span]]

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_MARK = "__transexplain_redaction_hook__"


def redaction_hook(function: Hook) -> Hook:
    """Mark a function as one that `redact` may name: a text in, (start, end) in characters out.

    Only marked functions are called, so that a specification cannot have texts given to whatever
    else can be imported.
    """
    setattr(function, _MARK, True)
    return function


def load_hook(name: str) -> Hook:
    """The function that `package.module:function` names; raises ConfigurationError."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"redact is {name!r}; write it as package.module:function")
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # noqa: BLE001 - a module of the user's may raise anything
        raise ConfigurationError(
            f"redact: {module_name} cannot be imported ({type(error).__name__}: {error}); install "
            "it where the command and every worker run, or put its folder on PYTHONPATH"
        ) from None
    found = getattr(module, attribute, None)
    if not callable(found):
        raise ConfigurationError(f"redact: {module_name} has no function {attribute!r}")
    if getattr(found, _MARK, False) is not True:
        raise ConfigurationError(
            f"redact: {name} is not marked as a redaction hook; put @redaction_hook of "
            "transexplain.privacy above it"
        )
    hook: Hook = found
    return hook


def spans_by(hook: Hook, text: str) -> tuple[Span, ...]:
    """The spans that a hook names, sorted.

    Raises whatever the hook raises; ValueError where an answer is no (start, end) in the text.
    """
    found = []
    for start, end in hook(text):
        # bool is an int, too, and no place in a text
        if type(start) is not int or type(end) is not int or not 0 <= start <= end <= len(text):
            raise ValueError("the redaction hook named a span that is not within the text")
        found.append((start, end))
    return tuple(sorted(found))
