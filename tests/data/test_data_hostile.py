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
from packed_pictures import png
from PIL import Image

from transexplain.data import read_frames
from transexplain.data.image_files import image_of
from transexplain.errors import DataSourceError, ItemError
from transexplain.types.items import Item, ItemFailure

WORKBOOKS = made.damaged_workbooks()
LARGE = made.large_workbooks()


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


def told(items: list[Item | ItemFailure]) -> list[str]:
    """The content of each item, the kind of each failure."""
    return [one.content if isinstance(one, Item) else f"[{one.kind}]" for one in items]


@pytest.mark.parametrize("fault", WORKBOOKS)
def test_a_damaged_workbook_is_refused_by_name(fault: str, tmp_path: Path, load) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "damaged.xlsx"
    path.write_bytes(WORKBOOKS[fault])
    with pytest.raises(DataSourceError, match=r"damaged\.xlsx"):
        load(path)


def test_the_workbook_that_they_are_made_of_is_read(tmp_path: Path, load) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "x.xlsx"
    path.write_bytes(made.zipped(made.parts()))
    assert told(load(path)) == ["a"]


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("how", [name for name in LARGE if name != "a wide dimension"])
def test_a_small_workbook_of_many_cells_is_refused(how: str, tmp_path: Path, load) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "large.xlsx"
    path.write_bytes(LARGE[how])
    with pytest.raises(DataSourceError, match=r"large\.xlsx"):
        load(path)


@pytest.mark.usefixtures("little_memory")
def test_what_a_workbook_says_of_its_size_is_not_believed(tmp_path: Path, load) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "x.xlsx"
    path.write_bytes(LARGE["a wide dimension"])
    assert told(load(path)) == ["a"]


def test_rows_that_a_sheet_leaves_out_are_blank_ones(tmp_path: Path, load) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "x.xlsx"
    last = '<row r="5"><c r="A5" t="inlineStr"><is><t>b</t></is></c></row>'
    path.write_bytes(made.zipped(made.parts(made.ROWS + last)))
    assert told(load(path)) == ["a", "[null]", "[null]", "b"]


@pytest.mark.parametrize("size", ["-5", "-1000"])
def test_a_negative_size_in_a_tar_ends_it(size: str, tmp_path: Path, load) -> None:
    path = tmp_path / "x.tar"
    good = made.tar_member("first.png", png())
    path.write_bytes(good + made.tar_of_size(size))
    first, torn = load(path)
    assert first.id == "x.tar/first" and isinstance(first, Item)
    assert torn.kind == "torn-file"


def test_a_text_that_is_not_utf8_in_a_list_costs_its_row(tmp_path: Path, load) -> None:
    path = made.broken_cell(tmp_path / "x.parquet")
    assert told(load(path, meta=("tokens",))) == ["a", "[invalid-utf8]", "c"]
    assert told(load(path, meta=("tokens",), snapshot="manifest", limit=3))[::2] == ["a", "c"]
    assert told(load(path)) == ["a", "b", "c"]


@pytest.mark.parametrize("column", ["times", "span"])
def test_a_time_that_no_calendar_has_costs_its_row(column: str, tmp_path: Path, load) -> None:
    path = made.late_times(tmp_path / "x.parquet")
    assert told(load(path, meta=(column,))) == ["a", "[malformed-row]", "c"]


@pytest.mark.usefixtures("little_memory")
def test_a_dictionary_of_a_long_text_is_not_unpacked_at_once(tmp_path: Path, load) -> None:
    path = made.wide_dictionary(tmp_path / "x.parquet", rows=1024, megabytes=20)
    assert path.stat().st_size < 3000
    with pytest.raises(DataSourceError, match=r"x\.parquet unpacks"):
        load(path)
    few = made.wide_dictionary(tmp_path / "y.parquet", rows=3, megabytes=20)
    assert [len(one.content) for one in load(few)] == [20 << 20] * 3


@pytest.mark.usefixtures("little_memory")
def test_pictures_that_are_one_large_word_are_not_unpacked_at_once(tmp_path: Path, load) -> None:
    image = made.coded([b"\x89PNG" + bytes(40 << 20)] * 20, pa.binary())
    pq.write_table(pa.table({"image": image}), tmp_path / "x.parquet", compression="zstd")
    found = load(tmp_path / "x.parquet", image="image", limit=5)
    assert told(found) == ["[bad-image]"] * 5


