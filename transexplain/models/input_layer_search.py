"""Searches for the input layer: the first repeated layers that read nothing but their input."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transexplain.errors import EngineError, ModelLoadError
from transexplain.models.calling import Caller, logits_of
from transexplain.models.input_layer import Layout, Sites, find_blocks, tapped
from transexplain.types.items import PatchGrid

#: a position reacts when it moves by more than this share of the most moved one
_REACTS = 1e-4
_PLAIN, _NOISE, _TOP_LEFT, _TOP_RIGHT, _BOTTOM_LEFT = range(5)


class _ReachedError(Exception):
    """Ends a forward pass at the input layer: nothing after it is needed."""


class _Stop:
    """Taps that keep the input layer and end the forward pass there."""

    kept: Tensor
    gradients = True  #: whether they were on there

    def input_layer(self, tensor: Tensor) -> Tensor:
        self.kept, self.gradients = tensor.detach(), torch.is_grad_enabled()
        raise _ReachedError

    def encoder_begins(self) -> None:
        return None


def input_of(
    module: nn.Module,
    caller: Caller,
    sites: Sites,
    inputs: dict[str, Tensor],
    at: str = "encoder",
) -> Tensor:
    """The tensor at the input layer `at` for `inputs`; EngineError where it is never reached."""
    taps = _Stop()
    try:
        with torch.no_grad():
            tapped(module, caller, sites, inputs, at=at, taps=taps)
    except _ReachedError:
        pass
    return taps.kept


def is_inside_function(
    module: nn.Module, caller: Caller, sites: Sites, inputs: dict[str, Tensor]
) -> bool:
    """Whether the input layer `encoder` is inside an autograd function, where gradients are off.

    Nothing can be measured there: what such a function gives would depend on no input.
    """
    taps = _Stop()
    try:
        with torch.enable_grad():
            tapped(module, caller, sites, inputs, at="encoder", taps=taps)
    except _ReachedError:
        pass
    return not taps.gradients


def probing_pictures(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """(5, 3, H, W): a plain picture, noise all over, and one pixel set in three corners."""
    pictures = torch.zeros(5, *shape)
    generator = torch.Generator().manual_seed(0)  # the user's own random state stays untouched
    pictures[_NOISE] = torch.randn(shape, generator=generator) * 3
    pictures[_TOP_LEFT, :, 0, 0] = 3.0
    pictures[_TOP_RIGHT, :, 0, -1] = 3.0
    pictures[_BOTTOM_LEFT, :, -1, 0] = 3.0
    return pictures.to(device, dtype)


def infer_grid(input_layer: Tensor, shape: tuple[int, int, int]) -> tuple[PatchGrid, Layout]:
    """Patch grid and layout from the input layer of the five probing pictures.

    Positions that never react to a pixel are the prefix; where the corners show gives rows and
    columns. `input_layer` is (5, T, D), (5, rows, cols, D) or (5, D, rows, cols). Raises
    ModelLoadError with what was seen.
    """
    moved = (input_layer.double() - input_layer[:1].double()).abs()
    layout: Layout = "sequence"
    if input_layer.ndim == 4 and input_layer.shape[0] == 5:
        by_shape = _by_aspect(input_layer, shape)
        layout = by_shape or _grid_layout(moved[_TOP_LEFT])
        patches = moved if layout == "channels_last" else moved.permute(0, 2, 3, 1)
        rows, cols = patches.shape[1:3]
        if by_shape:  # the shape is enough, and a corner may be silent behind a ReLU
            return PatchGrid(rows=rows, cols=cols, height=shape[1], width=shape[2]), by_shape
        reacts = _reacts(patches.flatten(1, 2))
    elif input_layer.ndim == 3 and input_layer.shape[0] == 5:
        reacts = _reacts(moved)
        rows, cols = _rows_and_cols(reacts, input_layer)
    else:
        raise _unknown(input_layer, "its first dimension is not the batch, or it has no positions")
    prefix = reacts.shape[1] - rows * cols
    corners = {
        _TOP_LEFT: prefix,
        _TOP_RIGHT: prefix + cols - 1,
        _BOTTOM_LEFT: prefix + (rows - 1) * cols,
    }
    if not all(bool(reacts[picture, position]) for picture, position in corners.items()):
        raise _unknown(input_layer, f"{_seen(reacts)}; {rows} x {cols} patches do not explain that")
    grid = PatchGrid(rows=rows, cols=cols, height=shape[1], width=shape[2], prefix=prefix)
    return grid, layout


def _reacts(moved: Tensor) -> Tensor:
    strength = moved.amax(-1)  # (5, T)
    most = strength.amax(1, keepdim=True)
    return (strength > _REACTS * most) & (most > 0)


def _rows_and_cols(reacts: Tensor, input_layer: Tensor) -> tuple[int, int]:
    positions = reacts.shape[1]
    patches = int(reacts[_NOISE].sum())
    prefix = positions - patches
    corner = reacts[_TOP_RIGHT, prefix:].nonzero().flatten().tolist()
    whole = patches > 1 and bool(reacts[_TOP_LEFT, prefix:].all())
    if not patches or not corner or whole or not bool(reacts[_NOISE, prefix:].all()):
        raise _unknown(input_layer, _seen(reacts))
    last = corner[0]  # overlapping patches: the first unbroken run ends the first row
    while last + 1 in corner:
        last += 1
    cols = last + 1
    if patches % cols:
        raise _unknown(input_layer, f"{_seen(reacts)}; {patches} patches are no rows of {cols}")
    return patches // cols, cols


def _by_aspect(input_layer: Tensor, shape: tuple[int, int, int]) -> Layout | None:
    """The layout of a map whose sides are to each other as those of the picture, if only one is."""
    last, first = (
        rows * shape[2] == cols * shape[1]
        for rows, cols in (input_layer.shape[1:3], input_layer.shape[2:4])
    )
    if last == first:
        return None
    return "channels_last" if last else "channels_first"


def _grid_layout(moved: Tensor) -> Layout:
    """Which axis of (a, b, c) holds the channels: a single pixel moves every one of them."""
    touched = moved > _REACTS * moved.max()
    share = [float(touched.transpose(0, axis).flatten(1).any(1).double().mean()) for axis in (0, 2)]
    return "channels_first" if share[0] > share[1] else "channels_last"


def _seen(reacts: Tensor) -> str:
    names = {_NOISE: "any pixel", _TOP_LEFT: "the top left pixel", _TOP_RIGHT: "the top right one"}
    reactions = (
        f"{_few(reacts[picture].nonzero().flatten().tolist())} react to {name}"
        for picture, name in names.items()
    )
    return "positions " + ", ".join(reactions)


def _few(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:6]))
    return f"[{shown}{', ...' if len(numbers) > 6 else ''}] ({len(numbers)})"


def _unknown(input_layer: Tensor, seen: str) -> ModelLoadError:
    return ModelLoadError(
        "the patch grid cannot be inferred from the input of the first block, of shape "
        f"{tuple(input_layer.shape)} for 5 pictures: {seen}. Needed: special positions first, then "
        "one position per patch in reading order"
    )


#: what a forward pass raises on inputs it does not take
FORWARD_ERRORS = (TypeError, ValueError, RuntimeError, IndexError, AssertionError)
#: share of the difference between two items that may reach the logits beside the input layer
_BESIDE = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """A module with the inputs of two different items: (B, ...) each, of one shape."""

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
        the test shows nothing, and the input layer counts as a cut.
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
        # a reversible encoder is an autograd function as a whole: its words are before it
        if layout is None or (words and is_inside_function(module, caller, sites, inputs)):
            continue
        found = replace(with_words, block=sites.block, block_name=sites.block_name, layout=layout)
        if probe.is_cut(found, "encoder"):
            return found
        fitting.append(found)
    if words and (not fitting or probe.is_cut(with_words, "words")):
        return with_words
    if not fitting:
        return None
    words_alone = replace(probe, others=_reordered_words(caller, inputs))
    return replace(fitting[0], whole=words_alone.is_cut(fitting[0], "encoder"))


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


def _reordered_words(caller: Caller, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same, but padding stays where it is: some models pool the last position without it."""
    ids = inputs[caller.main].clone()
    for row, attended in zip(ids, inputs.get("attention_mask", torch.ones_like(ids)), strict=True):
        inner = attended.nonzero().flatten()[1:-1]
        row[inner] = row[inner.flip(0)]
    return {**inputs, caller.main: ids}


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
