"""Reads tars of pictures (WebDataset): members that share a key are one item.

`n01/0001.jpg`, `n01/0001.cls` and `n01/0001.json` are the picture, the label and the metadata of
the item `n01/0001`: the key ends at the first dot of the name, and what follows is a column. The
fields of a .json member are columns, too. Members of an item stand one after the other, as
`tar --sort=name` and WebDataset's writers place them.

A tar is read once from its beginning to its end, its pictures are hashed, and none is extracted.
"""

import hashlib
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import IO, Any

from transexplain.data.file_formats import parsed
from transexplain.data.image_files import MAX_BYTES, SUFFIXES
from transexplain.data.source_files import (
    KEY,
    MAX_ROW,
    OpenTable,
    PackedPicture,
    Problem,
    RawRow,
    printable,
    reading_row,
)
from transexplain.errors import DataSourceError, ItemError
from transexplain.files.paths import AnyPath, info_of
from transexplain.types.plans import DatasetSpec

#: columns that every tar has beside `KEY`: the item's only picture, and its label
PICTURE, LABEL = "__picture__", "__label__"
_USUAL = {"content": PICTURE, "label": LABEL, "id": KEY}
_JSON = "json"
_LABELS = ("cls", "label", "txt")  #: the first that an item has; `label` is a field of its .json
_PEEK = 100  #: items that are looked at to learn which columns there are
_BLOCK = tarfile.BLOCKSIZE
_PIECE = 1 << 20


@dataclass(slots=True)
class _Sample:
    """The members of one item by what follows the key, and what is wrong with them."""

    key: str
    members: dict[str, tarfile.TarInfo] = field(default_factory=dict)
    faults: list[ItemError] = field(default_factory=list)
    parsed: Mapping[str, Any] | None = None  #: the fields of the .json member, once they are read


@contextmanager
def open_tar(path: AnyPath, spec: DatasetSpec) -> Iterator[OpenTable]:
    """The items of a tar as rows; its columns are those of the first 100 items.

    Raises DataSourceError where the file is no tar, or is compressed.
    """
    if path.suffix.lower() == ".gz":
        raise DataSourceError(
            f"{path} is compressed: pictures are read at any place of a tar, so unpack it first "
            "(gunzip), which costs little room as pictures are compressed themselves"
        )
    if spec.text:
        raise DataSourceError(f"{path}: tars are read for their pictures; remove data.text")
    with path.open("rb") as stream:
        reader = _TarReader(stream, path, spec)
        samples = reader.samples()
        first = list(islice(samples, _PEEK))
        yield OpenTable(
            columns=reader.columns(first),
            rows=lambda wanted: (reader.row(sample, wanted) for sample in chain(first, samples)),
            sparse=True,
            usual=_USUAL,
        )


