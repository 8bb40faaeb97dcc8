"""The one row that a classifier reads is computed alone, and the numbers stay."""

from collections.abc import Callable, Sequence

import pytest
import torch
from architectures_measured import step_for
from everyday import only
from torch import Tensor
from torch.fx import GraphModule

from transexplain.engine.needed_work import with_read_rows
from transexplain.engine.traced import Part, Traced, traced

_PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}


def traced_of(name: str, method: str = "lrp") -> tuple[Traced, list[Tensor]]:
    """The trace of two items, and its inputs."""
    step = step_for(name, method)
    generator = torch.Generator().manual_seed(5)
    seed = torch.randn(step.shape, generator=generator, dtype=torch.float64)
    return step.traced().traced, [*step.given, seed]


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
    found, wanted = (one.begin(*inputs[:-1]).end(inputs[-1]) for one in (lean, plain))
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
    renamed = 0
    for part in (plain.first, plain.second):
        assert isinstance(part, GraphModule)
        for node in part.graph.nodes:
            views = [torch.ops.aten.alias.default, torch.ops.aten.detach.default]
            if node.target in views:
                node.target = views[views[0] is node.target]
                renamed += 1
        part.recompile()
    assert renamed > 10
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
B, T, D = 3, 5, 4


def classifier(head: Head) -> tuple[Traced, list[Tensor]]:
    """A small network whose gradient begins where `head` reads a state (B, T, D)."""
    generator = torch.Generator().manual_seed(1)
    weight, more = (torch.randn(D, D, generator=generator, dtype=torch.float64) for _ in range(2))

    def function(x: Tensor, seed: Tensor) -> list[Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            state = torch.nn.functional.layer_norm(x @ weight, (D,))
            state = state + torch.nn.functional.gelu(state @ more)
            logits = head(state, more)
            return [logits.detach(), torch.autograd.grad(logits, x, seed)[0]]

    x = torch.randn(B, T, D, generator=generator, dtype=torch.float64)
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
    "norm of the first": lambda state, _: torch.nn.functional.layer_norm(state, (D,))[:, 0],
    "over positions": lambda state, _: torch.softmax(state, 1)[:, 0],
    "transposed": lambda state, more: (state.transpose(1, 2).contiguous().mT @ more)[:, 0],
    "a position of the width": lambda state, _: state.transpose(1, 2)[:, 0],
    "written into": lambda state, _: state.clone().mul_(2.0)[:, 2],
    "rows of all items": lambda state, more: (state.reshape(B * T, D) @ more).view(B, T, D)[:, 3],
    "positions as features": lambda state, _: state.reshape(B, T * D)[:, :D],
    "another item": lambda state, _: state.flip(0)[:, 0] * state[:, 0],
}


@pytest.mark.parametrize("head", HEADS)
def test_whatever_the_classifier_reads(head: str) -> None:
    plain, inputs = classifier(HEADS[head])
    lean = with_read_rows(plain)
    compare(plain, lean, inputs)
    other = [torch.flip(inputs[0], (0,)) * 1.5, -inputs[1]]
    compare(plain, lean, other)
