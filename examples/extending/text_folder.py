"""A data source: the `.txt` files of a folder and its subfolders, one text each."""

from collections.abc import Generator, Sequence
from pathlib import Path

from transexplain.data.source_files import MAX_ROW, Record, printable
from transexplain.errors import DataSourceError
from transexplain.types.plans import DatasetSpec, Modality


class TextFolderSource:
    """Every `.txt` file; its id is its relative path, its label the name of its folder.

    Links are left out: they could lead outside the folder.
    """

    modality: Modality = "text"
    root = ""  # only pictures are read again later
    numbered = False  # ids are names: they are checked for duplicates
    named = True  # a renamed file is another dataset
    marked = False  # nobody marked rationales

    def __init__(self, spec: DatasetSpec, location: str) -> None:
        columns = (spec.text, spec.image, spec.label, spec.id, spec.evidence, spec.spans)
        if any((*columns, *spec.meta, spec.cluster, spec.template)):
            raise DataSourceError("a folder of texts has no columns; take their names away")
        self._root = Path(location).expanduser().resolve()
        if not self._root.is_dir():
            raise DataSourceError(f"{location!r} is not a folder (in {Path.cwd()})")
        found = self._root.rglob("*.txt")
        self._paths = sorted(path for path in found if path.is_file() and not path.is_symlink())
        if not self._paths:
            raise DataSourceError(f"{location!r} holds no .txt files")

    def files(self) -> Sequence[Path]:
        """The files whose bytes decide the snapshot."""
        return self._paths

    def records(self) -> Generator[Record]:
        """One record per file; a file that is no text costs itself alone."""
        for index, path in enumerate(self._paths):
            content, kind = _read(path)
            yield Record(
                id=printable(path.relative_to(self._root).as_posix()),
                index=index,
                content=content,
                label=None if path.parent == self._root else printable(path.parent.name),
                meta="{}",
                sha256=None,  # of pictures
                error_kind=kind,
                error=None if kind is None else f"{printable(path.name)} is no text: {kind}",
            )


def _read(path: Path) -> tuple[str | None, str | None]:
    """The text of a file, or the kind of its error."""
    if path.stat().st_size > MAX_ROW:
        return None, "malformed-row"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None, "invalid-utf8"
    return (text, None) if text.strip() else (None, "empty-text")
