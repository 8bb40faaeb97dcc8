"""Which axis counts the items, against brute force: what changes when one item changes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from toy_networks import close, inputs, run

from transexplain.engine.composites import composite
from transexplain.engine.item_axis import per_item, spread
from transexplain.engine.propagate import propagate
from transexplain.engine.tensor_record import ItemAxis, recorded
from transexplain.errors import EngineError

Function = Callable[[Tensor], Tensor]


def heads_behind(x: Tensor) -> Tensor:
    """(B, T, D) -> (B H, T, D / H), as XLM's and Fairseq's attention."""
    return x.view(len(x), 4, 3, 4).transpose(1, 2).reshape(-1, 4, 4)


def windows(x: Tensor) -> Tensor:
    """(B, H W, C) -> (B nH nW, h w, C), as Swin."""
    picture = x.view(len(x), 2, 2, 4, 3)  # B, H, W, C in two by two windows of one channel group
    cut = picture.view(len(x), 1, 2, 2, 1, 12).permute(0, 1, 3, 2, 4, 5)
    return cut.reshape(-1, 2, 12)


def back(x: Tensor) -> Tensor:
    return windows(x).view(len(x), 2, 2, 12).transpose(1, 2).reshape(len(x), 4, 12)


def rotated_whole(x: Tensor) -> Tensor:
    """Heads that are rotated whole, and joined with the nothing that is not (Phi-3)."""
    heads = x.view(len(x), 4, 3, 4).transpose(1, 2)
    return torch.cat([heads[..., :4] * 2.0, heads[..., 4:]], dim=-1).transpose(1, 2)


MOVES: dict[str, Function] = {
    "as it is": lambda x: x * 2.0,
    "(T, B, D)": lambda x: x.transpose(0, 1).contiguous() + 1.0,
    "(T, D, B)": lambda x: x.permute(1, 2, 0).relu(),
    "rows of positions": lambda x: x.reshape(-1, 12) @ inputs(12, 5),
    "rows, positions first": lambda x: F.linear(x.transpose(0, 1).reshape(-1, 12), inputs(5, 12)),
    "back from rows": lambda x: x.reshape(-1, 12).tanh().view(x.shape),
    "heads": lambda x: x.unflatten(-1, (3, 4)).permute(0, 2, 1, 3),
    "heads behind the item": heads_behind,
    # (H B, T, D / H): item i stands H times, B apart
    "heads before": lambda x: x.view(-1, 4, 3, 4).permute(2, 0, 1, 3).reshape(-1, 4, 4),
    # (B H, T, D / H) of a sequence first, as `nn.MultiheadAttention`
    "sequence first": lambda x: x.transpose(0, 1).reshape(4, -1, 4).transpose(0, 1),
    "scores of heads": lambda x: torch.bmm(heads_behind(x), heads_behind(x).transpose(1, 2)),
    "windows": windows,
    "back from windows": back,
    "shifted windows": lambda x: windows(x.roll(1, 1)),
    # (h w, B n, C): attention across a grid, as MaxViT and BigBird
    "grid": lambda x: x.view(-1, 2, 2, 12).permute(2, 0, 1, 3).reshape(2, -1, 12),
    "an empty part": rotated_whole,
    "einsum to the front": lambda x: torch.einsum("btd,de->tbe", x, inputs(12, 5)),
    "einsum to the end": lambda x: torch.einsum("btd,sd->tsb", x, inputs(7, 12)),
    "einsum of two": lambda x: torch.einsum("ibd,jbd->bij", x.transpose(0, 1), x.transpose(0, 1)),
    "einsum with dots": lambda x: torch.einsum("...d,de->...e", x, inputs(12, 5)),
    "einsum with spaces": lambda x: torch.einsum("b t d -> t d b", x),
    "stack in front": lambda x: torch.stack([x, x * 2.0], dim=0),
    "stack behind": lambda x: torch.stack((x, x), -1),
    "stack in the middle": lambda x: torch.stack([x.transpose(0, 1)] * 2, 1),
    "cat along items": lambda x: torch.cat([x, x.flip(1)], dim=0),
    "cat with constants": lambda x: torch.cat([inputs(1, 1, 12).expand(len(x), -1, -1), x], 1),
    "sum over positions": lambda x: x.transpose(0, 1).sum(0),
    "mean keeps axes": lambda x: x.transpose(0, 1).mean(0, keepdim=True),
    "sum over two axes": lambda x: x.view(len(x), 4, 3, 4).permute(1, 0, 2, 3).sum((0, -1)),
    "largest": lambda x: x.transpose(0, 1).max(dim=0).values,
    "largest of rows": lambda x: x.permute(2, 0, 1).amax(0),
    "norm": lambda x: x.transpose(0, 1).norm(dim=-1),
    "rows chosen": lambda x: x[:, [2, 0]],
    "rows chosen by a tensor": lambda x: x[:, torch.tensor([3, 0, 2])],
    "rows of a mask": lambda x: x[torch.arange(len(x) * 4).view(-1, 4) % 3 == 0],
    "one position": lambda x: x.transpose(0, 1)[1],
    "new axes": lambda x: x[None, :, None],
    "gathered": lambda x: x.gather(1, torch.tensor([[[1], [3]]]).expand(len(x), 2, 12)),
    "chosen by index_select": lambda x: x.transpose(0, 1).index_select(0, torch.tensor([2, 2])),
    "pieces": lambda x: x.transpose(0, 1).chunk(2, -1)[1],
    "positions apart": lambda x: x.unbind(1)[2],
    "expanded in front": lambda x: x.expand(2, *x.shape),
    "repeated by item": lambda x: x.repeat_interleave(3, dim=0),
    "repeated whole": lambda x: x.repeat(3, 1, 1),
    "sliding windows": lambda x: x.transpose(0, 1).unfold(0, 2, 1),
    "strided chunks": lambda x: x.contiguous().as_strided((len(x), 3, 2, 12), (48, 12, 12, 1)),
    "squeezed": lambda x: x[:, :1].transpose(0, 1).squeeze(0),
    "convolution": lambda x: F.conv1d(x, inputs(3, 4, 3)).movedim(0, 1),
    "unfolded picture": lambda x: F.unfold(x.view(-1, 3, 4, 4), 2),
    "folded picture": lambda x: F.fold(x.reshape(-1, 12, 4), (3, 3), 2),
    "product with a matrix in front": lambda x: torch.matmul(inputs(5, 4), x),
    "product of position mixing": lambda x: inputs(5, 4) @ x.transpose(0, 1).transpose(0, 1),
    "bias of positions": lambda x: x.transpose(0, 1) + inputs(4, 1, 12),
}


def followed(function: Function, x: Tensor) -> tuple[Tensor, ItemAxis | None]:
    """What `function` gives under the engine, and the axis that it records for the items."""
    seen: list[Tensor] = []

    def forward(taps):
        h = taps.input_layer(x)
        seen.append(function(h))
        return h.flatten(1)

    propagate(forward, composite("lrp"), items=len(x))
    return seen[0].detach(), recorded(seen[0]).axis


def owners(function: Function, x: Tensor) -> Tensor:
    """(B, *out) whether an element changes when an item does; no element has two owners."""
    before = function(x)
    changed = []
    for index in range(len(x)):
        other = x.clone()
        other[index] = inputs(*x.shape[1:], seed=50 + index)
        changed.append(function(other) != before)
    owned = torch.stack(changed)
    assert int(owned.sum(0).max()) == 1
    return owned


@pytest.mark.parametrize("name", MOVES)
def test_sums_per_item(name: str, subtests: pytest.Subtests) -> None:
    """Twelve is also the hidden size, four the length and three the heads."""
    for items in (2, 3, 4, 12):
        with subtests.test(items=items):
            check_sums(name, items)


def check_sums(name: str, items: int) -> None:
    x = inputs(items, 4, 12)
    out, axis = followed(MOVES[name], x)
    owned = owners(MOVES[name], x)
    values = inputs(*out.shape, seed=9) * owned.any(0)
    expected = torch.stack([(values * of_item).sum() for of_item in owned])
    torch.testing.assert_close(per_item(values, axis, items), expected)
    largest = torch.stack([(values.abs() * of_item).max() for of_item in owned])
    torch.testing.assert_close(per_item(values.abs(), axis, items, largest=True), largest)
    numbers = torch.arange(items).double()
    given = spread(numbers, out, axis, items).expand(out.shape)
    for index, of_item in enumerate(owned):
        assert set(given[of_item].tolist()) == {float(index)}


#: functions in which the axis of the items is lost
LOST: dict[str, Function] = {
    "sum over everything": lambda x: x.sum(),
    "sum over items": lambda x: x.sum(0),
    "pairs of items": lambda x: torch.inner(x, x),
}


@pytest.mark.parametrize("name", LOST)
def test_a_lost_axis_is_refused_when_it_is_needed(name: str) -> None:
    out, axis = followed(LOST[name], inputs(3, 4, 12))
    with pytest.raises(EngineError, match=r"which axis counts the items.*batch_tokens=1"):
        per_item(out, axis, 3)


def test_one_item_needs_no_axis() -> None:
    values = inputs(4, 5)
    torch.testing.assert_close(per_item(values, None, 1), values.sum()[None])
    assert spread(torch.ones(1), values, None, 1).shape == (1, 1)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        (name, ("gradient-x-input", "lrp", "attnlrp")[number % 3])
        for number, name in enumerate(MOVES)
        if name != "norm"
    ],
)
def test_constants_are_booked_for_their_item(name: str, method: str) -> None:
    """A constant added where the item axis has moved to: every item's ledger closes by itself."""
    x = inputs(3, 4, 12)
    owned = owners(MOVES[name], x).double()

    def model(h: Tensor) -> Tensor:
        hidden = MOVES[name](h)
        hidden = F.gelu(hidden + inputs(*hidden.shape, seed=4))
        by_item = [(hidden * mask).flatten() @ inputs(hidden.numel(), 2, seed=6) for mask in owned]
        return torch.stack(by_item)

    passes = run(model, x, method)
    seed = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, -2.0]]).double()
    for ledger in close(passes, passes.relevance(seed), seed):
        assert ledger.relative_gap < 1e-12


@pytest.mark.parametrize("method", ["gradient-x-input", "lrp"])
def test_a_vector_along_the_item_axis(method: str) -> None:
    """One constant per item, added where items lie last."""
    x, head = inputs(3, 4, 12), inputs(48, 2, seed=6)

    def model(h: Tensor) -> Tensor:
        moved = h.permute(1, 2, 0) + inputs(3, seed=4)
        return moved.permute(2, 0, 1).flatten(1) @ head

    passes = run(model, x, method)
    seed = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, -2.0]]).double()
    for index, ledger in enumerate(close(passes, passes.relevance(seed), seed)):
        expected = inputs(3, seed=4)[index] * (head @ seed[index]).sum()
        assert ledger.biases == pytest.approx(float(expected))
        assert ledger.relative_gap < 1e-12
