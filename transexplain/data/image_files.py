"""Decodes picture files, and reads folders of pictures as a dataset."""

import hashlib
import io
import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path, PurePosixPath
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from transexplain.data.source_files import FileFacts, Record, inside, picture_digest, printable
from transexplain.errors import DataSourceError, ItemError, RemoteFileError
from transexplain.files.paths import AnyPath, RemotePath, local_path
from transexplain.files.remote_files import is_url, pinned, read_all, under
from transexplain.types.plans import DatasetSpec, Modality

T = TypeVar("T")


def with_pictures(
    root: AnyPath, rows: Iterable[T], name_of: Callable[[T], str | None], together: int = 64
) -> Iterator[tuple[T, RemotePath | None]]:
    """Each row, and the file below `root` that it names with its bytes, `together` read at once.

    None where there is no name, where it leads outside, and for folders of this machine.
    """
    if not isinstance(root, RemotePath):
        yield from zip(rows, repeat(None))
        return
    waiting = iter(rows)
    while some := list(islice(waiting, together)):
        names = list(map(name_of, some))
        paths = {name: path for name in names if (path := _below(root, name)) is not None}
        contents = zip(paths, read_all([path.url for path in paths.values()]), strict=True)
        read = {name: replace(paths[name], content=content) for name, content in contents}
        yield from zip(some, map(read.get, names), strict=True)


def _below(root: RemotePath, name: str | None) -> RemotePath | None:
    try:
        path = None if name is None else inside(root, name)
    except ItemError:
        return None  # told by who asks for it by its name
    return path if isinstance(path, RemotePath) else None


FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif"})
_JPEG = b"\xff\xd8"  #: how its bytes begin
MAX_PIXELS = 64_000_000  #: width x height; 8,000 x 8,000
MAX_BYTES = 256 * 1024 * 1024  #: of the file
_SCANS = 64  #: of a progressive JPEG of so many pixels, each of which every scan goes over again
_SCAN = b"\xff\xda"  #: how one begins, and nothing else in the coded pixels

#: `warnings.catch_warnings` swaps a list of the whole process: one decoder at a time
_DECODING = threading.Lock()


def load_image(path: AnyPath, *, name: str | None = None, sha256: str | None = None) -> Image.Image:
    """The picture at `path` as RGB, upright, the first frame of an animation.

    `name` stands for the path in messages. Transparency is dropped, as model pipelines do;
    16-bit grey is scaled to 8 bits.

    Raises ItemError: missing-image, image-changed (its bytes do not have `sha256`),
    image-too-large (`MAX_PIXELS`, `MAX_BYTES`), bad-image (not a picture, damaged, cut off).
    ObjectStoreError: the store that it lies in is away.
    """
    shown = printable(name or path.name)
    return _decoded(_bytes(path, shown, sha256), shown, _rgb)


def image_of(data: bytes, *, name: str, most_pixels: int = MAX_PIXELS) -> Image.Image:
    """The picture in these bytes, as `load_image`; `name` stands for it in messages.

    Raises ItemError: image-too-large (`most_pixels`, `MAX_BYTES`), bad-image.
    """
    shown = printable(name)
    if len(data) > MAX_BYTES:
        raise ItemError("image-too-large", f"{shown} has more than {MAX_BYTES:,} bytes")
    return _decoded(data, shown, _rgb, min(most_pixels, MAX_PIXELS))


def load_mask(
    path: AnyPath, *, name: str | None = None, sha256: str | None = None
) -> NDArray[np.bool_]:
    """(H, W) which pixels of the picture at `path` are marked: neither black nor transparent.

    JPEG is refused: its compression leaves traces beside every edge, which would be marked, too.

    Raises ItemError as `load_image` does.
    """
    shown = printable(name or path.name)
    data = _bytes(path, shown, sha256)
    if data.startswith(_JPEG):
        raise ItemError("bad-image", f"{shown} is a JPEG, blurred at edges; save it as PNG")
    return _decoded(data, shown, _marked)


def _decoded(
    data: bytes, shown: str, form: Callable[[Image.Image], T], most_pixels: int = MAX_PIXELS
) -> T:
    with _DECODING, warnings.catch_warnings():
        warnings.filterwarnings("error", module=r"PIL\.")
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                if image.width * image.height > most_pixels:
                    raise ItemError("image-too-large", _too_large(shown, most_pixels))
                _refuse_scans(image, data, shown)
                image.load()
                ImageOps.exif_transpose(image, in_place=True)
                return form(image)
        except ItemError:
            raise
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise ItemError("image-too-large", _too_large(shown, most_pixels)) from error
        except UnidentifiedImageError as error:
            known = ", ".join(FORMATS)
            raise ItemError("bad-image", f"{shown} is not a picture ({known})") from error
        except Exception as error:  # a decoder fed hostile bytes may fail in any way at all
            raise ItemError("bad-image", f"{shown} is damaged: {printable(str(error))}") from error


def _bytes(path: AnyPath, shown: str, sha256: str | None) -> bytes:
    try:
        if isinstance(path, RemotePath):
            data = path.read_bytes(MAX_BYTES + 1)
        else:
            with path.open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ItemError("missing-image", f"cannot read {shown}: {error.strerror}") from error
    except RemoteFileError as error:
        raise ItemError("missing-image", str(error)) from None
    if len(data) > MAX_BYTES:
        raise ItemError("image-too-large", f"{shown} has more than {MAX_BYTES:,} bytes")
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise ItemError("image-changed", f"{shown} has changed since the audit was planned")
    return data


