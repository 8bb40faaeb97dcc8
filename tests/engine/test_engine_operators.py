"""Every operator that the engine knows, called: value, ledger, batch and zero inputs."""

import warnings
from typing import Any

import pytest
import torch
from operator_examples import ARRIVES_AS, EXAMPLES, Example
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from toy_networks import close, inputs, one_hot, run

from transexplain.engine.operators import KIND, operator_name

METHODS = ("gradient-x-input", "lrp", "attnlrp", "chefer-lrp")
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


@pytest.mark.parametrize("name", RUNNABLE)
def test_an_example_calls_its_operator(name: str) -> None:
    operator = operator_of(name)
    with warnings.catch_warnings(), Names() as names:
        EXAMPLES[name](inputs(3, 4, 6))
    assert ARRIVES_AS.get(operator, operator) in names.met


def check_alone(model: Example, x: Tensor, method: str, tolerance: float) -> None:
    logits, relevance, ledgers = explained(model, x, method)
    torch.testing.assert_close(logits, model(x), rtol=1e-12, atol=1e-12)
    assert relevance.isfinite().all()
    assert all(ledger.relative_gap < tolerance for ledger in ledgers)


def check_operator(name: str, method: str) -> None:
    """Logits as they were, a ledger that closes, and every item in a batch as alone."""
    model = with_head(EXAMPLES[name])
    x = inputs(3, 4, 6)
    tolerance = ROUNDING.get(name, 1e-12)
    for row in x:
        check_alone(model, row[None], method, tolerance)
    logits, relevance, ledgers = explained(model, x, method)
    torch.testing.assert_close(logits, model(x), rtol=1e-12, atol=1e-12)
    for index, ledger in enumerate(ledgers):
        assert ledger.relative_gap < tolerance
        alone = explained(model, x[index : index + 1], method)
        torch.testing.assert_close(relevance[index], alone[1][0], rtol=1e-9, atol=1e-11)
        for entry in ("embeddings", "biases", "rules"):
            found, expected = getattr(ledger, entry), getattr(alone[2][0], entry)
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-10 * ledger.magnitude)


def check_at_zero(name: str, method: str) -> None:
    x = torch.zeros(2, 4, 6, dtype=torch.float64)
    check_alone(with_head(EXAMPLES[name]), x, method, ROUNDING.get(name, 1e-12))


@pytest.mark.parametrize("name", RUNNABLE)
def test_operator(name: str) -> None:
    check_operator(name, "lrp")
    check_at_zero(name, "lrp")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", RUNNABLE)
def test_operator_by_every_other_method(name: str, subtests: pytest.Subtests) -> None:
    for method in METHODS:
        if method != "lrp":
            with subtests.test(method=method):
                check_operator(name, method)
                check_at_zero(name, method)
