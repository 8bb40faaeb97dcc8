"""Put a module, its encoder and what was probed together: the last step of every loader."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from transexplain.errors import EngineError, ModelLoadError
from transexplain.models.base import Encoded, LoadedModel
from transexplain.models.call import Caller
from transexplain.models.image import ImageEncoder
from transexplain.models.leaves import Layout, Sites, find_block, find_embeddings
from transexplain.models.placement import dtype_name
from transexplain.models.positions import capacity
from transexplain.models.probe import infer_grid, leaf_of, logits_of, probing_pictures
from transexplain.models.text import TextEncoder
from transexplain.models.transform import Transform
from transexplain.plans import ModelRef
from transexplain.types import Item, PatchGrid

#: what a forward pass raises on inputs it does not take
_FORWARD_ERRORS = (TypeError, ValueError, RuntimeError, IndexError, AssertionError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a module came from, as its ModelRef will say."""

    source: str
    digest: str
    device: str


def assemble_text(
    module: nn.Module,
    *,
    tokenizer: Any | None,
    classes: Sequence[str],
    origin: Origin,
    usual: int | None = None,
) -> LoadedModel:
    """A text model; its leaf `encoder` is dropped where the block takes no (B, T, D).

    Texts are cut at `usual` positions unless told otherwise; None: at what the model takes.
    """
    caller = Caller.of(module, "text")
    _check_fast(tokenizer)
    device = _device(module)
    embeddings = find_embeddings(module)
    encoder = TextEncoder(
        tokenizer,
        limit=capacity(module, tokenizer),
        usual=usual,
        padding=_padding(module, tokenizer),
        vocabulary=getattr(next(iter(embeddings), None), "num_embeddings", None),
        device=device,
        takes=caller.takes,
    )
    sites = _sites(module, embeddings)
    if tokenizer is not None:
        sites = _checked_text(module, caller, sites, encoder, len(classes))
    return LoadedModel(
        module=module,
        modality="text",
        classes=tuple(classes),
        ref=_ref(module, "text", classes, origin),
        encoder=encoder,
        caller=caller,
        sites=sites,
    )


def _check_fast(tokenizer: Any | None) -> None:
    if tokenizer is not None and not getattr(tokenizer, "is_fast", False):
        raise ModelLoadError(
            f"{type(tokenizer).__name__} is not a fast tokenizer, so it gives no character "
            "offsets; use a transformers tokenizer with a tokenizer.json (is_fast must be true)"
        )


def assemble_image(
    module: nn.Module,
    *,
    transform: Transform | None,
    shape: tuple[int, int, int],
    classes: Sequence[str],
    origin: Origin,
) -> LoadedModel:
    """An image model with its patch grid inferred; ModelLoadError where it cannot be."""
    caller = Caller.of(module, "image")
    device, dtype = _device(module), _dtype(module)
    sites = _sites(module, ())
    grid = PatchGrid(rows=shape[1], cols=shape[2], height=shape[1], width=shape[2])
    pictures = probing_pictures(shape, dtype, device)
    try:
        logits = logits_of(module, caller, {caller.main: pictures[:1]})
        leaf = _image_leaf(module, caller, sites, pictures)
    except _FORWARD_ERRORS as error:
        raise ModelLoadError(
            f"{type(module).__name__} does not take pictures of shape {shape}: {error}"
        ) from error
    _check_logits(module, logits, len(classes))
    if leaf is None:
        sites = replace(sites, block=None)
    else:
        grid, layout = infer_grid(leaf, shape)
        sites = replace(sites, layout=layout)
    return LoadedModel(
        module=module,
        modality="image",
        classes=tuple(classes),
        ref=_ref(module, "image", classes, origin),
        encoder=ImageEncoder(transform, shape=shape, grid=grid, dtype=dtype, device=device),
        caller=caller,
        sites=sites,
    )


def count_classes(module: nn.Module, caller: Caller, inputs: dict[str, Tensor]) -> int:
    """C, by running the module once over `inputs`; ModelLoadError names `classes=`."""
    try:
        logits = logits_of(module, caller, inputs)
    except (EngineError, *_FORWARD_ERRORS) as error:
        raise ModelLoadError(
            f"the classes of {type(module).__name__} cannot be counted by running it: {error}. "
            "Pass classes= (the class names by index)"
        ) from error
    if logits.ndim != 2:
        raise ModelLoadError(
            f"{type(module).__name__} gave an output of shape {tuple(logits.shape)}; "
            "a classifier gives logits (items, classes)"
        )
    return logits.shape[1]


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """`names` with the index added where a name occurs twice, so that each means one class."""
    return tuple(
        name if list(names).count(name) == 1 else f"{name} ({index})"
        for index, name in enumerate(names)
    )


