"""What a compiled backward pass leaves out changes no number but for rounding."""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from architectures_measured import step_for
from everyday import only
from torch import Tensor
from torch.fx import GraphModule

from transexplain.engine import compiled as compiling_module
from transexplain.engine import layer_rules, needed_work
from transexplain.engine.needed_work import (
    exchanged,
    value_gradient,
    with_read_rows,
    with_value_gradients,
    without_zero_columns,
)
from transexplain.engine.traced import Part, Traced, traced

FLOATS = (torch.float32, torch.float64)


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention by torch's fused kernel, as on a card."""
    monkeypatch.setattr(layer_rules, "recomputable", lambda _call: False)


def traced_of(name: str, method: str = "lrp") -> tuple[Traced, list[Tensor]]:
    """The trace of two items, and its inputs."""
    step = step_for(name, method)
    generator = torch.Generator().manual_seed(5)
    seed = torch.randn(step.shape, generator=generator, dtype=torch.float64)
    return step.traced().traced, [*step.given, seed]


def outputs(step: Traced, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """What a step gives for its inputs and, the last of them, a seed."""
    return step.begin(*inputs[:-1]).end(inputs[-1])


def close(found: Sequence[Tensor], wanted: Sequence[Tensor], rtol: float = 1e-10) -> None:
    for one, other in zip(found, wanted, strict=True):
        scale = float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol * scale)


def products(made: Traced) -> list[tuple[int, ...]]:
    """Shapes of the matrix products' first arguments in the backward pass, in order."""
    nodes = made.second.graph.find_nodes(  # type: ignore[attr-defined]
        op="call_function", target=torch.ops.aten.mm.default
    )
    return [tuple(node.args[0].meta["tensor_meta"].shape) for node in nodes if node.args[0].meta]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize(
    "name", only("timm ViT", of=["timm ViT", "GPT-2", "ModernBERT", "timm BEiT"])
)
def test_a_layer_of_queries_keys_and_values_computes_the_values_columns(name: str) -> None:
    plain, inputs = traced_of(name)
    lean = without_zero_columns(plain)
    narrowed = [
        node
        for node in lean.second.graph.find_nodes(  # type: ignore[attr-defined]
            op="call_function", target=torch.ops.aten.slice.Tensor
        )
        if node.args[1] == 1
        and any(user.target is torch.ops.aten.mm.default for user in node.users)
    ]
    assert narrowed, f"{name} makes queries, keys and values at once"
    for node in narrowed:
        width = node.args[0].meta["tensor_meta"].shape[1]
        assert node.args[3] - node.args[2] == width // 3
    close(outputs(lean, inputs), outputs(plain, inputs))


@pytest.mark.exhaustive
@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize(
    ("name", "method"), [("BERT", "lrp"), ("DistilBERT", "lrp"), ("ViT", "attnlrp")]
)
def test_what_all_columns_are_needed_for_stays_as_it_is(name: str, method: str) -> None:
    """Separate layers; and AttnLRP, which gives relevance to queries and keys as well."""
    plain, _ = traced_of(name, method)
    assert products(without_zero_columns(plain)) == products(plain)
    floats = FLOATS if method == "attnlrp" else ()
    assert with_value_gradients(plain, *([floats] if floats else [])) is None, "values of 64 bits"


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        (lambda g, z: torch.cat([z, z, g], 1), (6, 9)),
        (lambda g, z: torch.cat([g, z], 1), (0, 3)),
        (lambda g, z: torch.cat([z, g, z], 1), (3, 6)),
        (lambda g, z: torch.cat([g, z, g], 1), None),  # in two pieces
        (lambda g, z: torch.cat([g, g], 1), None),
        (lambda g, z: torch.cat([z, torch.relu(g)], 1), (3, 6)),
        (lambda g, z: torch.cat([z, g], 1).relu(), None),  # relu is not followed
        (lambda g, z: torch.stack([z, g]).permute(1, 2, 0).reshape(4, 6), None),  # interleaved
        (lambda g, z: torch.stack([z, g]).permute(1, 0, 2).reshape(4, 6), (3, 6)),
    ],
)
def test_columns_are_left_out_only_where_zeros_are_made(
    given: Any, columns: tuple[int, int] | None
) -> None:
    weight = torch.randn(given(torch.ones(4, 3), torch.zeros(4, 3)).shape[1], 5)

    def function(x: Tensor, seed: Tensor) -> list[Tensor]:
        return [given(seed * x, torch.zeros(4, 3)) @ weight]

    x, seed = torch.randn(4, 3), torch.randn(4, 3)
    plain = traced(function, [x, seed])
    (product,) = plain.second.graph.find_nodes(  # type: ignore[attr-defined]
        op="call_function", target=torch.ops.aten.mm.default
    )
    assert needed_work._columns(product.args[0]) == columns
    lean = without_zero_columns(plain)
    for values in (seed, torch.zeros_like(seed), -seed):
        close(lean.begin(x).end(values), function(x, values), rtol=1e-5)


