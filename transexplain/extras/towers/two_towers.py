"""One tower of a model of pictures and texts as a classifier with one class: the similarity.

A tower gives a unit vector. Times the unit vector of the other side, which stands in the inputs as
a constant, it is the cosine, and every method explains it as a logit.
"""

import inspect
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from transexplain.errors import EngineError, ModelLoadError
from transexplain.extras.language.answer_loop import one_behind_the_other, without_text
from transexplain.extras.language.picture_prompts import shape_of
from transexplain.models import huggingface
from transexplain.models.assemble import Origin, checked_tokenizer, padding_of, placed, ref_of
from transexplain.models.calling import Caller, eval_mode, place_of, torch_dtype, unwrapped
from transexplain.models.configs import read_config
from transexplain.models.hub import folder_of
from transexplain.models.image_encoder import ImageEncoder, Transform
from transexplain.models.input_layer import (
    FORWARD_ERRORS,
    find_embeddings,
    image_sites,
    probing_pictures,
    text_sites,
)
from transexplain.models.invariance import TOLERANCES
from transexplain.models.loaded_model import (
    Batch,
    Encoded,
    LoadedModel,
    LongText,
    Padded,
    on_device,
)
from transexplain.models.text_encoder import TextEncoder
from transexplain.models.text_length import capacity
from transexplain.types.items import Item, ItemFailure
from transexplain.types.tokens import Tokens

Side = Literal["picture", "text"]
#: (D,) of an encoded item, (B, 1, D) of a batch: the unit vector of the other side
OTHER = "other_embedding"
#: what transformers calls the function that gives the vectors of a side
FEATURES: Mapping[Side, str] = {"picture": "get_image_features", "text": "get_text_features"}


