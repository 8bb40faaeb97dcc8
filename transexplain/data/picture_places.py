"""Pictures by where they are: in a file of their own, in a tar, or in a column of a Parquet file.

A snapshot names the place of every picture relative to the dataset's root:

    cats/a.jpg                              a file
    shard-000.tar#cats/a.jpg@1536+20480     a member of a tar: first byte and number of bytes
    part-0.parquet#image[17]                a cell of a Parquet file: column and row

One read gives the bytes of a member; the tar is not searched.
"""

import hashlib
import re
from pathlib import Path, PurePosixPath

from PIL import Image

from transexplain.data.image_files import MAX_BYTES, image_of, load_image
from transexplain.data.source_files import inside, picture_digest, printable
from transexplain.errors import ConfigurationError, ItemError, RemoteFileError
from transexplain.files.paths import AnyPath, RemotePath, local_path, part_of

#: the bytes may be left out by a person, and the member is looked for
_MEMBER = re.compile(r"(.+?\.tar)#(.+?)(?:@(\d+)\+(\d+))?", re.IGNORECASE | re.DOTALL)
_CELL = re.compile(r"(.+?\.parquet)#(.+)\[(\d+)\]", re.IGNORECASE | re.DOTALL)


def is_packed(place: str) -> bool:
    """Return whether a place is written as one inside of a file with many pictures."""
    return bool(_MEMBER.fullmatch(place) or _CELL.fullmatch(place))


def open_picture(
    root: AnyPath,
    place: str,
    *,
    sha256: str | None = None,
    resolved: bool = False,
    read: RemotePath | None = None,
) -> Image.Image:
    """The picture at a place below `root`, as `image_files.load_image`; `resolved`: root's links.

    `read`: the file there, where that was read already. Raises ItemError: as `picture_bytes` and
    `load_image`; ObjectStoreError.
    """
    if not is_packed(place):
        path = read or inside(root, place, resolved=resolved)
        return load_image(path, name=place, sha256=sha256)
    data, shown = picture_bytes(root, place), _shown(place)
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise ItemError("image-changed", f"{shown} has changed since the audit was planned")
    return image_of(data, name=shown)


def picture_at(place: str | Path) -> Image.Image:
    """The picture of a file, or in a tar or Parquet file, that a person names.

    Raises ItemError as `open_picture` does.
    """
    try:
        whole = local_path(place)
    except ConfigurationError as error:
        raise ItemError("missing-image", str(error)) from error
    if whole.is_file() or not is_packed(str(place)):
        return load_image(whole)
    file, separator, rest = str(place).partition("#")
    path = local_path(file)
    return open_picture(path.parent, f"{path.name}{separator}{rest}")


def place_digest(root: AnyPath, place: str) -> str:
    """Sha256 of the bytes at a place below `root`; raises ItemError as `picture_bytes`."""
    if not is_packed(place):
        return picture_digest(inside(root, place), place)
    return hashlib.sha256(picture_bytes(root, place)).hexdigest()


def picture_bytes(root: AnyPath, place: str) -> bytes:
    """The bytes of a picture in a tar or Parquet file below `root`.

    Raises ItemError: path-outside-root, missing-image (no such file, member or row, or it cannot
    be read), image-too-large, image-changed (the file has become shorter).
    """
    if member := _MEMBER.fullmatch(place):
        file, name, start, size = member.groups()
        path = _below(root, file)
        found = (int(start), int(size)) if start else _searched(path, name)
        return _range(path, _shown(place), *found)
    cell = _CELL.fullmatch(place)
    if cell is None:
        raise ItemError("missing-image", f"{printable(place)!r} is no place in a tar or Parquet")
    from transexplain.data.parquet_files import cell_bytes  # pages of texts never need its 14 MB

    file, column, row = cell.groups()
    return cell_bytes(_below(root, file), column, int(row))


def _shown(place: str) -> str:
    """A place for a person: without the bytes."""
    member = _MEMBER.fullmatch(place)
    return printable(f"{member[1]}#{member[2]}" if member else place)


def _below(root: AnyPath, file: str) -> AnyPath:
    """The file, which may be a link: whoever audits has named it, or the folder it lies in."""
    if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts:
        raise ItemError("path-outside-root", f"{printable(file)!r} leads outside the dataset")
    return root / file


def _range(path: AnyPath, shown: str, start: int, size: int) -> bytes:
    if size > MAX_BYTES:
        raise ItemError("image-too-large", f"{shown} has more than {MAX_BYTES:,} bytes")
    try:
        data = part_of(path, start, start + size)
    except RemoteFileError as error:  # deleted, or shorter
        raise ItemError("missing-image", str(error)) from None
    except OSError as error:
        raise ItemError("missing-image", f"cannot read {shown}: {error.strerror}") from error
    if len(data) < size:
        raise ItemError("image-changed", f"{path.name} has become shorter: {shown} is cut off")
    return data


def _searched(path: AnyPath, name: str) -> tuple[int, int]:
    """First byte and number of bytes of a member that a person names."""
    import tarfile

    try:
        with path.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                if member.isreg() and member.name.removeprefix("./") == name:
                    return member.offset_data, member.size
    except (OSError, tarfile.TarError) as error:
        raise ItemError("missing-image", f"cannot read {path.name}: {error}") from error
    raise ItemError("missing-image", f"{path.name} has no picture {printable(name)!r}")
