"""The mode changes nothing but relevance, and refuses what it does not know."""

import threading
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from toy_networks import TinyEncoder, close, inputs, one_hot, run, seeded

from transexplain.engine.composites import COMPOSITES, composite
from transexplain.errors import ConfigurationError, EngineError


def explain(model: nn.Module, x: Tensor, name: str = "lrp") -> Tensor:
    passes = run(model, x, name)
    return passes.relevance(one_hot(passes.logits, 0))


@pytest.mark.parametrize("name", COMPOSITES)
def test_the_model_is_untouched(name: str) -> None:
    model = seeded(TinyEncoder())
    before = {key: value.clone() for key, value in model.state_dict().items()}
    explain(model, inputs(2, 4, 12), name)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert torch.is_grad_enabled()
    loss = model(inputs(2, 4, 12)).sum()
    loss.backward()
    assert all(p.grad is not None for p in model.parameters()), "training goes on as before"


LSTM = seeded(nn.LSTM(4, 2, num_layers=2, dropout=0.5))


def of_packed(x: Tensor) -> Tensor:
    packed = nn.utils.rnn.PackedSequence(x, torch.tensor([1] * len(x)))
    return LSTM.eval()(packed)[0].data


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: 1.0 / x, "denominator"),
        (torch.reciprocal, "reciprocal"),
        (lambda x: x.pow(-2.0), "not finite"),
        (lambda x: F.linear(x, x), "weight depends"),
        (lambda x: F.dropout(x, training=True), "evaluation mode"),
        (lambda x: LSTM.train()(x)[0], "dropout is active"),
        (of_packed, "packed sequences have no rule"),
        (lambda x: torch.div(x, 2.0, rounding_mode="floor"), "rounds"),
        (
            lambda x: x.scatter(1, torch.zeros(4, 1, dtype=torch.long), 2.0, reduce="multiply"),
            r"operator 'scatter' .* combines",
        ),
        (
            lambda x: F.linear(torch.ones(4, 4).double(), torch.ones(4, 4).double(), x[0]),
            "constant",
        ),
        (lambda x: x.detach() * 2, "do not depend on the input layer"),
        (lambda x: torch.softmax(x, -1) * 2, "do not depend on the input layer"),
    ],
)
def test_operators_without_a_rule_are_refused(function, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        explain(function, inputs(4, 4))


def test_unknown_composite_names_the_known() -> None:
    with pytest.raises(ConfigurationError, match=r"'lrq'.*lrp-ah-ln"):
        composite("lrq")


@pytest.mark.parametrize("name", COMPOSITES)
def test_in_place_forms_give_the_same(name: str) -> None:
    """And powers and products in every spelling."""
    layer, other = seeded(nn.Linear(6, 6)), seeded(nn.Linear(6, 6), 2)

    def in_place(x: Tensor) -> Tensor:
        hidden = layer(x)
        hidden += x
        F.relu(hidden, inplace=True)
        hidden.mul_(2.0)
        F.silu(hidden, True)
        hidden.tanh_()
        squares = (hidden**2 + 2.0 * hidden) * 0.5
        squares *= other(x)
        return 1.0 - squares.sub_(0.5)

    def out_of_place(x: Tensor) -> Tensor:
        hidden = torch.tanh(F.silu(2.0 * F.relu(layer(x) + x)))
        squares = torch.mul(torch.pow(hidden, 2) + torch.mul(hidden, 2.0), 0.5)
        return torch.sub(1.0, torch.mul(squares, other(x)) - 0.5)

    x = inputs(2, 6)
    left, right = run(in_place, x, name), run(out_of_place, x, name)
    torch.testing.assert_close(left.logits, right.logits)
    torch.testing.assert_close(left.logits, out_of_place(x))
    seed = one_hot(left.logits, 2)
    torch.testing.assert_close(left.relevance(seed), right.relevance(seed))
    for passes in (left, right):
        for ledger in close(passes, passes.relevance(seed), seed):
            assert ledger.relative_gap < 1e-12


def tripled(x: Tensor) -> Tensor:
    return x * 3.0 + 1.0


def test_scripted_code_is_refused_never_passed_over() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and still in use
        scripted = torch.jit.script(tripled)
    head = seeded(nn.Linear(4, 3))
    for function in (lambda x: head(scripted(x)), scripted):
        with pytest.raises(EngineError, match="scripted"):
            explain(function, inputs(2, 4))


class Doubled(torch.autograd.Function):
    """An autograd function of the model's own, with a backward that the rules must not use."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return F.gelu(x) * 2.0

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient * 1e6


@pytest.mark.parametrize("name", ["lrp", "attnlrp", "chefer-lrp"])
def test_an_autograd_function_of_the_model_is_seen_from_inside(name: str) -> None:
    first, head = seeded(nn.Linear(6, 6)), seeded(nn.Linear(6, 3), 2)
    x = inputs(2, 6)
    own = run(lambda h: head(Doubled.apply(first(h))), x, name)
    plain = run(lambda h: head(F.gelu(first(h)) * 2.0), x, name)
    seed = one_hot(own.logits, 1)
    torch.testing.assert_close(own.relevance(seed), plain.relevance(seed))


def test_a_final_softmax_is_cut_off() -> None:
    head = seeded(nn.Linear(6, 3))
    x = inputs(2, 6)
    for ends in (lambda z: torch.softmax(z, -1), lambda z: F.log_softmax(z, dim=-1)):
        passes = run(lambda h, f=ends: f(head(h)), x, "lrp")
        assert passes.cut_softmax
        torch.testing.assert_close(passes.logits, head(x))
        seed = one_hot(passes.logits, 0)
        torch.testing.assert_close(passes.relevance(seed), x * head.weight[0])


def test_threads_do_not_see_each_other() -> None:
    model = seeded(TinyEncoder())
    x = inputs(2, 5, 12)
    expected = {name: explain(model, x, name) for name in COMPOSITES}
    wrong: list[str] = []

    def work(name: str) -> None:
        for _ in range(5):
            if not torch.allclose(explain(model, x, name), expected[name]):
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in COMPOSITES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_half_precision_stays_finite_at_zero(dtype: torch.dtype) -> None:
    model = seeded(TinyEncoder(), dtype=dtype)
    for x in (torch.zeros(2, 4, 12, dtype=dtype), inputs(2, 4, 12, dtype=dtype)):
        relevance = explain(model, x)
        assert relevance.isfinite().all()


def test_memory_of_a_pass_is_freed() -> None:
    """No cycle between hooks and tensors keeps a graph alive."""
    import gc
    import weakref

    model = seeded(TinyEncoder())
    gc.collect()
    gc.disable()
    try:
        passes = run(model, inputs(2, 4, 12), "gradient-x-input")
        passes.relevance(one_hot(passes.logits, 0), last=True)
        copied = weakref.ref(passes.input_layer)
        del passes
        assert copied() is None
    finally:
        gc.enable()
