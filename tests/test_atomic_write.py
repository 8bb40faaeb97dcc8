"""Files and folders that are there whole or not at all."""

from pathlib import Path

import pytest

from transexplain.files.atomic_write import atomic_file, atomic_folder, put_in_place, temporary_file


def test_a_file_is_replaced_at_the_end_and_not_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")
    with atomic_file(path) as temporary:
        temporary.write_text("new", encoding="utf-8")
        assert temporary.parent == path.parent
        assert path.read_text(encoding="utf-8") == "old"
    with pytest.raises(ValueError, match="half"), atomic_file(path) as temporary:
        temporary.write_text("newe", encoding="utf-8")
        raise ValueError("half")
    assert path.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "old").touch()
    with atomic_folder(folder) as temporary:
        (temporary / "new").touch()
    assert [path.name for path in folder.iterdir()] == ["new"]
    with pytest.raises(ValueError, match="half"), atomic_folder(folder) as temporary:
        (temporary / "newer").touch()
        raise ValueError("half")
    assert [path.name for path in folder.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [folder]


def test_a_file_that_is_named_by_what_is_in_it(tmp_path: Path) -> None:
    with temporary_file(tmp_path) as temporary:
        temporary.write_bytes(b"abc")
        put_in_place(temporary, tmp_path / "abc")
    with temporary_file(tmp_path) as temporary:
        temporary.write_bytes(b"unwanted")
    assert [path.name for path in tmp_path.iterdir()] == ["abc"]
