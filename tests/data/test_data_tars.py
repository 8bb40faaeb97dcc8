"""Tars of pictures: items by their keys, and what may be wrong with a tar or one of its members."""

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_files import by_id, labels, planned, read, told
from packed_pictures import draw, in_tars, pack, png, with_labels
from packed_pictures import told as written

from transexplain.data.picture_places import open_picture, picture_at
from transexplain.errors import DataSourceError, ItemError
from transexplain.types.items import ItemFailure


def pixels(items: list[Any]) -> list[np.ndarray]:
    return [np.asarray(item.content) for item in items]


def outcomes(items: list[Any]) -> dict[str, str | None]:
    """Id -> label of an item, kind of a failure in brackets."""
    return dict(zip(by_id(items), labels(items), strict=True))


def message(items: list[Any], kind: str) -> str:
    (found,) = (one.message for one in items if isinstance(one, ItemFailure) and one.kind == kind)
    return found


def test_tars_give_the_pictures_of_the_folder(tmp_path: Path, load) -> None:
    pictures = draw(tmp_path / "folder", 7)
    alone = load(f"imagefolder:{tmp_path}/folder")
    named = in_tars(tmp_path / "tars", pictures)
    packed = load(named, shard_size=3)
    assert [one.label for one in packed] == [one.label for one in alone]
    for one, other in zip(pixels(packed), pixels(alone), strict=True):
        np.testing.assert_array_equal(one, other)
    assert packed[0].id == "pictures-000.tar/cat/000"
    assert packed[0].source.startswith("pictures-000.tar#cat/000.png@512+")
    for same in (tmp_path / "tars", tmp_path / "tars" / "*.tar"):
        assert [one.id for one in load(same)] == [one.id for one in packed]


def test_labels_ids_and_metadata_are_members_or_fields(tmp_path: Path, load) -> None:
    tar = pack(
        tmp_path / "x.tar",
        [
            ("./a.jpg", png()),
            ("./a.json", written({"label": 3, "id": "first", "place": "Rome"})),
            ("./a.txt", b"ein Hund\n"),
            ("b.seg.png", png(1)),
            ("b.png", png(2)),
            ("b.cls", b"4\n"),
            ("c.webp", png(3)),
            ("c.txt", b"a caption"),
            ("._c.webp", b"left by a Mac"),
            ("LICENSE", b"without a suffix"),
        ],
    )
    items = load(tar)
    assert outcomes(items) == {"x.tar/a": "3", "x.tar/b": "4", "x.tar/c": "a caption"}
    items = load(tar, meta=("place", "txt"))
    assert items[0].meta == {"place": "Rome", "txt": "ein Hund"}
    numbered = pack(tmp_path / "y.tar", [("a.jpg", png()), ("a.json", written({"id": 7}))])
    assert [one.id for one in load(numbered, id="id")] == ["7"]
    segments = load(tar, image="seg.png")
    assert told(segments) == ["[missing-image]", "ok", "[missing-image]"]
    assert pixels([segments[1]])[0][0, 0, 0] == 1
    with pytest.raises(DataSourceError, match=r"no column 'city'.*'place'"):
        load(tar, meta=("city",))


