"""Hides nodes of a graph in three ways: removed, with the other nodes' mean features, with none.

Dimension letters: T nodes, F features of a node.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from transexplain.models.graph_inputs import inputs_in, kept_nodes
from transexplain.types.graphs import FEATURES

Inputs = dict[str, torch.Tensor]
Inside = torch.Tensor  #: (T,) which nodes are hidden


def removed(inputs: Inputs, inside: Inside) -> Inputs:
    """The graph without the nodes; the others stay as far apart as they were."""
    return kept_nodes(inputs, FEATURES, torch.nonzero(~inside)[:, 0])


def averaged(inputs: Inputs, inside: Inside) -> Inputs:
    """The nodes with the mean features of the others."""
    features = inputs[FEATURES].clone()
    features[inside] = features[~inside].mean(dim=0)
    return {**inputs, FEATURES: features}


def emptied(inputs: Inputs, inside: Inside) -> Inputs:
    """The nodes with features of 0."""
    features = inputs[FEATURES].clone()
    features[inside] = 0.0
    return {**inputs, FEATURES: features}


#: in the order in which observations hold what was answered
NODE_WAYS: tuple[Callable[[Inputs, Inside], Inputs], ...] = (removed, averaged, emptied)


def without_nodes(graph: Mapping[str, Any], nodes: Iterable[int]) -> Iterator[Inputs]:
    """The graph with the nodes hidden, in each of `NODE_WAYS`."""
    inputs = inputs_in(graph)
    features = inputs[FEATURES]
    # 0 and 1 may come as integers, which have no mean
    inputs[FEATURES] = features if features.is_floating_point() else features.double()
    inside = torch.zeros(len(features), dtype=torch.bool)
    inside[list(nodes)] = True
    return (hide(inputs, inside) for hide in NODE_WAYS)


def leaves_nodes(graph: Mapping[str, Any], nodes: Iterable[int]) -> bool:
    """Whether nodes are named, and others remain."""
    return 0 < len(set(nodes)) < len(np.asarray(graph[FEATURES]))
