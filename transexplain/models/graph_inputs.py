"""The inputs of one graph: read from an item, checked, cut and changed.

Everything here works on `{name: tensor}` without a batch dimension, on the CPU. Dimension letters:
T nodes, F features of a node, H heads.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transexplain.errors import ItemError
from transexplain.types.graphs import FEATURES, NAMES, is_reserved, numbered

MASK, BIAS = "attention_mask", "attention_bias"


def read_graph(content: Any, main: str, takes: Callable[[str], bool]) -> dict[str, Tensor]:
    """The tensors of an item `{main: (T, F), ...}`, with nodes that its mask hides cut off.

    Args:
        content: mapping of numpy arrays, tensors or nested lists: `main` and further inputs of the
            model, one row for each node (T, ...), or one entry for each pair (..., T, T) or
            (T, T, ...). `attention_mask` (T,) is of ones, zeros only at the end. What a graph holds
            beside its inputs (`types.graphs.RESERVED`) is left out, and `node_features` may stand
            for `main`.
        main: name of the input that holds the features of the nodes.
        takes: whether the model has an input of a name.

    Raises ItemError `null`, `wrong-type`, `bad-input` or `empty-graph`.
    """
    if content is None:
        raise ItemError("null", "the graph is null")
    if not isinstance(content, Mapping):
        raise ItemError(
            "wrong-type",
            f"a model of nodes takes {{'{main}': (T, F), ...}}, not {type(content).__name__}",
        )
    given = {str(name): value for name, value in content.items() if not is_reserved(str(name))}
    if main not in given and FEATURES in given and not takes(FEATURES):
        given[main] = given.pop(FEATURES)
    if main not in given:
        listing = ", ".join(given) or "nothing"
        raise ItemError("bad-input", f"a graph needs {main!r} of shape (T, F); given: {listing}")
    for name in given:
        if not takes(name) and name != MASK:
            raise ItemError("bad-input", f"the model takes no input {name!r}")
    features = _features(main, given.pop(main))
    nodes = features.shape[0]
    others = {name: _other(name, value, nodes) for name, value in given.items()}
    return _unpadded({main: features, **others}, main)


def names_of(content: Mapping[str, Any], nodes: int) -> list[str]:
    """The names of the nodes: `node_names` (T,) of the item, or numbers."""
    names = content.get(NAMES)
    if names is None:
        return [numbered(number) for number in range(nodes)]
    inputs = [str(name) for name in names]
    if isinstance(names, str) or len(inputs) < nodes:
        raise ItemError("bad-input", f"{NAMES} must be {nodes} names, one for each node")
    return inputs[:nodes]


def first_nodes(inputs: Mapping[str, Tensor], main: str, count: int) -> dict[str, Tensor]:
    """The graph of the first `count` nodes."""
    return kept_nodes(inputs, main, torch.arange(count))


def kept_nodes(inputs: Mapping[str, Tensor], main: str, kept: Tensor) -> dict[str, Tensor]:
    """The graph of the nodes `kept` (K,); what is known of them and their pairs stays as it was."""
    nodes = inputs[main].shape[0]
    cut = {}
    for name, values in inputs.items():
        for axis in (0,) if name == main else _axes(values, nodes):
            values = values.index_select(axis, kept)  # noqa: PLW2901 - one axis after the other
        cut[name] = values
    return cut


def inputs_in(content: Mapping[str, Any]) -> dict[str, Tensor]:
    """What a graph holds for the model, unchecked; see `types.graphs.RESERVED` for the rest."""
    return {name: _tensor(name, value) for name, value in content.items() if not is_reserved(name)}


def changed(inputs: Mapping[str, Tensor], main: str) -> dict[str, Tensor]:
    """A graph of the same shape whose nodes have other features."""
    return {**inputs, main: 0.5 - inputs[main].flip(0)}


def _features(main: str, value: Any) -> Tensor:
    features = _tensor(main, value)
    if features.ndim != 2:
        raise ItemError("bad-input", f"{main} has shape {tuple(features.shape)}; expected (T, F)")
    if features.shape[0] == 0:
        raise ItemError("empty-graph", f"{main} has no nodes: its shape is (0, F)")
    if features.shape[1] == 0:
        raise ItemError("bad-input", f"{main} has no features: its shape is (T, 0)")
    # relevance is measured at real numbers; 0 and 1 may come as integers
    features = features if features.is_floating_point() else features.double()
    if not bool(torch.isfinite(features).all()):
        raise ItemError("bad-input", f"{main} holds NaN or infinity")
    return features


def _other(name: str, value: Any, nodes: int) -> Tensor:
    tensor = _tensor(name, value)
    shape = tuple(tensor.shape)
    if tensor.is_floating_point() and bool((tensor.isnan() | (tensor == torch.inf)).any()):
        raise ItemError("bad-input", f"{name} holds NaN or positive infinity")
    if name == BIAS and (tensor.ndim not in (2, 3) or shape[-2:] != (nodes, nodes)):
        raise ItemError(
            "bad-input",
            f"{name} has shape {shape}; expected (T, T) or (H, T, T) with T = {nodes} nodes",
        )
    if not _axes(tensor, nodes):
        raise ItemError(
            "bad-input",
            f"{name} has shape {shape}; expected one row for each of {nodes} nodes, (T, ...), or "
            "one entry for each pair of nodes, (..., T, T) or (T, T, ...)",
        )
    return tensor


def _tensor(name: str, value: Any) -> Tensor:
    try:
        # a copy: lists in full precision, and nothing that its owner may change or has locked
        given = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
        tensor = given.detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ItemError("bad-input", f"{name} is not an array of numbers: {error}") from error
    if tensor.is_complex():
        raise ItemError("bad-input", f"{name} holds complex numbers")
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        return tensor
    return tensor.long()


def _axes(tensor: Tensor, nodes: int) -> tuple[int, ...]:
    """The axes that run over nodes: of pairs where two lie together, else the first."""
    shape = tuple(tensor.shape)
    if len(shape) >= 2 and shape[-2:] == (nodes, nodes):
        return (len(shape) - 2, len(shape) - 1)
    if len(shape) >= 2 and shape[:2] == (nodes, nodes):
        return (0, 1)
    return (0,) if shape[:1] == (nodes,) else ()


def _unpadded(inputs: dict[str, Tensor], main: str) -> dict[str, Tensor]:
    mask = inputs.get(MASK)
    if mask is None or mask.ndim != 1:  # a mask of pairs is an input like any other
        return inputs
    count = int(mask.ne(0).sum())
    if count == 0:
        raise ItemError("empty-graph", f"{MASK} hides every node")
    if not bool(mask[:count].ne(0).all()):
        raise ItemError("bad-input", f"{MASK} hides nodes before the last; pad at the end only")
    return first_nodes(inputs, main, count)
