"""Every error TransExplain raises, in one tree.

::

    TransExplainError
    ├── ConfigurationError           exit 2: the request itself is wrong
    │   ├── SpecError                the audit specification
    │   ├── ModelLoadError           the model directory, id or checkpoint
    │   ├── DataSourceError          the dataset file, folder or column
    │   ├── LexiconError             the entity-group file
    │   └── TargetError              a class name or target that the model does not have
    ├── EngineError                  exit 2: an operator of the model has no rule
    ├── ItemError                    one item only; becomes an item error row, never ends a run
    └── InfrastructureError          exit 4
        ├── DatabaseError            database unreachable or at the wrong revision
        ├── BrokerError              broker unreachable
        ├── WebhookError             the receiver of a verdict is away or refuses it
        └── FencedError              another worker holds the shard now; this result is dropped

A message names the thing that is wrong and the remedy.
"""


class TransExplainError(Exception):
    """Base of every error of this package; `exit_code` is what the command line returns."""

    exit_code = 2


class ConfigurationError(TransExplainError):
    """The request is wrong and no amount of retrying helps."""


class SpecError(ConfigurationError):
    """The audit specification is wrong."""


class ModelLoadError(ConfigurationError):
    """The model cannot or must not be loaded."""


class DataSourceError(ConfigurationError):
    """The dataset as a whole cannot be read."""


class LexiconError(ConfigurationError):
    """The entity-group file is wrong."""


class TargetError(ConfigurationError):
    """A target names a class that the model does not have, or can be read in two ways."""


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


class BrokerError(InfrastructureError):
    """The message broker cannot be reached."""


class WebhookError(InfrastructureError):
    """A verdict could not be posted; it is tried again."""


class FencedError(InfrastructureError):
    """The shard's lease went to another worker: nothing of this attempt was written."""
