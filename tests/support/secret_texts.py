"""An audit of texts with words that must not be found in the store, and a redaction hook."""

import json
import os
import re
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tiny_audit import make_audit

from transexplain.text.privacy import redaction_hook

os.environ["TRANSEXPLAIN_REDACT_MODULES"] = "secret_texts"  # as an operator would allow it

KEY = "a key of the tests, of 40 bytes or so.."
#: each is in one place: a text, metadata, and the label that an item fails by
SECRET, META_SECRET, FAILED_SECRET = "zyxhaldane", "qvorpmeta", "wqfailure"
SECRETS = (SECRET, META_SECRET, FAILED_SECRET)
REDACT = "secret_texts:names"


@redaction_hook
def names(text: str) -> list[tuple[int, int]]:
    """The first four characters of every secret: the rest of the word has to go, too."""
    if "unspeakable" in text:
        raise ValueError(f"I will not read {text}")
    return [
        (found.start(), found.start() + 4) for found in re.finditer("|".join(SECRETS), text.lower())
    ]


@redaction_hook
def outside(text: str) -> list[tuple[int, int]]:
    """A span that no text has."""
    return [(0, len(text) + 1)]


def unmarked(text: str) -> list[tuple[int, int]]:
    """A function that nobody marked as a hook."""
    raise AssertionError(text)


def secret_audit(folder: Path, **keys: Any) -> Path:
    """A specification of 20 items: secrets in texts and metadata, and an item that fails."""
    path = make_audit(
        folder,
        items=20,
        **{
            "data": {"source": str(folder / "texts.jsonl"), "meta": ["author"]},
            "evaluation": {"items": 4, "metrics": ["token-overlap"]},
            "targets": ["label"],
            **keys,
        },
    )
    rows = [json.loads(line) for line in (folder / "texts.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        row["author"] = f"{META_SECRET} {number}"
        if number % 3 == 0:
            row["text"] = f"{row['text']} {SECRET.title()} film"
    rows[5]["label"] = FAILED_SECRET  # target `label`: the failure quotes it
    rows[7]["text"] = f"unspeakable {SECRET}"
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def stored_strings(url: str) -> Iterator[bytes]:
    """The bytes of a SQLite store's files, and every cell of it, unpacked where it is packed."""
    file = Path(url.removeprefix("sqlite:///"))
    yield from (path.read_bytes() for path in file.parent.glob(f"{file.name}*"))
    with closing(sqlite3.connect(file)) as store:
        tables = store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for row in store.execute(f'SELECT * FROM "{table}"'):
                yield from map(unpacked, row)


def unpacked(cell: Any) -> bytes:
    """A cell as bytes, decompressed if it can be."""
    if not isinstance(cell, bytes | memoryview):
        return str(cell).encode()
    raw = bytes(cell)
    for skipped in range(2):
        try:
            return zlib.decompress(raw[skipped:])
        except zlib.error:
            continue
    return raw
