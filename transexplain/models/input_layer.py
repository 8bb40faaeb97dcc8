"""The input layer, where relevance is measured: found by structure, without names of model
families.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeGuard

import torch
from torch import Tensor, nn

from transexplain.errors import EngineError, ModelLoadError
from transexplain.models.calling import Caller, eval_mode, logits_of, unwrapped
from transexplain.types.items import PatchGrid

#: (B, T, D), (T, B, D), (B, H, W, D), (B, D, H, W)
Layout = Literal["sequence", "positions_first", "channels_last", "channels_first"]


class Taps(Protocol):
    """The functions that the engine runs at the input layer of one forward pass."""

    def input_layer(self, tensor: Tensor) -> Tensor:
        """Take the tensor at the input layer and give what the model shall use in its place.

        Shape (B, T, D) at `encoder` and `words`, (B, 3, H, W) at `pixels`, (B, T, F) at `nodes`;
        same shape back.
        """

    def encoder_begins(self) -> None:
        """The first block of the model is entered (before `input_layer` where both are one)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sites:
    """The places of one module that an input layer can be at."""

    block: nn.Module | None  #: first module of the repeated layer list
    block_name: str = ""
    layout: Layout = "sequence"  #: of the block's input
    embeddings: tuple[nn.Module, ...] = ()  #: word embedding, and what shares its table
    words_layout: Layout = "sequence"  #: of the embedding's output
    whole: bool = True  #: the logits follow from the block's input alone


