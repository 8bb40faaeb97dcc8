"""The network of explainers: its sums, its scales, its loss, and what padding does to it."""

from typing import Any

import numpy as np
import pytest
import torch
from explainer_samples import drawn_explainer

from transexplain.learned.network import Explainer, explanation_loss, item_scale

WIDTHS = {0: 12, 2: 8}
B, T, C = 3, 7, 4


def inputs(lengths: tuple[int, ...] = (7, 5, 2)) -> tuple[Any, ...]:
    torch.manual_seed(1)
    states = tuple(torch.randn(B, T, width) for width in WIDTHS.values())
    mask = torch.arange(T)[None] < torch.tensor(lengths)[:, None]
    return states, mask, torch.randn(B, C)


@pytest.mark.parametrize("conserve", [True, False])
def test_padding_changes_nothing(conserve: bool) -> None:
    explainer = drawn_explainer(WIDTHS, C, conserve=conserve)
    states, mask, logits = inputs()
    together = explainer(states, mask, logits).relevance
    for row, length in enumerate((7, 5, 2)):
        own = tuple(state[row : row + 1, :length] for state in states)
        alone = explainer(own, mask[row : row + 1, :length], logits[row : row + 1]).relevance
        torch.testing.assert_close(together[row : row + 1, :length], alone, atol=1e-6, rtol=1e-5)
        assert not together[row, length:].any()
    assert together.abs().max() > 1e-3


def test_positions_sum_to_the_logit_minus_the_constants() -> None:
    explainer = drawn_explainer(WIDTHS, C)
    states, mask, logits = inputs()
    for scale in (None, torch.tensor([0.5, 1.0, 2.0])):
        said = explainer(states, mask, logits, scale)
        constants = explainer.constant_mean + explainer.constant_deviation * said.constants
        torch.testing.assert_close(
            said.relevance.sum(dim=1), logits - constants, atol=1e-5, rtol=1e-5
        )


def test_without_the_layer_sums_are_free() -> None:
    explainer = drawn_explainer(WIDTHS, C, conserve=False)
    states, mask, logits = inputs()
    said = explainer(states, mask, logits)
    assert said.constants is None
    moved = explainer(states, mask, logits, 2 * said.scale)
    torch.testing.assert_close(moved.relevance, 2 * said.relevance)


def test_the_scale_is_that_of_what_was_learned_from() -> None:
    explainer = drawn_explainer(WIDTHS, C)
    states, mask, logits = inputs()
    said = explainer(states, mask, logits)
    wanted = torch.exp(explainer.log_mean + explainer.log_deviation * said.log_scale.clamp(-4, 4))
    torch.testing.assert_close(said.scale, wanted)


def test_calibration_by_hand() -> None:
    explainer = drawn_explainer(WIDTHS, 2)
    scales = torch.tensor([0.5, 1.0, 4.0])
    constants = torch.tensor([[1.0, torch.nan], [3.0, torch.nan], [5.0, torch.nan]])
    before = explainer.constant_mean[1].item()
    explainer.calibrate(scales, constants)
    logs = np.log([0.5, 1.0, 4.0])
    assert explainer.log_mean.item() == pytest.approx(logs.mean(), rel=1e-6)
    assert explainer.log_deviation.item() == pytest.approx(logs.std(), rel=1e-6)
    assert explainer.constant_mean[0].item() == pytest.approx(3.0)
    assert explainer.constant_deviation[0].item() == pytest.approx(np.std([1, 3, 5]), rel=1e-6)
    assert explainer.constant_mean[1].item() == before, "nothing is known of this class"
    explainer.calibrate(torch.ones(4), torch.full((4, 2), 7.0), 0.25)
    assert explainer.log_mean.item() == pytest.approx(0.75 * logs.mean(), rel=1e-6)
    assert explainer.constant_mean[0].item() == pytest.approx(0.75 * 3 + 0.25 * 7)


def number(value: torch.Tensor) -> float:
    return float(value.detach())


def slow_loss(
    explainer: Explainer, said: Any, relevance: Any, known: Any, mask: Any, k: Any
) -> float:
    """The loss by loops over numbers."""
    squares, logs, constants = [], [], []
    for item in range(B):
        places = [t for t in range(T) if mask[item, t]]
        classes = [c for c in range(C) if known[item, c]]
        values = [number(relevance[item, t, c]) for t in places for c in classes]
        scale = np.sqrt(np.mean(np.square(values)))
        squares += [
            (number(said.shape[item, t, c]) - number(relevance[item, t, c]) / scale) ** 2
            for t in places
            for c in classes
        ]
        log = (np.log(scale) - number(explainer.log_mean)) / number(explainer.log_deviation)
        logs.append((number(said.log_scale[item]) - log) ** 2)
        for c in classes:
            wanted = (number(k[item, c]) - number(explainer.constant_mean[c])) / float(
                explainer.constant_deviation[c]
            )
            constants.append((number(said.constants[item, c]) - wanted) ** 2)
    return float(np.mean(squares) + 0.1 * np.mean(logs) + 0.1 * np.mean(constants))


def test_the_loss_by_hand() -> None:
    explainer = drawn_explainer(WIDTHS, C)
    states, mask, logits = inputs()
    known = torch.tensor([[1, 1, 0, 0], [0, 1, 0, 1], [1, 0, 1, 0]], dtype=torch.bool)
    relevance = torch.randn(B, T, C)
    constants = torch.where(known, torch.randn(B, C), torch.nan)
    said = explainer(states, mask, logits, item_scale(relevance, known, mask))
    asked = {"relevance": relevance, "known": known, "mask": mask, "constants": constants}
    loss = explanation_loss(explainer, said, **asked)
    assert loss.item() == pytest.approx(
        slow_loss(explainer, said, relevance, known, mask, constants), rel=1e-5
    )
    relevance[~(mask[:, :, None] & known[:, None])] = 1e9
    assert explanation_loss(explainer, said, **asked).item() == pytest.approx(loss.item(), rel=1e-6)
    loss.backward()
    assert all(
        torch.isfinite(one.grad).all() for one in explainer.parameters() if one.grad is not None
    )


def test_relevance_that_is_zero_everywhere_does_no_harm() -> None:
    explainer = drawn_explainer(WIDTHS, C)
    states, mask, logits = inputs()
    known = torch.ones(B, C, dtype=torch.bool)
    nothing = torch.zeros(B, T, C)
    scale = item_scale(nothing, known, mask)
    said = explainer(states, mask, logits, scale)
    loss = explanation_loss(
        explainer, said, relevance=nothing, known=known, mask=mask, constants=logits
    )
    assert torch.isfinite(loss)
