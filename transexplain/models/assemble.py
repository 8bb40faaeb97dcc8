"""Assembles a loaded model from a module, its encoder and what was probed: the last step of every
loader.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from transexplain.errors import EngineError, ModelLoadError
from transexplain.models.calling import Caller, dtype_name, logits_of
from transexplain.models.hub import digest_of_module
from transexplain.models.input_layer import (
    FORWARD_ERRORS,
    Sites,
    find_embeddings,
    first_sites,
    image_sites,
    is_inside_function,
    probing_pictures,
    text_sites,
)
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.models.text_encoder import TextEncoder
from transexplain.models.text_length import capacity
from transexplain.types.answer_spans import CLASSES
from transexplain.types.items import Item
from transexplain.types.label_sets import check_label_names
from transexplain.types.plans import AT_POSITIONS, Head, ModelRef, SourceFile

if TYPE_CHECKING:
    from transexplain.models.image_encoder import Transform


def head_of(module: nn.Module, classes: Sequence[str]) -> Head:
    """What a model answers, as its configuration says; ModelLoadError for names of no label."""
    if (head := head_of_class(type(module).__name__)) is not None:
        return head
    config = getattr(module, "config", None)
    if getattr(config, "problem_type", None) != "multi_label_classification":
        return "classes"
    check_label_names(classes)
    return "labels"


#: how the names of transformers' classes with logits at every position end
_HEADS: dict[str, Head] = {
    "ForTokenClassification": "tokens",
    "ForQuestionAnswering": "span",
    "ForQuestionAnsweringSimple": "span",
}


def head_of_class(name: str) -> Head | None:
    """The head of a class of transformers that answers at positions; None: it does not.

    Raises ModelLoadError for a class that nothing here reads.
    """
    if name.endswith("ForMultipleChoice"):
        raise ModelLoadError(
            f"{name} scores several choices of one item together, and multiple choice is not "
            "explained; a model that gives a pair of question and answer a class is"
        )
    return next((head for end, head in _HEADS.items() if name.endswith(end)), None)


def attention_kernel(module: nn.Module) -> str:
    """`sdpa`, `eager`, ... as transformers names it, or as timm's switches say; "": neither."""
    named = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if isinstance(named, str):
        return named
    fused = {bool(part.fused_attn) for part in module.modules() if hasattr(part, "fused_attn")}
    names = {True: "sdpa", False: "eager"}
    return " and ".join(sorted(names[kind] for kind in fused))


#: what the source of a module in memory begins with
IN_MEMORY = "module:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The origin of a module, for its ModelRef."""

    source: str
    digest: str
    device: str
    files: tuple[SourceFile, ...] = ()  #: that the digest covers

    @classmethod
    def in_memory(cls, module: nn.Module) -> "Origin":
        """Of a module in memory; ModelLoadError where no backward pass can read its weights."""
        _refuse_packed(module)
        _refuse_absent(module)
        name = f"{type(module).__module__}.{type(module).__qualname__}"
        digest = digest_of_module(module)
        return cls(source=f"{IN_MEMORY}{name}", digest=digest, device=str(device_of(module)))


def assemble_text(
    module: nn.Module,
    *,
    tokenizer: Any | None,
    classes: Sequence[str],
    origin: Origin,
    usual: int | None = None,
    head: Head | None = None,
) -> LoadedModel:
    """A text model; its input layer `encoder` is dropped where the block takes no (B, T, D).

    `head` is what it answers, by default what its configuration says. Texts are cut at `usual`
    positions unless `max_length` is given; None: at what the model takes.
    """
    caller, head = Caller.of(module, "text"), head or head_of(module, classes)
    classes = CLASSES if head == "span" else classes
    checked_tokenizer(tokenizer)
    embeddings = find_embeddings(module)
    device = device_of(next(iter(embeddings), module))  # parts may lie elsewhere
    encoder = TextEncoder(
        tokenizer,
        limit=capacity(module, tokenizer),
        usual=usual,
        padding=padding_of(module, tokenizer),
        vocabulary=getattr(next(iter(embeddings), None), "num_embeddings", None),
        device=device,
        takes=caller.takes,
    )
    if tokenizer is not None:
        sites = _checked_text(module, caller, embeddings, encoder, len(classes), head)
    else:
        sites = _unchecked_text(module, caller, embeddings, device)
    return LoadedModel(
        module=module,
        modality="text",
        classes=tuple(classes),
        ref=replace(ref_of(module, "text", classes, origin), head=head),
        encoder=encoder,
        caller=caller,
        located=lambda: sites,
    )


