"""Tars of pictures: bytes of a file, or the members of one, packed here with their names."""

import io
import tarfile
from pathlib import Path

from fuzz.guard import promise
from fuzz.mutate import split_files
from fuzz.ways.tables import check_records
from transexplain.data.picture_places import picture_bytes
from transexplain.data.table_source import FileSource
from transexplain.types.plans import DatasetSpec

_FILE = Path("pictures.tar")


def target(data: bytes) -> None:
    """Every item is a record or says why not, and its picture is read again at its place."""
    members = split_files(data)
    _FILE.write_bytes(_packed(members) if members else data)
    source = FileSource(DatasetSpec(source=str(_FILE)), str(_FILE))
    records = list(source.records())
    check_records(records)
    for record in records:
        if record.content is not None:
            promise(picture_bytes(Path(source.root), record.content) is not None, "no picture")


def _packed(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", errors="surrogateescape") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()
