"""The files that a path, a glob or a range in braces names."""

import glob
import re
from pathlib import Path

from transexplain.errors import DataSourceError
from transexplain.remote_paths import AnyPath, matching_paths
from transexplain.remote_stores import is_url


def expand(location: str) -> tuple[AnyPath, ...]:
    """The files that a path, URL, glob or {range} means, or the tars of a folder, sorted.

    `{000..012}` are the numbers from 000 to 012, `{a,b}` is a and b; every such file has to exist.
    URLs name files and globs, with a {range} or without.

    Raises DataSourceError where there is none, and for a folder without tars; as
    `remote_paths.matching_paths`.
    """
    if is_url(location):
        named = {one.url: one for part in _without_braces(location) for one in matching_paths(part)}
        return tuple(named[url] for url in sorted(named))
    literal = Path(location).expanduser()
    names = [str(literal)] if literal.exists() else _matching(str(literal))
    if literal.is_dir():
        names = [str(path) for path in literal.iterdir() if path.suffix.lower() == ".tar"]
        if not names:
            raise DataSourceError(
                f"{location} is a folder without tars; write imagefolder:{location} for pictures, "
                f"or a glob such as {location.rstrip('/')}/*.jsonl for files"
            )
    # The folder's links are followed, the file's are not: its own name holds the suffix.
    paths = tuple(
        path.parent.resolve() / path.name for path in map(Path, sorted({*names})) if path.is_file()
    )
    if not paths:
        hub = "; a data set of the hub is hf://datasets/ORG/NAME" if location[:3] == "hf:" else ""
        raise DataSourceError(f"no file matches {location!r} (in {Path.cwd()}){hub}")
    return paths


_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
_MOST_FILES = 1_000_000


def _matching(pattern: str) -> list[str]:
    """Names of existing files; DataSourceError where one that the braces name is not there."""
    names: list[str] = []
    for one in _without_braces(pattern):
        found = [one] if Path(one).exists() else glob.glob(one, recursive=True)  # noqa: PTH207 - `**` and absolute patterns in one call
        if not found and one != pattern:
            raise DataSourceError(f"no file matches {one!r}, which {pattern!r} names")
        names += found
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
        patterns = [one.replace(braces[0], value, 1) for one in patterns for value in values]
    return patterns
