"""Chefer's rules, in relevance form, against messages that are written out."""

from collections.abc import Callable
from dataclasses import replace
from math import exp

import matrix_rules as sink
import pytest
import torch
from matrix_rules import Operator, propagated
from torch import Tensor
from torch.nn import functional as F
from toy_networks import close, inputs, run

from transexplain.engine.composites import COMPOSITES, ChefersRules, Composite, LinearRule

BASE = COMPOSITES["chefer-lrp"]
#: what the authors' code adds to a denominator, whatever its sign
FLOOR = 1e-9


def rules(*, normalised: bool = True, authors: bool = False) -> Composite:
    return replace(BASE, chefer=ChefersRules(normalised=normalised, authors=authors))


OPERATORS: dict[str, tuple[tuple[int, ...], Operator]] = {
    "linear": ((3, 6), lambda x: F.linear(x, inputs(4, 6, seed=5), inputs(4, seed=6))),
    "conv1d": ((2, 6), lambda x: F.conv1d(x, inputs(3, 2, 3, seed=5), inputs(3, seed=6), 2, 1)),
    "conv2d": ((2, 3, 4), lambda x: F.conv2d(x, inputs(2, 1, 2, 2, seed=5), groups=2, padding=1)),
}


def arrives(
    function: Operator,
    x: Tensor,
    composite: Composite,
    seed: Tensor | None = None,
    *,
    in_encoder: bool = True,
) -> tuple[Tensor, Tensor]:
    """Relevance of the input layer for a random seed at every output, and the seed; per item."""
    flat = lambda h: function(h).flatten(1)  # noqa: E731
    passes = propagated(flat, x, composite, in_encoder=in_encoder)
    if seed is None:
        seed = inputs(*passes.logits.shape, seed=8)
    relevance = passes.relevance(seed)
    for ledger in close(passes, relevance, seed):
        assert ledger.relative_gap < 1e-12
    return relevance, seed


@pytest.mark.parametrize("authors", [True, False], ids=["authors", "paper"])
@pytest.mark.parametrize("normalised", [True, False], ids=["ours", "baseline"])
@pytest.mark.parametrize("name", OPERATORS)
def test_positive_shares(name: str, normalised: bool, authors: bool) -> None:
    """z+ without bias, x of both signs; their baseline divides x^+ and x^- each by its own sum.

    Inputs near the stabiliser are in one case of each value.
    """
    shape, operator = OPERATORS[name]
    x = inputs(2, *shape) * (1e-5 if normalised == authors else 1.0)
    found, seed = arrives(operator, x, rules(normalised=normalised, authors=authors))
    for index, row in enumerate(x):
        floor = FLOOR if authors else 0.0
        messages = sink.positive_shares(operator, row[None], apart=not normalised, floor=floor)
        expected = seed[index] @ messages.inputs
        torch.testing.assert_close(found[index].flatten(), expected, rtol=1e-9, atol=1e-11)


def test_alpha2_beta1_gives_biases_nothing() -> None:
    shape, operator = OPERATORS["linear"]
    x = inputs(2, *shape)
    composite = replace(rules(), linear=LinearRule(alpha=2.0, beta=1.0))
    found, seed = arrives(operator, x, composite)
    for index, row in enumerate(x):
        c, bias = sink.contributions(operator, row[None])
        messages = sink.by_output(c, 0 * bias, sink.alpha_beta(2.0, 1.0))
        torch.testing.assert_close(found[index].flatten(), seed[index] @ messages.inputs)


def sum_of_two(a: Tensor, b: Tensor, arrived: Tensor, *, normalised: bool, floor: float) -> Tensor:
    """Relevance (2, ...) of both summands of one item."""
    shares = torch.stack([a, b]) * arrived / (a + b + floor)
    if not normalised:
        return shares
    totals = [float(shares[side].sum()) for side in (0, 1)]
    both = abs(totals[0]) + abs(totals[1]) + floor
    whole = float(arrived.sum())
    for side in (0, 1):
        shares[side] *= abs(totals[side]) / both * whole / (totals[side] + floor)
    return shares


@pytest.mark.parametrize("authors", [True, False], ids=["authors", "paper"])
@pytest.mark.parametrize("normalised", [True, False], ids=["ours", "baseline"])
def test_sum_of_two_signals(normalised: bool, authors: bool) -> None:
    """Rescaled per item: a batch of three holds three pairs of totals."""
    x = inputs(3, 2, 5)
    composite = rules(normalised=normalised, authors=authors)
    found, seed = arrives(lambda h: h[:, 0] + h[:, 1], x, composite)
    floor = FLOOR if authors else 0.0
    for index, (a, b) in enumerate(x):
        expected = sum_of_two(a, b, seed[index], normalised=normalised, floor=floor)
        torch.testing.assert_close(found[index], expected, rtol=1e-9, atol=1e-11)
        if normalised and not authors:
            torch.testing.assert_close(found[index].sum(), seed[index].sum())


@pytest.mark.parametrize("normalised", [True, False], ids=["ours", "baseline"])
@pytest.mark.parametrize(
    ("written", "signs"),
    [
        (lambda a, b: a - b, (1, -1)),
        (lambda a, b: torch.sub(a, b, alpha=2.0), (1, -2)),
        (lambda a, b: torch.add(input=a, other=b, alpha=0.5), (1, 0.5)),
        (lambda a, b: torch.rsub(a, b, alpha=3.0), (-3, 1)),
        (lambda a, b: (1.0 * a).add_(b), (1, 1)),
    ],
)
def test_spellings_of_a_sum(
    written: Callable[[Tensor, Tensor], Tensor], signs: tuple[float, float], normalised: bool
) -> None:
    x = inputs(2, 2, 5)
    composite = rules(normalised=normalised)
    found, seed = arrives(lambda h: written(h[:, 0], h[:, 1]), x, composite)
    for index, (a, b) in enumerate(x):
        parts = (signs[0] * a, signs[1] * b)
        expected = sum_of_two(*parts, seed[index], normalised=normalised, floor=0.0)
        torch.testing.assert_close(found[index], expected)


