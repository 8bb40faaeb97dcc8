"""Small files that ask for much time or memory, and damaged ones: made here, never kept."""

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"

#: the cells `text` in the first row and `a` in the second
ROWS = (
    '<row r="1"><c r="A1" t="s"><v>0</v></c></row>'
    '<row r="2"><c r="A2" t="inlineStr"><is><t>a</t></is></c></row>'
)


def parts(rows: str = ROWS, *, before: str = "", strings: str = "<si><t>text</t></si>") -> dict:
    """The parts of a workbook of one sheet by name; `before` stands before its rows."""
    relations = [
        (f"{_OFFICE}/worksheet", "worksheets/sheet1.xml"),
        (f"{_OFFICE}/sharedStrings", "sharedStrings.xml"),
        (f"{_OFFICE}/styles", "styles.xml"),
    ]
    return {
        "[Content_Types].xml": (
            f'<Types xmlns="{_PACKAGE}/content-types">'
            '<Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            '<Default Extension="xml" ContentType="application/xml"/>'
            f'<Override PartName="/xl/workbook.xml" ContentType="{_KIND}.sheet.main+xml"/>'
            f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_KIND}.worksheet+xml"/>'
            f'<Override PartName="/xl/sharedStrings.xml" ContentType="{_KIND}.sharedStrings+xml"/>'
            f'<Override PartName="/xl/styles.xml" ContentType="{_KIND}.styles+xml"/>'
            "</Types>"
        ),
        "_rels/.rels": _relations([(f"{_OFFICE}/officeDocument", "xl/workbook.xml")]),
        "xl/workbook.xml": (
            f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}">'
            '<sheets><sheet name="one" sheetId="1" r:id="rId1"/></sheets></workbook>'
        ),
        "xl/_rels/workbook.xml.rels": _relations(relations),
        "xl/worksheets/sheet1.xml": (
            f'<worksheet xmlns="{_MAIN}">{before}<sheetData>{rows}</sheetData></worksheet>'
        ),
        "xl/styles.xml": (
            f'<styleSheet xmlns="{_MAIN}"><fonts><font/></fonts>'
            "<fills><fill><patternFill/></fill></fills>"
            "<borders><border/></borders><cellStyleXfs><xf/></cellStyleXfs>"
            '<cellXfs><xf/></cellXfs><cellStyles><cellStyle name="Normal" xfId="0"/></cellStyles>'
            "</styleSheet>"
        ),
        "xl/sharedStrings.xml": f'<sst xmlns="{_MAIN}">{strings}</sst>',
    }


