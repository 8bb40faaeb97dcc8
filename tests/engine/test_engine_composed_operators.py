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
    """Half of the relevance to each factor a_ij and x_j, a_ii a scale."""
    check_same(
        lambda x: torch.linalg.solve_triangular(*sides(x), upper=False, unitriangular=unit),
        lambda x: substituted(*sides(x), unit=unit),
        X,
        name,
    )


def test_a_triangular_solve_by_plain_gradients() -> None:
    def solved(x: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(*sides(x), upper=False)

    found, ledgers = explained(solved, X, "gradient-x-input")
    leaf = X.clone().requires_grad_()
    HEAD(solved(leaf).flatten(1))[:, 1].sum().backward()
    torch.testing.assert_close(found, X * leaf.grad)
    assert all(ledger.relative_gap < 1e-12 for ledger in ledgers)


def test_other_sides_of_a_triangular_solve_are_transposes() -> None:
    def right(x: Tensor) -> Tensor:
        a, b = sides(x)
        return torch.linalg.solve_triangular(a.mT, b.mT, upper=True, left=False).mT

    def left(x: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(*sides(x), upper=False)

    check_same(right, left, inputs(3, 4, 6))


def test_what_a_triangular_solve_does_not_read_has_no_relevance() -> None:
    def solved(x: Tensor) -> Tensor:
        a, b = x[..., :4], x[..., 4:]
        return torch.linalg.solve_triangular(a, b, upper=False, unitriangular=True)

    found, _ = explained(solved, inputs(2, 4, 6))
    assert not found[..., :4].triu().any()
    assert found[..., :4].tril(-1).any()


def test_a_constant_right_side_of_a_triangular_solve_is_booked() -> None:
    constant = inputs(4, 2, seed=5)

    def solved(x: Tensor) -> Tensor:
        a, _ = sides(x)
        return torch.linalg.solve_triangular(a, constant.expand(len(x), 4, 2), upper=False)

    found, ledgers = explained(solved, inputs(3, 4, 6))
    assert all(ledger.biases_by_kind["product"] for ledger in ledgers)
    assert all(ledger.relative_gap < 1e-12 for ledger in ledgers)
    assert found.any()


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


def test_a_clamp_by_bounds_that_carry_is_winner_takes_all() -> None:
    x, low = inputs(2, 4, 2), 0.3

    def clamped(x: Tensor) -> Tensor:
        return x.clamp(min=x.roll(1, 1), max=x.amax(1, keepdim=True) - low)

    found, ledgers = explained(clamped, x)
    bound = x.amax(1, keepdim=True)
    for index in torch.cartesian_prod(*map(torch.arange, (2, 4, 2))).tolist():
        item, place, column = index
        weight = HEAD.weight[1].view(4, 2)[place, column]
        raised = max(float(x[item, place, column]), float(x[item, place - 1, column]))
        if raised > float(bound[item, 0, column]) - low:
            continue
        winner = place if x[item, place, column] >= x[item, place - 1, column] else place - 1
        assert abs(found[item, winner, column]) > 0 or weight == 0
    for ledger in ledgers:
        assert ledger.relative_gap < 1e-12
        assert ledger.biases_by_kind["sum"]


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


def test_the_gates_of_an_lstm_are_constant() -> None:
    """Signal takes all (Arras et al. 2017): a linear recurrence with fixed gates."""
    layer, x = seeded(nn.LSTM(2, 2, batch_first=True), 6), inputs(1, 1, 2)
    head = seeded(nn.Linear(2, 3), 7)
    passes = run(lambda h: head(layer(h)[0][:, 0]), x, "lrp")
    found = passes.relevance(one_hot(passes.logits, 0))
    gates = nn.functional.linear(x[0, 0], layer.weight_ih_l0, layer.bias_ih_l0 + layer.bias_hh_l0)
    enter, _, signal, leave = gates.chunk(4)
    cell = enter.sigmoid() * signal.tanh()
    # tanh passes on f(x)/x, twice
    slope = leave.sigmoid() * (cell.tanh() / cell) * enter.sigmoid() * (signal.tanh() / signal)
    weight = layer.weight_ih_l0.chunk(4)[2]
    torch.testing.assert_close(found[0, 0], x[0, 0] * ((head.weight[0] * slope) @ weight))


def test_packed_sequences_and_dropout_are_refused() -> None:
    layer, x = seeded(nn.LSTM(6, 2, num_layers=2, dropout=0.5), 5), inputs(4, 1, 6)
    packed = nn.utils.rnn.PackedSequence(inputs(4, 6), torch.tensor([1, 1, 1, 1]))

    def of_packed(x: Tensor) -> Tensor:
        given = packed._replace(data=x[:, 0])
        return layer(given)[0].data[None]

    with pytest.raises(EngineError, match="packed sequences have no rule"):
        run(of_packed, x, "lrp")
    layer.train()
    with pytest.raises(EngineError, match="dropout is active"):
        run(lambda h: layer(h)[0], x, "lrp")


def test_scatter_that_combines_is_refused() -> None:
    def multiplied(x: Tensor) -> Tensor:
        return x.scatter(1, torch.zeros(2, 1, dtype=torch.long), 2.0, reduce="multiply")

    with pytest.raises(EngineError, match=r"operator 'scatter' .* combines"):
        run(multiplied, inputs(2, 8), "lrp")


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


def test_a_contraction_of_two_batches_is_refused() -> None:
    """`inner(x, x)` holds every pair of items: no entry of it is of one item."""
    x = inputs(2, 4)
    with pytest.raises(EngineError, match="which axis counts the items is not known"):
        passes = run(lambda h: torch.inner(h, h), x, "gradient-x-input")
        passes.relevance(torch.ones_like(passes.logits))
    alone = run(lambda h: torch.inner(h, h), x[:1], "gradient-x-input")
    assert alone.relevance(torch.ones(1, 1)).any()
