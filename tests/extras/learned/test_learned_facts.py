"""The file of an explainer, what it computes, and that a run with it can be verified."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from explainer_samples import drawn_explainer, facts_for
from gallery import Audit
from learned_audits import explainer_for, learned
from safetensors.torch import save_file
from tiny_models import bert, wordpiece
from verified_runs import audited, failed, tampered

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.extras.learned.learned_explainer import (
    Explainer,
    Lesson,
    explanation_loss,
    item_scale,
    load,
    save,
)
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


WIDTHS = {0: 12, 2: 8}
B, T, C = 3, 7, 4


def inputs(lengths: tuple[int, ...] = (7, 5, 2)) -> tuple[Any, ...]:
    torch.manual_seed(1)
    states = tuple(torch.randn(B, T, width) for width in WIDTHS.values())
    mask = torch.arange(T)[None] < torch.tensor(lengths)[:, None]
    own = mask & (torch.arange(T)[None] > 0)
    return states, mask, own, torch.randn(B, C)


@pytest.mark.parametrize("conserve", [True, False])
def test_padding_changes_nothing(conserve: bool) -> None:
    explainer = drawn_explainer(WIDTHS, C, conserve=conserve)
    states, mask, own, logits = inputs()
    together = explainer(states, mask, own, logits).relevance
    for row, length in enumerate((7, 5, 2)):
        here = (slice(row, row + 1), slice(length))
        short = tuple(state[here] for state in states)
        alone = explainer(short, mask[here], own[here], logits[row : row + 1]).relevance
        torch.testing.assert_close(together[row : row + 1, :length], alone, atol=1e-6, rtol=1e-5)
        assert not together[row, length:].any()
    assert together.abs().max() > 1e-3


def test_positions_sum_to_the_logit_minus_the_constants() -> None:
    explainer = drawn_explainer(WIDTHS, C)
    states, mask, own, logits = inputs()
    for scale in (None, torch.tensor([[0.5, 3.0], [1.0, 1.0], [2.0, 0.1]])):
        printed = explainer(states, mask, own, logits, scale)
        constants = explainer.constant_mean + explainer.constant_deviation * printed.constants
        torch.testing.assert_close(
            printed.relevance.sum(dim=1), logits - constants, atol=1e-5, rtol=1e-5
        )


def test_calibration_by_hand() -> None:
    explainer = drawn_explainer(WIDTHS, 2)
    scales = torch.tensor([[0.5, 2.0], [1.0, 2.0], [4.0, 2.0]])
    constants = torch.tensor([[1.0, torch.nan], [3.0, torch.nan], [5.0, torch.nan]])
    before = explainer.constant_mean[1].item()
    explainer.calibrate(scales, constants)
    logs = np.log([0.5, 1.0, 4.0])
    assert explainer.log_mean.tolist() == pytest.approx([logs.mean(), np.log(2)], rel=1e-6)
    assert explainer.log_deviation.tolist() == pytest.approx([logs.std(), 0.01], rel=1e-6)
    assert explainer.constant_mean[0].item() == pytest.approx(3.0)
    assert explainer.constant_deviation[0].item() == pytest.approx(np.std([1, 3, 5]), rel=1e-6)
    assert explainer.constant_mean[1].item() == before, "nothing is known of this class"
    explainer.calibrate(torch.ones(4, 2), torch.full((4, 2), 7.0), 0.25)
    assert explainer.log_mean[0].item() == pytest.approx(0.75 * logs.mean(), rel=1e-6)
    assert explainer.constant_mean[0].item() == pytest.approx(0.75 * 3 + 0.25 * 7)


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0


def slow_loss(
    explainer: Explainer, printed: Any, relevance: Any, known: Any, parts: Any, k: Any
) -> float:
    """The loss, item by item and kind of position by kind."""
    whole = {name: one.detach().numpy() for name, one in explainer.named_buffers()}
    squares, logs, constants = [], [], []
    for item in range(B):
        mask, own = (part[item].numpy() for part in parts)
        classes = known[item].numpy()
        taught = relevance[item].numpy()[:, classes]
        said = printed.relevance[item].detach().numpy()[:, classes]
        both = root_mean_square(taught[mask])
        for kind, places in enumerate((mask & own, mask & ~own)):
            scale = max(root_mean_square(taught[places]), both / 1000)
            squares += [*((said - taught)[places] / scale).ravel() ** 2]
            log = (np.log(scale) - whole["log_mean"][kind]) / whole["log_deviation"][kind]
            logs.append((float(printed.log_scale[item, kind].detach()) - log) ** 2)
        off = (k[item].numpy() - whole["constant_mean"]) / whole["constant_deviation"]
        constants += [*(printed.constants[item].detach().numpy() - off)[classes] ** 2]
    return float(np.mean(squares) + 0.1 * np.mean(logs) + 0.1 * np.mean(constants))


def test_the_loss_by_hand() -> None:
    explainer = drawn_explainer(WIDTHS, C)
    states, mask, own, logits = inputs()
    known = torch.tensor([[1, 1, 0, 0], [0, 1, 0, 1], [1, 0, 1, 0]], dtype=torch.bool)
    relevance = torch.randn(B, T, C)
    relevance[:, 0] *= 30
    constants = torch.where(known, torch.randn(B, C), torch.nan)
    lesson = Lesson(relevance, known, constants)
    scale = item_scale(lesson, mask, own)
    printed = explainer(states, mask, own, logits, scale)
    loss = explanation_loss(explainer, printed, lesson, scale)
    assert loss.item() == pytest.approx(
        slow_loss(explainer, printed, relevance, known, (mask, own), constants), rel=1e-5
    )
    relevance[~(mask[:, :, None] & known[:, None])] = 1e9
    assert explanation_loss(explainer, printed, lesson, scale).item() == pytest.approx(
        loss.item(), rel=1e-6
    )
    torch.testing.assert_close(item_scale(lesson, mask, own), scale)
    loss.backward()
    gradients = [one.grad for one in explainer.parameters() if one.grad is not None]
    assert gradients
    assert all(torch.isfinite(one).all() for one in gradients)


def test_an_item_without_special_positions_has_a_scale_for_them() -> None:
    _, mask, _, _ = inputs()
    relevance, known = torch.randn(B, T, C), torch.ones(B, C, dtype=torch.bool)
    scale = item_scale(Lesson(relevance, known, torch.zeros(B, C)), mask, mask)
    torch.testing.assert_close(scale[:, 1], scale[:, 0] / 1000)


def test_relevance_that_is_zero_everywhere_does_no_harm() -> None:
    explainer = drawn_explainer(WIDTHS, C)
    states, mask, own, logits = inputs()
    known = torch.ones(B, C, dtype=torch.bool)
    nothing = Lesson(torch.zeros(B, T, C), known, logits)
    scale = item_scale(nothing, mask, own)
    printed = explainer(states, mask, own, logits, scale)
    loss = explanation_loss(explainer, printed, nothing, scale)
    assert torch.isfinite(loss)


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
