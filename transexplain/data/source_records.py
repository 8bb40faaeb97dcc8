"""Records that the readers of sources hand to the writer of the snapshot."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from transexplain.types.plans import DatasetSpec, Modality

#: characters (or bytes of a line) in one row; a longer row is a malformed one, not a full memory
MAX_ROW = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A row that could not be split into cells, with a stable kind and a readable reason."""

    kind: str
    message: str


#: the wanted cells of one row by column name, or why there are none
RawRow = Mapping[str, Any] | Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One open file: its column names, and its rows for the columns that are wanted."""

    columns: tuple[str, ...]
    rows: Callable[[Sequence[str]], Iterator[RawRow]]
    sparse: bool = False  #: True where a row may lack a column (JSON lines)


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the snapshot, in the order of its columns."""

    id: str
    index: int
    content: str | None  #: the text, or the picture's path relative to the dataset's root
    label: str | None
    meta: str  #: JSON object of strings
    sha256: str | None  #: of the picture's bytes
    error_kind: str | None
    error: str | None
    evidence: str | None = None  #: JSON, see `evidence.py`
    annotations: str | None = None  #: JSON, see `annotations.py`
    attributions: str | None = None  #: JSON, see `attribution_files.py`
    cluster: str | None = None  #: as the file has it; the snapshot numbers them, see `clusters.py`
    template: str | None = None


class Source(Protocol):
    """Where records come from; `data.SOURCES` holds the classes that have this shape."""

    modality: Modality
    root: str  #: absolute folder that picture paths are relative to; "" for texts
    numbered: bool  #: True where ids are row numbers, hence unique
    named: bool  #: True where the names of its files decide the snapshot, not their bytes alone
    marked: bool  #: True where its records tell what people marked as evidence

    def __init__(self, spec: DatasetSpec, location: str) -> None: ...

    def files(self) -> Sequence[Path]:
        """The files whose bytes decide the snapshot together with the options."""

    def records(self) -> Generator[Record]:
        """Every row in order, bad ones included; a generator, to be closed by the caller."""


def printable(text: str) -> str:
    """`text` with what UTF-8 cannot hold (undecodable bytes) written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