class Tower(nn.Module):
    """The unit vectors (B, D) of one side; its parts are those of the whole model that it runs."""

    def __init__(self, model: nn.Module, side: Side, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._whole = (model,)  # in a tuple: the other tower is no part of this one
        self._function = FEATURES[side]
        self.config = model.config
        for name, part in parts.items():
            self.add_module(name, part)

    @classmethod
    def of(cls, model: nn.Module, side: Side, inputs: Mapping[str, Tensor]) -> "Tower":
        """The tower that runs over `inputs` (B, ...), found by which parts of the model do."""
        used: dict[str, nn.Module] = {}

        def note(name: str) -> Callable[..., None]:
            return lambda part, _args, _output: used.update({name: part})

        handles = [part.register_forward_hook(note(name)) for name, part in model.named_children()]
        try:
            with torch.no_grad():
                features(model, side, inputs)
        finally:
            for handle in handles:
                handle.remove()
        return cls(model, side, used)

    def get_input_embeddings(self) -> nn.Module:
        """The word embedding of the part that reads words; raises AttributeError without one."""
        for part in self.children():
            try:
                embeddings = part.get_input_embeddings()  # type: ignore[operator]
            except (AttributeError, NotImplementedError, TypeError):
                continue
            if isinstance(embeddings, nn.Embedding):
                return embeddings
        raise AttributeError("no part of this tower embeds words")

    def forward(self, **inputs: Tensor) -> Tensor:
        """(B, D) of length 1."""
        vectors = _vectors(getattr(self._whole[0], self._function)(**inputs))
        length: Tensor = vectors.norm(dim=-1, keepdim=True)
        return vectors / length


def features(model: nn.Module, side: Side, inputs: Mapping[str, Tensor]) -> Tensor:
    """(B, D) the vectors that a model gives one side, as long as they are."""
    return _vectors(getattr(model, FEATURES[side])(**inputs))


def _vectors(output: Any) -> Tensor:
    """Newer releases of transformers give the vectors as what was pooled."""
    vectors = output if isinstance(output, Tensor) else getattr(output, "pooler_output", None)
    if not isinstance(vectors, Tensor) or vectors.ndim != 2:
        raise EngineError(f"a tower gave {type(output).__name__} and no vectors (B, D)")
    return vectors


@dataclass(frozen=True, kw_only=True, slots=True)
class TowerCaller(Caller):
    """The cosine of a tower's vectors and those of the other side, scaled and shifted."""

    opposite: Tensor  #: (C, D) what stands opposite where the inputs have nothing: one, or more
    scale: float = 1.0
    shift: float = 0.0

    def __call__(self, module: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
        """(B, 1) scale * cosine + shift of one forward pass; (B, C) of more that are opposite."""
        own = {name: values for name, values in inputs.items() if name != OTHER}
        vectors = self.vectors(module, own)
        if OTHER in inputs:
            other = inputs[OTHER].flatten(1)
            cosine = (vectors * other.to(vectors)).sum(dim=-1, keepdim=True)
        else:
            cosine = vectors @ self.opposite.to(vectors).T
        scaled = cosine * self.scale if self.scale != 1.0 else cosine
        return scaled + self.shift if self.shift else scaled

    def vectors(self, module: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
        """(B, D) the unit vectors of one forward pass."""
        return Caller.__call__(self, module, inputs)


def opposite(encoded: Encoded, other: Tensor) -> Encoded:
    """An encoded side with the unit vector (D,) of the other side beside it."""
    # pictures stay bytes until they are a batch
    return replace(encoded, inputs=ChainMap({OTHER: other}, encoded.inputs))  # type: ignore[arg-type]


def _divided(encoded: Sequence[Encoded]) -> tuple[list[Encoded], list[Tensor]]:
    """The sides without what stands opposite, and that."""
    if not encoded or OTHER not in encoded[0].inputs:
        return list(encoded), []
    alone = [replace(entry, inputs=_inner(entry.inputs)) for entry in encoded]
    return alone, [entry.inputs[OTHER] for entry in encoded]


def _inner(inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    if isinstance(inputs, ChainMap):
        return inputs.maps[1]
    return {name: values for name, values in inputs.items() if name != OTHER}


def _with_others(padded: Padded, encoded: Sequence[Encoded], others: list[Tensor]) -> Padded:
    def moved() -> Batch:
        batch = padded()
        # three axes, so that nothing takes it for values of positions (B, T)
        values = on_device(torch.stack(others)[:, None], batch.lengths.device)
        return replace(batch, encoded=tuple(encoded), inputs={**batch.inputs, OTHER: values})

    return moved if others else padded


class PictureSideEncoder(ImageEncoder):
    """As `ImageEncoder`; a batch has what stands opposite beside its pictures."""

    def padded(self, encoded: Sequence[Encoded]) -> Padded:
        """As of pictures, with the vectors of the other side (B, 1, D)."""
        alone, others = _divided(encoded)
        return _with_others(super().padded(alone), encoded, others)


class TextSideEncoder(TextEncoder):
    """As `TextEncoder`; texts are padded to `full` where padding is a part of what is read."""

    full: int | None = None  #: positions of every text; None: as many as it has

    def encode(
        self, items: Sequence[Item], *, long_text: LongText, max_length: int | None
    ) -> list[Encoded | ItemFailure]:
        """Each text; positions of padding that the model reads are special ones."""
        entries = super().encode(items, long_text=long_text, max_length=max_length)
        if self.full is None:
            return entries
        return [
            entry if isinstance(entry, ItemFailure) else self._filled(entry) for entry in entries
        ]

    def _filled(self, encoded: Encoded) -> Encoded:
        more = (self.full or 0) - encoded.length
        if more <= 0:
            return encoded
        inputs = {
            name: torch.nn.functional.pad(row, (0, more), value=self.padding.get(name, 0))
            for name, row in encoded.inputs.items()
        }
        tokens = Tokens.of(encoded.features)  # type: ignore[arg-type]
        pad = str(getattr(self.tokenizer, "pad_token", None) or "")
        features = one_behind_the_other(tokens, without_text(np.ones(more, bool), pad))
        return replace(encoded, inputs=inputs, features=features, length=encoded.length + more)

    def padded(self, encoded: Sequence[Encoded]) -> Padded:
        """As of texts, with the vectors of the other side (B, 1, D)."""
        alone, others = _divided(encoded)
        return _with_others(super().padded(alone), encoded, others)

    def widened(self, batch: Batch, width: int) -> Batch:
        """The texts padded on the right; what stands opposite stays as it is."""
        rest = {name: values for name, values in batch.inputs.items() if name != OTHER}
        wide = super().widened(replace(batch, inputs=rest), width)
        return replace(wide, inputs={**batch.inputs, **wide.inputs})


def checked_sides(model: Any) -> None:
    """Raise ModelLoadError for a module that gives no vectors of pictures and of texts."""
    missing = [name for name in FEATURES.values() if not callable(getattr(model, name, None))]
    if missing or not isinstance(model, nn.Module):
        raise ModelLoadError(
            f"{type(model).__name__} is no model of two towers: it has no "
            f"{' and no '.join(missing) or 'weights'}. Two towers are CLIP, SigLIP, AltCLIP, "
            "ChineseCLIP and the like; load a classifier with load_model, a language model with "
            "load_language_model"
        )


#: what is explained of a pair: the model's own logit, or the cosine of its two vectors
Likeness = Literal["similarity", "cosine"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class TwoTowers:
    """A model of a picture tower and a text tower; the module itself is never changed.

    Its similarity of a picture and a text is scale * cosine + bias, as its own forward computes
    it.
    """

    module: nn.Module  #: as it was given
    picture: LoadedModel  #: a classifier of pictures whose one logit is the cosine
    text: LoadedModel  #: the same of texts
    scale: float  #: exp(logit_scale), or 1 / temperature
    bias: float  #: logit_bias; 0 where the model has none
    _views: dict[tuple[Side, Likeness], LoadedModel] = field(
        default_factory=dict, init=False, repr=False
    )

    def __repr__(self) -> str:
        ref, bias = self.picture.ref, f" {self.bias:+.4g}" if self.bias else ""
        return (
            f"<TwoTowers {type(self.module).__name__}, similarity = {self.scale:.4g} * cosine"
            f"{bias}, {ref.dtype} on {ref.device}, from {ref.source}>"
        )

    def side(self, side: Side, target: Likeness) -> LoadedModel:
        """One tower as a classifier whose one logit is the target, the other side held."""
        view = self._views.get((side, target))
        if view is None:
            plain, whole = self.of(side), target == "similarity"
            scale, shift = (self.scale, self.bias) if whole else (1.0, 0.0)
            caller = replace(_caller(plain), scale=scale, shift=shift)
            ref = replace(plain.ref, classes=(target,))
            view = replace(plain, classes=(target,), ref=ref, caller=caller)
        return self._views.setdefault((side, target), view)  # another thread's, if it was first

    def of(self, side: Side) -> LoadedModel:
        """The tower of one side."""
        return self.picture if side == "picture" else self.text

    @torch.no_grad()
    def vectors(self, side: Side, encoded: Sequence[Encoded]) -> Tensor:
        """(B, D) the unit vectors of encoded sides, of one forward pass, on the CPU."""
        model = self.of(side)
        with eval_mode(model.module):
            return _caller(model).vectors(model.module, model.collate(encoded).inputs).cpu()

    def as_classifier(self, texts: Sequence[str], source: str | None = None) -> LoadedModel:
        """The model as a classifier of pictures whose classes are texts: zero-shot classification.

        Its logits (B, C) are the similarities of a picture with these texts. The texts are held,
        so relevance is all the picture's. Everything that takes a classifier takes it: `explain`,
        `evaluate`, audits. `source` is what it is recorded as.

        Raises ModelLoadError where there are fewer than two different texts, or one that the model
        cannot read whole.
        """
        if len(texts) < 2 or len({*texts}) < len(texts):
            raise ModelLoadError(f"texts are two or more different ones, not {list(texts)!r:.80}")
        items = [Item(id=text, index=place, content=text) for place, text in enumerate(texts)]
        encoded = self.text.encode(items, long_text="error")
        for entry in encoded:
            if isinstance(entry, ItemFailure):
                raise ModelLoadError(
                    f"the text {entry.item_id!r:.80} cannot be read: {entry.message}"
                )
        plain, names = self.side("picture", "similarity"), tuple(texts)
        vectors = self.vectors("text", [entry for entry in encoded if isinstance(entry, Encoded)])
        opposite = vectors.to(_caller(plain).opposite)
        ref = replace(plain.ref, classes=names)
        return replace(
            plain,
            classes=names,
            ref=ref if source is None else replace(ref, source=source),
            caller=replace(_caller(plain), opposite=opposite),
        )


def _caller(model: LoadedModel) -> TowerCaller:
    assert isinstance(model.caller, TowerCaller)
    return model.caller


def assemble_towers(
    module: nn.Module, *, tokenizer: Any, transform: Transform, origin: Origin
) -> TwoTowers:
    """A model of two towers with the input layer of each found.

    Raises ModelLoadError, also where the similarity that the model itself computes is another.
    """
    checked_sides(module)
    checked_tokenizer(tokenizer)
    scale, bias = _scale_and_bias(module)
    try:
        with eval_mode(module):
            picture = _picture_side(module, transform, origin)
            text = _text_side(module, tokenizer, origin)
            _check_similarity(module, picture, text, scale, bias)
    except (EngineError, *FORWARD_ERRORS) as error:
        raise ModelLoadError(
            f"{type(module).__name__} fails on a plain picture and a short text: {error}"
        ) from error
    return TwoTowers(module=module, picture=picture, text=text, scale=scale, bias=bias)


def _scale_and_bias(module: Any) -> tuple[float, float]:
    """Factor and summand that make a cosine the model's similarity."""
    given = {name: getattr(module, name, None) for name in ("logit_scale", "temperature")}
    single = {k: v for k, v in given.items() if isinstance(v, Tensor) and v.numel() == 1}
    if not single:
        raise ModelLoadError(
            f"{type(module).__name__} has no logit_scale or temperature, so nothing says what "
            "its similarity is"
        )
    name, value = next(iter(single.items()))
    bias = getattr(module, "logit_bias", None)
    with torch.no_grad():
        scale = value.exp() if name == "logit_scale" else 1 / value
    return float(scale), float(bias.detach()) if isinstance(bias, Tensor) else 0.0


def _base(module: nn.Module, side: Side, main: str) -> dict[str, Any]:
    """The calling convention of one side, read from the signature of its function."""
    function = getattr(module, FEATURES[side])
    names = frozenset(inspect.signature(function).parameters) - {"kwargs"}
    made = Caller(main=main, positional=False, names=names, fixed={})
    return {field.name: getattr(made, field.name) for field in fields(made)}


def _picture_side(module: nn.Module, transform: Transform, origin: Origin) -> LoadedModel:
    dtype, device = placed(module)
    shape = shape_of(transform)
    pictures = probing_pictures(shape, dtype, device)
    tower = Tower.of(module, "picture", {"pixel_values": pictures[:1]})
    base = _base(module, "picture", "pixel_values")
    sites, grid = image_sites(tower, Caller(**base), pictures, shape)
    encoder = PictureSideEncoder(transform, shape=shape, grid=grid, dtype=dtype, device=device)
    return LoadedModel(
        module=tower,
        modality="image",
        classes=("cosine",),
        ref=ref_of(module, "image", ("cosine",), origin),
        encoder=encoder,
        caller=TowerCaller(
            **base, opposite=_first(tower, Caller(**base), {"pixel_values": pictures[1:2]})
        ),
        located=lambda: sites,
    )


def _first(module: nn.Module, caller: Caller, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return caller(module, inputs)[:1].detach()


def _text_side(module: nn.Module, tokenizer: Any, origin: Origin) -> LoadedModel:
    _, device = placed(module)
    base = _base(module, "text", "input_ids")
    caller = Caller(**base)
    # a model whose tokenizer gives no mask reads padding as it reads words
    known = set(getattr(tokenizer, "model_input_names", ()))
    rows = tokenizer(["a"], return_tensors="pt", return_attention_mask=True)
    short = {name: row.to(device) for name, row in rows.items() if _takes(caller, known, name)}
    tower = Tower.of(module, "text", short)
    embeddings = find_embeddings(tower)
    encoder = TextSideEncoder(
        tokenizer,
        limit=capacity(tower, tokenizer),
        usual=None,
        padding=padding_of(module, tokenizer),
        vocabulary=getattr(next(iter(embeddings), None), "num_embeddings", None),
        device=device,
        takes=partial(_takes, caller, known),
    )
    encoder.full = _full(tower, caller, encoder)
    batch = encoder.padded(_probes(encoder))()
    sites = text_sites(tower, caller, embeddings, batch.inputs)
    if sites is None:
        raise ModelLoadError(
            f"the text tower of {type(module).__name__} has neither a word embedding nor a block "
            "with one vector per token"
        )
    return LoadedModel(
        module=tower,
        modality="text",
        classes=("cosine",),
        ref=ref_of(module, "text", ("cosine",), origin),
        encoder=encoder,
        caller=TowerCaller(**base, opposite=_first(tower, caller, batch.inputs)),
        located=lambda: sites,
    )


def _takes(caller: Caller, known: set[str], name: str) -> bool:
    """Whether a text tower takes an input; unlike a closure it can be sent to another process."""
    return caller.takes(name) and (name != "attention_mask" or name in known)


def _probes(encoder: TextSideEncoder) -> list[Encoded]:
    items = [Item(id=text, index=0, content=text) for text in ("a", "a b c d e")]
    made = encoder.encode(items, long_text="truncate", max_length=None)
    probes = [probe for probe in made if isinstance(probe, Encoded)]
    if len(probes) < len(items):
        raise ModelLoadError("the tokenizer finds no token in a short text of Latin letters")
    return probes


def _full(tower: Tower, caller: Caller, encoder: TextSideEncoder) -> int | None:
    """The positions of every text where padding changes the vector of one; else None.

    Such a model (SigLIP) was trained on texts that were all padded to one length.
    """
    short, longer = _probes(encoder)
    if short.length == longer.length or encoder.limit is None:
        return encoder.limit if short.length == encoder.limit else None
    with torch.no_grad():
        alone = caller(tower, encoder.padded([short])().inputs)
        beside = caller(tower, encoder.padded([short, longer])().inputs)
    apart = float((alone[0] - beside[0]).abs().max())
    return encoder.limit if apart > TOLERANCES.get(alone.dtype, 5e-2) else None


def _check_similarity(
    module: nn.Module, picture: LoadedModel, text: LoadedModel, scale: float, bias: float
) -> None:
    """ModelLoadError where the model's own similarity is not scale * cosine + bias."""
    assert isinstance(picture.encoder, ImageEncoder)
    assert isinstance(text.encoder, TextSideEncoder)
    words = text.encoder.padded(_probes(text.encoder))().inputs
    pixels = probing_pictures(picture.encoder.shape, *placed(module))[:2]
    with torch.no_grad():
        own = module(pixel_values=pixels, **words)
        logits = getattr(own, "logits_per_image", None)
        if not isinstance(logits, Tensor):
            raise ModelLoadError(f"{type(module).__name__} gives no logits_per_image")
        cosine = _caller(picture).vectors(picture.module, {"pixel_values": pixels})
        cosine = cosine @ _caller(text).vectors(text.module, words).T
        apart = float((logits - (cosine * scale + bias)).abs().max())
    if apart > TOLERANCES.get(logits.dtype, 5e-2) * max(1.0, abs(scale)):
        raise ModelLoadError(
            f"the similarity of {type(module).__name__} is no scaled cosine of its vectors (they "
            f"differ by {apart:.3g}), and no other is explained"
        )


#: what the source of a classifier of pictures whose classes are texts begins with
PREFIX = "towers:"


@torch.inference_mode(False)
def load_two_towers(
    source: Any,
    tokenizer: Any = None,
    processor: Any = None,
    *,
    dtype: Any = None,
    device: str | None = None,
) -> TwoTowers:
    """The model of two towers (CLIP, SigLIP, AltCLIP, ChineseCLIP, ...) at `source`, or in memory.

    Args:
        source: a directory with config.json and safetensors, a hub id, or a module of
            transformers with `get_image_features` and `get_text_features`; it stays as it is.
        tokenizer: of a module in memory, a fast tokenizer.
        processor: of a module in memory, an image processor or a function from an RGB picture to
            (3, H, W).
        dtype: that files are loaded as: float32 (the default), float64, bfloat16 or float16.
        device: torch device that files are loaded to; default: cpu.

    Raises ModelLoadError naming what is wrong and the remedy.
    """
    if isinstance(source, nn.Module):
        return _in_memory(source, tokenizer, processor)
    if not isinstance(source, str | Path) or tokenizer is not None or processor is not None:
        raise ModelLoadError(
            "a model of two towers is a directory, a hub id, or a module of transformers with its "
            f"tokenizer and image processor, not {source!r:.80}"
        )
    folder, text = folder_of(source)
    check_towers(read_config(folder), text)
    module, read, transform, origin = huggingface.read_two_towers(
        folder,
        source=text,
        dtype=torch_dtype(str(dtype or "float32").removeprefix("torch.")),
        device=place_of(str(device or "cpu")),
    )
    return assemble_towers(module, tokenizer=read, transform=transform, origin=origin)


def load_texts(source: str, *, dtype: Any = None, device: str | None = None) -> LoadedModel:
    """The two towers of `towers:FOLDER?texts=a cat;a dog` as a classifier of pictures.

    See `TwoTowers.as_classifier`. Raises ModelLoadError.
    """
    folder, texts = texts_of(source)
    return load_two_towers(folder, dtype=dtype, device=device).as_classifier(texts, source)


def texts_of(source: str) -> tuple[str, tuple[str, ...]]:
    """The folder or hub id, and the texts, of a `towers:` source; raises ModelLoadError."""
    folder, mark, query = source.removeprefix(PREFIX).partition("?")
    key, _, value = query.partition("=")
    texts = tuple(text.strip() for text in value.split(";"))
    if not folder or not mark or key != "texts" or not all(texts):
        raise ModelLoadError(
            f"cannot read {source!r:.80}; the form is {PREFIX}FOLDER?texts=A TEXT;ANOTHER TEXT"
        )
    return folder, texts


def _in_memory(module: nn.Module, tokenizer: Any, processor: Any) -> TwoTowers:
    module = unwrapped(module)
    checked_sides(module)
    if tokenizer is None or processor is None:
        raise ModelLoadError(
            f"{type(module).__name__} reads pictures and texts: give its tokenizer and its image "
            "processor, load_two_towers(model, tokenizer, processor)"
        )
    origin = Origin.in_memory(module)
    transform = huggingface.transform_of(processor)
    return assemble_towers(module.eval(), tokenizer=tokenizer, transform=transform, origin=origin)


def check_towers(config: dict[str, Any], source: str) -> None:
    """Raise ModelLoadError for a configuration of no two towers, before weights are read."""
    if not huggingface.is_two_towers(config):
        raise ModelLoadError(
            f"{source}: model_type {config.get('model_type')!r} with the architectures "
            f"{config.get('architectures')!r:.80} is no model of two towers that compares pictures "
            "with texts (CLIPModel, SiglipModel, AltCLIPModel, ChineseCLIPModel, ...); load a "
            "classifier with load_model, a language model with load_language_model"
        )


def holds_two_towers(source: str) -> bool:
    """Return whether a directory or hub id is a model of two towers, by its config.json alone."""
    try:
        return huggingface.is_two_towers(read_config(folder_of(source)[0]))
    except ModelLoadError:  # whoever loads it says what is wrong
        return False
