"""The benchmark of the engine runs and its figures are complete; no timing is asserted."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from transexplain.engine.composites import COMPOSITES

ROOT = Path(__file__).resolve().parents[1]
AIMS = {"lrp": 1.9, "attnlrp": 2.4, "lrp-gamma": 4.0, "chefer-lrp": 6.0}
CAPTUM = {"captum input x gradient", "captum integrated gradients"}
MEASURED = {"forward", "input x gradient", "lrp", "lrp, 5 classes", "lrp, 10 classes"}
FURTHER = {"lrp, each further of 5", "lrp, each further of 10"}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What the quick benchmark prints, and its JSON."""
    figures = tmp_path_factory.mktemp("benchmark") / "figures.json"
    options = ["--quick", "--threads", "1", "--rounds", "2", "--json", str(figures)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.engine", *options],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(figures.read_text(encoding="utf-8"))


def test_every_contender_has_a_row_on_every_model(ran: tuple[str, dict[str, Any]]) -> None:
    _, figures = ran
    for model in ("bert-base", "vit-b16"):
        rows = {row["contender"]: row for row in figures["timings"] if row["model"] == model}
        assert set(rows) == MEASURED | FURTHER | set(AIMS) | CAPTUM
        for name in MEASURED | FURTHER | (set(AIMS) & set(COMPOSITES)):
            assert rows[name]["status"] == "measured", rows[name]
            assert rows[name]["rounds"] == 2
            assert rows[name]["ratio_lowest"] <= rows[name]["ratio"] <= rows[name]["ratio_highest"]
        for name in set(AIMS) - set(COMPOSITES):
            assert rows[name]["status"].startswith("not available")
        for name in MEASURED:
            assert rows[name]["seconds"] > 0
            assert math.isclose(rows[name]["items_per_second"], 8 / rows[name]["seconds"])


def test_ratios_are_to_the_forward_pass_of_the_same_round(
    ran: tuple[str, dict[str, Any]],
) -> None:
    _, figures = ran
    for row in figures["timings"]:
        if row["contender"] == "forward":
            assert row["ratio_lowest"] == row["ratio"] == row["ratio_highest"] == 1.0


def test_aims_stand_beside_the_figures(ran: tuple[str, dict[str, Any]]) -> None:
    _, figures = ran
    expected = AIMS | dict.fromkeys(FURTHER, 0.9)
    for row in figures["timings"]:
        if row["status"] == "measured":
            assert row["aim"] == expected.get(row["contender"])
            assert row["met"] == (None if row["aim"] is None else row["ratio"] <= row["aim"])


def test_captum_is_measured_or_the_reason_is_told(ran: tuple[str, dict[str, Any]]) -> None:
    _, figures = ran
    for row in figures["timings"]:
        if row["contender"] in CAPTUM:
            told = row["status"]
            assert told == "measured" or told.startswith("captum cannot be imported: ")


def test_memory_grows_with_length_and_is_measured_in_a_process_of_its_own(
    ran: tuple[str, dict[str, Any]],
) -> None:
    _, figures = ran
    rows = {(row["method"], row["tokens"]): row for row in figures["memory"]}
    assert set(rows) == {(m, t) for m in ("lrp", "input x gradient") for t in (64, 128)}
    for method in ("lrp", "input x gradient"):
        short, long = rows[method, 64], rows[method, 128]
        assert short["status"] == long["status"] == "measured", (short, long)
        assert 0 <= short["bytes"] < long["before"]
        assert short["growth"] is None
    assert set(figures["linear"]) == {"lrp", "input x gradient"}


def test_the_table_is_printed_with_its_caveat(ran: tuple[str, dict[str, Any]]) -> None:
    printed, figures = ran
    assert "toy shapes" in printed
    for row in figures["timings"]:
        assert row["contender"] in printed
    assert {"torch", "transformers", "timm", "captum"} == set(figures["environment"]["versions"])


def test_the_benchmark_of_the_methods_measures_and_counts() -> None:
    names = ["lrp", "transformer-attribution", "integrated-gradients", "decoded-gradcam"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.methods",
            "--quick",
            "--rounds",
            "1",
            "--methods",
            *names,
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[2:]}
    assert list(rows) == names
    assert "2f 2b" in rows["transformer-attribution"]
    assert rows["transformer-attribution"].split()[-1] == "11"
    assert "not run" in rows["integrated-gradients"]
    assert "not defined" in rows["decoded-gradcam"]
