"""Every operator that the engine knows, called: value, ledger, batch and zero inputs."""

import warnings
from typing import Any

import pytest
import torch
from everyday import only
from operator_examples import ARRIVES_AS, EXAMPLES, Example
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from toy_networks import close, inputs, one_hot, run

from transexplain.engine.operators import KIND, operator_name

#: what rounds the values it hands on
ROUNDING = {"float": 1e-5, "half": 1e-2, "bfloat16": 5e-2}
NEEDS_A_GPU = ("cuda",)

pytestmark = pytest.mark.filterwarnings("ignore:.*upsample.*deprecated")


class Names(TorchFunctionMode):
    """Writes down which torch functions are called."""

    def __init__(self) -> None:
        super().__init__()
        self.met: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.met.add(operator_name(func))
        return func(*args, **(kwargs or {}))


RUNNABLE = [n for n in EXAMPLES if n not in NEEDS_A_GPU or torch.cuda.is_available()]


def operator_of(name: str) -> str:
    """`softmax blind` is an example of `softmax`."""
    return name.split(" ", maxsplit=1)[0]


def with_head(function: Example) -> Example:
    """Two outputs, so that every position of `function` counts differently."""

    def model(x: Tensor) -> Tensor:
        hidden = function(x)
        hidden = hidden.reshape(len(x), -1).to(torch.float64)
        return F.linear(hidden, inputs(2, hidden.shape[1], seed=3))

    return model


def explained(model: Example, x: Tensor, method: str) -> tuple[Tensor, Tensor, list[Any]]:
    passes = run(model, x, method)
    seed = one_hot(passes.logits, 1)
    relevance = passes.relevance(seed)
    return passes.logits.detach(), relevance, close(passes, relevance, seed)


def test_every_operator_has_an_example() -> None:
    assert set(KIND) == {operator_of(name) for name in EXAMPLES}


def check_called(name: str) -> None:
    operator = operator_of(name)
    with warnings.catch_warnings(), Names() as names:
        EXAMPLES[name](inputs(3, 4, 6))
    assert ARRIVES_AS.get(operator, operator) in names.met


def check_operator(name: str, method: str, alone: int) -> None:
    """Logits as they were, a ledger that closes, the first `alone` items of a batch as alone."""
    model = with_head(EXAMPLES[name])
    tolerance = ROUNDING.get(name, 1e-12)
    for x in (inputs(3, 4, 6), torch.zeros(2, 4, 6, dtype=torch.float64)):
        logits, relevance, ledgers = explained(model, x, method)
        torch.testing.assert_close(logits, model(x), rtol=1e-12, atol=1e-12)
        assert relevance.isfinite().all()
        assert all(ledger.relative_gap < tolerance for ledger in ledgers)
        for index, ledger in enumerate(ledgers[:alone]):
            row = x[index : index + 1]
            logits, expected, [other] = explained(model, row, method)
            torch.testing.assert_close(logits, model(row), rtol=1e-12, atol=1e-12)
            assert other.relative_gap < tolerance
            torch.testing.assert_close(relevance[index], expected[0], rtol=1e-9, atol=1e-11)
            for entry in ("embeddings", "biases", "rules"):
                assert getattr(ledger, entry) == pytest.approx(
                    getattr(other, entry), rel=1e-9, abs=1e-10 * ledger.magnitude
                )


KINDS = sorted(set(KIND.values()))
OTHERS = ("gradient-x-input", "attnlrp", "chefer-lrp")


def of_kind(kind: str) -> list[tuple[int, str]]:
    return [(n, name) for n, name in enumerate(RUNNABLE) if KIND[operator_of(name)] == kind]


@pytest.mark.parametrize(
    ("kind", "turn"),
    only(*((kind, 0) for kind in KINDS), of=[(k, t) for t in range(3) for k in KINDS]),
)
def test_operators_of_a_kind(kind: str, turn: int, subtests: pytest.Subtests) -> None:
    """Every operator by LRP, and by each of the other methods in turn."""
    for number, name in of_kind(kind):
        with subtests.test(name=name):
            if turn == 0:
                check_called(name)
                check_operator(name, "lrp", alone=3)
            check_operator(name, OTHERS[(number + turn) % 3], alone=1)