def checked_tokenizer(tokenizer: Any | None) -> None:
    """Raise ModelLoadError for a tokenizer that gives no character offsets."""
    if tokenizer is not None and not getattr(tokenizer, "is_fast", False):
        raise ModelLoadError(
            f"{type(tokenizer).__name__} is not a fast tokenizer, so it gives no character "
            "offsets; use a transformers tokenizer with a tokenizer.json (is_fast must be true)"
        )


def assemble_image(
    module: nn.Module,
    *,
    transform: "Transform | None",
    shape: tuple[int, int, int],
    classes: Sequence[str],
    origin: Origin,
) -> LoadedModel:
    """An image model with its patch grid inferred; its positions are pixels where it has none."""
    from transexplain.models.image_encoder import ImageEncoder

    caller = Caller.of(module, "image")
    device, dtype = device_of(module), dtype_of(module)
    pictures = probing_pictures(shape, dtype, device)
    try:
        logits = logits_of(module, caller, {caller.main: pictures[:1]})
        _check_logits(module, logits, len(classes))
        sites, grid = image_sites(module, caller, pictures, shape)
    except FORWARD_ERRORS as error:
        raise ModelLoadError(
            f"{type(module).__name__} does not take pictures of shape {shape}: {error}"
        ) from error
    return LoadedModel(
        module=module,
        modality="image",
        classes=tuple(classes),
        ref=replace(ref_of(module, "image", classes, origin), head=head_of(module, classes)),
        encoder=ImageEncoder(transform, shape=shape, grid=grid, dtype=dtype, device=device),
        caller=caller,
        located=lambda: sites,
    )


def count_classes(module: nn.Module, caller: Caller, inputs: dict[str, Tensor]) -> int:
    """C, by running the module once over `inputs`; ModelLoadError names `classes=`."""
    try:
        logits = logits_of(module, caller, inputs)
    except (EngineError, *FORWARD_ERRORS) as error:
        raise ModelLoadError(
            f"the classes of {type(module).__name__} cannot be counted by running it: {error}. "
            "Pass classes= (the class names by index)"
        ) from error
    if logits.ndim != 2 and not (logits.ndim == 3 and head_of_class(type(module).__name__)):
        raise ModelLoadError(
            f"{type(module).__name__} gave an output of shape {tuple(logits.shape)}; "
            "a classifier gives logits (items, classes)"
        )
    return logits.shape[-1]


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """`names` with the index added where a name occurs twice, so that each means one class."""
    return tuple(
        name if list(names).count(name) == 1 else f"{name} ({index})"
        for index, name in enumerate(names)
    )


def placed(module: nn.Module) -> tuple[torch.dtype, torch.device]:
    """Number type and device of the parameters of `module`."""
    return dtype_of(module), device_of(module)


def _foreign_tokens(embeddings: tuple[nn.Module, ...], inputs: Mapping[str, Tensor]) -> str | None:
    """What is wrong where the tokenizer gives numbers that no word embedding has; None: nothing."""
    ids = inputs.get("input_ids")
    rows = [
        embedding.num_embeddings for embedding in embeddings if isinstance(embedding, nn.Embedding)
    ]
    if ids is None or not rows or int(ids.max()) < max(rows):
        return None
    return (
        f"has {max(rows):,} word embeddings, and its tokenizer gives a token the number "
        f"{int(ids.max()):,}: it is the tokenizer of another model; save the right one in the "
        "model's folder with save_pretrained"
    )


def _checked_text(
    module: nn.Module,
    caller: Caller,
    embeddings: tuple[nn.Module, ...],
    encoder: TextEncoder,
    classes: int,
    head: Head,
) -> Sites:
    """The input layers that a short batch shows; ModelLoadError where none fits its tokens."""
    items = [Item(id=text, index=0, content=text) for text in ("a", "a b c d e")]
    try:
        made = encoder.encode(items, long_text="truncate", max_length=None)
    except Exception as error:  # the tokenizers library raises no class of its own
        raise ModelLoadError(f"the tokenizer fails on a short text: {error}") from error
    encoded = [entry for entry in made if isinstance(entry, Encoded)]
    if not encoded:  # a tokenizer without Latin letters: there is no text to probe with
        return first_sites(module, embeddings)
    inputs = encoder.padded(encoded)().inputs
    try:
        _check_logits(module, logits_of(module, caller, inputs), classes, head)
        sites = text_sites(module, caller, embeddings, inputs)
    except FORWARD_ERRORS as error:
        why = _foreign_tokens(embeddings, inputs) or f"fails on two short texts: {error}"
        if getattr(getattr(module, "config", None), "pad_token_id", 0) is None:
            why += (
                " (its configuration names no padding token, without which it takes one text at a "
                "time: set pad_token_id there, in module.config or config.json, to that of the "
                "tokenizer it was trained with)"
            )
        raise ModelLoadError(f"{type(module).__name__} {why}") from error
    if sites is None:
        raise ModelLoadError(
            f"{type(module).__name__}: neither its word embedding nor its first block holds one "
            "vector per token (models that pad their inputs themselves are not supported)"
        )
    return sites