def placed(module: nn.Module) -> tuple[torch.dtype, torch.device]:
    """Number type and device of the parameters of `module`."""
    return _dtype(module), _device(module)


def _sites(module: nn.Module, embeddings: tuple[nn.Module, ...]) -> Sites:
    found = find_block(module)
    name, block = found if found is not None else ("", None)
    return Sites(block=block, block_name=name, embeddings=embeddings)


def _checked_text(
    module: nn.Module, caller: Caller, sites: Sites, encoder: TextEncoder, classes: int
) -> Sites:
    """`sites` with the layouts that a short batch shows; leaves that are no positions dropped."""
    items = [Item(id=text, index=0, content=text) for text in ("a", "a b c d e")]
    made = encoder.encode(items, long_text="truncate", max_length=None)
    encoded = [one for one in made if isinstance(one, Encoded)]
    if not encoded:
        return sites  # a tokenizer that knows no Latin letter: nothing to probe with
    inputs = encoder.collate(encoded).inputs
    try:
        words = _text_layout(module, caller, sites, inputs, "words")
        blocks = _text_layout(module, caller, sites, inputs, "encoder")
        logits = logits_of(module, caller, inputs)
    except _FORWARD_ERRORS as error:
        raise ModelLoadError(f"{type(module).__name__} fails on a short text: {error}") from error
    _check_logits(module, logits, classes)
    if words is None and blocks is None:
        raise ModelLoadError(
            f"{type(module).__name__}: neither its word embedding nor its first block holds one "
            "vector per token (models that pad their inputs themselves are not supported)"
        )
    return Sites(
        block=sites.block if blocks else None,
        block_name=sites.block_name,
        layout=blocks or "sequence",
        embeddings=sites.embeddings if words else (),
        words_layout=words or "sequence",
    )


def _image_leaf(module: nn.Module, caller: Caller, sites: Sites, pictures: Tensor) -> Tensor | None:
    if sites.block is None:
        return None
    try:
        return leaf_of(module, caller, sites, {caller.main: pictures})
    except EngineError:
        return None


def _text_layout(
    module: nn.Module, caller: Caller, sites: Sites, inputs: dict[str, Tensor], at: str
) -> Layout | None:
    try:
        leaf = leaf_of(module, caller, sites, inputs, at)
    except EngineError:
        return None
    batch, positions = inputs[caller.main].shape
    if leaf.ndim != 3:
        return None
    shapes: dict[tuple[int, int], Layout] = {
        (positions, batch): "positions_first",
        (batch, positions): "sequence",  # last: it wins where both are the same
    }
    return shapes.get((leaf.shape[0], leaf.shape[1]))


def _check_logits(module: nn.Module, logits: Tensor, classes: int) -> None:
    if logits.ndim != 2 or logits.shape[1] != classes:
        raise ModelLoadError(
            f"{type(module).__name__} gives logits of shape {tuple(logits.shape)} for "
            f"{classes} class names; name every class once, by index"
        )


def _padding(module: nn.Module, tokenizer: Any | None) -> dict[str, int]:
    configured = getattr(getattr(module, "config", None), "pad_token_id", None)
    pad = getattr(tokenizer, "pad_token_id", None)
    found = pad if pad is not None else configured
    types = getattr(tokenizer, "pad_token_type_id", 0)
    return {"input_ids": found if isinstance(found, int) else 0, "token_type_ids": types or 0}


def _device(module: nn.Module) -> torch.device:
    first = next(module.parameters(), None)
    return first.device if first is not None else torch.device("cpu")


def _dtype(module: nn.Module) -> torch.dtype:
    floats = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(floats, torch.float32)


def _ref(module: nn.Module, modality: Any, classes: Sequence[str], origin: Origin) -> ModelRef:
    return ModelRef(
        source=origin.source,
        dtype=dtype_name(_dtype(module)),
        device=origin.device,
        modality=modality,
        classes=tuple(classes),
        digest=origin.digest,
    )
