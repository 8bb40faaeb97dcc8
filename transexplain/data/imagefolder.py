"""Items from the pictures of a folder and its subfolders."""

import os
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path

from transexplain.data.image_files import SUFFIXES
from transexplain.data.source_files import inside, picture_digest
from transexplain.data.source_records import Record, printable
from transexplain.errors import DataSourceError, ItemError
from transexplain.types.plans import DatasetSpec, Modality


class ImageFolderSource:
    """Every file with a picture's suffix; its id is its relative path, its label its folder.

    Hidden files and folders and files of other kinds are left out. Pictures in the folder
    itself have no label. Links to folders are not followed: one that leads outside is an item
    with an error, one that leads inside adds nothing.
    """

    def __init__(self, spec: DatasetSpec, location: str) -> None:
        columns = (
            spec.text,
            spec.image,
            spec.label,
            spec.id,
            spec.evidence,
            spec.spans,
            *spec.meta,
            spec.cluster,
            spec.template,
        )
        if any(columns):
            raise DataSourceError(
                "an image folder has no columns: the label is the name of the subfolder, the id "
                "the path; take text, image, label, id, evidence, spans, meta, cluster and "
                "template away, or list the pictures in a csv"
            )
        folder = Path(location).expanduser()
        if not folder.is_dir():
            raise DataSourceError(f"{location!r} is not a folder (in {Path.cwd()})")
        self._root = folder.resolve()
        self.root = str(self._root)
        self.modality: Modality = "image"
        self.numbered, self.named, self.marked = False, True, False
        self._names = self._find(location)

    def files(self) -> Sequence[Path]:
        """The pictures in order of their relative paths."""
        return [self._root / name for name in self._names]

    def records(self) -> Generator[Record]:
        """One record per picture, its bytes hashed."""
        for index, name in enumerate(self._names):
            folder = Path(name).parent.name
            label = printable(folder) if folder else None
            try:
                sha256 = picture_digest(inside(self._root, name), name)
            except ItemError as fault:
                yield Record(
                    printable(name), index, None, label, "{}", None, fault.kind, str(fault)
                )
            else:
                yield Record(name, index, name, label, "{}", sha256, None, None)

    def _find(self, location: str) -> list[str]:
        names: list[str] = []
        others: Counter[str] = Counter()
        for folder, subfolders, files in os.walk(self._root, onerror=_refuse):
            subfolders[:] = [name for name in subfolders if not name.startswith(".")]
            here = Path(folder)
            names.extend(
                self._relative(here / name)
                for name in subfolders
                if (here / name).is_symlink() and self._leads_outside(here / name)
            )
            for name in files:
                suffix = Path(name).suffix.lower()
                if suffix in SUFFIXES and not name.startswith("."):
                    names.append(self._relative(here / name))
                else:
                    others[suffix or "no suffix"] += 1
        if not names:
            found = ", ".join(f"{count} {suffix}" for suffix, count in others.most_common(5))
            known = " ".join(sorted(SUFFIXES))
            raise DataSourceError(
                f"{location!r} holds no pictures ({known}); it holds {found or 'no files'}"
            )
        return sorted(names)

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def _leads_outside(self, link: Path) -> bool:
        return not link.resolve().is_relative_to(self._root)


def _refuse(error: OSError) -> None:
    raise DataSourceError(f"cannot list {error.filename}: {error.strerror}; check its permissions")
