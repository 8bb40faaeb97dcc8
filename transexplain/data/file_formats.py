"""Reads rows of delimited text and of JSON lines."""

import codecs
import csv
import gzip
import io
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import IO, Any, TypeVar, cast

from transexplain.data.source_files import (
    MAX_ROW,
    OpenTable,
    Problem,
    RawRow,
    printable,
    reading,
    unpacking,
)
from transexplain.errors import DataSourceError
from transexplain.files.paths import AnyPath, RemotePath, info_of
from transexplain.files.remote_files import FileInfo
from transexplain.text.parsing import refuse_depth
from transexplain.types.plans import DatasetSpec

UTF8 = "utf-8"
#: formats that have a dialect, and what separates cells by their names; None: they have no cells
USUAL: Mapping[str, str | None] = {"csv": ",", "tsv": "\t", "jsonl": None}
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is a prefix of it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
#: encodings that are considered; the first is preferred where a text reads as well in it
_CANDIDATES = (
    *("cp1252", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256"),
    *("cp932", "gb18030", "big5", "cp949", "euc_jp"),
)
#: lines that are not ASCII which are looked at, and characters of one of them
_LINES, _LINE = 1_000, 4_096
#: a file is in another encoding where less than one in so many of these lines is UTF-8
_MOST = 10
_CELL_ENDS = ",;\t|"
#: how much worse a reading in the preferred encoding may look
_AS_GOOD = 0.02
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Dialect:
    """The encoding and delimiter of one file."""

    encoding: str
    delimiter: str
    detected: str = ""  #: what was detected and is not usual, for a reader; "": nothing


def dialect_of(path: AnyPath, spec: DatasetSpec, usual: str | None = None) -> Dialect:
    """The dialect that the specification gives; what it leaves open is detected in the file.

    Args:
        path: a text file, gzipped or not.
        spec: whose `encoding` and `delimiter` are taken where they are given.
        usual: what separates the cells of such a file; None: it has no cells.

    Without an encoding a file is UTF-8, with or without a mark, as long as one in ten of
    its lines beyond ASCII is. Without a delimiter it is the usual one where the header line has it.

    Raises DataSourceError where the file cannot be read, or there is no such encoding.
    """
    there = isinstance(path, RemotePath) or path.exists()
    state = info_of(path) if there else None
    return _dialect(path, state, spec.encoding, spec.delimiter, usual)


@lru_cache(maxsize=1024)
def _dialect(
    path: AnyPath,
    state: FileInfo | None,
    encoding: str | None,
    delimiter: str | None,
    usual: str | None,
) -> Dialect:
    del state  # a file that has changed is looked at again
    notes: list[str] = []
    if encoding is None:
        encoding, note = _encoding_of(path)
        notes += [note] if note else []
    if delimiter is None:
        delimiter = _delimiter_of(path, encoding, usual) if usual else ""
        if delimiter != (usual or ""):
            notes.append(f"cells separated by {delimiter!r}")
    return Dialect(encoding, delimiter, ", ".join(notes))


def _encoding_of(path: AnyPath) -> tuple[str, str]:
    """The encoding of a file, and a note about it; "" where it is UTF-8."""
    with _first_lines(path) as lines:
        first = next(lines, b"")
        for mark, name in _MARKS.items():
            if first.startswith(mark):
                return name, f"read as {name.upper()}"
        beyond = [first] if not first.isascii() else []
        beyond += islice((line for line in lines if not line.isascii()), _LINES)
    bad = [line for line in beyond if not _is_utf8(line)]
    if len(bad) * _MOST <= len(beyond) * (_MOST - 1):
        return UTF8, ""  # the others are bad rows of a file in UTF-8
    name = _best_guess(b"\n".join(bad))
    text = bad[0].decode(name, "replace")
    odd = next(place for place, letter in enumerate(text) if not letter.isascii())
    shown = printable(text[max(0, odd - _SHOWN // 2) :][:_SHOWN].strip())
    return name, f"not UTF-8, read as {name}, which is a guess ({shown!r})"


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode(UTF8)
    except UnicodeDecodeError:
        return False
    return True


def _best_guess(some: bytes) -> str:
    """The encoding in which lines look most like a language."""
    from charset_normalizer import from_bytes

    guesses = from_bytes(some, cp_isolation=list(_CANDIDATES))
    best = guesses.best()
    if best is None:
        return _CANDIDATES[0]
    as_good = [
        name
        for guess in guesses
        if guess.chaos <= best.chaos + _AS_GOOD
        for name in (guess.encoding, *guess.could_be_from_charset)
    ]
    return _CANDIDATES[0] if _CANDIDATES[0] in as_good else best.encoding


def _delimiter_of(path: AnyPath, encoding: str, usual: str) -> str:
    """The delimiter of the header line: the usual one, or the most frequent other one."""
    with _first_lines(path) as lines:
        head = b"".join(islice(lines, 1 if encoding not in ("utf-16", "utf-32") else 50))
    header = head.decode(encoding, "replace").partition("\n")[0]
    counts = {delimiter: header.count(delimiter) for delimiter in _CELL_ENDS}
    if counts[usual] or not any(counts.values()):
        return usual
    return max(counts, key=lambda delimiter: counts[delimiter])


@contextmanager
def _first_lines(path: AnyPath) -> Iterator[Iterator[bytes]]:
    """The beginnings of a file's lines."""
    with reading(path), _unpacked(path) as stream:
        yield iter(lambda: stream.readline(_LINE), b"")


def checked_encoding(name: str) -> str:
    """The codec of an encoding; raises ValueError where Python has none of this name."""
    try:
        "".encode(name)  # refuses codecs that do not make bytes of texts
        return codecs.lookup(name).name
    except LookupError:
        raise ValueError(
            f"{name!r} is no encoding that Python knows; for example utf-8, cp1252, latin-1, "
            "utf-16, shift_jis"
        ) from None


#: names of delimiters that are hard to type
DELIMITERS = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "\\t": "\t"}


def checked_delimiter(text: str) -> str:
    """One character that separates cells, given as itself or by its name; raises ValueError."""
    delimiter = DELIMITERS.get(text.lower(), text)
    if len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii():
        raise ValueError(
            f"{text!r} cannot separate cells: give one ASCII character, or one of tab, comma, "
            "semicolon, pipe"
        )
    return delimiter


UTF8_MARK = b"\xef\xbb\xbf"
_TOO_LONG = Problem("malformed-row", f"the line is longer than {MAX_ROW:,} bytes")

T = TypeVar("T")


#: the next line of a file, or its first so many bytes
ReadLine = Callable[[int], bytes]


@contextmanager
def open_lines(path: AnyPath, encoding: str = UTF8) -> Iterator[Iterator[bytes | Problem]]:
    """The lines of `path` in UTF-8 with their terminators, without a byte-order mark.

    Only a line feed ends a line; a line beyond `MAX_ROW` bytes is a Problem and is skipped.

    Raises DataSourceError where the file cannot be read or decompressed, or breaks off in the
    middle of a character of an encoding of several bytes.
    """
    with ExitStack() as stack:
        with reading(path):
            stream = stack.enter_context(_unpacked(path))
        readline: ReadLine = stream.readline
        if encoding != UTF8:
            # bytes that mean nothing in the encoding stay as they are
            text = io.TextIOWrapper(
                stream, encoding=encoding, errors="surrogateescape", newline="\n"
            )
            stack.callback(text.detach)  # the file object is closed by who opened it
            readline = lambda size: text.readline(size).encode(UTF8, "surrogateescape")  # noqa: E731
        if path.suffix.lower() == ".gz":
            readline = _counted(readline, unpacking(path))
        yield lines_of(readline, path)


@contextmanager
def _unpacked(path: AnyPath) -> Iterator[IO[bytes]]:
    with path.open("rb") as stream:
        if path.suffix.lower() != ".gz":
            yield stream
        else:
            with gzip.open(stream) as unpacked:
                yield cast(IO[bytes], unpacked)


def _counted(readline: ReadLine, count: Callable[[int], None]) -> ReadLine:
    def counted(size: int) -> bytes:
        line = readline(size)
        count(len(line))
        return line

    return counted


def lines_of(
    readline: ReadLine, path: AnyPath, *, beginning: bool = True
) -> Iterator[bytes | Problem]:
    """As `open_lines` of a stream in UTF-8, at the `beginning` of the file or amid it."""
    first = beginning
    while line := _read_line(readline, path):
        if first:
            first = False
            line = line.removeprefix(UTF8_MARK)
        if len(line) <= MAX_ROW or line.endswith(b"\n"):
            yield line
        else:
            while (rest := _read_line(readline, path)) and not rest.endswith(b"\n"):
                pass
            yield _TOO_LONG


def _read_line(readline: ReadLine, path: AnyPath) -> bytes:
    try:
        with reading(path):
            return readline(MAX_ROW + 1)
    except DataSourceError as error:
        if isinstance(error.__cause__, UnicodeError):
            raise DataSourceError(f"{error}, and name its data.encoding") from error
        raise


def without_trailing(rows: Iterator[T], blank: Callable[[T], bool]) -> Iterator[T]:
    """`rows` without the blank ones at the end; blank ones before others are kept."""
    waiting: list[T] = []
    for row in rows:
        if blank(row):
            waiting.append(row)
        else:
            yield from waiting
            waiting.clear()
            yield row


_PEEK = 100  #: lines read ahead to learn which columns there are


@contextmanager
def open_jsonl(path: AnyPath, spec: DatasetSpec) -> Iterator[OpenTable]:
    """A file with a JSON object per line; its columns are the keys of the first 100 objects.

    Raises DataSourceError where none of those lines is an object.
    """
    with open_lines(path, dialect_of(path, spec).encoding) as lines:
        rows = map(parsed, without_trailing(lines, is_blank))
        first = list(islice(rows, _PEEK))
        columns = dict.fromkeys(key for row in first if not isinstance(row, Problem) for key in row)
        if not columns:
            seen = next((row.message for row in first if isinstance(row, Problem)), "none is there")
            raise DataSourceError(
                f"{path}: every line must be a JSON object with fields; the first: {seen}"
            )
        yield OpenTable(
            columns=tuple(map(printable, columns)),
            rows=lambda wanted: picked(chain(first, rows), wanted),
            sparse=True,
        )


def picked(rows: Iterator[RawRow], wanted: Sequence[str]) -> Iterator[RawRow]:
    """The wanted fields of rows; None where one lacks a field."""
    for row in rows:
        yield row if isinstance(row, Problem) else {name: row.get(name) for name in wanted}


def is_blank(line: bytes | Problem) -> bool:
    """Return whether a line holds nothing but white space."""
    return isinstance(line, bytes) and not line.strip()


def parsed(line: bytes | Problem) -> RawRow:
    """The object of a line of JSON."""
    if isinstance(line, Problem):
        return line
    if not line.strip():
        return Problem("malformed-row", "the line is blank")
    try:
        text = line.decode("utf-8")
        refuse_depth(text)
        value = json.loads(text, object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        return Problem("invalid-utf8", f"byte {error.start} is not UTF-8")
    except (ValueError, RecursionError) as error:
        return Problem("malformed-row", f"not JSON: {printable(str(error))}")
    if not isinstance(value, dict):
        return Problem("malformed-row", f"a JSON {type(value).__name__}, not an object")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, each of whose keys may stand once: which of two values is meant nobody knows."""
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the key {next(name for name in names if names.count(name) > 1)!r} is twice"
        )
    return record


_SPOKEN = {"\t": "tab", ",": "comma", ";": "semicolon"}
_UNQUOTED = "quoting: none reads quotes as plain characters"

Cells = list[str] | Problem


def open_csv(path: AnyPath, spec: DatasetSpec) -> AbstractContextManager[OpenTable]:
    """A comma-separated file with a header line; RFC 4180 quoting unless the spec says none."""
    return _open(path, spec, "csv", quoted=spec.quoting != "none")


def open_tsv(path: AnyPath, spec: DatasetSpec) -> AbstractContextManager[OpenTable]:
    """A tab-separated file with a header line; no quoting unless the spec says rfc4180."""
    return _open(path, spec, "tsv", quoted=spec.quoting == "rfc4180")


@contextmanager
def _open(path: AnyPath, spec: DatasetSpec, name: str, *, quoted: bool) -> Iterator[OpenTable]:
    dialect = dialect_of(path, spec, USUAL[name])
    delimiter = dialect.delimiter
    with open_lines(path, dialect.encoding) as lines:
        split = split_quoted if quoted else split_plain
        cells = without_trailing(split(lines, delimiter), is_blank_row)
        first = next(cells, None)
        if first is None:
            raise DataSourceError(f"{path} is empty; its first line must name the columns")
        if isinstance(first, Problem):
            raise DataSourceError(
                f"{path}: the header line cannot be read: {first.message}; the first line must "
                "name the columns, and lines must end with LF or CRLF"
            )
        header = [printable(name) for name in first]
        yield OpenTable(
            columns=tuple(header),
            rows=lambda wanted: picked_cells(cells, header, wanted, delimiter),
        )


def picked_cells(
    rows: Iterator[Cells], header: Sequence[str], wanted: Sequence[str], delimiter: str
) -> Iterator[RawRow]:
    """The wanted cells of rows that have as many as the header."""
    positions = [(name, header.index(name)) for name in wanted]
    width = len(header)
    for cells in rows:
        if isinstance(cells, Problem):
            yield cells
        elif len(cells) == width:
            yield {name: cells[position] for name, position in positions}
        else:
            kind = _SPOKEN.get(delimiter, repr(delimiter))
            yield Problem(
                "malformed-row",
                f"{len(cells)} {kind}-separated cells where the header names {width}",
            )


def is_blank_row(cells: Cells) -> bool:
    """Return whether a row holds no cell, or a single blank one."""
    return cells == [] or (
        isinstance(cells, list) and len(cells) == 1 and not cells[0].strip(" \r\n")
    )


#: cuts lines into cells, and calls before a row that begins with a line that was not read yet
Splitter = Callable[[Iterator[bytes | Problem], str, Callable[[], None]], Iterator[Cells]]


def unnoted() -> None:
    """Note nothing of where rows begin."""


def split_plain(
    lines: Iterator[bytes | Problem], delimiter: str, begun: Callable[[], None] = unnoted
) -> Iterator[Cells]:
    """The cells of every line, where a quote is a character."""
    begun()
    for line in lines:
        if isinstance(line, Problem):
            yield line
        else:
            text = _decode(line).removesuffix("\n").removesuffix("\r")
            yield text.split(delimiter)
        begun()


def _decode(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


class _Rewindable:
    """Lines for a csv reader that can be given again from the second line of the record on."""

    def __init__(self, lines: Iterator[bytes | Problem]) -> None:
        self._lines = lines
        self._again: deque[str | Problem] = deque()
        self._record: list[str | Problem] = []
        self._length = 0

    def __iter__(self) -> "_Rewindable":
        return self

    def __next__(self) -> str:
        if self._again:
            line = self._again.popleft()
        else:
            fresh = next(self._lines)
            line = fresh if isinstance(fresh, Problem) else _decode(fresh)
        self._record.append(line)
        if isinstance(line, Problem):
            raise csv.Error(line.message)
        self._length += len(line)
        if self._length > MAX_ROW:
            raise csv.Error(f"the row is longer than {MAX_ROW:,} characters")
        return line

    def begin(self) -> bool:
        """Begin a record with the next line; whether that is a fresh one."""
        self._record.clear()
        self._length = 0
        return not self._again

    def rewind(self) -> None:
        """Give every line of this record but its first once more."""
        self._again.extendleft(reversed(self._record[1:]))


def split_quoted(
    lines: Iterator[bytes | Problem], delimiter: str, begun: Callable[[], None] = unnoted
) -> Iterator[Cells]:
    """The cells of every record by RFC 4180; a record may have several lines."""
    # The limit is global to the process and 131,072 by default; it is only ever raised here, so
    # that two readers at once cannot lower it under each other.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW))
    source = _Rewindable(lines)
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    while True:
        if source.begin():
            begun()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # A stray quote would swallow the rows up to the next quote, or to the end of the
            # file: only its own line is given up and the lines after it are read afresh.
            source.rewind()
            yield Problem("malformed-row", f"bad quoting ({error}); {_UNQUOTED}")
            continue
        yield cells