def test_zeros_that_the_inputs_made_are_no_reason() -> None:
    """A mask or an activation that is 0 in one batch is not 0 in the next."""
    weight = torch.randn(6, 5)

    def function(x: Tensor, seed: Tensor) -> list[Tensor]:
        return [torch.cat([seed, x.relu()], 1) @ weight]

    seed = torch.randn(4, 3)
    plain = traced(function, [-torch.ones(4, 3), seed])
    x = torch.ones(4, 3)
    close(without_zero_columns(plain).begin(x).end(seed), function(x, seed), rtol=1e-5)


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize(
    "name", only("BERT", "Llama", of=["BERT", "ViT", "GPT-2", "Llama", "Qwen3", "Mistral"])
)
def test_the_values_gradient_takes_the_kernels_place(name: str) -> None:
    plain, inputs = traced_of(name)
    alone = with_value_gradients(plain, FLOATS)
    targets = [node.target for node in alone.second.graph.nodes]  # type: ignore[attr-defined]
    assert not needed_work._KERNELS & set(targets)
    assert torch.ops.transexplain.value_gradient.default in targets
    close(outputs(alone, inputs), outputs(plain, inputs), rtol=1e-7)


B, H, T, S, D, E = 2, 4, 7, 9, 16, 8


def attention_case(*, causal: bool, masked: bool, shared: int = 1) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    length = T if causal else S
    query, key, value = normal(B, H, T, D), normal(B, H // shared, length, D), normal(B, H, T, E)
    mask = None
    if masked:
        mask = torch.zeros(B, 1, 1, length, dtype=torch.float64)
        mask[1, ..., -3:] = -torch.inf
    scores = query @ key.repeat_interleave(shared, 1).mT * 0.3
    scores = scores if mask is None else scores + mask
    if causal:
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf)
    shares = scores.softmax(-1)
    wanted = (shares.mT @ value).view(B, H // shared, shared, length, E).sum(2)
    given = (query, key, value, scores.logsumexp(-1), mask, causal, 0.3)
    return {"given": given, "wanted": wanted}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("causal", "shared"), [(False, 1), (True, 1), (False, 2), (True, 4)])
def test_the_values_gradient_is_the_transposed_weights_times_the_gradient(
    causal: bool, masked: bool, shared: int
) -> None:
    case = attention_case(causal=causal, masked=masked, shared=shared)
    strides = list(case["wanted"].transpose(1, 2).contiguous().transpose(1, 2).stride())
    found = value_gradient(*case["given"], strides)
    assert list(found.stride()) == strides
    torch.testing.assert_close(found, case["wanted"])


def test_what_kernels_give_beside_the_rows_is_passed_over() -> None:
    """More rows, an axis more; a row that sees nothing gives nothing."""
    case = attention_case(causal=False, masked=False)
    query, key, gradient, lse, *rest = case["given"]
    strides = list(case["wanted"].stride())
    padded = torch.nn.functional.pad(lse, (0, 25), value=torch.inf)  # to a multiple of 32
    for logsumexp in (padded, lse.unsqueeze(-1)):
        found = value_gradient(query, key, gradient, logsumexp, *rest, strides)
        torch.testing.assert_close(found, case["wanted"])
    blind, without = lse.clone(), gradient.clone()
    blind[:, :, 2], without[:, :, 2] = -torch.inf, 0
    torch.testing.assert_close(
        value_gradient(query, key, gradient, blind, *rest, strides),
        value_gradient(query, key, without, lse, *rest, strides),
    )