def _relations(targets: list[tuple[str, str]]) -> str:
    listed = "".join(
        f'<Relationship Id="rId{number}" Type="{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{listed}</Relationships>'


def zipped(named: Mapping[str, str]) -> bytes:
    """A zip of these parts."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as book:
        for name, text in named.items():
            book.writestr(name, text)
    return stream.getvalue()


def damaged_workbooks() -> dict[str, bytes]:
    """Workbooks that no program opens, by what is wrong with them."""
    whole = parts()
    sheet, relations = "xl/worksheets/sheet1.xml", "xl/_rels/workbook.xml.rels"
    good = zipped(whole)
    place = good.index(b"xl/workbook.xml") + 60
    encrypted = bytearray(good)
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := encrypted.find(mark, at + 1)) >= 0:
            encrypted[at + flags] |= 1

    def changed(part: str, old: str, new: str) -> bytes:
        return zipped(whole | {part: whole[part].replace(old, new)})

    entities = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        entities += f'<!ENTITY {name} "{f"&{before};" * 10}">'
    return {
        "cut off": good[:-300],
        "no workbook": zipped({k: v for k, v in whole.items() if k != "xl/workbook.xml"}),
        "no sheet": zipped({k: v for k, v in whole.items() if k != sheet}),
        "bad XML": changed(sheet, "</sheetData>", ""),
        "bad XML of strings": zipped(whole | {"xl/sharedStrings.xml": "<sst><si>"}),
        "index of a string": changed(sheet, "<v>0</v>", "<v>99</v>"),
        "a number of letters": changed(sheet, 't="s"><v>0', "><v>x1"),
        "content types": zipped(whole | {"[Content_Types].xml": "<Types/>"}),
        "encrypted": bytes(encrypted),
        "absolute path": changed(relations, "worksheets/sheet1.xml", "/etc/passwd"),
        "a way out": changed(relations, "worksheets/sheet1.xml", "../../../../etc/passwd"),
        "wrong checksum": good[:place] + bytes([good[place] ^ 255]) + good[place + 1 :],
        "a cycle": changed(relations, "worksheets/sheet1.xml", "_rels/workbook.xml.rels"),
        "entities": zipped(
            whole | {sheet: f"{entities}]>" + whole[sheet].replace("<t>a</t>", "<t>&i;</t>")}
        ),
    }


def large_workbooks() -> dict[str, bytes]:
    """Workbooks of a few kilobytes that stand for a great many cells, by how."""
    many = "".join(f'<row r="{row}"/>' for row in range(3, 40_003))
    far = ROWS + '<row r="1000000000000"><c r="A1000000000000"><v>1</v></c></row>'
    return {
        "a far row": zipped(parts(far)),
        "a far column": zipped(parts(ROWS.replace("A2", "ZZZZZZ2"))),
        "a wide dimension": zipped(parts(ROWS + many, before='<dimension ref="A1:ZZZ1048576"/>')),
        "an impossible dimension": zipped(
            parts(ROWS * 3, before='<dimension ref="A1:BDWGN1000000"/>')
        ),
        "unpacked": zipped(parts(strings="<si><t>text</t></si>" * 4_000_000)),
    }


def tar_member(name: str, data: bytes) -> bytes:
    """The header and the blocks of a member."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    return member.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


def tar_of_size(size: str) -> bytes:
    """A tar with one picture whose header states this size, in octal."""
    member = tarfile.TarInfo("a.png")
    block = bytearray(member.tobuf(tarfile.USTAR_FORMAT))
    block[124:136] = size.encode().rjust(11, b"0" if size[0] != "-" else b" ") + b"\0"
    block[148:156] = b" " * 8
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    return bytes(block) + bytes(10_240)


def coded(cells: list[Any], kind: pa.DataType) -> pa.Array:
    """A column of a dictionary, made without the cells beside each other."""
    words = list(dict.fromkeys(cells))
    places = {word: place for place, word in enumerate(words)}
    return pa.DictionaryArray.from_arrays(
        pa.array([places[cell] for cell in cells], pa.int32()), pa.array(words, kind)
    )


def wide_dictionary(path: Path, *, rows: int = 1024, megabytes: int = 20) -> Path:
    """A Parquet file of some kilobytes in which every row is the same long text."""
    words = coded(["a" * (megabytes << 20)] * rows, pa.string())
    pq.write_table(pa.table({"text": words}), path, compression="zstd", write_statistics=False)
    return path


def broken_cell(path: Path) -> Path:
    """A Parquet file of three rows; a text in the list of the second is not UTF-8."""
    texts = pa.array([b"a", b"\xff\xfe", b"c"], pa.binary()).view(pa.string())
    tokens = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), texts)
    table = {"text": ["a", "b", "c"], "tokens": tokens, "scores": [[1.0]] * 3}
    pq.write_table(pa.table(table | {"prediction": ["p"] * 3}), path)
    return path


def late_times(path: Path) -> Path:
    """A Parquet file of three rows; the second holds a time that Python has no date for."""
    seconds = pa.array([0, 2**62, 1], pa.int64()).cast(pa.timestamp("us"))
    table = {
        "text": ["a", "b", "c"],
        "time": seconds,
        "times": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), seconds),
        "span": pa.StructArray.from_arrays([seconds], ["at"]),
    }
    pq.write_table(pa.table(table), path)
    return path


def many_scans(scans: int, side: int = 8000) -> bytes:
    """A progressive JPEG whose last scan stands there so often."""
    stream = io.BytesIO()
    Image.new("RGB", (side, side), (90, 120, 30)).save(stream, "JPEG", progressive=True)
    data = stream.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + b"\xff\xd9"