def test_inside_the_encoder_a_constant_takes_nothing() -> None:
    """A mask or a position bias of attention scores, as the biases of linear operators."""
    x, constant = inputs(3, 4, 5), inputs(4, 5, seed=3)
    found, seed = arrives(lambda h: h + constant, x, rules())
    torch.testing.assert_close(found, seed.view_as(found))


def test_an_embedding_takes_its_share() -> None:
    """A position embedding is a summand like any other."""
    x, constant = inputs(3, 4, 5), inputs(4, 5, seed=3)
    found, seed = arrives(lambda h: h + constant, x, rules(), in_encoder=False)
    for index, row in enumerate(x):
        arrived = seed[index].view(4, 5)
        expected = sum_of_two(row, constant, arrived, normalised=True, floor=0.0)[0]
        torch.testing.assert_close(found[index], expected)


def halved_product(a: Tensor, b: Tensor, arrived: Tensor) -> tuple[Tensor, Tensor]:
    """Both factors of z = a b, (m, n) and (n, p), message by message."""
    z = a @ b
    of_a, of_b = torch.zeros_like(a), torch.zeros_like(b)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                message = a[i, k] * b[k, j] / z[i, j] * arrived[i, j] / 2
                of_a[i, k] += message
                of_b[k, j] += message
    return of_a, of_b


@pytest.mark.parametrize(
    "written",
    [
        lambda a, b: a @ b,
        torch.bmm,
        lambda a, b: torch.matmul(input=a, other=b),
        lambda a, b: torch.einsum("bij,bjk->bik", a, b),
    ],
)
def test_product_of_two_signals(written: Callable[[Tensor, Tensor], Tensor]) -> None:
    x = inputs(2, 18)
    found, seed = arrives(
        lambda h: written(h[:, :6].view(-1, 2, 3), h[:, 6:].view(-1, 3, 4)), x, rules()
    )
    for index, row in enumerate(x):
        factors = row[:6].view(2, 3), row[6:].view(3, 4)
        parts = halved_product(*factors, seed[index].view(2, 4))
        expected = torch.cat([part.flatten() for part in parts])
        torch.testing.assert_close(found[index], expected)


PASSED = {
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "layer norm": lambda x: F.layer_norm(x, (6,), inputs(6), inputs(6, seed=2)),
    "rms norm": lambda x: F.rms_norm(x, (6,), inputs(6)),
    "group norm": lambda x: F.group_norm(x, 2, inputs(4), inputs(4, seed=2)),
    "batch norm": lambda x: F.batch_norm(x, inputs(4), inputs(4).square(), inputs(4), inputs(4)),
    "softmax": lambda x: torch.softmax(x, -1).unsqueeze(0)[0],
    "times a constant": lambda x: x * inputs(6),
    "scale": lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6),
    "x / length": F.normalize,
    "written out": lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5)),
}


@pytest.mark.parametrize("name", PASSED)
def test_operators_that_pass_relevance_on_unchanged(name: str) -> None:
    """Norms, activations, softmax and scales hand on what arrives, place by place."""
    x = inputs(2, 4, 6)
    found, seed = arrives(PASSED[name], x, rules())
    torch.testing.assert_close(found.flatten(1), seed)


def test_a_gate_takes_nothing_and_a_product_halves() -> None:
    x = inputs(2, 10)
    found, seed = arrives(lambda h: torch.sigmoid(h[:, :5]) * h[:, 5:], x, rules())
    torch.testing.assert_close(found, torch.cat([0 * seed, seed], dim=1))
    found, seed = arrives(lambda h: h[:, :5] * h[:, 5:], x, rules())
    torch.testing.assert_close(found, torch.cat([seed, seed], dim=1) / 2)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "eager"])
def test_attention(fused: bool) -> None:
    """Half to values and weights; the softmax passes; half of that to queries and keys."""
    x = inputs(2, 3, 4, 5)

    def function(h: Tensor) -> Tensor:
        q, k, v = h.unbind(1)
        if fused:
            return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])
        return torch.softmax(q @ k.transpose(1, 2) / 5**0.5, -1) @ v

    found, seed = arrives(function, x, rules())
    for index, (q, k, v) in enumerate(x):
        weights = torch.softmax(q @ k.T / 5**0.5, -1)
        of_weights, of_v = halved_product(weights, v, seed[index].view(4, 5))
        of_q, of_k = halved_product(q, k.T, of_weights)
        torch.testing.assert_close(found[index], torch.stack([of_q, of_k.T, of_v]))


@pytest.mark.parametrize("function", [F.gelu, torch.tanh, torch.sigmoid, F.relu])
def test_an_activation_of_a_mean_is_no_scale(function: Operator) -> None:
    """Mean pooling before an activation: relevance goes through both."""
    x = inputs(2, 4, 5)
    found, seed = arrives(lambda h: function(h.mean(1)), x, rules())
    for index, row in enumerate(x):
        torch.testing.assert_close(found[index], row / row.sum(0) * seed[index])


# --- what the papers prove about conservation, measured on the engine's own passes


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
