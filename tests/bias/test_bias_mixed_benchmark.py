"""The benchmark of corrected group means, on made-up relevance."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.prediction_powered import parsed, population, study, table
from transexplain.evaluations import MethodSpec


def written(folder: Path, name: str, relevance: np.ndarray, rows: int = 600) -> None:
    names = [(group, f"{group}{number}") for group in "AB" for number in range(6)]
    np.savez(
        folder / f"{name}.npz",
        item=np.arange(rows),
        key=np.arange(rows) % 12,
        relevance=relevance,
        names=np.array(names),
        rows=rows,
    )


def test_the_study_counts_what_intervals_hold(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    exact = draw.normal(0.2, 0.3, 600)
    written(tmp_path, "lrp", exact)
    written(tmp_path, "attnlrp", exact + draw.normal(0.5, 0.05, 600))
    options = parsed(["m", "d", "l", "--out", str(tmp_path)])
    one, other = (population(options, MethodSpec(name=n)) for n in ("attnlrp", "lrp"))
    means, differences = study(one, other, 0.3, 40, 10)
    assert set(means) == set(differences) == {"A", "B"}
    for found in means.values():
        assert found.used == 40
        assert found.covered >= 34
        assert found.width < 0.3 * found.alone_width
    shown = table(means, differences, 40)
    assert shown.count("\n") == 4 and "| all |" in shown


def test_methods_of_different_mentions_are_refused(tmp_path: Path) -> None:
    written(tmp_path, "lrp", np.zeros(600))
    written(tmp_path, "attnlrp", np.zeros(300), rows=300)
    options = parsed(["m", "d", "l", "--out", str(tmp_path)])
    one, other = (population(options, MethodSpec(name=n)) for n in ("attnlrp", "lrp"))
    with pytest.raises(ValueError, match="different mentions"):
        study(one, other, 0.3, 1, 0)
