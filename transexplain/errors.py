"""Every error TransExplain raises, in one tree.

::

    TransExplainError
    ├── ConfigurationError           exit 2: the request itself is wrong
    │   ├── SpecError                the audit specification
    │   ├── ModelLoadError           the model directory, id or checkpoint
    │   ├── DataSourceError          the dataset file, folder or column
    │   ├── LexiconError             the entity-group file
    │   ├── RemoteFileError          a URL that names no file, or that must not be used
    │   ├── TargetError              a class name or target that the model does not have
    │   └── WrongKindError           an object of another kind than the function takes; a TypeError
    ├── EngineError                  exit 2: an operator of the model has no rule
    ├── ItemError                    one item only; becomes an item error row, never ends a run
    └── InfrastructureError          exit 4
        ├── DatabaseError            database unreachable or at the wrong revision
        │   └── DamagedRowError      a row does not hold what this program writes there
        ├── BrokerError              broker unreachable
        ├── ObjectStoreError         an object store is away or refuses the credentials
        ├── WebhookError             the receiver of a verdict is away or refuses it
        └── FencedError              another worker holds the shard now; this result is dropped

A message names the thing that is wrong and the remedy. It may quote what a file says, so it is
kept to a length that a person reads, and to characters that no terminal obeys.
"""

import difflib
import re
from collections.abc import Iterable
from types import UnionType

_LONGEST = 2_000  #: characters of a message
_END = 400  #: of them those at its end, where the remedy is
#: control characters, lone surrogates, and marks that turn the direction of what follows
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


class TransExplainError(Exception):
    """Base of every error of this package; `exit_code` is what the command line returns."""

    exit_code = 2

    def __init__(self, *parts: object) -> None:
        super().__init__(*(_readable(part) if isinstance(part, str) else part for part in parts))


def _readable(message: str) -> str:
    """`message` with its middle left out where it is too long, and escapes for what is obeyed."""
    message = _OBEYED.sub(lambda match: ascii(match[0])[1:-1], message)
    if len(message) > _LONGEST:
        left_out = f" [... {len(message) - _LONGEST:,} characters ...] "
        return message[: _LONGEST - _END] + left_out + message[-_END:]
    return message


class ConfigurationError(TransExplainError):
    """The request is wrong and no amount of retrying helps."""


class SpecError(ConfigurationError):
    """The audit specification is wrong."""


class ModelLoadError(ConfigurationError):
    """The model cannot or must not be loaded."""

    @classmethod
    def nowhere(cls, source: str) -> "ModelLoadError":
        """For a path that leads to no directory."""
        return cls(
            f"there is no model directory {source!r}; give a directory that holds config.json and "
            "model.safetensors, a model of the hub as ORG/NAME, or timm:NAME"
        )


class DataSourceError(ConfigurationError):
    """The dataset as a whole cannot be read."""


class LexiconError(ConfigurationError):
    """The entity-group file is wrong."""


class RemoteFileError(ConfigurationError):
    """A URL names no file, names one that changed, or must not be used."""


class TargetError(ConfigurationError):
    """A target names a class that the model does not have, or can be read in two ways."""


class WrongKindError(ConfigurationError, TypeError):
    """An object is of another kind than the function takes."""

    @classmethod
    def check(cls, function: str, value: object, kind: type | UnionType, name: str) -> None:
        """Raise unless `value` is of the kind that the function takes, which is called `name`."""
        if not isinstance(value, kind):
            raise cls(f"{function} takes {name}, not {type(value).__name__}: {value!r:.80}")


class EngineError(TransExplainError):
    """The model uses an operator for which the composite has no rule."""


class ItemError(TransExplainError):
    """One item cannot be explained; `kind` is a short stable word such as `empty-text`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class InfrastructureError(TransExplainError):
    """A server that the run needs is not there."""

    exit_code = 4


class DatabaseError(InfrastructureError):
    """The database cannot be reached or is at the wrong revision."""


class DamagedRowError(DatabaseError):
    """A row of the database does not hold what this program writes there."""


class BrokerError(InfrastructureError):
    """The message broker cannot be reached."""


class ObjectStoreError(InfrastructureError):
    """An object store is away or refuses the credentials; the same request may succeed later."""


class WebhookError(InfrastructureError):
    """A verdict could not be delivered; it is tried again unless the receiver refuses for good.

    `final`: no attempt will be answered differently. `wait`: seconds that the receiver asked for.
    """

    def __init__(self, message: str, *, final: bool = False, wait: float | None = None) -> None:
        super().__init__(message)
        self.final = final
        self.wait = wait


class FencedError(InfrastructureError):
    """The shard's lease went to another worker: nothing of this attempt was written."""


def reason_of(error: Exception) -> str:
    """Why something could not be read, without the name of the file, which the caller gives."""
    return getattr(error, "strerror", None) or str(error)


def installing(extra: str) -> str:
    """The command that installs an extra; the package is on no index."""
    return f"in a checkout of TransExplain, pip install '.[{extra}]'"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" where a known name is near; "" where none is."""
    letters = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(name.casefold(), letters, n=1)
    return f"; did you mean {letters[near[0]]!r}?" if near else ""
