"""Find what the positions of a model are by running the model, not by its family."""

import torch
from torch import Tensor, nn

from transexplain.errors import ModelLoadError
from transexplain.models.call import Caller
from transexplain.models.leaves import Layout, Sites, tapped
from transexplain.types import PatchGrid

#: a position reacts when it moves by more than this share of the most moved one
_REACTS = 1e-4
_PLAIN, _NOISE, _TOP_LEFT, _TOP_RIGHT, _BOTTOM_LEFT = range(5)


class _ReachedError(Exception):
    """Ends a forward pass at the input layer: nothing after it is needed."""


class _Stop:
    """Taps that keep the input layer and end the forward pass there."""

    kept: Tensor

    def input_layer(self, tensor: Tensor) -> Tensor:
        self.kept = tensor.detach()
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
        layout = by_shape or _layout(moved[_TOP_LEFT])
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


def _layout(moved: Tensor) -> Layout:
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