@pytest.fixture
def exchanged_kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kernel with queries and keys exchanged, as torch computes it without a compiler."""
    compute = torch.compile(exchanged, backend="eager", fullgraph=True, dynamic=False)
    monkeypatch.setattr(needed_work, "_compiled", lambda: compute)
    yield
    torch._dynamo.reset()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("exchanged_kernel")
@pytest.mark.filterwarnings("ignore")  # torch names its own switch for debugging
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_queries_and_keys_exchanged_gives_the_same(
    causal: bool, masked: bool
) -> None:
    query, key, gradient, lse, mask, *rest = attention_case(causal=causal, masked=masked)["given"]
    mask = None if mask is None else mask.expand(B, H, T, key.shape[2])
    given = (query, key, gradient, lse, mask, *rest)
    torch.testing.assert_close(needed_work._by_kernel(*given), needed_work._written_out(*given))


def test_the_kernels_name_their_arguments_as_they_are_read() -> None:
    for kernel in needed_work._KERNELS:
        names = {argument.name for argument in kernel._schema.arguments}
        assert {"query", "key", "dropout_p", "is_causal", "scale"} <= names
        assert names & {"grad_out", "grad_out_"}
        assert "logsumexp" in names


def half_precision_step() -> tuple[Traced, list[Tensor]]:
    """One attention in bfloat16 and its values' gradient."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 2, 8, 16, generator=generator).bfloat16() for _ in range(2))

    def function(value: Tensor, seed: Tensor) -> list[Tensor]:
        with torch.enable_grad():
            value = value.detach().requires_grad_(True)
            out = torch.nn.functional.scaled_dot_product_attention(q, k, value)
            return [torch.autograd.grad(out, value, seed)[0]]

    inputs = [torch.randn(1, 2, 8, 16, generator=generator).bfloat16() for _ in range(2)]
    return traced(function, inputs), inputs


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_is(made: Traced, _inputs: Sequence[Tensor]) -> Traced:
        return made

    monkeypatch.setattr(compiling_module, "compiled", as_it_is)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("faster", [False, True])
def test_the_faster_of_two_compiled_steps_is_taken(
    monkeypatch: pytest.MonkeyPatch, faster: bool
) -> None:
    plain, inputs = half_precision_step()
    replay = compiling_module.Replay.of(plain, inputs, warn=print)
    replay._compile(plain)
    candidates = replay._compiled
    assert candidates is not None and len(candidates) == 2

    def seconds(made: Traced, _inputs: Sequence[Tensor]) -> float:
        return 1.0 if (made is candidates[1]) == faster else 2.0

    monkeypatch.setattr(compiling_module, "seconds_of", seconds)
    replay.use_compiled()
    assert replay.traced is candidates[1 if faster else 0]


@pytest.mark.usefixtures("no_compiler")
def test_a_kernel_that_differs_or_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, inputs = half_precision_step()
    replay = compiling_module.Replay.of(plain, inputs, warn=print)
    right = needed_work._written_out

    def wrong(*given: Any) -> Tensor:
        return 1.5 * right(*given)

    def failing(*_given: Any) -> Tensor:
        raise RuntimeError("no kernel for this shape")

    for broken in (wrong, failing):
        monkeypatch.setattr(needed_work, "_written_out", broken)
        replay._compile(plain)
        assert replay._compiled is not None and len(replay._compiled) == 1
    replay.use_compiled()
    targets = [node.target for node in replay.traced.second.graph.nodes]  # type: ignore[attr-defined]
    assert needed_work._KERNELS & set(targets)
    assert operator.getitem in targets


# --- the one row that a classifier reads is computed alone

ITEMS, PLACES, WIDTH = 3, 5, 4


_PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}


def rows_of_products(part: Part, inputs: Sequence[Tensor]) -> list[int]:
    """How many rows every matrix product of a part has, in order."""
    assert isinstance(part, GraphModule)
    found = []

    class Counter(torch.fx.Interpreter):
        def call_function(self, target, args, kwargs):  # type: ignore[no-untyped-def]
            if target in _PRODUCTS:
                found.append(args[target is torch.ops.aten.addmm.default].shape[0])
            return super().call_function(target, args, kwargs)

    with torch.no_grad():
        Counter(part).run(*inputs)
    return found


def compare(plain: Traced, lean: Traced, inputs: Sequence[Tensor], rtol: float = 1e-10) -> None:
    found, wanted = (outputs(step, inputs) for step in (lean, plain))
    largest = max(float(one.abs().max()) for one in wanted)  # some bookings are rounding alone
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol * largest)


@pytest.mark.parametrize(
    "name", only("BERT", "timm ViT", of=["BERT", "RoBERTa", "ELECTRA", "timm ViT", "timm DeiT"])
)
@pytest.mark.parametrize("method", only("lrp", of=["lrp", "attnlrp"]))
def test_the_last_block_computes_one_row_of_each_item(name: str, method: str) -> None:
    plain, inputs = traced_of(name, method)
    check_last_block(plain, inputs)


