"""A census sees every operator, its rule and what was booked there, and changes nothing."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from toy_networks import TinyEncoder, close, inputs, one_hot, seeded

from transexplain.engine.census import Census
from transexplain.engine.composites import COMPOSITES, composite
from transexplain.engine.operators import rules_of_form
from transexplain.engine.propagate import Propagation, propagate
from transexplain.errors import EngineError

Network = Callable[[Tensor], Tensor]


def counted(network: Network, x: Tensor, name: str = "lrp") -> tuple[Census, Propagation, Tensor]:
    census = Census(network if isinstance(network, nn.Module) else None)

    def forward(taps):
        h = taps.input_layer(x)
        taps.encoder_begins()
        return network(h)

    passes = propagate(forward, composite(name), x.shape[0], census=census)
    seed = one_hot(passes.logits, 0)
    return census, passes, passes.relevance(seed)


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_census_changes_nothing_and_sums_to_the_ledger(name: str) -> None:
    network, x = seeded(TinyEncoder()), inputs(2, 4, 12)
    census, passes, relevance = counted(network, x, name)
    plain = propagate(lambda taps: network(taps.input_layer(x)), composite(name), 2)
    assert torch.equal(passes.logits, plain.logits)
    assert torch.equal(relevance, plain.relevance(one_hot(plain.logits, 0)))
    assert not census.uncovered
    ledgers = close(passes, relevance, one_hot(passes.logits, 0))
    for entry in ("embeddings", "biases", "rules"):
        booked = sum(getattr(use, entry) for use in census.operators)
        reported = sum(getattr(ledger, entry) for ledger in ledgers)
        assert booked == pytest.approx(reported, rel=1e-12, abs=1e-12), entry
    first = {use.name: use.biases for use in census.operators}
    passes.relevance(one_hot(passes.logits, 1))
    second = {use.name: use.biases for use in census.operators}
    if name != "chefer-lrp":  # where biases take nothing
        assert first["linear"] != second["linear"], "the latest backward pass counts"


def test_operators_are_counted_and_timed() -> None:
    operators = counted(seeded(TinyEncoder()), inputs(2, 4, 12))[0].operators
    uses = {use.name: use for use in operators}
    assert len(uses) == len(operators), "one rule each"
    counts = {name: use.count for name, use in uses.items()}
    assert (counts["linear"], counts["layer_norm"], counts["gelu"], counts["tanh"]) == (8, 2, 1, 1)
    assert "clone" not in counts, "the mode's copy of the input layer is no operator of the model"
    assert all(use.seconds > 0 for use in uses.values())
    assert uses["linear"].biases
    assert uses["scaled_dot_product_attention"].kind == "attention"


WEIGHT = inputs(4, 4, seed=3)
RULES_OF: list[tuple[str, Network, dict[str, str]]] = [
    ("lrp", lambda x: F.gelu(x) + x, {"gelu": "identity f(x)/x", "add": "linear: by value"}),
    ("lrp-ah-ln", F.gelu, {"gelu": "gradient, measured"}),
    ("lrp", lambda x: x.softmax(-1) @ x, {"softmax": "weights constant (AH)"}),
    ("lrp-ln", lambda x: x.softmax(-1) @ x, {"softmax": "gradient, measured"}),
    ("lrp", lambda x: (x @ WEIGHT) * (x @ WEIGHT.T), {"mul": "half to each factor"}),
    ("lrp-ah", lambda x: (x @ WEIGHT) * (x @ WEIGHT.T), {"mul": "gradient, measured"}),
    ("lrp", lambda x: x * 2.0, {"mul": "linear: constant factor"}),
    ("lrp", lambda x: x * (1.702 * x).sigmoid(), {}),
    ("lrp", lambda x: (x @ WEIGHT) * x.sigmoid(), {"mul": "gate constant"}),
    ("lrp", lambda x: x / x.pow(2).mean(-1, keepdim=True).sqrt(), {"sqrt": "scale constant (LN)"}),
    ("lrp", lambda x: F.layer_norm(x, (4,)), {"layer_norm": "scale constant (LN)"}),
    ("lrp-ah", lambda x: F.layer_norm(x, (4,)), {"layer_norm": "gradient, measured"}),
    ("lrp", lambda x: F.linear(F.dropout(x, training=False), WEIGHT), {"linear": "LRP-0"}),
    ("lrp", lambda x: x + x.detach(), {"detach": "carries no relevance on"}),
    ("lrp", lambda x: F.silu(x @ WEIGHT, inplace=True), {"silu": "identity f(x)/x"}),
]


@pytest.mark.parametrize(("name", "network", "rules"), RULES_OF)
def test_rules_are_reported_in_words(name: str, network: Network, rules: dict[str, str]) -> None:
    found: dict[str, set[str]] = {}
    for use in counted(network, inputs(4, 4), name)[0].operators:
        found.setdefault(use.name, set()).add(use.rule)
    for operator, rule in rules.items():
        assert found[operator] == {rule}
    if not rules:
        assert found["mul"] == {"linear: constant factor", "identity f(x)/x"}


class Odd(nn.Module):
    """Two operators that no rule knows, one of them writing in place."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Part(), Part()])

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


class Part(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = torch.cumprod(x * 0.1 + 1.0, -1) * 1.0
        return x.lgamma_()


def test_everything_uncovered_is_listed_at_once_with_its_place() -> None:
    network, x = Odd(), inputs(2, 4)
    census, passes, _ = counted(network, x)
    assert torch.equal(passes.logits, network(x)), "nothing ran twice"
    seen = [(one.operator, one.where) for one in census.uncovered]
    assert [operator for operator, _ in seen] == ["cumprod", "lgamma_"] * 2
    for (_, where), name in zip(seen, ("0", "0", "1", "1"), strict=True):
        assert re.fullmatch(rf"test_engine_census\.py:\d+ in forward \(parts\.{name}\)", where)
    assert all(one.why == "no rule knows it" for one in census.uncovered)
    rules = {use.name: (use.rule, use.count) for use in census.operators}
    assert rules["cumprod"] == ("none: plain gradient", 2)


@pytest.mark.parametrize(
    ("network", "place"),
    [
        (Odd(), r"'cumprod' on \(2, 4\), called at {}:\d+ in forward \(parts\.0\), .*'lrp'"),
        (nn.Sequential(nn.Linear(4, 4), nn.LocalResponseNorm(2)).double(), r"{}:\d+ in \S+ \(1\)"),
        (lambda x: x.cumprod(-1), r"called at {}:\d+ in <lambda>, "),
    ],
    ids=["a part", "inside torch", "a function"],
)
def test_outside_a_census_it_is_an_error_that_names_the_place(network: Network, place: str) -> None:
    """Inside torch it is the line that led there."""
    x = inputs(2, 4)[:, None] if isinstance(network, nn.Sequential) else inputs(2, 4)
    with pytest.raises(EngineError, match=place.format(r"test_engine_census\.py")):
        propagate(lambda taps: network(taps.input_layer(x)), composite("lrp"), 2)


def test_a_rule_that_fails_covers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("no such argument")

    monkeypatch.setitem(rules_of_form("gradient"), "activation", broken)
    census = counted(F.gelu, inputs(2, 4))[0]
    (only,) = census.uncovered
    assert (only.operator, only.why) == ("gelu", "IndexError: no such argument")


def test_number_types_that_relevance_passes_through() -> None:
    census = counted(lambda x: (x.float() * 2).double(), inputs(2, 4))[0]
    assert census.dtypes == {torch.float32, torch.float64}
