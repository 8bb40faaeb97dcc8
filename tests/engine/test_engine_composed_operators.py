"""Operators that are made of others: each gets what its parts, written out, get by their rules."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from toy_networks import close, inputs, one_hot, run, seeded

from transexplain.engine.composites import COMPOSITES
from transexplain.errors import EngineError

HEAD = seeded(nn.Linear(8, 3))
X = inputs(3, 4, 6)


def explained(function, x: Tensor, name: str = "lrp"):
    """Relevance of the second logit of a head over `function`, and the ledgers of a batch."""
    passes = run(lambda h: HEAD(function(h).flatten(1)), x, name)
    seed = one_hot(passes.logits, 1)
    relevance = passes.relevance(seed)
    return relevance, close(passes, relevance, seed)


def check_same(one, other, x: Tensor, name: str = "lrp") -> None:
    """The same relevance and the same entries of the ledgers, which close."""
    torch.testing.assert_close(one(x), other(x), rtol=1e-12, atol=1e-12)
    (found, ledgers), (expected, others) = (explained(each, x, name) for each in (one, other))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    for ledger, twin in zip(ledgers, others, strict=True):
        assert ledger.relative_gap < 1e-12
        assert ledger.biases == pytest.approx(twin.biases, abs=1e-12)
        assert ledger.rules == pytest.approx(twin.rules, abs=1e-12)


def substituted(a: Tensor, b: Tensor, *, unit: bool) -> Tensor:
    """Lower triangular A X = B row by row: x_i = (b_i - sum_j a_ij x_j) / a_ii."""
    rows: list[Tensor] = []
    for i in range(a.shape[-1]):
        row = b[:, i]
        for j, known in enumerate(rows):
            row = row - a[:, i, j, None] * known
        rows.append(row if unit else row / a[:, i, i, None])
    return torch.stack(rows, 1)


def sides(x: Tensor) -> tuple[Tensor, Tensor]:
    """A (B, 4, 4) and B (B, 4, 2), both made of x (B, 4, 6)."""
    return x[..., :4] + 2.0 * torch.eye(4), x[..., 4:].tanh()


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("name", ["lrp", "attnlrp"])
def test_a_triangular_solve_is_the_substitution(name: str, unit: bool) -> None:
    """Half of the relevance to each factor a_ij and x_j, a_ii a scale; from either side."""

    def left(x: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(*sides(x), upper=False, unitriangular=unit)

    def right(x: Tensor) -> Tensor:
        a, b = (side.mT for side in sides(x))
        return torch.linalg.solve_triangular(a, b, upper=True, left=False, unitriangular=unit).mT

    for solved in (left, right):
        check_same(solved, lambda x: substituted(*sides(x), unit=unit), X, name)


SCORES = seeded(nn.Linear(6, 4), 3)
VALUES = seeded(nn.Linear(6, 2), 4)


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_softmax_by_logsumexp_is_a_softmax(name: str) -> None:
    """exp(x - logsumexp(x)) gets the rule of attention weights, whatever that is."""

    def written(x: Tensor) -> Tensor:
        scores = SCORES(x)
        weights = torch.exp(scores - torch.logsumexp(scores, dim=-1, keepdim=True))
        return weights @ VALUES(x)

    def fused(x: Tensor) -> Tensor:
        return torch.softmax(SCORES(x), -1) @ VALUES(x)

    check_same(written, fused, inputs(3, 4, 6), name)


@pytest.mark.parametrize("name", ["lrp", "attnlrp", "gradient-x-input", "chefer-lrp"])
def test_what_was_written_over_is_no_softmax(name: str) -> None:
    """A log-softmax that is changed before exp keeps the rules of its parts."""

    def sharpened(x: Tensor, *, in_place: bool) -> Tensor:
        scores = SCORES(x)
        shares = scores - torch.logsumexp(scores, dim=-1, keepdim=True)
        shares = shares.mul_(2.0) if in_place else shares * 2.0
        return torch.exp(shares) @ VALUES(x)

    check_same(partial(sharpened, in_place=True), partial(sharpened, in_place=False), X, name)


def test_logsumexp_leaves_out_the_entropy() -> None:
    """logsumexp(x) = sum_i s_i x_i + H(s); in relevance form the shares are s."""
    x = inputs(3, 6)
    shares = x.softmax(-1)
    entropy = -(shares * shares.log()).sum(-1)
    for name in ("lrp", "gradient-x-input", "attnlrp"):
        passes = run(lambda h: h.logsumexp(-1, keepdim=True), x, name)
        relevance = passes.relevance(torch.ones_like(passes.logits))
        torch.testing.assert_close(relevance, shares * x)
        for ledger, lost in zip(
            close(passes, relevance, torch.ones(3, 1)), entropy.tolist(), strict=True
        ):
            assert ledger.rules_by_kind == {"softmax": pytest.approx(lost)}
            assert ledger.relative_gap < 1e-12
    passes = run(lambda h: h.logsumexp(-1, keepdim=True), x, "chefer-lrp")
    torch.testing.assert_close(passes.relevance(torch.ones_like(passes.logits)), shares)


def lstm_by_hand(layer: nn.LSTM, x: Tensor) -> Tensor:
    """One layer in one direction: (B, T, D) -> (B, T, H)."""
    hidden = cell = torch.zeros(len(x), layer.hidden_size, dtype=x.dtype)
    outputs = []
    for step in range(x.shape[1]):
        gates = nn.functional.linear(x[:, step], layer.weight_ih_l0, layer.bias_ih_l0)
        gates = gates + nn.functional.linear(hidden, layer.weight_hh_l0, layer.bias_hh_l0)
        enter, forget, signal, leave = gates.chunk(4, -1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * signal.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("name", COMPOSITES)
def test_an_lstm_is_its_cells(name: str) -> None:
    layer = seeded(nn.LSTM(6, 2, batch_first=True), 5)
    check_same(lambda x: layer(x)[0], lambda x: lstm_by_hand(layer, x), inputs(3, 4, 6), name)


def test_what_the_model_cuts_off_needs_no_rule() -> None:
    """As the routers of PhiMoE, which choose their experts by a quotient of signals."""

    def routed(x: Tensor) -> Tensor:
        with torch.no_grad():
            chosen = (x / x.roll(1, 1)) * x.cumprod(1) > 0
        return x.masked_fill(~chosen, 0.0)

    x = inputs(3, 8)
    found, ledgers = explained(routed, x)
    expected = torch.where((x / x.roll(1, 1)) * x.cumprod(1) > 0, x * HEAD.weight[1], 0.0)
    torch.testing.assert_close(found, expected)
    assert all(ledger.relative_gap < 1e-12 for ledger in ledgers)


class Multiplied(torch.autograd.Function):
    """Relevance arrives at an operator that has no rule, inside a function of the model's own."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x + torch.cumprod(x, 1)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient


def test_an_operator_without_a_rule_inside_a_function_is_refused() -> None:
    with pytest.raises(EngineError, match=r"operator 'cumprod' .* no rule knows it"):
        run(lambda h: HEAD(Multiplied.apply(h)), inputs(2, 8), "lrp")


def test_joined_items_keep_their_own_bookings() -> None:
    """A loop over the batch, whose rows are stacked or joined again."""
    parts = [seeded(nn.Linear(6, 6), index) for index in range(3)]

    def stacked(x: Tensor) -> Tensor:
        return torch.stack([part(row) for part, row in zip(parts, x, strict=True)])

    def joined(x: Tensor) -> Tensor:
        rows = [part(x[i : i + 1]) for i, part in enumerate(parts)]
        return torch.cat([rows[0], torch.cat(rows[1:])])

    x, head = inputs(3, 2, 6), seeded(nn.Linear(12, 3), 8)
    for function in (stacked, joined):
        for name in ("lrp", "gradient-x-input", "chefer-lrp"):
            passes = run(lambda h, f=function: head(f(h).flatten(1)), x, name)
            seed = one_hot(passes.logits, 0)
            relevance = passes.relevance(seed)
            ledgers = close(passes, relevance, seed)
            assert len({ledger.biases for ledger in ledgers}) == 3 or name == "chefer-lrp"
            assert all(ledger.relative_gap < 1e-12 for ledger in ledgers)