def test_other_versions_of_torch_name_a_view_otherwise() -> None:
    plain, inputs = traced_of("BERT")
    views = [torch.ops.aten.alias.default, torch.ops.aten.detach.default]
    for part in (plain.first, plain.second):
        assert isinstance(part, GraphModule)
        found = [node for node in part.graph.nodes if node.target in views]
        assert found
        for node in found:
            node.target = views[views[0] is node.target]
        part.recompile()
    check_last_block(plain, inputs)


def check_last_block(plain: Traced, inputs: Sequence[Tensor]) -> None:
    """The output projection and both feed-forward layers of the last block compute one row.

    Of what is kept for the backward pass only that row is, too.
    """
    lean = with_read_rows(plain)
    compare(plain, lean, inputs)
    forward = rows_of_products(lean.first, inputs[:-1])
    needed, whole = (step.begin(*inputs[:-1]).needed for step in (lean, plain))
    assert sum(kept.numel() for kept in needed) < sum(kept.numel() for kept in whole)
    backward = rows_of_products(lean.second, [*needed, inputs[-1]])
    before = rows_of_products(plain.first, inputs[:-1])
    assert len(forward) == len(before)
    full = max(before)
    narrowed = [place for place, rows in enumerate(before) if rows == full != forward[place]]
    assert len(narrowed) == 3
    assert [forward[place] for place in narrowed] == [2, 2, 2]
    before = rows_of_products(plain.second, [*whole, inputs[-1]])
    assert backward.count(full) == before.count(full) - 3


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", only("DeiT distilled", of=["Llama", "DeiT distilled", "MPNet", "T5", "Swin"])
)
def test_other_readings_stay_right(name: str) -> None:
    """The last token, two tokens, and whatever else a classifier reads."""
    plain, inputs = traced_of(name)
    compare(plain, with_read_rows(plain), inputs, rtol=1e-6)  # some of them cast to float32


Head = Callable[[Tensor, Tensor], Tensor]


def classifier(head: Head) -> tuple[Traced, list[Tensor]]:
    """A small network whose gradient begins where `head` reads a state (ITEMS, PLACES, WIDTH)."""
    generator = torch.Generator().manual_seed(1)
    weight, more = (
        torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2)
    )

    def function(x: Tensor, seed: Tensor) -> list[Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            state = torch.nn.functional.layer_norm(x @ weight, (WIDTH,))
            state = state + torch.nn.functional.gelu(state @ more)
            logits = head(state, more)
            return [logits.detach(), torch.autograd.grad(logits, x, seed)[0]]

    x = torch.randn(ITEMS, PLACES, WIDTH, generator=generator, dtype=torch.float64)
    logits = function(x, torch.ones(head(x, more).shape, dtype=torch.float64))[0]
    inputs = [x, torch.randn(logits.shape, generator=generator, dtype=torch.float64)]
    return traced(function, inputs), inputs


HEADS: dict[str, Head] = {
    "first": lambda state, _: state[:, 0],
    "last": lambda state, _: state[:, -1],
    "mean": lambda state, _: state.mean(1),
    "first and mean": lambda state, _: state[:, 0] + state.mean(1),
    "two": lambda state, _: state[:, 0] + state[:, 1],
    "a range": lambda state, _: state[:, 1:3].sum(1),
    "norm of the first": lambda state, _: torch.nn.functional.layer_norm(state, (WIDTH,))[:, 0],
    "over positions": lambda state, _: torch.softmax(state, 1)[:, 0],
    "transposed": lambda state, more: (state.transpose(1, 2).contiguous().mT @ more)[:, 0],
    "a position of the width": lambda state, _: state.transpose(1, 2)[:, 0],
    "written into": lambda state, _: state.clone().mul_(2.0)[:, 2],
    "rows of all items": lambda state, more: (state.reshape(ITEMS * PLACES, WIDTH) @ more).view(
        ITEMS, PLACES, WIDTH
    )[:, 3],
    "positions as features": lambda state, _: state.reshape(ITEMS, PLACES * WIDTH)[:, :WIDTH],
    "another item": lambda state, _: state.flip(0)[:, 0] * state[:, 0],
}


@pytest.mark.parametrize("head", HEADS)
def test_whatever_the_classifier_reads(head: str) -> None:
    plain, inputs = classifier(HEADS[head])
    lean = with_read_rows(plain)
    compare(plain, lean, inputs)
    other = [torch.flip(inputs[0], (0,)) * 1.5, -inputs[1]]
    compare(plain, lean, other)