def _unchecked_text(
    module: nn.Module, caller: Caller, embeddings: tuple[nn.Module, ...], device: torch.device
) -> Sites:
    """The input layers that made-up ids show; the most likely ones where the module fails."""
    rows = getattr(next(iter(embeddings), None), "num_embeddings", 16)
    # from the middle of the vocabulary, because special tokens are at its ends
    row = [(rows // 2 + step) % rows for step in range(5)]
    end = getattr(getattr(module, "config", None), "eos_token_id", None)
    if isinstance(end, int) and 0 <= end < rows:
        row.append(end)  # encoder-decoders read their classes there
    ids = torch.tensor([row], device=device)
    inputs = {caller.main: ids, "attention_mask": torch.ones_like(ids)}
    likely = first_sites(module, embeddings)
    try:
        sites = text_sites(module, caller, embeddings, inputs)
        if sites is None and embeddings and is_inside_function(module, caller, likely, inputs):
            sites = replace(likely, block=None)
    except (EngineError, *FORWARD_ERRORS):
        sites = None
    return sites or likely


def _check_logits(module: nn.Module, logits: Tensor, classes: int, head: Head = "classes") -> None:
    if logits.ndim != (3 if head in AT_POSITIONS else 2) or logits.shape[-1] != classes:
        raise ModelLoadError(
            f"{type(module).__name__} gives logits of shape {tuple(logits.shape)} for "
            f"{classes} class names; name every class once, by index"
        )


def padding_of(module: nn.Module, tokenizer: Any | None) -> dict[str, int]:
    """The value of padded positions by the name of the input; of other inputs it is 0."""
    configured = getattr(getattr(module, "config", None), "pad_token_id", None)
    pad = getattr(tokenizer, "pad_token_id", None)
    pad_id = pad if pad is not None else configured
    types = getattr(tokenizer, "pad_token_type_id", 0)
    return {"input_ids": pad_id if isinstance(pad_id, int) else 0, "token_type_ids": types or 0}


def device_of(module: nn.Module) -> torch.device:
    """The device of a module's first parameter; the CPU where it has none."""
    first = next(module.parameters(), None)
    return first.device if first is not None else torch.device("cpu")


def dtype_of(module: nn.Module) -> torch.dtype:
    """The number type of a module's first parameter of floats; float32 where it has none."""
    floats = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(floats, torch.float32)


def ref_of(module: nn.Module, modality: Any, classes: Sequence[str], origin: Origin) -> ModelRef:
    """The record of a module that was assembled."""
    return ModelRef(
        source=origin.source,
        dtype=dtype_name(dtype_of(module)),
        device=origin.device,
        modality=modality,
        classes=tuple(classes),
        digest=origin.digest,
        files=origin.files,
        attention=attention_kernel(module),
    )


#: packages whose layers or tensors keep weights in 4 or 8 bits and multiply in code of their own
_PACKED = ("bitsandbytes", "auto_gptq", "gptqmodel", "awq", "torchao", "hqq")


def _refuse_packed(module: nn.Module) -> None:
    """Raise ModelLoadError where weights are packed: no rule knows such a product."""
    tensors = chain(module.named_parameters(), module.named_buffers())
    for name, part in chain(module.named_modules(), tensors):
        package = type(part).__module__.partition(".")[0]
        if package in _PACKED:
            raise ModelLoadError(
                f"{name or 'the module'} is a {type(part).__name__} of {package}, whose weights "
                "are packed in 4 or 8 bits and multiplied by code that the engine cannot see into: "
                "unpack the model (model.dequantize()), or load it without quantisation"
            )


def _refuse_absent(module: nn.Module) -> None:
    """Raise ModelLoadError for weights that a backward pass cannot read: it needs all of them."""
    for name, parameter in module.named_parameters():
        if parameter.is_inference():
            raise ModelLoadError(
                f"the weights {name} of {type(module).__name__} were made inside "
                "torch.inference_mode(), and no gradient can pass them: load the model outside of "
                "it, or by load_model, which leaves it"
            )
        if parameter.is_meta:
            raise ModelLoadError(
                f"the weights {name} of {type(module).__name__} are not in memory: they were moved "
                "to the CPU or to disk by accelerate, or never loaded. Load the model where there "
                "is room for all of it: on more cards (device='spread') or on the CPU"
            )
