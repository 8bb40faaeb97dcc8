"""The study of trainings: its two protocols and its tables."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.training_study import KINDS, MODES, Protocol, stage_one, stage_two
from benchmarks.training_study_tables import PUBLISHED, tables
from transexplain.extras.training.train_command import PRESETS


def test_the_paper_s_protocol_is_the_preset_as_it_is(tmp_path: Path) -> None:
    spec = stage_two(tmp_path, "vit", "joint", 3, Protocol("paper", 600))
    assert spec.keys() == {"preset", "model", "data", "seed"}  # nothing over the preset
    assert (spec["preset"], spec["data"]["sample"]) == ("joint-vision", 600)
    quick = stage_two(tmp_path, "bert", "separate", 0, Protocol())
    assert quick["preset"] == "quick-separate-text"
    assert quick["optimisation"]["epochs"] == 3
    assert {spec["preset"], quick["preset"]} < PRESETS.keys()
    short = stage_one(tmp_path, "vit", Protocol(backbone_epochs=2))
    assert short["optimisation"]["epochs"] == 2
    assert stage_one(tmp_path, "vit", Protocol())["optimisation"]["epochs"] == 20
    assert Protocol("paper", 600, 6).options == [
        "--protocol", "paper", "--sample", "600", "--backbone-epochs", "6",
    ]  # fmt: skip
    assert Protocol("paper", 600).prefix == "paper-600-"
    assert Protocol().prefix == ""


def measured(number: float) -> dict:
    scores = {"learned": number, "lrp": 0.5, "random": 0.1}
    names = ("fidelity", "comprehensiveness", "sufficiency", "sparsity", "activation")
    return {
        "metrics": dict.fromkeys(names, scores),
        "cost": {"learned": 1.1, "lrp": 2.0},
        **dict.fromkeys(("accuracy", "agreement", "relative_error", "operations"), 0.25),
        "seconds": 1.0,
    }


def test_every_model_has_its_columns_beside_the_published_figures(tmp_path: Path) -> None:
    numbers = {}
    for place, (kind, mode) in enumerate((kind, mode) for kind in KINDS for mode in MODES):
        folder = tmp_path / kind / f"paper-{mode}-0"
        folder.mkdir(parents=True)
        numbers[kind, mode] = 0.111 * (place + 1)
        text = json.dumps(measured(numbers[kind, mode]))
        (folder / "measured.json").write_text(text, encoding="utf-8")
    lines = tables(tmp_path, KINDS, MODES, 1, "paper-").splitlines()
    head = next(row for row in lines if "deit-distilled, joint" in row)
    place = lines.index(head)
    cells = [cell.strip() for cell in lines[place + 2].split("|")[2:-1]]
    assert cells == [f"{number:.3f}" for number in numbers.values()]
    published = [cell.strip() for cell in lines[place + 3].split("|")[2:-1]]
    assert published == ["0.81", "0.87", "0.78", "0.85", "0.74", "0.81"]
    assert "### deit-distilled" in lines


@pytest.mark.shared
def test_the_published_figures_are_the_paper_s(shared_dir: Path) -> None:
    text = (shared_dir / "papers" / "transexplain.txt").read_text(encoding="utf-8")
    rows = re.findall(r"(Separate|Joint) Training((?:\t0\.\d\d){4})", text)
    found = [tuple(map(float, re.findall(r"0\.\d\d", figures))) for _, figures in rows]
    assert found == [row for kind in KINDS for row in PUBLISHED[kind]]
