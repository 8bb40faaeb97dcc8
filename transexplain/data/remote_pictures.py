"""Pictures of a folder in an object store: their names, and their bytes read ahead."""

from collections.abc import Iterable, Iterator
from itertools import islice

from transexplain.data.source_files import inside
from transexplain.errors import ItemError
from transexplain.remote_files import under
from transexplain.remote_paths import AnyPath, RemotePath, with_contents


def names_below(root: RemotePath) -> list[str]:
    """The relative names of all files of a folder, hidden ones left out, sorted."""
    found = [one.url.removeprefix(f"{root.url}/") for one in under(f"{root.url}/")]
    return [name for name in found if not any(part.startswith(".") for part in name.split("/"))]


def read_ahead(
    root: AnyPath, names: Iterable[str | None], together: int = 64
) -> Iterator[RemotePath | None]:
    """For each name below `root` the file with its bytes, read so many at the same time.

    None where there is no name, where it leads outside, and for folders of this machine.
    """
    if not isinstance(root, RemotePath):
        yield from (None for _ in names)
        return
    waiting = iter(names)
    while some := list(islice(waiting, together)):
        paths = {name: path for name in some if (path := _below(root, name)) is not None}
        read = dict(zip(paths, with_contents(paths.values()), strict=True))
        yield from (read.get(name) for name in some)


def _below(root: RemotePath, name: str | None) -> RemotePath | None:
    try:
        found = None if name is None else inside(root, name)
    except ItemError:
        return None  # told by who asks for it by its name
    return found if isinstance(found, RemotePath) else None
