"""The models a process keeps: by content, within a budget, the longest unused gone first."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_models import bert, wordpiece

from transexplain.models import load
from transexplain.models.load import load_model
from transexplain.types.plans import ModelRef
from workers.model_cache import ModelCache, size_of


def make(folder: Path, seed: int) -> ModelRef:
    model = bert()
    with torch.no_grad():
        model.classifier.bias += seed
    model.save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return load_model(str(folder)).ref


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that were loaded from, in order."""
    seen: list[str] = []
    real = load_model

    def counted(source: str, **how: str) -> object:
        seen.append(Path(source).name)
        return real(source, **how)

    monkeypatch.setattr(load, "load_model", counted)
    return seen


@pytest.mark.exhaustive
def test_models_stay_until_memory_is_short(tmp_path: Path, loads: list[str]) -> None:
    refs = [make(tmp_path / name, seed) for seed, name in enumerate("abc")]
    size = size_of(load_model(refs[0].source))
    module = load_model(refs[0].source).module
    assert size >= sum(4 * one.numel() for one in module.parameters())
    loads.clear()
    cache = ModelCache(memory=int(2.5 * size))
    for turn in "ababcab":  # c drives out a, then a drives out b, then b drives out c
        cache.get(refs["abc".index(turn)])
    assert "".join(loads) == "abcab"
    assert len(cache) == 2


def test_one_model_is_kept_whatever_its_size(tmp_path: Path, loads: list[str]) -> None:
    ref = make(tmp_path / "a", 1)
    loads.clear()
    cache = ModelCache(memory=1)
    assert cache.get(ref) is cache.get(ref)
    assert loads == ["a"]


def test_the_same_bytes_elsewhere_are_the_same_model(tmp_path: Path, loads: list[str]) -> None:
    ref, copy = make(tmp_path / "a", 1), make(tmp_path / "copy", 1)
    assert ref.digest == copy.digest
    loads.clear()
    cache = ModelCache()
    assert cache.get(ref) is cache.get(copy)
    assert cache.get(replace(ref, dtype="float64")) is not cache.get(ref)
    assert loads == ["a", "a"]


@pytest.mark.exhaustive
def test_a_load_without_memory_lets_the_others_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make(tmp_path / "a", 1), make(tmp_path / "b", 2)
    cache = ModelCache()
    cache.get(first)

    def short(source: str, **how: str) -> object:
        if len(cache):
            raise torch.OutOfMemoryError("no memory")
        return load_model(source, **how)

    monkeypatch.setattr(load, "load_model", short)
    assert cache.get(second).ref.digest == second.digest
    assert len(cache) == 1


def test_the_budget_is_half_of_the_memory_shared_with_neighbours() -> None:
    alone, shared = ModelCache("cpu"), ModelCache("cpu", neighbours=4)
    assert alone._budget("cpu") == 4 * shared._budget("cpu") > 2**28