def test_a_text_beyond_the_limit_of_a_row_costs_its_row(tmp_path: Path, load) -> None:
    texts = pa.array(["a", "b" * ((64 << 20) + 1), "c"])
    pq.write_table(pa.table({"text": texts}), tmp_path / "x.parquet", compression="zstd")
    assert told(load(tmp_path / "x.parquet")) == ["a", "[malformed-row]", "c"]


def test_lists_of_too_many_values_are_refused(tmp_path: Path, load) -> None:
    many = (1 << 26) + 1
    ones = pa.nulls(many, pa.int8()).fill_null(1)
    lists = pa.ListArray.from_arrays(pa.array([0, many], pa.int32()), ones)
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": ["a"], "m": lists}), path, compression="zstd")
    assert path.stat().st_size < 20_000
    with pytest.raises(DataSourceError, match=r"x\.parquet.*67,108,865 values"):
        load(path, meta=("m",))
    assert told(load(path)) == ["a"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_file_that_unpacks_to_far_too_much_is_refused(suffix: str, tmp_path, load, monkeypatch):
    monkeypatch.setattr(read_frames, "_UNPACKED", 1 << 20)
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["a" * (2 << 20)]}), sink, compression="none")
    lines = {
        "csv": b"text\n" + b"a" * 999 * (1 << 11),
        "jsonl": b'{"text": "%s"}\n' % (b"a" * (1 << 21)),
    }
    path = tmp_path / f"x.{suffix}.gz"
    path.write_bytes(gzip.compress(lines.get(suffix, sink.getvalue())))
    with pytest.raises(DataSourceError, match="unpacks to more"):
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


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("values", ["[],", '{"a": 0},'])
def test_a_line_of_too_many_lists_costs_its_row(values: str, tmp_path: Path, load) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": [' + values * 2_000_000 + '0]}\n{"text": "b"}\n')
    assert told(load(path)) == ["[malformed-row]", "b"]


def test_a_jpeg_of_many_scans_is_no_picture() -> None:
    assert image_of(made.many_scans(40, 800), name="x").size == (800, 800)
    assert image_of(made.many_scans(3000, 80), name="x").size == (80, 80)
    with pytest.raises(ItemError) as fault:
        image_of(made.many_scans(3000, 4000), name="x")
    assert fault.value.kind == "image-too-large"


def of_gz(path: Path) -> bytes:
    path.write_bytes(gzip.compress(b"text\n" + b"some text\n" * 9_000)[:-30])
    return path.read_bytes()


def of_parquet(path: Path) -> bytes:
    pq.write_table(pa.table({"text": ["a", "b"] * 500}), path)
    return path.read_bytes()


@pytest.mark.parametrize("place", [4, 60, 0.3, 0.6, 0.9, -9, -5, -1])
@pytest.mark.parametrize(("name", "of"), [("x.parquet", of_parquet), ("x.csv.gz", of_gz)])
@pytest.mark.parametrize("cut", [False, True])
def test_a_file_that_is_cut_off_or_changed_is_refused_or_read(
    name: str, of: Callable[[Path], bytes], place: float, cut: bool, tmp_path: Path, load
) -> None:
    """Nothing but an error of ours comes of it."""
    data = bytearray(of(tmp_path / name))
    at = int(place * len(data)) if isinstance(place, float) else place
    data[at] ^= 255
    (tmp_path / name).write_bytes(data[:at] if cut else data)
    try:
        assert load(tmp_path / name)
    except DataSourceError as error:
        assert name in str(error)


def test_a_picture_that_is_cut_off_costs_its_row(tmp_path: Path, load) -> None:
    stream = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(stream, "JPEG")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cut.jpg").write_bytes(stream.getvalue()[:-900])
    (tmp_path / "a" / "good.jpg").write_bytes(stream.getvalue())
    cut, good = load(f"imagefolder:{tmp_path}")
    assert (cut.kind, good.content.size) == ("bad-image", (64, 64))
