"""How a text file is written: its encoding and its delimiter, given or detected."""

import codecs
import gzip
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import IO

from transexplain.data.read_frames import unreadable
from transexplain.data.source_files import printable
from transexplain.remote_paths import AnyPath, RemotePath, state_of
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
    state = state_of(path) if there else (0, 0)
    return _dialect(path, state, spec.encoding, spec.delimiter, usual)


@lru_cache(maxsize=1024)
def _dialect(
    path: AnyPath,
    state: tuple[int | str, int],
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

    found = from_bytes(some, cp_isolation=list(_CANDIDATES))
    best = found.best()
    if best is None:
        return _CANDIDATES[0]
    as_good = [
        name
        for one in found
        if one.chaos <= best.chaos + _AS_GOOD
        for name in (one.encoding, *one.could_be_from_charset)
    ]
    return _CANDIDATES[0] if _CANDIDATES[0] in as_good else best.encoding


def _delimiter_of(path: AnyPath, encoding: str, usual: str) -> str:
    """The delimiter of the header line: the usual one, or the most frequent other one."""
    with _first_lines(path) as lines:
        head = b"".join(islice(lines, 1 if encoding not in ("utf-16", "utf-32") else 50))
    header = head.decode(encoding, "replace").partition("\n")[0]
    counts = {one: header.count(one) for one in _CELL_ENDS}
    if counts[usual] or not any(counts.values()):
        return usual
    return max(counts, key=lambda one: counts[one])


@contextmanager
def _first_lines(path: AnyPath) -> Iterator[Iterator[bytes]]:
    """The beginnings of a file's lines."""
    try:
        with ExitStack() as stack:
            stream: IO[bytes] | gzip.GzipFile = stack.enter_context(path.open("rb"))
            if path.suffix.lower() == ".gz":
                stream = stack.enter_context(gzip.open(stream))
            yield iter(lambda: stream.readline(_LINE), b"")
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from error


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
    found = DELIMITERS.get(text.lower(), text)
    if len(found) != 1 or found in '"\r\n' or not found.isascii():
        raise ValueError(
            f"{text!r} cannot separate cells: give one ASCII character, or one of tab, comma, "
            "semicolon, pipe"
        )
    return found
