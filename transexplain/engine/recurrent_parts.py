"""LSTM and GRU layers written out step by step, in operators that a mode sees.

So a cell has no rule of its own: its gates are sigmoids and let through what they are multiplied
with (signal takes all, Arras et al. 2017 and 2019), the products of weights and the sum of the
cell's state share by value, tanh is a function of one carrier.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from transexplain.errors import EngineError

#: of one direction of one layer: for the input, for the state, their biases, a projection
Weights = Sequence[Tensor]
#: one step: what the input gives to the gates, the states (B, ...), the weights -> states
Cell = Callable[[Tensor, Sequence[Tensor], Weights], Sequence[Tensor]]


def lstm(
    input: Tensor, hx: Sequence[Tensor], params: Weights, bias: Any, *settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """`torch.lstm`: (T, B, D) -> outputs (T, B, H), and the last states (layers, B, H).

    Raises:
        EngineError: packed sequences, or active dropout.
    """
    out, states = _layers(_lstm_cell, input, hx, params, bias, settings)
    return (out, states[0], states[1])


def gru(
    input: Tensor, hx: Tensor, params: Weights, bias: Any, *settings: Any
) -> tuple[Tensor, Tensor]:
    """`torch.gru`: (T, B, D) -> outputs (T, B, H), and the last state (layers, B, H).

    Raises:
        EngineError: packed sequences, or active dropout.
    """
    out, states = _layers(_gru_cell, input, [hx], params, bias, settings)
    return out, states[0]


def _layers(
    cell: Cell,
    x: Tensor,
    initial: Sequence[Tensor],
    params: Any,
    bias: Any,
    settings: tuple[Any, ...],
) -> tuple[Tensor, list[Tensor]]:
    if not isinstance(bias, bool):
        raise EngineError(
            "packed sequences have no rule: give a recurrent layer its texts unpacked, padded at "
            "the end"
        )
    layers, dropout, training, both_ways, batch_first = settings
    if dropout and training:
        raise EngineError("dropout is active: put the model in evaluation mode (model.eval())")
    steps = 1 if batch_first else 0
    ways = 2 if both_ways else 1
    size = len(params) // (layers * ways)
    last: list[Sequence[Tensor]] = []
    for layer in range(layers):
        outputs = []
        for way in range(layer * ways, (layer + 1) * ways):
            states = [one[way] for one in initial]
            weights = params[way * size : (way + 1) * size]
            one, ends = _one_way(cell, x, states, weights, bias, steps, bool(way % ways))
            outputs.append(one)
            last.append(ends)
        x = torch.cat(outputs, dim=-1) if both_ways else outputs[0]
    return x, [torch.stack(ends) for ends in zip(*last, strict=True)]


def _one_way(
    cell: Cell,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Weights,
    bias: bool,
    steps: int,
    backwards: bool,
) -> tuple[Tensor, Sequence[Tensor]]:
    """One direction of one layer; `steps` is the axis of time."""
    given = F.linear(x, weights[0], weights[2] if bias else None).unbind(steps)
    of_state = [weights[1], weights[3] if bias else None, *weights[4 if bias else 2 :]]
    found = []
    for one in reversed(given) if backwards else given:
        states = cell(one, states, of_state)  # type: ignore[arg-type]
        found.append(states[0])
    return torch.stack(found[::-1] if backwards else found, dim=steps), states


def _lstm_cell(given: Tensor, states: Sequence[Tensor], weights: Weights) -> Sequence[Tensor]:
    hidden, cell = states
    gates = given + F.linear(hidden, weights[0], weights[1])
    enter, forget, signal, leave = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(signal)
    hidden = torch.sigmoid(leave) * torch.tanh(cell)
    if len(weights) > 2:  # a projection of what leaves
        hidden = F.linear(hidden, weights[2])
    return hidden, cell


def _gru_cell(given: Tensor, states: Sequence[Tensor], weights: Weights) -> Sequence[Tensor]:
    (hidden,) = states
    of_input = given.chunk(3, dim=-1)
    of_state = F.linear(hidden, weights[0], weights[1]).chunk(3, dim=-1)
    reset = torch.sigmoid(of_input[0] + of_state[0])
    update = of_input[1] + of_state[1]
    signal = torch.tanh(of_input[2] + reset * of_state[2])
    # 1 - sigmoid(u) is sigmoid(-u), a gate
    return (torch.sigmoid(-update) * signal + torch.sigmoid(update) * hidden,)
