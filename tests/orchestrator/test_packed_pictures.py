"""Audits of pictures in tars and Parquet files: the numbers of the same files in a folder."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packed_pictures import draw, in_parquet, in_tars, pack, with_labels
from verified_runs import rows

Call = Callable[..., tuple[int, str]]
STORE = "sqlite:///transexplain.db"
SMALL = ("--set", "evaluation.items=0", "--set", "payload=float32", "--set", "shard_size=4")


def exported(call: Call, path: Path) -> list[dict[str, Any]]:
    """Every stored attribution of the latest run with its item, in order of rows."""
    code, printed = call("export", "--format", "jsonl", "-o", str(path))
    assert code == 0, printed
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def numbers(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What does not depend on where the pictures are."""
    return [{k: v for k, v in one.items() if k not in {"id", "source"}} for one in found]


@pytest.fixture
def packed(tmp_path: Path) -> dict[str, tuple[str, ...]]:
    """Ten pictures in a folder, in tars and in Parquet files: the options that name them."""
    pictures = draw(tmp_path / "folder", 10)
    parts = tmp_path / "parts"
    names = list(pictures)
    for number, some in enumerate((names[:6], names[6:])):
        some_pictures = {name: pictures[name] for name in some}
        in_parquet(parts / f"{number}.parquet", some_pictures, struct=number == 0)
    column = ("--set", "data.image=image")
    return {
        "folder": ("-d", f"imagefolder:{tmp_path}/folder"),
        "tars": ("-d", in_tars(tmp_path / "tars", pictures, tars=3)),
        "Parquet": ("-d", f"{parts}/*.parquet", *column),
    }


@pytest.fixture
def runs(
    call: Call, vit_dir: Path, packed: dict[str, tuple[str, ...]], tmp_path: Path
) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    def ran(where: str, *words: str) -> list[dict[str, Any]]:
        options = (*SMALL, "--name", where, "-t", "top:2", *words)
        code, printed = call("run", "-m", str(vit_dir), *packed[where], *options)
        assert code == 0, printed
        return exported(call, tmp_path / f"{where}.jsonl")

    return ran


@pytest.mark.exhaustive
@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_numbers_are_those_of_the_folder(runs, processes: str) -> None:
    words = ("--host-processes", processes)
    alone = numbers(runs("folder", *words))
    assert len(alone) == 20
    for where in ("tars", "Parquet"):
        assert numbers(runs(where, *words)) == alone, where


@pytest.mark.exhaustive
def test_reports_and_verification_read_the_pictures_where_they_are(
    runs, call: Call, tmp_path: Path
) -> None:
    for where in ("tars", "Parquet"):
        runs(where)
        (page,) = Path("audits").glob(f"{where}-*.html")
        assert page.read_text(encoding="utf-8").count("data:image/") > 5
        assert "is not read" not in page.read_text(encoding="utf-8")
        code, printed = call("verify", "--items", "4")
        assert code == 0, printed
        assert "PASS  pictures" in printed
    first = tmp_path / "tars" / "pictures-000.tar"
    data = bytearray(first.read_bytes())
    data[700] ^= 1
    first.write_bytes(data)
    (run,) = rows(STORE, "SELECT id FROM run WHERE name = 'tars'")
    code, printed = call("verify", run[0], "--items", "0")
    assert code == 1
    assert "pictures-000.tar#cat/000.png@512" in printed
    assert "has changed" in printed


@pytest.mark.exhaustive
def test_an_evaluation_reads_them_too(
    call: Call, vit_dir: Path, packed: dict[str, tuple[str, ...]]
) -> None:
    words = ("--method", "gradient-x-input", "--metric", "deletion", "--items", "4")
    scores = []
    for where in ("folder", "tars", "Parquet"):
        code, printed = call(
            "evaluate", "-m", str(vit_dir), *packed[where], *words, "--name", where
        )
        assert code == 0, printed
        scores.append([line for line in printed.splitlines() if "gradient-x-input" in line])
    assert scores[0] and scores[0] == scores[1] == scores[2], scores


@pytest.mark.exhaustive
def test_bad_members_and_a_tear_cost_no_other_item(
    call: Call, vit_dir: Path, tmp_path: Path
) -> None:
    pictures = draw(tmp_path / "folder", 5)
    members = with_labels(pictures)
    members.insert(2, ("cat/bad.png", b"no picture"))
    pack(tmp_path / "x.tar", members)
    whole = (tmp_path / "x.tar").read_bytes()
    (tmp_path / "x.tar").write_bytes(whole[:-12_000])
    words = ("run", "-m", str(vit_dir), "-d", str(tmp_path / "x.tar"), *SMALL, "--name", "torn")
    _, printed = call(*words)
    assert "2 failed (1 bad-image and 1 torn-file)" in printed, printed
    found = dict(tuple(one) for one in rows(STORE, "SELECT item_id, error FROM item"))
    assert found.pop("x.tar/cat/bad").startswith("x.tar#cat/bad.png is not a picture")
    (torn,) = found.values()
    assert torn.startswith("x.tar is cut off at byte") and "items behind it are lost" in torn


@pytest.mark.exhaustive
def test_one_picture_is_explained_by_its_place(
    call: Call, vit_dir: Path, packed: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    places = (
        tmp_path / "folder" / "cat" / "000.png",
        f"{tmp_path}/tars/pictures-000.tar#cat/000.png",
        f"{tmp_path}/parts/0.parquet#image[0]",
    )
    found = []
    for place in places:
        code, printed = call("explain", str(place), "-m", str(vit_dir), "--json")
        assert code == 0, printed
        document, _ = json.JSONDecoder().raw_decode(printed)
        found.append(document[0]["relevance"])
    assert found[0] == found[1] == found[2]
    code, printed = call("explain", f"{tmp_path}/tars/pictures-000.tar", "-m", str(vit_dir))
    assert code != 0 and "holds many pictures" in printed
