"""Verifying runs by an explainer: honest ones pass, and every way to tamper with it is named."""

import shutil
from pathlib import Path

import pytest
from gallery import Audit
from learned_audits import explainer_for, learned, mixed
from verified_runs import audited, failed, flipped, tampered


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    folder = tmp_path_factory.mktemp("learned")
    return audited(folder, method=learned(explainer_for(folder)))


def place(run: Audit) -> Path:
    return run.folder / "trained" / "explainer.safetensors"


def test_an_honest_run(run: Audit) -> None:
    found = run.checks()
    assert {one.status for one in found.values()} == {"PASS"}, found
    assert str(place(run)) in found["explainers"].text
    assert "4 items" in found["explained again"].text


@pytest.mark.exhaustive
def test_an_honest_mixed_run(tmp_path: Path) -> None:
    found = audited(tmp_path, explain=mixed(explainer_for(tmp_path))).checks()
    assert {one.status for one in found.values()} == {"PASS"}, found


@pytest.mark.exhaustive
def test_one_byte_of_its_weights_or_of_what_it_says(run: Audit) -> None:
    path = place(run)
    data = path.read_bytes()
    for changed in (flipped(data), data.replace(b"forwards", b"forwerds"), data[:-8], b"{}"):
        with tampered(path, changed):
            found = run.checks()
        assert failed(found) == ["explainers", "explained again"]
        assert f"{path} has changed" in found["explainers"].text
        assert str(path) in found["explained again"].text
    assert not failed(run.checks())


def test_an_exchanged_and_a_missing_file(run: Audit) -> None:
    path = place(run)
    other = explainer_for(run.folder, "another", forwards=1.5)
    with tampered(path, other.read_bytes()):
        found = run.checks()
    assert failed(found) == ["explainers", "explained again"]
    moved = path.rename(path.with_name("moved"))
    try:
        lost = run.checks()
    finally:
        moved.rename(path)
    assert failed(lost) == ["explainers", "explained again"]
    assert f"{path} is not there" in lost["explainers"].text
    assert "--data-root" in lost["explainers"].text


def test_where_it_is_now(run: Audit, tmp_path: Path) -> None:
    for name in ("texts.jsonl", "groups.json"):
        shutil.copy(run.folder / name, tmp_path / name)
    assert not failed(run.checks(data_root=tmp_path)), "it is still where it was"
    (tmp_path / "trained").mkdir()
    moved = shutil.move(place(run), tmp_path / "trained" / "explainer.safetensors")
    try:
        found = run.checks(data_root=tmp_path)
    finally:
        shutil.move(moved, place(run))
    assert not failed(found), found
    assert str(moved) in found["explainers"].text
