"""Choose where relevance is measured: the first repeated layers whose input is all they read."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transexplain.errors import EngineError, ModelLoadError
from transexplain.models.call import Caller, logits_of
from transexplain.models.leaves import Layout, Sites, find_blocks, tapped
from transexplain.models.probe import infer_grid, input_of
from transexplain.types import PatchGrid

#: what a forward pass raises on inputs it does not take
FORWARD_ERRORS = (TypeError, ValueError, RuntimeError, IndexError, AssertionError)
#: share of the difference between two items that may reach the logits beside the input layer
_BESIDE = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """A module and the inputs of two items that differ: (B, ...) each, of one shape."""

    module: nn.Module
    caller: Caller
    inputs: dict[str, Tensor]
    others: dict[str, Tensor]

    def run(self) -> Tensor:
        """Logits (B, C) of the inputs; raises what the model raises."""
        return logits_of(self.module, self.caller, self.inputs)

    def input_layer(self, sites: Sites, at: str) -> Tensor | None:
        """The tensor at `at`; None where the forward pass does not reach it."""
        try:
            return input_of(self.module, self.caller, sites, self.inputs, at)
        except EngineError:
            return None

    def is_cut(self, sites: Sites, at: str) -> bool:
        """Whether the logits follow from the input layer alone.

        An item that gets the input layer of another one must get its logits too; else relevance
        flows past the input layer (layers whose residual path is outside of them, a second branch)
        and what is measured there is not the item's. Where the two items have the same logits
        nothing can be said, and the input layer counts as a cut.
        """
        taken, given = _Exchange(), _Exchange()
        with torch.no_grad():
            first = self.run()
            second = tapped(self.module, self.caller, sites, self.others, at=at, taps=taken)
            given.instead = taken.seen
            swapped = tapped(self.module, self.caller, sites, self.inputs, at=at, taps=given)
        apart = (first - second).abs().max()
        return bool((swapped - second).abs().max() <= _BESIDE * apart) or not bool(apart)


class _Exchange:
    """Taps that keep the input layer, or put another one in its place."""

    def __init__(self) -> None:
        self.seen: Tensor | None = None
        self.instead: Tensor | None = None

    def input_layer(self, tensor: Tensor) -> Tensor:
        self.seen = tensor.detach().clone()
        return tensor if self.instead is None else self.instead

    def encoder_begins(self) -> None:
        return None


def image_sites(
    module: nn.Module, caller: Caller, pictures: Tensor, shape: tuple[int, int, int]
) -> tuple[Sites, PatchGrid]:
    """The input layer of an image model and its grid; pixels where no layer has patches.

    `pictures` (5, 3, H, W) are the probing pictures, `shape` is (3, H, W).
    """
    # the second picture is noise all over, and its mirror image differs from it everywhere
    noise = pictures[1:2]
    cut = Probe(
        module=module,
        caller=caller,
        inputs={caller.main: noise},
        others={caller.main: noise.flip(-1)},
    )
    every = replace(cut, inputs={caller.main: pictures})
    for sites in sites_of_blocks(module):
        input_layer = every.input_layer(sites, "encoder")
        if input_layer is None:
            continue
        try:
            grid, layout = infer_grid(input_layer, shape)
        except ModelLoadError:
            continue
        found = replace(sites, layout=layout)
        if cut.is_cut(found, "encoder"):
            return found, grid
    return Sites(block=None), PatchGrid(
        rows=shape[1], cols=shape[2], height=shape[1], width=shape[2]
    )


def text_sites(
    module: nn.Module,
    caller: Caller,
    embeddings: tuple[nn.Module, ...],
    inputs: dict[str, Tensor],
) -> Sites | None:
    """The input layers of a text model over `inputs` (B, T), T > B; None: neither holds tokens.

    The input layer `encoder` is at the first layer list that reads one vector per token and nothing
    else of the item; it is left out where only the word embedding is that. Where neither is a cut
    (a decoder that reads the tokens a second time) the first layer list stays.
    """
    probe = Probe(module=module, caller=caller, inputs=inputs, others=_reordered(caller, inputs))
    words: Layout | None = None
    if embeddings:
        words = _layout(probe, Sites(block=None, embeddings=embeddings), "words")
    with_words = Sites(
        block=None,
        embeddings=embeddings if words else (),
        words_layout=words or "sequence",
    )
    fitting = []
    for sites in sites_of_blocks(module):
        layout = _layout(probe, sites, "encoder")
        if layout is None:
            continue
        found = replace(with_words, block=sites.block, block_name=sites.block_name, layout=layout)
        if probe.is_cut(found, "encoder"):
            return found
        fitting.append(found)
    if words and (not fitting or probe.is_cut(with_words, "words")):
        return with_words
    return fitting[0] if fitting else None


def first_sites(module: nn.Module, embeddings: tuple[nn.Module, ...]) -> Sites:
    """The most likely input layers, for a module that cannot be run yet."""
    return next(sites_of_blocks(module, embeddings), Sites(block=None, embeddings=embeddings))


def sites_of_blocks(module: nn.Module, embeddings: tuple[nn.Module, ...] = ()) -> Iterator[Sites]:
    """A candidate for each repeated layer list, most likely first."""
    for name, block in find_blocks(module):
        yield Sites(block=block, block_name=name, embeddings=embeddings)


def _reordered(caller: Caller, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same ids with all but the first and the last turned round: another text."""
    ids = inputs[caller.main]
    inner = ids[:, 1:-1].flip(1)
    return {**inputs, caller.main: torch.cat([ids[:, :1], inner, ids[:, -1:]], dim=1)}


def _layout(probe: Probe, sites: Sites, at: str) -> Layout | None:
    input_layer = probe.input_layer(sites, at)
    if input_layer is None or input_layer.ndim != 3:
        return None
    batch, positions = probe.inputs[probe.caller.main].shape
    shapes: dict[tuple[int, int], Layout] = {
        (positions, batch): "positions_first",
        (batch, positions): "sequence",  # last: it wins where both are the same
    }
    return shapes.get((input_layer.shape[0], input_layer.shape[1]))