def test_one_bad_item_costs_no_other(tmp_path: Path, load, monkeypatch) -> None:
    monkeypatch.setattr("transexplain.data.tar_files.MAX_BYTES", 2000)
    #: key -> its members, and what becomes of it
    expected: dict[str, tuple[dict[str, bytes], str | None]] = {
        "a": ({".png": png()}, None),
        "text": ({".png": b"no picture at all"}, "[bad-image]"),
        "../up": ({".png": png()}, "[path-outside-root]"),
        "/abs": ({".png": png()}, "[path-outside-root]"),
        "large": ({".png": bytes(2001)}, "[image-too-large]"),
        "none": ({".cls": b"1"}, "[missing-image]"),
        "two": ({".png": png(), ".jpg": png()}, "[malformed-row]"),
        "list": ({".png": png(), ".json": written([1])}, "[malformed-row]"),
        "torn": ({".png": png(), ".json": b'{"label": '}, "[malformed-row]"),
        "odd": ({".png": png(), ".cls": b"caf\xe9"}, "[invalid-utf8]"),
        "z": ({".png": png(), ".cls": b"last"}, "last"),
    }
    members = [
        (key + end, data) for key, (parts, _) in expected.items() for end, data in parts.items()
    ]
    tar = pack(tmp_path / "x.tar", [*members, ("a.png", png(3))])
    link = tarfile.TarInfo("link.png")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    with tarfile.open(tar, "a") as more:
        more.addfile(link)
    items = load(tar)
    known = {f"x.tar/{key}": outcome for key, (_, outcome) in expected.items()}
    assert outcomes(items) == {
        **known,
        "row:11": "[duplicate-key]",
        "x.tar/link": "[missing-image]",
    }
    assert "'none'" in message([items[5]], "missing-image")
    assert "'a.png'" in message(items, "duplicate-key")
    assert "data.image" in message([items[6]], "malformed-row")


def test_a_label_that_is_asked_for_has_to_be_there(tmp_path: Path, load) -> None:
    members = [("a.png", png()), ("a.cls", b"1"), ("b.png", png()), ("c.png", png())]
    tar = pack(tmp_path / "x.tar", members)
    assert outcomes(load(tar)) == {"x.tar/a": "1", "x.tar/b": None, "x.tar/c": None}
    items = load(tar, label="cls")
    assert outcomes(items) == {"x.tar/a": "1", "x.tar/b": "[no-label]", "x.tar/c": "[no-label]"}
    assert "'b'" in items[1].message and "'cls'" in items[1].message


def test_decompression_bombs_are_refused(tmp_path: Path, load, monkeypatch) -> None:
    monkeypatch.setattr("transexplain.data.image_files.MAX_PIXELS", 15)
    items = load(pack(tmp_path / "x.tar", [("a.png", png()), ("b.cls", b"1")]))
    assert items[0].kind == "image-too-large"
    assert "x.tar#a.png" in items[0].message


def test_a_torn_tar_costs_what_is_behind_the_tear(tmp_path: Path, load) -> None:
    pictures = draw(tmp_path / "folder", 6)
    named = in_tars(tmp_path / "tars", pictures)
    first = tmp_path / "tars" / "pictures-000.tar"
    whole = first.read_bytes()
    with tarfile.open(first) as tar:
        members = tar.getmembers()
    cut = members[2].offset_data + 100  # in the second picture
    first.write_bytes(whole[:cut])
    items = load(named)
    assert list(outcomes(items).values()) == ["cat", *["[torn-file]"] * 2, *["dog"] * 3]
    assert items[1].item_id == "pictures-000.tar/cat/002"
    assert "pictures-000.tar" in items[1].message and "'cat/002" in items[1].message
    assert f"pictures-000.tar is cut off at byte {cut:,}" in items[2].message
    first.write_bytes(whole[: members[2].offset])  # between two items: no member is incomplete
    assert list(outcomes(load(named)).values()) == ["cat", "[torn-file]", *["dog"] * 3]
    broken = bytearray(whole)
    broken[members[2].offset : members[2].offset + 20] = b"\xff" * 20
    first.write_bytes(broken)
    items = load(named)
    assert f"damaged at byte {members[2].offset:,}" in message(items, "torn-file")
    first.write_bytes(whole + whole)
    assert "--concatenate" in message(load(named), "torn-file")


def test_files_that_are_no_tar_are_refused_by_name(tmp_path: Path, load) -> None:
    path = tmp_path / "x.tar"
    for content in (b"this is no tar" * 100, b"", pack(path, []).read_bytes()):
        path.write_bytes(content)
        with pytest.raises(DataSourceError, match=r"x\.tar"):
            load(path)
    pack(path, [("a.png", png())])
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(path.read_bytes()))
    (tmp_path / "x.csv").write_text("text\na\n")
    for name, options, named in (
        ("x.tar.gz", {}, r"x\.tar\.gz.*gunzip"),
        ("x.tar", {"text": "txt"}, r"data\.text"),
        ("x.[tc]*[rv]", {}, "tars"),
    ):
        with pytest.raises(DataSourceError, match=named):
            load(tmp_path / name, **options)


