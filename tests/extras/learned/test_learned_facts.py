"""The file of an explainer: its facts, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from explainer_samples import drawn_explainer, facts_for
from safetensors.torch import save_file
from tiny_models import bert, wordpiece

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.extras.learned.learned_explainer import load, save
from transexplain.extras.learned.learned_facts import read_facts
from transexplain.methods.explainer_files import as_parameters, digest_of
from transexplain.models.loaded_model import LoadedModel


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return te.wrap(bert().eval(), tokenizer=wordpiece(), modality="text")


def written(model: LoadedModel, folder: Path) -> Path:
    explainer = drawn_explainer({0: 16, 1: 16}, len(model.classes))
    save(explainer, facts_for(model, explainer), folder / "e.safetensors")
    return folder / "e.safetensors"


def test_facts_are_read_as_written(model: LoadedModel, tmp_path: Path) -> None:
    explainer = drawn_explainer({0: 16, 1: 16}, len(model.classes))
    facts = facts_for(model, explainer)
    path = tmp_path / "e.safetensors"
    save(explainer, facts, path)
    assert read_facts(path) == facts
    again, same = load(path, dtype=torch.float64, device=torch.device("cpu"))
    assert same == facts
    for name, tensor in explainer.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor.double())
    assert not any(one.requires_grad for one in again.parameters())
    assert [one.name for one in tmp_path.iterdir()] == ["e.safetensors"], "nothing half written"
    save(explainer, replace(facts, agreement=None), path)
    assert read_facts(path).agreement is None


def test_files_that_are_no_explainers(model: LoadedModel, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="transexplain train"):
        read_facts(tmp_path / "nowhere.safetensors")
    (tmp_path / "text").write_text("not a model at all", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="not a safetensors file"):
        read_facts(tmp_path / "text")
    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ConfigurationError, match="holds no explainer"):
        read_facts(tmp_path / "other.safetensors")
    facts = facts_for(model, drawn_explainer({0: 16}, len(model.classes)))
    old = {
        name: json.dumps({**json.loads(text), "version": 0})
        for name, text in facts.to_metadata().items()
    }
    save_file({"weight": torch.zeros(2)}, tmp_path / "old.safetensors", metadata=old)
    with pytest.raises(ConfigurationError, match="version 0"):
        read_facts(tmp_path / "old.safetensors")
    save_file(
        {"weight": torch.zeros(2)}, tmp_path / "bad.safetensors", metadata=facts.to_metadata()
    )
    with pytest.raises(ConfigurationError, match="damaged"):
        load(tmp_path / "bad.safetensors", dtype=torch.float32, device=torch.device("cpu"))


def test_another_model_is_refused(model: LoadedModel, tmp_path: Path) -> None:
    path = str(written(model, tmp_path))
    assert te.explain(model, "a good movie", "learned", explainer=path)
    module = bert()
    module.classifier.bias.data += 1e-3
    other = te.wrap(module, tokenizer=wordpiece(), modality="text")
    with pytest.raises(ConfigurationError, match="trained for another model"):
        te.explain(other, "a good movie", "learned", explainer=path)


def test_other_bytes_are_refused(model: LoadedModel, tmp_path: Path) -> None:
    path = written(model, tmp_path)
    requested = as_parameters(path)
    assert requested == {"explainer": str(path.absolute()), "sha256": digest_of(path)}
    assert te.explain(model, "a good movie", "learned", **requested)
    explainer = drawn_explainer({0: 16, 1: 16}, len(model.classes), conserve=False)
    save(explainer, facts_for(model, explainer), path)
    fresh = te.wrap(model.module, tokenizer=wordpiece(), modality="text")
    with pytest.raises(ConfigurationError, match="sha256"):
        te.explain(fresh, "a good movie", "learned", **requested)


def test_an_explainer_has_to_be_named(model: LoadedModel) -> None:
    with pytest.raises(ConfigurationError, match="needs explainer=FILE"):
        te.explain(model, "a good movie", "learned")
