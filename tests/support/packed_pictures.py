"""Pictures in a folder, and the same files packed into tars and Parquet files."""

import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def draw(folder: Path, count: int, *, side: int = 24) -> dict[str, bytes]:
    """Write noise as `cat/000.png`, `dog/001.jpg` and so on; their bytes by name."""
    random = np.random.default_rng(7)
    found = {}
    for number in range(count):
        name = f"{('cat', 'dog')[number % 2]}/{number:03}.{('png', 'jpg')[number % 3 == 1]}"
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (side, side + 4, 3), dtype=np.uint8)).save(path)
        found[name] = path.read_bytes()
    return dict(sorted(found.items()))


def png(grey: int = 9) -> bytes:
    """The bytes of a small picture."""
    stream = io.BytesIO()
    Image.new("RGB", (5, 4), (grey, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


def pack(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    """A tar of these members, in their order."""
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def with_labels(pictures: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    """The members of a tar: every picture, and its folder's name as .cls."""
    found = []
    for name, data in pictures.items():
        found += [(name, data), (f"{name.partition('.')[0]}.cls", name.partition("/")[0].encode())]
    return found


def in_tars(folder: Path, pictures: Mapping[str, bytes], tars: int = 2) -> str:
    """Tars with labels, `pictures-000.tar` and so on; how a specification names them."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(pictures)
    size = -(-len(names) // tars)
    for number in range(tars):
        some = {name: pictures[name] for name in names[number * size :][:size]}
        pack(folder / f"pictures-{number:03}.tar", with_labels(some))
    return str(folder / f"pictures-{{000..{tars - 1:03}}}.tar")


def in_parquet(path: Path, pictures: Mapping[str, bytes], *, struct: bool, group: int = 5) -> Path:
    """A Parquet file of `image` and `label`; as structs of bytes and path, or as bytes."""
    cells: Sequence[Any] = list(pictures.values())
    kind: Any = pa.binary()
    if struct:
        cells = [{"bytes": data, "path": name} for name, data in pictures.items()]
        kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    labels = [name.partition("/")[0] for name in pictures]
    table = pa.table({"image": pa.array(cells, kind), "label": labels, "name": [*pictures]})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group)
    return path


def told(value: Any) -> bytes:
    """A .json member."""
    return json.dumps(value).encode()
