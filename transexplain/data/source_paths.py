"""The files that a path, a glob or a range in braces names."""

import glob
import re
from pathlib import Path

from transexplain.data import FORMATS
from transexplain.data.source_files import partitions
from transexplain.errors import DataSourceError
from transexplain.files.paths import AnyPath, RemotePath, local_path, matching_paths
from transexplain.files.remote_files import is_url, pinned, under


def expand(location: str) -> tuple[AnyPath, ...]:
    """The files that a path, URL, glob or {range} means, sorted; of a folder its tars, or the
    files in its partitions.

    `{000..012}` are the numbers from 000 to 012, `{a,b}` is a and b; every such file has to exist.
    URLs name files, globs and folders (with `/` at the end), with a {range} or without.

    Raises DataSourceError where there is none, and for another folder; as
    `paths.matching_paths`.
    """
    if is_url(location):
        if location.endswith("/"):
            return _remote_partitions(location)
        named = {
            path.url: path for part in _without_braces(location) for path in matching_paths(part)
        }
        return tuple(named[url] for url in sorted(named))
    literal = local_path(location)
    names = [str(literal)] if literal.exists() else _matching(str(literal))
    if literal.is_dir():
        names = [str(path) for path in literal.iterdir() if path.suffix.lower() == ".tar"]
        below = () if names else literal.glob("*=*/**/*")
        names += [
            str(path) for path in below if _is_partitioned(path.relative_to(literal).as_posix())
        ]
        if not names:
            raise DataSourceError(
                f"{location} is a folder without tars or partitions (label=positive/...); write "
                f"imagefolder:{location} for pictures, or a glob such as "
                f"{location.rstrip('/')}/*.jsonl for files"
            )
    # The folder's links are followed, the file's are not: its own name holds the suffix.
    paths = tuple(
        path.parent.resolve() / path.name for path in map(Path, sorted({*names})) if path.is_file()
    )
    if not paths:
        hub = "; a data set of the hub is hf://datasets/ORG/NAME" if location[:3] == "hf:" else ""
        raise DataSourceError(f"no file matches {location!r} (in {Path.cwd()}){hub}")
    return paths


def _remote_partitions(url: str) -> tuple[RemotePath, ...]:
    """The files in the partitions of a folder at a URL."""
    folder = pinned(url)
    paths = [RemotePath(file.url, file) for file in under(folder)]
    names = [path.relative_to(folder).as_posix() for path in paths]
    kept = [path for path, name in zip(paths, names, strict=True) if _is_partitioned(name)]
    if not kept:
        raise DataSourceError(
            f"{url} holds no partitions (label=positive/...); write a glob such as {url}*.jsonl"
        )
    return tuple(kept)


def _is_partitioned(name: str) -> bool:
    """Return whether the name of a file, below its folder, is that of data in a partition."""
    suffix = name.lower().removesuffix(".gz").rpartition(".")[2]
    # writers keep such names for themselves
    hidden = any(part.startswith(("_", ".")) for part in name.split("/"))
    return suffix in FORMATS and bool(partitions(name)) and not hidden


_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
_MOST_FILES = 1_000_000


def _matching(pattern: str) -> list[str]:
    """Names of existing files; DataSourceError where one that the braces name is not there."""
    names: list[str] = []
    for brace in _without_braces(pattern):
        matches = [brace] if Path(brace).exists() else glob.glob(brace, recursive=True)  # noqa: PTH207 - `**` and absolute patterns in one call
        if not matches and brace != pattern:
            raise DataSourceError(f"no file matches {brace!r}, which {pattern!r} names")
        names += matches
    return names


def _without_braces(pattern: str) -> list[str]:
    patterns = [pattern]
    while braces := _BRACES.search(patterns[0]):
        first, last, listed = braces.groups()
        if listed is not None:
            values = listed.split(",")
        else:
            numbers = range(int(first), int(last) + 1)
            if not 0 < len(numbers) * len(patterns) <= _MOST_FILES:
                raise DataSourceError(
                    f"{braces[0]} in {pattern!r} names {len(numbers):,} files: write "
                    f"{{first..last}}, for at most {_MOST_FILES:,} of them"
                )
            values = [f"{number:0{len(first)}}" for number in numbers]
        # all patterns are alike up to here
        patterns = [
            pattern.replace(braces[0], value, 1) for pattern in patterns for value in values
        ]
    return patterns