class _TarReader:
    """Items of one open tar."""

    def __init__(self, stream: IO[bytes], path: AnyPath, spec: DatasetSpec) -> None:
        self._stream, self._path, self._spec = stream, path, spec
        self._size = info_of(path).size
        try:
            self._tar = tarfile.open(fileobj=stream, mode="r:", errors="surrogateescape")  # noqa: SIM115 - closed with the stream
        except Exception as error:  # a reader fed hostile bytes may fail in any way at all
            raise DataSourceError(f"{path} is no tar, or is damaged: {error}") from error

    def samples(self) -> Iterator[_Sample | Problem]:
        """Items in order; last a problem where the file is torn or damaged."""
        seen: set[str] = set()
        current: _Sample | None = None
        for member in self._members():
            if isinstance(member, Problem):
                if current is not None:
                    yield current
                yield member
                return
            name = member.name.removeprefix("./")
            key, dot, extension = _split(name)
            if member.isdir() or not dot:
                continue
            extension = extension.lower()
            if current is None or current.key != key or extension in current.members:
                if current is not None:
                    yield current
                current = _Sample(key)
                if key in seen:
                    fault = (
                        f"{printable(name)!r}: its key stood in the tar before; keys differ, and "
                        "the members of an item stand together (tar --sort=name)"
                    )
                    current.faults.append(ItemError("duplicate-key", fault))
                seen.add(key)
            current.members[extension] = member
            current.faults += self._faults(member, name)
        if current is not None:
            yield current

    def _members(self) -> Iterator[tarfile.TarInfo | Problem]:
        """Members in order; last a problem where the file ends before the tar does."""
        while True:
            at = self._tar.offset
            try:
                member = self._tar.next()
            except Exception:  # noqa: BLE001 - hostile bytes, as above
                member = None
            if member is None:
                break
            if member.size < 0 or self._tar.offset <= member.offset:  # it leads back in the file
                at = member.offset
                break
            self._tar.members = []  # type: ignore[attr-defined] # it would hold all of them
            yield member
        if (fault := self._ending(at)) is not None:
            yield Problem("torn-file", fault)

    def _ending(self, at: int) -> str | None:
        """What is wrong where the tar ends: blocks of zeros have to be there, and no others."""
        self._stream.seek(at)
        lost = "items behind it are lost; is the download complete? Pack or fetch it anew"
        if len(block := self._stream.read(_BLOCK)) < _BLOCK:
            return f"{self._path.name} is cut off at byte {self._size:,}: {lost}"
        if any(block):
            return f"{self._path.name} is damaged at byte {at:,}: {lost}"
        while piece := self._stream.read(_PIECE):
            if any(piece):
                return (
                    f"{self._path.name} holds more behind its end at byte {at:,}, as tars joined "
                    "by cat do, and it is not read; join them by tar --concatenate"
                )
        return None

    def _faults(self, member: tarfile.TarInfo, name: str) -> Iterator[ItemError]:
        shown = printable(name)
        if shown != name:
            yield ItemError("invalid-utf8", f"the member's name {shown!r} is not UTF-8")
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            yield ItemError("path-outside-root", f"the member {shown!r} leads outside the tar")
        if not member.isreg() or member.issparse():
            yield ItemError("missing-image", f"the member {shown!r} is a link or no plain file")
        elif member.offset_data + member.size > self._size:
            yield ItemError(
                "torn-file", f"{self._path.name} is cut off within {shown!r}; fetch it anew"
            )

    def columns(self, first: Sequence[_Sample | Problem]) -> tuple[str, ...]:
        """Return what follows keys, the fields of .json members, and what every tar has."""
        columns = dict.fromkeys((PICTURE, LABEL, KEY))
        for sample in first:
            if isinstance(sample, _Sample):
                columns |= dict.fromkeys(map(printable, sample.members))
                try:
                    with reading_row():
                        columns |= dict.fromkeys(map(printable, self._fields(sample)))
                except ItemError:
                    continue  # told of the item
        return tuple(columns)

    def row(self, sample: _Sample | Problem, wanted: Sequence[str]) -> RawRow:
        """The cells of an item; a problem with its id where one is wrong."""
        if isinstance(sample, Problem):
            return sample
        try:
            with reading_row():
                if sample.faults:
                    raise sample.faults[0]
                return {name: self._cell(sample, name) for name in wanted}
        except ItemError as fault:
            name = None if fault.kind == "duplicate-key" else printable(sample.key)
            return Problem(fault.kind, str(fault), id=name)

    def _cell(self, sample: _Sample, name: str) -> Any:
        if name == KEY:
            return sample.key
        if name in {PICTURE, self._spec.image}:
            return self._picture(sample)
        if name == LABEL:
            labels = (self._value(sample, column) for column in _LABELS)
            value = next((label for label in labels if label is not None), None)
        else:
            value = self._value(sample, name)
        if value is None and name == self._spec.label:
            raise ItemError("no-label", f"{sample.key!r} has no label: {name!r} is not there")
        return value

    def _value(self, sample: _Sample, name: str) -> Any:
        """The text of a member, or a field of the .json member."""
        if name not in sample.members:
            return self._fields(sample).get(name)
        if f".{name.rpartition('.')[2]}" in SUFFIXES:
            raise ItemError("malformed-row", f"{sample.key}.{name} is a picture, and not a text")
        return self._read(sample, name).strip()

    def _fields(self, sample: _Sample) -> Mapping[str, Any]:
        """The fields of the .json member."""
        if sample.parsed is None:
            record = parsed(self._read(sample, _JSON)) if _JSON in sample.members else {}
            if isinstance(record, Problem):
                shown = f"{printable(sample.key)}.{_JSON}"
                raise ItemError(record.kind, f"{shown}: {record.message}")
            sample.parsed = record
        return sample.parsed

    def _read(self, sample: _Sample, name: str) -> bytes:
        member = sample.members[name]
        if member.size > MAX_ROW:
            raise ItemError("malformed-row", f"{member.name} has more than {MAX_ROW:,} bytes")
        self._stream.seek(member.offset_data)
        return self._stream.read(member.size)

    def _picture(self, sample: _Sample) -> PackedPicture:
        extension = self._spec.image or self._only_picture(sample)
        if extension not in sample.members:
            raise ItemError("missing-image", f"{sample.key!r} has no picture .{extension}")
        member = sample.members[extension]
        name = member.name
        if member.size > MAX_BYTES:
            raise ItemError("image-too-large", f"{name} has more than {MAX_BYTES:,} bytes")
        self._stream.seek(member.offset_data)
        sha256 = hashlib.sha256(self._stream.read(member.size)).hexdigest()
        place = f"#{name.removeprefix('./')}@{member.offset_data}+{member.size}"
        return PackedPicture(place, sha256)

    def _only_picture(self, sample: _Sample) -> str:
        pictures = [name for name in sample.members if f".{name}" in SUFFIXES]
        if len(pictures) == 1:
            return pictures[0]
        shown = printable(sample.key)
        named = ", ".join(f".{name}" for name in pictures or sample.members)
        if pictures:
            raise ItemError(
                "malformed-row", f"{shown!r} has several pictures ({named}); name one: data.image"
            )
        known = " ".join(sorted(SUFFIXES))
        raise ItemError("missing-image", f"{shown!r} has no picture ({known}), but {named}")


def _split(name: str) -> tuple[str, str, str]:
    """Key, dot and what follows the first dot of a name; no dot: hidden, or without a suffix."""
    folder, slash, base = name.rpartition("/")
    stem, dot, extension = base.partition(".")
    return folder + slash + stem, dot if stem else "", extension
