"""Whether an input, here or in an object store, is the one of the plan."""

import hashlib
from pathlib import Path

from transexplain.data.snapshot_rows import snapshot_rows
from transexplain.data.source_files import file_digest
from transexplain.errors import TransExplainError
from transexplain.models.load import present_files
from transexplain.remote_files import info, read
from transexplain.types.plans import DatasetRef, ModelRef, SourceFile


def fault_in_pieces(dataset: DatasetRef) -> str | None:
    """The fault of a snapshot in a store, all of whose pieces are read; None: there is none."""
    try:
        for _ in snapshot_rows(dataset).batches(["index"]):
            pass
    except TransExplainError as error:
        return str(error)
    return None


def fault_in_store(planned: SourceFile) -> str | None:
    """The fault of a file at a URL; None: it is the one of the plan."""
    try:
        if not planned.state:
            found = hashlib.sha256(read(planned.path)).hexdigest()
            same = found == planned.sha256
        else:
            now = info(planned.path)
            same = (now.size, now.state) == (planned.size, planned.state)
    except TransExplainError as error:
        return str(error)
    return None if same else f"{planned.path} has changed"


def fault_of(path: Path | None, planned: SourceFile, shown: str) -> str | None:
    """The fault of a file; None: its bytes are those of the plan."""
    try:
        if path is None or not path.is_file():
            return f"{shown} is not there"
        found = file_digest(path)
    except OSError as error:
        return f"{shown} cannot be read: {error.strerror}"
    if found == planned.sha256:
        return None
    return f"{shown} has changed (sha256 {found[:12]}, planned {planned.sha256[:12]})"


def model_faults(model: ModelRef) -> list[str]:
    """What the files of a model are not as planned: changed, missing or new.

    Raises ModelLoadError where its source names no model.
    """
    present = present_files(model.source)
    planned = {one.path for one in model.files}
    faults = [
        fault
        for one in model.files
        if (fault := fault_of(present.get(one.path), one, f"{one.path} of {model.source}"))
    ]
    return faults + [f"{one} is new in {model.source}" for one in sorted(present.keys() - planned)]
