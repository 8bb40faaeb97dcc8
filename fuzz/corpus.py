"""Where inputs lie: seeds that people wrote, findings of old, and what fuzzing makes."""

import re
from collections.abc import Sequence
from pathlib import Path

_HERE = Path(__file__).parent
#: of a checkout, ignored by git: one folder a way in
WORK = _HERE / "work"
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")


def seed_folders(way: str) -> Sequence[Path]:
    """The folders of seeds and of former findings of a way in, those that are there."""
    return [path for name in ("corpus", "findings") if (path := _HERE / name / way).is_dir()]


def seeds(way: str) -> Sequence[Path]:
    """The files in `seed_folders`, sorted."""
    return sorted(path for folder in seed_folders(way) for path in folder.iterdir())


def dictionary(way: str) -> Path | None:
    """The words of a way in, a quoted word a line, as libFuzzer reads them."""
    path = _HERE / "words" / f"{way}.dict"
    return path if path.is_file() else None


def words(way: str) -> Sequence[bytes]:
    """The words of `dictionary`, unquoted."""
    path = dictionary(way)
    lines = path.read_text(encoding="utf-8").splitlines() if path else []
    return [_ESCAPE.sub(_byte, line.strip()[1:-1].encode()) for line in lines if line[:1] == '"']


def _byte(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 16)])