def _refuse_scans(image: Image.Image, data: bytes, shown: str) -> None:
    scans = data.count(_SCAN) if data.startswith(_JPEG) else 0
    if scans * image.width * image.height > _SCANS * MAX_PIXELS:
        raise ItemError(
            "image-too-large",
            f"{shown} is a JPEG of {scans:,} scans, more than {_SCANS} of {MAX_PIXELS:,} pixels; "
            "save it anew",
        )


def _too_large(shown: str, most_pixels: int) -> str:
    return f"{shown} has more than {most_pixels:,} pixels; scale it down"


def _marked(image: Image.Image) -> NDArray[np.bool_]:
    if image.mode.startswith("I"):  # 16-bit grey, where a plain conversion would clip
        return np.asarray(np.asarray(image) != 0)
    pixels = np.asarray(image.convert("RGBA"))
    return np.asarray(pixels[..., :3].any(axis=-1) & (pixels[..., 3] > 0))


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit grey: a plain conversion would clip it to white
        grey = np.asarray(image).astype(np.uint32) >> 8
        return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")
    if "transparency" in image.info:  # via RGBA: the direct way warns about palettes
        image = image.convert("RGBA")
    return image.convert("RGB")


class ImageFolderSource:
    """Every file with a picture's suffix; its id is its relative path, its label its folder.

    Hidden files and folders and files of other kinds are left out. Pictures in the folder
    itself have no label. Links to folders are not followed: one that leads outside is an item
    with an error, one that leads inside adds nothing.
    """

    modality: Modality = "image"
    numbered, named, marked = False, True, False

    def __init__(self, spec: DatasetSpec, location: str) -> None:
        if named := spec.columns:
            raise DataSourceError(
                "an image folder has no columns: the label is the name of the subfolder, the id "
                f"the path; remove {', '.join(named)}, or list the pictures in a csv"
            )
        if is_url(location):
            self._root: AnyPath = RemotePath(pinned(location).rstrip("/"))
        else:
            folder = local_path(location)
            if not folder.is_dir():
                raise DataSourceError(f"{location!r} is not a folder (in {Path.cwd()})")
            self._root = folder.resolve()
        self.root = str(self._root)
        self._names, others = self._find(location)
        self.facts = FileFacts(notes=(("", _left_out(others)),))

    def files(self) -> Sequence[AnyPath]:
        """The pictures in order of their relative paths."""
        return [self._root / name for name in self._names]

    def records(self) -> Generator[Record]:
        """One record per picture, its bytes hashed."""
        pictured = with_pictures(self._root, self._names, str)
        for index, (name, path) in enumerate(pictured):
            folder = PurePosixPath(name).parent.name
            label = printable(folder) if folder else None
            try:
                sha256 = picture_digest(path or inside(self._root, name), name)
            except ItemError as fault:
                shown = printable(name)
                yield Record(shown, index, label=label, error_kind=fault.kind, error=str(fault))
            else:
                yield Record(name, index, name, label, sha256=sha256)

    def _find(self, location: str) -> tuple[list[str], Counter[str]]:
        """The pictures, and how many files there are of each other suffix."""
        if isinstance(self._root, RemotePath):
            outside: list[str] = []
            listed = [file.url.removeprefix(f"{self.root}/") for file in under(f"{self.root}/")]
        else:
            listed, outside = _local_names(self._root)
        shown = (name for name in listed if "/." not in f"/{name}")
        suffixes = {name: PurePosixPath(name).suffix.lower() for name in shown}
        names = [name for name, suffix in suffixes.items() if suffix in SUFFIXES] + outside
        rest = (suffix for suffix in suffixes.values() if suffix not in SUFFIXES)
        others = Counter(suffix or "no suffix" for suffix in rest)
        if not names:
            counts = ", ".join(f"{count} {suffix}" for suffix, count in others.most_common(5))
            known = " ".join(sorted(SUFFIXES))
            raise DataSourceError(
                f"{location!r} holds no pictures ({known}); it holds {counts or 'no files'}"
            )
        return sorted(names), others


def _local_names(root: Path) -> tuple[list[str], list[str]]:
    """The files below a folder, and links to folders outside of it; hidden folders have none."""
    files: list[Path] = []
    outside: list[Path] = []
    for folder, subfolders, names in os.walk(root, onerror=_refuse):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        files += [Path(folder, name) for name in names]
        links = (path for name in subfolders if (path := Path(folder, name)).is_symlink())
        outside += [link for link in links if not link.resolve().is_relative_to(root)]
    listed, linked = (
        [path.relative_to(root).as_posix() for path in paths] for paths in (files, outside)
    )
    return listed, linked


def _left_out(others: Counter[str]) -> str:
    """Says which files of a folder of pictures are no items; "": there are none."""
    if not (many := others.total()):
        return ""
    kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in others.most_common(5))
    known = " ".join(sorted(SUFFIXES))
    what = "1 file is" if many == 1 else f"{many:,} files are"
    return f"{what} left out ({kinds}): pictures are files that end in {known}"


def _refuse(error: OSError) -> None:
    raise DataSourceError(f"cannot list {error.filename}: {error.strerror}; check its permissions")
