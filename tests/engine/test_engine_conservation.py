"""The ledger closes for every composite, and shows what a faulty engine would hide."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toy_networks import TinyEncoder, close, inputs, one_hot, run, seeded

from transexplain.engine.composites import COMPOSITES
from transexplain.engine.ledger import LedgerBook
from transexplain.types.items import Ledger

TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-6}


@pytest.mark.parametrize(
    ("fused", "dtype"),
    [(True, torch.float64), (False, torch.float64), (True, torch.float32)],
    ids=["fused", "eager", "float32"],
)
@pytest.mark.parametrize("name", COMPOSITES)
def test_ledger_closes(name: str, fused: bool, dtype: torch.dtype) -> None:
    model = seeded(TinyEncoder(fused=fused), dtype=dtype)
    x = inputs(3, 5, 12, dtype=dtype)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)
    passes = run(lambda h: model(h, mask), x, name)
    torch.testing.assert_close(passes.logits, model(x, mask), rtol=1e-6, atol=1e-6)
    for index in range(4):
        seed = one_hot(passes.logits, index)
        relevance = passes.relevance(seed)
        assert torch.all(relevance[1, 3:] == 0), "a masked position received relevance"
        for ledger in close(passes, relevance, seed):
            assert ledger.relative_gap < TOLERANCE[dtype]
            assert (ledger.biases != 0) is (name != "chefer-lrp"), "z+ there gives biases nothing"


def test_gradient_x_input_says_which_rules_lost_what() -> None:
    model = seeded(TinyEncoder())
    passes = run(model, inputs(2, 4, 12), "gradient-x-input")
    seed = one_hot(passes.logits, 0)
    for ledger in close(passes, passes.relevance(seed), seed):
        assert set(ledger.rules_by_kind) == {"attention", "norm", "activation"}
        assert all(value != 0 for value in ledger.rules_by_kind.values())


def test_every_pass_has_a_ledger_of_its_own() -> None:
    model = seeded(TinyEncoder())
    passes = run(model, inputs(2, 4, 12), "lrp")
    first, second = (one_hot(passes.logits, index) for index in (0, 1))
    before = close(passes, passes.relevance(first), first)
    close(passes, passes.relevance(second), second)
    again = close(passes, passes.relevance(first), first)
    assert before == again


FILLED = torch.arange(24).view(4, 6) % 3 == 0


def test_the_largest_amplification_of_each_item_is_kept() -> None:
    book = LedgerBook(2)
    for largest in ([5.0, 2.0], [3.0, 7.0]):
        book.amplified_by(torch.tensor(largest))
    assert book.amplification.tolist() == [5.0, 7.0]


class DroppedBias(TinyEncoder):
    """A bias reaches the value but not the ledger: added where no operator sees it."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = super().attend(x, mask)
        x.data.add_(0.5)
        return self.head(x[:, 0])


class DoubledResidual(TinyEncoder):
    """A residual branch whose gradient counts twice while its value counts once."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.attend(x, mask) + x + (x - x.detach())
        return self.head(x[:, 0])


class DetachedValue(TinyEncoder):
    """The value path of attention is cut off."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.head((x + self.attend(x.detach(), mask))[:, 0])


@pytest.mark.parametrize("fault", [DroppedBias, DoubledResidual, DetachedValue])
def test_faults_show_in_the_gap(fault: type[nn.Module]) -> None:
    model = seeded(fault())
    x = inputs(2, 4, 12)
    passes = run(model, x, "lrp")
    seed = one_hot(passes.logits, 0)
    ledgers = close(passes, passes.relevance(seed), seed)
    assert all(ledger.relative_gap > 1e-3 for ledger in ledgers)


def test_constants_before_and_after_the_encoder_begins() -> None:
    constant = inputs(1, 4, 6, seed=3)
    head = seeded(nn.Linear(6, 2))

    def function(x: Tensor) -> Tensor:
        filled = torch.where(FILLED, constant, x + constant)
        return head(torch.cat([constant[:, :1].expand(len(x), -1, -1), filled], dim=1).sum(1))

    x = inputs(2, 4, 6)
    for in_encoder, entry in ((False, "embeddings"), (True, "biases")):
        passes = run(function, x, "lrp", in_encoder=in_encoder)
        seed = one_hot(passes.logits, 1)
        for ledger in close(passes, passes.relevance(seed), seed):
            expected = ((constant.sum((0, 1)) + constant[0, 0]) @ head.weight[1]).item()
            bias = head.bias[1].item()
            found = getattr(ledger, entry) - (bias if in_encoder else 0.0)
            assert found == pytest.approx(expected, rel=1e-12)
            assert ledger.relative_gap < 1e-12


@pytest.mark.parametrize("name", ["gradient-x-input", "lrp-ah-ln", "lrp", "attnlrp"])
def test_activation_with_a_constant_part(name: str) -> None:
    """sigmoid(0) = 1/2 is a constant: its share is booked, the rest follows the input."""
    head = seeded(nn.Linear(6, 2))
    passes = run(lambda x: head(torch.sigmoid(x)).sum(1), inputs(2, 4, 6), name)
    seed = one_hot(passes.logits, 0)
    for ledger in close(passes, passes.relevance(seed), seed):
        assert ledger.biases_by_kind["activation"] == pytest.approx(
            4 * 0.5 * head.weight[0].sum().item()
        )
        assert ledger.relative_gap < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ledgers_of_a_batch_are_those_of_each_item(dtype: torch.dtype) -> None:
    draw = np.random.default_rng(0)
    for items, width, sites in ((1, 1, 0), (3, 17, 2), (40, 200, 90)):
        values, own = draw.normal(size=(items, width)), draw.random((items, width)) < 0.8
        booked = draw.normal(size=(sites, items))
        keys = [(("embeddings", "biases", "rules")[n % 3], "abcd"[n % 4], n) for n in range(sites)]
        book = LedgerBook(items)
        for key, row in zip(keys, booked, strict=True):
            book.add(*key, torch.from_numpy(row).to(dtype))
        found = book.close(values * own, values * ~own, values.sum(axis=1))
        for item, ledger in enumerate(found):
            assert ledger == plain_ledger(
                keys, booked[:, item].astype(str(dtype).split(".")[1]), values[item], own[item]
            )


def plain_ledger(keys, terms, values, own) -> Ledger:
    """One item's ledger, entry by entry."""
    sums = {"embeddings": {}, "biases": {}, "rules": {}}
    for (entry, kind, _), term in zip(keys, terms, strict=True):
        sums[entry][kind] = sums[entry].get(kind, 0.0) + float(term)
    inputs, special = values * own, values * ~own
    entries = {"inputs": float(inputs.sum()), "special": float(special.sum())}
    entries |= {entry: added(kinds.values()) for entry, kinds in sums.items()}
    total = added(entries.values())
    sizes = [float(np.abs(part).sum()) for part in (inputs, special, terms)]
    return Ledger(
        **entries,
        total=total,
        gap=float(values.sum()) - total,
        magnitude=sizes[0] + sizes[1] + sizes[2],
        biases_by_kind=sums["biases"],
        rules_by_kind=sums["rules"],
    )


def added(amounts) -> float:
    """One after the other: `sum` corrects for rounding from Python 3.12 on."""
    total = 0.0
    for amount in amounts:
        total += amount
    return total