def find_blocks(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Name and first module of every repeated layer list of `module`, most likely first.

    Such a list is the `ModuleList` or `Sequential` whose children share one class and are made of
    further modules. It begins with the first that holds at least half the parameters of the
    largest (an encoder goes before its decoder, an outer list before its parts); a list of one
    child begins only where there is no longer one (depth 1, or one layer used many times).
    """
    lists = [(name, layers) for name, layers in module.named_modules() if _is_layer_list(layers)]
    longer = [pair for pair in lists if len(pair[1]) > 1]
    single = [pair for pair in lists if len(pair[1]) == 1 and pair[0]]
    candidates = longer or single
    if not candidates:
        return []
    enough = max(_parameters(layers) for _, layers in candidates) / 2
    first = next(pair for pair in candidates if _parameters(pair[1]) >= enough)
    others = [pair for pair in (*longer, *single) if pair is not first]
    return [_first_child(*pair) for pair in (first, *others)]


def _first_child(name: str, layers: nn.ModuleList | nn.Sequential) -> tuple[str, nn.Module]:
    first: nn.Module = layers
    while isinstance(first, nn.ModuleList) or first is layers:
        name, first = f"{name}.0".lstrip("."), next(iter(first.children()))
    return name, first


def _is_layer_list(module: nn.Module) -> TypeGuard[nn.ModuleList | nn.Sequential]:
    if not isinstance(module, nn.ModuleList | nn.Sequential) or len(module) == 0:
        return False
    children = [unwrapped(child) for child in module]
    first = children[0]
    same = all(type(child) is type(first) for child in children)
    return same and next(first.children(), None) is not None


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def find_embeddings(module: nn.Module) -> tuple[nn.Module, ...]:
    """The word embedding and every module that shares its table (encoder-decoder models do).

    It is what the model names as its input embedding, else its embedding with most rows.
    """
    embedding = _named_embedding(module)
    if embedding is None:
        return ()
    table = getattr(embedding, "weight", None)
    sharing = (part for part in module.modules() if isinstance(part, nn.Embedding))
    return (
        embedding,
        *(part for part in sharing if part.weight is table and part is not embedding),
    )


def _named_embedding(module: nn.Module) -> nn.Module | None:
    named = getattr(module, "get_input_embeddings", None)
    if callable(named):
        try:
            embedding = named()
        except (NotImplementedError, AttributeError):
            embedding = None
        if isinstance(embedding, nn.Module):
            return embedding
    tables = [table for table in module.modules() if isinstance(table, nn.Embedding)]
    return max(tables, key=lambda table: table.num_embeddings, default=None)


def tapped(
    module: nn.Module,
    caller: Caller,
    sites: Sites,
    inputs: Mapping[str, Tensor],
    *,
    at: str,
    taps: Taps,
) -> Tensor:
    """Logits (B, C) of one forward pass with `taps` at the input layer `at`.

    The hooks exist for this call only, answer only in the calling thread and, at a layer, only
    the first time (a model may use one layer many times).
    """
    hooks = _InputHooks(sites, at, taps)
    if at in ("pixels", "nodes"):
        inputs = {**inputs, caller.main: hooks.input_layer(inputs[caller.main])}
    with eval_mode(module), hooks.placed():
        logits = caller(module, inputs)
    if not hooks.reached:
        where = sites.block_name if at == "encoder" else "the input embedding"
        raise EngineError(
            f"the forward pass never called {where}, so the input layer {at!r} was not reached; "
            "measure at another input layer of the model"
        )
    return logits


class _InputHooks:
    """The hooks of one forward pass, in one thread."""

    def __init__(self, sites: Sites, at: str, taps: Taps) -> None:
        self.sites, self.at, self.taps = sites, at, taps
        self.thread = threading.get_ident()
        self.begun = self.reached = False
        self.embedded: tuple[Tensor, Tensor] | None = None  # before and after the tap

    @contextmanager
    def placed(self) -> Iterator[None]:
        handles = []
        try:
            if self.sites.block is not None:
                handles.append(
                    self.sites.block.register_forward_pre_hook(self.on_block, with_kwargs=True)
                )
            if self.at == "words":
                handles.extend(
                    table.register_forward_hook(self.on_embedding)
                    for table in self.sites.embeddings
                )
            yield
        finally:
            for handle in handles:
                handle.remove()

    def input_layer(self, tensor: Tensor) -> Tensor:
        self.reached = True
        replaced = self.taps.input_layer(tensor)
        if replaced.shape != tensor.shape:
            raise EngineError(
                f"the tap gave shape {tuple(replaced.shape)} for {tuple(tensor.shape)}"
            )
        return replaced

    def on_block(
        self, _block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self.begun or threading.get_ident() != self.thread:
            return None
        self.begun = True
        self.taps.encoder_begins()
        if self.at != "encoder":
            return None
        place = next(
            (value for value in args if isinstance(value, Tensor) and value.is_floating_point()),
            kwargs.get("hidden_states"),
        )
        if isinstance(place, Tensor) and place.is_floating_point():
            input_layer = self.as_sequence(place, self.sites.layout)
            # one tensor may be several arguments: query, key and value of an attention layer
            return (
                tuple(input_layer if value is place else value for value in args),
                {name: input_layer if value is place else value for name, value in kwargs.items()},
            )
        raise EngineError(
            f"{self.sites.block_name} ({type(self.sites.block).__name__}) is called without a "
            "float tensor, so there is no input layer 'encoder'; measure before it"
        )

    def on_embedding(self, _module: nn.Module, _args: Any, output: Any) -> Tensor | None:
        if threading.get_ident() != self.thread:
            return None
        if self.embedded is not None:
            return self.embedded_again(output, *self.embedded)
        if not isinstance(output, Tensor):
            raise EngineError("the input embedding returned no tensor; measure at 'encoder'")
        self.embedded = (output, self.as_sequence(output, self.sites.words_layout))
        return self.embedded[1]

    def embedded_again(self, output: Any, before: Tensor, after: Tensor) -> Tensor | None:
        """The same values where a decoder reads the tokens again, most often one position on.

        What is no copy of them (special tokens that begin, other ids) stays as it is.
        """
        if not isinstance(output, Tensor) or output.shape != before.shape:
            return None
        for shift in (0, 1):
            kept = before.shape[1] - shift
            if torch.equal(output[:, shift:], before[:, :kept]):
                return torch.cat([output[:, :shift], after[:, :kept]], dim=1)
        return None

    def as_sequence(self, tensor: Tensor, layout: Layout) -> Tensor:
        there, back = _REARRANGED[layout]
        return back(self.input_layer(there(tensor)), tensor)


def sequence_of(tensor: Tensor, layout: Layout) -> Tensor:
    """A tensor in the layout of the blocks as (B, T, D)."""
    return _REARRANGED[layout][0](tensor)


#: layout of the block's input -> (to (B, T, D), back to the shape of the original)
_REARRANGED: dict[Layout, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "sequence": (lambda tensor: tensor, lambda sequence, _like: sequence),
    "positions_first": (
        lambda tensor: tensor.transpose(0, 1),
        lambda sequence, _like: sequence.transpose(0, 1),
    ),
    "channels_last": (
        lambda tensor: tensor.flatten(1, 2),
        lambda sequence, like: sequence.reshape(like.shape),
    ),
    "channels_first": (
        lambda tensor: tensor.flatten(2).transpose(1, 2),
        lambda sequence, like: sequence.transpose(1, 2).reshape(like.shape),
    ),
}


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
    with torch.no_grad():
        return _reached(module, caller, sites, inputs, at).kept


def _reached(
    module: nn.Module, caller: Caller, sites: Sites, inputs: dict[str, Tensor], at: str
) -> _Stop:
    taps = _Stop()
    with suppress(_ReachedError):
        tapped(module, caller, sites, inputs, at=at, taps=taps)
    return taps


def is_inside_function(
    module: nn.Module, caller: Caller, sites: Sites, inputs: dict[str, Tensor]
) -> bool:
    """Whether the input layer `encoder` is inside an autograd function, where gradients are off.

    Nothing can be measured there: what such a function gives would depend on no input.
    """
    with torch.enable_grad():
        return not _reached(module, caller, sites, inputs, "encoder").gradients


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
    """The axis of (a, b, c) that holds the channels: a single pixel moves every one of them."""
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
        """Return whether the logits follow from the input layer alone.

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
        improved = replace(sites, layout=layout)
        if cut.is_cut(improved, "encoder"):
            return improved, grid
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
        improved = replace(
            with_words, block=sites.block, block_name=sites.block_name, layout=layout
        )
        if probe.is_cut(improved, "encoder"):
            return improved
        fitting.append(improved)
    if words and (not fitting or probe.is_cut(with_words, "words")):
        return with_words
    if not fitting:
        return None
    # padding stays where it is: some models pool the last position without it
    ids = inputs[caller.main].clone()
    for row, attended in zip(ids, inputs.get("attention_mask", torch.ones_like(ids)), strict=True):
        inner = attended.nonzero().flatten()[1:-1]
        row[inner] = row[inner.flip(0)]
    words_alone = replace(probe, others={**inputs, caller.main: ids})
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
