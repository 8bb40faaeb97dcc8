"""The benchmark of corrected group means, on simulated relevance."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_audit import make_audit

from benchmarks.prediction_powered import parameters, study, table
from benchmarks.prediction_powered_data import Corpus, Population, method_of, population
from benchmarks.rare_errors import Design, measure, row_of
from transexplain.errors import ConfigurationError


def made(relevance: np.ndarray) -> Population:
    rows = len(relevance)
    return Population(
        item=np.arange(rows),
        key=np.arange(rows) % 12,
        relevance=relevance,
        names=tuple((group, f"{group}{number}") for group in "AB" for number in range(6)),
        rows=rows,
    )


def test_the_study_counts_what_intervals_hold() -> None:
    draw = np.random.default_rng(3)
    exact = draw.normal(0.2, 0.3, 600)
    cheap = exact + draw.normal(0.5, 0.05, 600)
    means, differences = study(made(cheap), made(exact), 0.3, 40, 10)
    assert set(means) == set(differences) == {"A", "B"}
    for found in means.values():
        assert found.used == 40
        assert found.covered >= 34
        assert found.width < 0.6 * found.alone_width
    shown = table(means, differences, 40)
    assert shown.count("\n") == 4 and "| all |" in shown


@pytest.mark.exhaustive
def test_rare_errors_are_counted() -> None:
    seldom = measure(Design(0.22, 0.03, 3.0), 45, 60)
    assert seldom.used == seldom.compared == 60
    assert seldom.plain < 50
    assert min(seldom.held, seldom.differences) >= 55
    assert seldom.fallen > 30 and seldom.width > 55
    none = measure(Design(0.22, 0.0, 0.0), 45, 20)
    assert none.fallen == 0 and none.width < 14
    assert row_of(Design(0.22, 0.03, 3.0), 45, seldom).startswith("| 3% off by 3 | 0.22 | 45 | ")


def test_methods_of_different_mentions_are_refused() -> None:
    with pytest.raises(ValueError, match="different mentions"):
        study(made(np.zeros(600)), made(np.zeros(300)), 0.3, 1, 0)


def test_parameters_are_yaml() -> None:
    found = parameters(["gamma=0.25", "steps=8", "explainer=a=b.te"])
    assert found == {"gamma": 0.25, "steps": 8, "explainer": "a=b.te"}
    with pytest.raises(ValueError, match="NAME=VALUE, and this is none: steps"):
        parameters(["steps"])


@pytest.mark.exhaustive
def test_relevance_is_kept_by_all_that_it_depends_on(tmp_path: Path) -> None:
    make_audit(tmp_path)
    out = tmp_path / "out"

    def requested(target: str, name: str = "lrp", **params: float) -> Population:
        corpus = Corpus(
            model=str(tmp_path / "model"),
            data=str(tmp_path / "texts.jsonl"),
            lexicon=str(tmp_path / "groups.json"),
            target=target,
            folder=out,
        )
        return population(corpus, method_of(name, params))

    first = requested("class:good")
    assert first.rows == 40 and len(first.item) == len(first.relevance) > 0
    others = [requested("class:bad"), requested("class:good", epsilon=0.5)]
    others.append(requested("class:good", "gradient-x-input"))
    assert len(list(out.glob("*.npz"))) == 4
    for one in others:
        np.testing.assert_array_equal(one.item, first.item)
        assert not np.allclose(one.relevance, first.relevance)
    again = requested("class:good")
    np.testing.assert_array_equal(again.relevance, first.relevance)
    assert len(list(out.glob("*.npz"))) == 4
    (tmp_path / "groups.json").write_text(json.dumps({"things": ["film"]}), encoding="utf-8")
    fewer = requested("class:good")
    assert {group for group, _ in fewer.names} == {"things"}


def test_an_explainer_is_named_by_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "e.safetensors"
    file.write_bytes(b"one")
    one = method_of("learned", {"explainer": str(file)})
    file.write_bytes(b"two")
    assert method_of("learned", {"explainer": str(file)}) != one
    with pytest.raises((ConfigurationError, OSError)):
        method_of("learned", {"explainer": str(tmp_path / "none")})
