"""What the papers prove about conservation, measured on the engine's own passes."""

from dataclasses import replace
from math import exp

import pytest
import torch
from matrix_rules import propagated
from test_engine_relevance_form import arrives, rules, sum_of_two
from torch import Tensor
from torch.nn import functional as F
from toy_networks import close, inputs, run

from transexplain.engine.composites import COMPOSITES, LinearRule

T, D = 5, 4


def attention_head(h: Tensor) -> Tensor:
    """(B, 2T, D) -> (B, T D): the second sequence asks, the first is key and value."""
    x, queries = h[:, :T], h[:, T:]
    query, key = inputs(D, D, seed=2), inputs(D, D, seed=3)
    return F.scaled_dot_product_attention(queries @ query, x @ key, x).flatten(1)


def covariances(h: Tensor, seed: Tensor) -> float:
    """sum_j Cov_j(q_:j, x^T dy/dy_j) of one item, over the weights that query j gives."""
    x, queries = h[:T], h[T:]
    scores = (queries @ inputs(D, D, seed=2)) @ (x @ inputs(D, D, seed=3)).T / D**0.5
    total = 0.0
    for j in range(T):
        weights = scores[j].softmax(-1)
        pulled = x @ seed.view(T, D)[j]
        means = weights @ scores[j], weights @ pulled
        total += float(weights @ (scores[j] * pulled) - means[0] * means[1])
    return total


def test_gradient_x_input_breaks_in_attention_by_twice_the_covariance() -> None:
    """Ali et al. 2022, Proposition 3.1 in the form of appendix A.3: tokens and scores of any mean.

    A score is linear in the key's token and in the query's, so each adds the covariance once.
    """
    h = inputs(3, 2 * T, D)
    passes = run(attention_head, h, "gradient-x-input")
    seed = inputs(*passes.logits.shape, seed=8)
    relevance = passes.relevance(seed)
    for index, ledger in enumerate(close(passes, relevance, seed)):
        arrived = float(passes.logits[index].detach() @ seed[index])
        expected = 2 * covariances(h[index], seed[index])
        assert abs(expected) > 0.1, "nothing would be seen"
        assert float(relevance[index].sum()) == pytest.approx(arrived + expected, rel=1e-12)
        assert ledger.rules_by_kind["attention"] == pytest.approx(-expected, rel=1e-12)


def test_the_rule_for_attention_heads_conserves_and_gives_queries_nothing() -> None:
    """Ali et al. 2022, section 4."""
    h = inputs(3, 2 * T, D)
    passes = run(attention_head, h, "lrp-ah")
    seed = inputs(*passes.logits.shape, seed=8)
    relevance = passes.relevance(seed)
    assert torch.all(relevance[:, T:] == 0)
    torch.testing.assert_close(relevance.sum((1, 2)), (passes.logits * seed).sum(1))


@pytest.mark.parametrize("epsilon", [1e-12, 0.3, 20.0])
def test_gradient_x_input_keeps_the_share_of_epsilon_in_a_norm(epsilon: float) -> None:
    """Ali et al. 2022, Proposition 3.2 (Eq. 9) and Eq. 14: 1 - Var / (epsilon + Var) is left."""
    x = inputs(3, 6)
    for name, conserves in (("gradient-x-input", False), ("lrp-ln", True)):
        passes = run(lambda leaf: F.layer_norm(leaf, (6,), eps=epsilon), x, name)
        seed = inputs(*passes.logits.shape, seed=8)
        relevance = passes.relevance(seed)
        for index, ledger in enumerate(close(passes, relevance, seed)):
            variance = float(x[index].var(unbiased=False))
            lost = 0.0 if conserves else variance / (epsilon + variance)
            arrived = float(passes.logits[index].detach() @ seed[index])
            assert float(relevance[index].sum()) == pytest.approx((1 - lost) * arrived, abs=1e-12)
            assert ledger.rules_by_kind.get("norm", 0.0) == pytest.approx(lost * arrived)


