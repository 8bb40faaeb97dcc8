"""Shapes that hang on values: which a trace may hold, and which it knows beforehand."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from transexplain.engine.traced import Traced, UntraceableError, traced

Function = Callable[..., Sequence[Tensor]]


def operators(found: Traced) -> list[str]:
    parts = (found.first, found.second)
    graphs = [part.graph for part in parts if isinstance(part, torch.fx.GraphModule)]
    return [str(node.target) for graph in graphs for node in graph.nodes]


def replayed(found: Traced, *inputs: Tensor) -> Tensor | None:
    if not found.applies(*inputs):
        return None
    (out,) = found.begin(*inputs).end(torch.ones(4))
    return out


def test_places_of_constants_are_settled() -> None:
    def function(x: Tensor, seed: Tensor) -> list[Tensor]:
        ones = torch.zeros(4).scatter_(0, torch.arange(1, 4, 2), 1.0)  # written in place
        (rows,) = torch.where(ones > 0)
        return [torch.zeros(4).index_add_(0, rows, x[rows]) * seed]

    found = traced(function, [torch.arange(4.0), torch.ones(4)])
    assert not any("nonzero" in one for one in operators(found))
    out = replayed(found, torch.tensor([5.0, 6.0, 7.0, 8.0]))
    assert out is not None
    assert out.tolist() == [0.0, 6.0, 0.0, 8.0]


def test_what_inputs_write_into_is_not_settled() -> None:
    def function(x: Tensor, seed: Tensor) -> list[Tensor]:
        places = torch.zeros(4, dtype=torch.long)
        view = places[:]
        places.add_(x)
        return [view.nonzero().sum() * seed]

    found = traced(function, [torch.tensor([0, 1, 0, 1]), torch.ones(4)])
    assert any("nonzero" in one for one in operators(found))
    out = replayed(found, torch.tensor([1, 1, 0, 0]))
    assert out is None or out.tolist() == [1.0] * 4


def test_a_mask_in_floats_is_no_computed_number() -> None:
    def function(mask: Tensor, seed: Tensor) -> list[Tensor]:
        added = torch.where(mask > 0, 0.0, -1.0)
        return [(added < 0).nonzero().sum() * seed]

    found = traced(function, [torch.tensor([0, 1, 0, 1]), torch.ones(4)])
    out = replayed(found, torch.tensor([0, 7, 0, 7]))
    assert out is not None
    assert out.tolist() == [2.0] * 4
    assert replayed(found, torch.tensor([0, 1, 1, 1])) is None


@pytest.mark.parametrize("numbers", ["weights", "pixels"])
def test_shapes_of_computed_numbers_are_refused(numbers: str) -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, -1.0, 1.0, -1.0]))

    def function(given: Tensor, seed: Tensor) -> list[Tensor]:
        scores = given * weight.detach() if numbers == "weights" else given.float() * 2.0
        return [(scores > 0).nonzero().sum() * seed]

    given = torch.ones(4, dtype=torch.long if numbers == "weights" else torch.float32)
    with pytest.raises(UntraceableError, match="how large a tensor is depends on numbers"):
        traced(function, [given, torch.ones(4)])