def test_braces_name_files_that_exist(tmp_path: Path, load) -> None:
    in_tars(tmp_path, draw(tmp_path / "folder", 6), tars=3)
    assert len(load(tmp_path / "pictures-{001..002}.tar")) == 4
    assert len(load(tmp_path / "{pictures,pictures}-00{0,2}.tar")) == 4
    for name, named in (
        ("pictures-{000..003}.tar", r"pictures-003\.tar.*\{000\.\.003\}"),
        ("pictures-{0..1000000000}.tar", "1,000,000,001"),
        ("pictures-{3..1}.tar", r"\{first\.\.last\}"),
        ("folder", "folder"),
    ):
        with pytest.raises(DataSourceError, match=named):
            load(tmp_path / name)


def test_two_tars_may_share_keys_and_one_may_not_change(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        pack(tmp_path / name, [("0.png", png()), ("1.png", png(2))])
    ref = planned(tmp_path, tmp_path)
    assert ref.rows == 4
    assert planned(tmp_path, tmp_path).fingerprint == ref.fingerprint
    pack(tmp_path / "a.tar", [("0.png", png(7)), ("1.png", png(2))])
    (tmp_path / "b.tar").write_bytes((tmp_path / "b.tar").read_bytes()[:530])
    assert told(read(ref)) == ["[image-changed]", "ok", "[image-changed]", "[image-changed]"]
    (tmp_path / "b.tar").unlink()
    (gone,) = read(ref, 3)
    assert (gone.kind, "b.tar#1.png" in gone.message) == ("missing-image", True)


def test_a_picture_in_a_tar_is_named_by_a_person(tmp_path: Path) -> None:
    pack(tmp_path / "x.tar", [("./n/a.png", png(5)), ("b.png", png(6))])
    assert np.asarray(picture_at(f"{tmp_path}/x.tar#n/a.png"))[0, 0, 0] == 5
    with pytest.raises(ItemError, match=r"picture 'c\.png'"):
        picture_at(f"{tmp_path}/x.tar#c.png")
    with pytest.raises(ItemError, match="leads outside"):
        open_picture(tmp_path / "folder", "../x.tar#b.png")
    with pytest.raises(ItemError, match=r"cannot read y\.tar"):
        picture_at(f"{tmp_path}/y.tar#c.png")


def test_a_file_called_like_a_place_is_refused(tmp_path: Path, load) -> None:
    name = "x.tar#a.png@0+10"
    (tmp_path / name).write_bytes(png())
    (tmp_path / "list.csv").write_text(f"file\n{name}\n")
    (found,) = load(tmp_path / "list.csv", image="file")
    assert "rename it" in found.message


@pytest.mark.parametrize("seed", range(40))
def test_damaged_bytes_never_end_the_reading(seed: int, tmp_path: Path, load) -> None:
    random = np.random.default_rng(seed)
    path = pack(tmp_path / "x.tar", with_labels(draw(tmp_path / "folder", 3, side=8)))
    data = bytearray(path.read_bytes())
    for place in random.integers(0, len(data), 12):
        data[place] = random.integers(256)
    if seed % 2:
        data = data[: random.integers(600, len(data))]
    path.write_bytes(data)
    try:
        items = load(path)
    except DataSourceError as error:
        assert str(path) in str(error) or "x.tar" in str(error)
    else:
        assert items


def test_names_of_odd_bytes_and_long_ones(tmp_path: Path, load) -> None:
    path, stream = tmp_path / "x.tar", io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name in ("caf\udce9.png", "n" * 300 + ".png", "ünïcödé 🎈.png"):
            member = tarfile.TarInfo(name)
            member.size = len(png())
            tar.addfile(member, io.BytesIO(png()))
    path.write_bytes(stream.getvalue())
    assert list(outcomes(load(path)).values()) == ["[invalid-utf8]", None, None]
