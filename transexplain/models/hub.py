"""Models from a hub: only plain data files, pinned to the commit they came from."""

import re
from dataclasses import dataclass
from pathlib import Path

from transexplain.errors import ModelLoadError
from transexplain.models.quiet import quiet

_ID = re.compile(r"(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
#: no pickle, no Python file ever leaves the hub
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.model"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """A hub model on this disk."""

    folder: Path
    source: str  #: `org/name@commit`


def is_hub_id(source: str) -> bool:
    """Whether `source` is spelt like `org/name` or `org/name@revision`."""
    return _ID.fullmatch(source) is not None and not source.startswith(".")


def fetch(source: str, *, remedy: str) -> Fetched:
    """The files of a hub id, from the cache or the net; ModelLoadError ends with `remedy`."""
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError, RevisionNotFoundError

    found = _ID.fullmatch(source)
    if found is None:
        raise ModelLoadError(f"{source!r} is no hub id (org/name or org/name@revision); {remedy}")
    repo, revision = found["repo"], found["revision"]
    try:
        with quiet():
            folder = Path(
                huggingface_hub.snapshot_download(
                    repo, revision=revision, allow_patterns=_WANTED, ignore_patterns=["*/*"]
                )
            )
    except RevisionNotFoundError as error:
        raise ModelLoadError(f"{repo} has no revision {revision!r} on the hub") from error
    except (HFValidationError, OSError, RuntimeError) as error:
        first_line = str(error).partition("\n")[0]
        raise ModelLoadError(
            f"{source!r} is no directory here, no model in the hub cache, and cannot be fetched "
            f"({type(error).__name__}: {first_line}); {remedy}"
        ) from error
    commit = folder.name if _COMMIT.fullmatch(folder.name) else revision
    return Fetched(folder=folder, source=f"{repo}@{commit}" if commit else repo)
