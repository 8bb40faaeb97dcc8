"""Data sets in xlsx: bytes of a file, or its parts.

An input that begins with `=== ` is a folder as `mutate.split_files` reads it: its files are the
parts, packed here, for a mutation of packed bytes only breaks a checksum.
"""

import io
import zipfile
from pathlib import Path

import openpyxl

from fuzz.guard import promise
from fuzz.mutate import split_files
from fuzz.ways.tables import check_records, spec_of
from transexplain.data.table_source import FileSource

__all__ = ["openpyxl", "target"]

_FILE = Path("table.xlsx")


def target(data: bytes) -> None:
    """Every row is a record or says why not, and read again it is the same."""
    parts = split_files(data)
    _FILE.write_bytes(_packed(parts) if parts else data)
    spec = spec_of(str(_FILE), {"meta": "m"} if b">m<" in data else {})
    records = list(FileSource(spec, str(_FILE)).records())
    check_records(records)
    if len(records) < 1_000:
        promise(records == list(FileSource(spec, str(_FILE)).records()), "read again it differs")


def _packed(parts: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as book:
        for name, content in parts.items():
            book.writestr(zipfile.ZipInfo(name or "x"), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()
