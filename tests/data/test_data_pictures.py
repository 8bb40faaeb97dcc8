"""Datasets of pictures: folders, and lists of paths in a csv."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from data_files import by_id, planned, read, told
from PIL import Image

from transexplain.errors import DataSourceError
from transexplain.types.items import Item, ItemFailure


def draw(path: Path, grey: int = 100) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (grey, 0, 0)).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "pictures"
    draw(root / "cat" / "b.png", 1)
    draw(root / "cat" / "a.JPG", 2)
    draw(root / "dog" / "big" / "c.webp", 3)
    draw(root / "top.bmp", 4)
    (root / "labels.tsv").write_text("file\tlabel\n")
    (root / "cat" / "._a.jpg").write_bytes(b"left by a Mac")
    draw(root / ".hidden" / "d.png")
    return root


def test_a_folder_gives_its_pictures_sorted_with_labels(folder, load):
    items = load(f"imagefolder:{folder}", shard_size=2)
    assert [item.id for item in items] == ["cat/a.JPG", "cat/b.png", "dog/big/c.webp", "top.bmp"]
    assert [item.label for item in items] == ["cat", "cat", "big", None]
    assert [item.source for item in items] == [item.id for item in items]
    assert np.asarray(items[1].content)[0, 0].tolist() == [1, 0, 0]
    assert items[1].content.size == (8, 6)


def test_files_that_are_no_pictures_are_counted(folder, tmp_path):
    (folder / "labels.tsv").unlink()
    assert planned(f"imagefolder:{folder}", tmp_path).read_as == ()
    for name in ("scan.tiff", "a/scan.TIFF", "phone.heic", ".DS_Store"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")
    (line,) = planned(f"imagefolder:{folder}", tmp_path).read_as
    assert line.startswith("3 files") and "2 .tiff, 1 .heic" in line


def test_every_picture_is_hashed(folder, tmp_path):
    import pyarrow.parquet as pq

    ref = planned(f"imagefolder:{folder}", tmp_path)
    assert (ref.modality, ref.root) == ("image", str(folder))
    for row in pq.read_table(ref.snapshot).to_pylist():
        data = (folder / row["content"]).read_bytes()
        assert row["sha256"] == hashlib.sha256(data).hexdigest()
    again = planned(f"imagefolder:{folder}", tmp_path)
    assert again == ref
    draw(folder / "top.bmp", 5)
    changed = planned(f"imagefolder:{folder}", tmp_path)
    assert changed.fingerprint != ref.fingerprint


def test_pictures_that_change_after_the_plan_are_failures(folder, tmp_path):
    ref = planned(f"imagefolder:{folder}", tmp_path)
    draw(folder / "cat" / "a.JPG", 50)
    (folder / "cat" / "b.png").unlink()
    (folder / "top.bmp").unlink()
    (folder / "top.bmp").symlink_to("/etc/hostname")
    assert told(read(ref)) == ["[image-changed]", "[missing-image]", "ok", "[path-outside-root]"]


def test_bad_pictures_are_failures_and_the_others_finish(folder, load):
    (folder / "cat" / "text.png").write_text("no picture at all")
    whole = (folder / "cat" / "a.JPG").read_bytes()
    (folder / "cat" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.gif").touch()
    items = by_id(load(f"imagefolder:{folder}"))
    assert len(items) == 7
    failures = {name: item.kind for name, item in items.items() if isinstance(item, ItemFailure)}
    assert failures == dict.fromkeys(["cat/text.png", "cat/cut.jpg", "empty.gif"], "bad-image")


def test_links_out_of_the_folder_are_failures(folder, tmp_path, load):
    draw(tmp_path / "secret" / "s.png")
    (folder / "leak.png").symlink_to(tmp_path / "secret" / "s.png")
    (folder / "class").symlink_to(tmp_path / "secret")
    (folder / "again").symlink_to(folder / "cat")
    (folder / "alias.png").symlink_to("cat/b.png")
    (folder / "broken.png").symlink_to("nowhere.png")
    (folder / "circle.png").symlink_to("circle.png")
    os.mkfifo(folder / "pipe.png")
    items = by_id(load(f"imagefolder:{folder}"))
    good = ("alias.png", "cat/a.JPG", "cat/b.png", "dog/big/c.webp", "top.bmp")
    missing = ("broken.png", "circle.png", "pipe.png")
    assert dict(zip(items, told(items.values()), strict=True)) == {
        **dict.fromkeys(good, "ok"),
        **dict.fromkeys(missing, "[missing-image]"),
        **dict.fromkeys(("class", "leak.png"), "[path-outside-root]"),
    }


def test_file_names_of_odd_bytes_are_failures(folder, load):
    draw(folder / "ünïcödé 🎈.png")
    try:
        draw(Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.png")))
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    items = by_id(load(f"imagefolder:{folder}"))
    assert isinstance(items["ünïcödé 🎈.png"], Item)
    assert items["caf\\udce9.png"].kind == "invalid-utf8"


def test_a_folder_without_pictures_is_reported(tmp_path, load):
    for name in ("notes.txt", "more.txt"):
        (tmp_path / name).touch()
    with pytest.raises(DataSourceError, match=r"2 \.txt"):
        load(f"imagefolder:{tmp_path}")


def test_a_csv_of_pictures(folder, tmp_path, load):
    draw(tmp_path / "outside.png")
    rows = {
        "cat/b.png": "ok",
        "./dog/../cat/a.JPG": "ok",
        "../outside.png": "[path-outside-root]",
        f"{tmp_path}/outside.png": "[path-outside-root]",
        f"{folder}/top.bmp": "ok",
        "no.png": "[missing-image]",
        "": "[null]",
        "cat": "[missing-image]",
        "a\0b.png": "[missing-image]",
        "n" * 5000 + ".png": "[missing-image]",
        "labels.tsv": "[bad-image]",
    }
    path = folder / "list.csv"
    path.write_text("\n".join(["file,label", *(f"{row},c" for row in rows)]))
    ref = planned(path, tmp_path, image="file")
    assert (ref.modality, ref.root, ref.rows) == ("image", str(folder), 11)
    items = load(path, image="file")
    assert told(items) == list(rows.values())
    assert [item.source for item in items if isinstance(item, Item)] == [
        *("cat/b.png", "cat/a.JPG", "top.bmp")
    ]
    assert (items[0].id, items[0].label) == ("0", "c")


def test_lists_in_two_folders_share_a_root(folder, load):
    (folder / "cat" / "list.csv").write_text("file\nb.png\n../top.bmp\n")
    (folder / "dog" / "list.csv").write_text("file\nbig/c.webp\n")
    items = load(folder / "*" / "list.csv", image="file")
    assert told(items) == ["ok", "[path-outside-root]", "ok"]
    assert [items[0].source, items[2].source] == ["cat/b.png", "dog/big/c.webp"]
