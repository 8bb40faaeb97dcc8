"""Damaged files and small ones that ask for much: refused by name, or an error of one row."""

import gzip
import io
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile_files as made
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import told
from packed_pictures import png

from transexplain.data import source_files
from transexplain.data.image_files import image_of
from transexplain.errors import DataSourceError, ItemError

WORKBOOKS = made.damaged_workbooks()
LARGE = made.large_workbooks()
LAST = '<row r="5"><c r="A5" t="inlineStr"><is><t>b</t></is></c></row>'
BAD = "[malformed-row]"


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Half a gigabyte more than this process has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (1 << 29), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def of_bytes(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def of_texts(*texts: str) -> Callable[[Path], object]:
    table = pa.table({"text": pa.array(texts)})
    return lambda path: pq.write_table(table, path, compression="zstd")


def of_many_values(path: Path) -> None:
    many = (1 << 26) + 1
    ones = pa.nulls(many, pa.int8()).fill_null(1)
    lists = pa.ListArray.from_arrays(pa.array([0, many], pa.int32()), ones)
    pq.write_table(pa.table({"text": ["a"], "m": lists}), path, compression="zstd")


def of_one_word(path: Path) -> None:
    image = made.coded([b"\x89PNG" + bytes(40 << 20)] * 20, pa.binary())
    pq.write_table(pa.table({"image": image}), path, compression="zstd")


def wide(path: Path) -> None:
    made.wide_dictionary(path, rows=1024, megabytes=20)


FIRST = made.tar_member("first.png", png())
#: format and fault -> how the file is made, what is read (None: refused by name), and options
FILES: dict[str, tuple[Callable[[Path], object], list[str] | None, dict[str, object]]] = {
    **{
        f"xlsx: {fault}": (of_bytes(book), None, {})
        for fault, book in (*WORKBOOKS.items(), *LARGE.items())
    },
    "xlsx: a wide dimension": (of_bytes(LARGE["a wide dimension"]), ["a"], {}),
    "xlsx: whole": (of_bytes(made.zipped(made.parts())), ["a"], {}),
    "xlsx: rows left out": (
        of_bytes(made.zipped(made.parts(made.ROWS + LAST))),
        ["a", "[null]", "[null]", "b"],
        {},
    ),
    **{
        f"tar: a size of {size}": (
            of_bytes(FIRST + made.tar_of_size(size)),
            ["ok", "[torn-file]"],
            {},
        )
        for size in ("-5", "-1000")
    },
    "parquet: bytes": (made.broken_cell, ["a", "[invalid-utf8]", "c"], {"meta": ("tokens",)}),
    "parquet: bytes in another column": (made.broken_cell, ["a", "b", "c"], {}),
    **{
        f"parquet: late {column}": (made.late_times, ["a", BAD, "c"], {"meta": (column,)})
        for column in ("times", "span")
    },
    "parquet: a long word often": (wide, None, {}),
    "parquet: a large picture": (of_one_word, ["[bad-image]"] * 5, {"image": "image", "limit": 5}),
    "parquet: a long row": (of_texts("a", "b" * ((64 << 20) + 1), "c"), ["a", BAD, "c"], {}),
    "parquet: many values": (of_many_values, None, {"meta": ("m",)}),
    "parquet: many values unread": (of_many_values, ["a"], {}),
    **{
        f"jsonl: many {name}": (
            of_bytes(b'{"text": [' + values * 2_000_000 + b'0]}\n{"text": "b"}\n'),
            [BAD, "b"],
            {},
        )
        for name, values in (("lists", b"[],"), ("objects", b'{"a": 0},'))
    },
}


@pytest.mark.parametrize("fault", FILES)
def test_a_hostile_file_is_refused_by_name_or_costs_its_row(
    fault: str, request: pytest.FixtureRequest, tmp_path: Path, load
) -> None:
    make, outcome, options = FILES[fault]
    suffix = fault.partition(":")[0]
    if suffix == "xlsx":
        pytest.importorskip("openpyxl")
    path = tmp_path / f"x.{suffix}"
    make(path)
    request.getfixturevalue("little_memory")  # which some are made without
    if outcome is not None:
        assert told(load(path, **options)) == outcome
        return
    with pytest.raises(DataSourceError, match=rf"x\.{suffix}"):
        load(path, **options)


@pytest.mark.usefixtures("little_memory")
def test_a_few_long_texts_are_read(tmp_path: Path, load) -> None:
    few = made.wide_dictionary(tmp_path / "y.parquet", rows=3, megabytes=20)
    assert [len(item.content) for item in load(few)] == [20 << 20] * 3


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_file_that_unpacks_to_far_too_much_is_refused(suffix: str, tmp_path, load, monkeypatch):
    monkeypatch.setattr(source_files, "_UNPACKED", 1 << 20)
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["a" * (2 << 20)]}), sink, compression="none")
    lines = {
        "csv": b"text\n" + b"a" * 999 * (1 << 11),
        "jsonl": b'{"text": "%s"}\n' % (b"a" * (1 << 21)),
    }
    path = tmp_path / f"x.{suffix}.gz"
    path.write_bytes(gzip.compress(lines.get(suffix, sink.getvalue())))
    with pytest.raises(DataSourceError, match=rf"x\.{suffix}\.gz"):
        load(path)


@pytest.mark.parametrize(
    "line",
    ['{"text": "%s"}' % ("a[" * 5_000_000), '{"text": "%s"}' % ('\\"[' * 3_000_000)],
    ids=["brackets", "escapes"],
)
@pytest.mark.usefixtures("little_memory")
def test_brackets_in_a_text_are_no_depth(line: str, tmp_path: Path, load) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(line + '\n{"text": "b"}\n')
    first, second = load(path)
    assert len(first.content) > 5_000_000
    assert second.content == "b"


def test_a_jpeg_of_many_scans_is_no_picture() -> None:
    assert image_of(made.many_scans(40, 800), name="x").size == (800, 800)
    assert image_of(made.many_scans(3000, 80), name="x").size == (80, 80)
    with pytest.raises(ItemError) as fault:
        image_of(made.many_scans(3000, 4000), name="x")
    assert fault.value.kind == "image-too-large"


@pytest.mark.parametrize("place", [4, 60, 0.3, 0.6, 0.9, -9, -5, -1])
@pytest.mark.parametrize("name", ["x.parquet", "x.csv.gz"])
@pytest.mark.parametrize("cut", [False, True])
def test_a_file_that_is_cut_off_or_changed_is_refused_or_read(
    name: str, place: float, cut: bool, tmp_path: Path, load
) -> None:
    """Nothing but an error of ours comes of it."""
    path = tmp_path / name
    if name == "x.parquet":
        pq.write_table(pa.table({"text": ["a", "b"] * 500}), path)
    else:
        path.write_bytes(gzip.compress(b"text\n" + b"some text\n" * 9_000)[:-30])
    data = bytearray(path.read_bytes())
    at = int(place * len(data)) if isinstance(place, float) else place
    data[at] ^= 255
    path.write_bytes(data[:at] if cut else data)
    try:
        assert load(path)
    except DataSourceError as error:
        assert name in str(error)