def test_a_sum_of_two_signals_conserves_and_may_explode() -> None:
    """Chefer et al. 2021, Lemma 1 (i), with the example of Eq. 8 and 9; normalised it is bounded.

    Lemma 2: both parts keep the sum, and each lies between 0 and what arrived.
    """
    a, b = 9.0, 7.0
    u = torch.tensor([exp(a), exp(b)], dtype=torch.float64)
    x = torch.stack([u, 1 - u])[None]
    ones = torch.ones(1, 2, dtype=torch.float64)
    found, _ = arrives(lambda h: h[:, 0] + h[:, 1], x, rules(normalised=False), ones)
    torch.testing.assert_close(found[0], torch.stack([u, 1 - u]), rtol=1e-9, atol=0)
    assert float(found.sum()) == pytest.approx(2.0, rel=1e-9)
    bounded, _ = arrives(lambda h: h[:, 0] + h[:, 1], x, rules(), ones)
    expected = sum_of_two(u, 1 - u, ones[0], normalised=True, floor=0.0)
    torch.testing.assert_close(bounded[0], expected)
    parts = bounded[0].sum(-1)
    assert float(parts.sum()) == pytest.approx(2.0, rel=1e-9)
    assert torch.all((parts >= 0) & (parts <= 2.0))


def test_both_factors_of_a_product_would_take_all_that_arrived() -> None:
    """Chefer et al. 2021, Lemma 1 (ii): 2 R by Eq. 6; the normalised rule halves, so R is kept."""
    x = inputs(2, 18)
    product = lambda h: h[:, :6].view(-1, 2, 3) @ h[:, 6:].view(-1, 3, 4)  # noqa: E731
    found, seed = arrives(product, x, rules())
    for index, row in enumerate(x):
        u, v = row[:6].view(2, 3), row[6:].view(3, 4)
        ratio = seed[index].view(2, 4) / (u @ v)
        of_u, of_v = u * (ratio @ v.T), v * (u.T @ ratio)  # Eq. 6
        whole = float(seed[index].sum())
        assert float(of_u.sum()) == pytest.approx(whole) == pytest.approx(float(of_v.sum()))
        expected = torch.cat([of_u.flatten(), of_v.flatten()]) / 2
        torch.testing.assert_close(found[index], expected)
        assert float(found[index].sum()) == pytest.approx(whole)


def test_relevance_survives_where_the_gradient_vanishes() -> None:
    """TransExplain, table 1 and section 3.2.6: robust to saturation."""
    x = 40.0 * inputs(3, 6).sign()
    for name, share in (("gradient-x-input", 0.0), ("lrp", 1.0)):
        passes = run(F.tanh, x, name)
        seed = inputs(*passes.logits.shape, seed=8)
        expected = share * passes.logits.detach() * seed
        torch.testing.assert_close(passes.relevance(seed), expected, rtol=1e-12, atol=1e-12)


def test_epsilon_with_the_sign_of_the_sum_never_meets_zero() -> None:
    """TransExplain, 3.2.4.3 prints sum + epsilon, which is 0 where the sum is -epsilon.

    The sign of the sum, as in its 3.2.4.2, keeps the denominator away from 0 and the sum's sign.
    """
    epsilon = 0.25
    weight = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    x = torch.tensor([[0.5, -0.75], [0.5, 0.75]], dtype=torch.float64)  # sums -0.25 and 1.25
    composite = replace(COMPOSITES["lrp"], linear=LinearRule(epsilon=epsilon))
    passes = propagated(lambda leaf: F.linear(leaf, weight), x, composite)
    found = passes.relevance(torch.ones(2, 1, dtype=torch.float64))
    for row, relevance in zip(x, found, strict=True):
        total = float(row.sum())
        expected = row / (total + epsilon * (1 if total > 0 else -1)) * total
        torch.testing.assert_close(relevance, expected)
    assert float(x[0].sum()) + epsilon == 0.0
