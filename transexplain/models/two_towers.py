"""A model of two towers: it turns pictures and texts into vectors whose cosine says how alike."""

import inspect
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from transexplain.errors import EngineError, ModelLoadError
from transexplain.models.assemble import Origin, checked_tokenizer, padding_of, placed, ref_of
from transexplain.models.calling import Caller, eval_mode
from transexplain.models.image_encoder import ImageEncoder, Transform
from transexplain.models.input_layer import (
    FORWARD_ERRORS,
    find_embeddings,
    image_sites,
    probing_pictures,
    text_sites,
)
from transexplain.models.invariance import TOLERANCES
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.models.picture_prompts import shape_of
from transexplain.models.text_length import capacity
from transexplain.models.tower_sides import (
    FEATURES,
    PictureSideEncoder,
    Side,
    TextSideEncoder,
    Tower,
    TowerCaller,
    checked_sides,
)
from transexplain.types.items import Item, ItemFailure

#: what is explained of a pair: the model's own logit, or the cosine of its two vectors
Likeness = Literal["similarity", "cosine"]
_LOCK = threading.Lock()


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
        with _LOCK:
            view = self._views.get((side, target))
            if view is None:
                view = self._views[side, target] = self._made(side, target)
            return view

    def _made(self, side: Side, target: Likeness) -> LoadedModel:
        whole = target == "similarity"
        plain = self.picture if side == "picture" else self.text
        scale, shift = (self.scale, self.bias) if whole else (1.0, 0.0)
        caller = replace(_caller(plain), scale=scale, shift=shift)
        return replace(
            plain,
            classes=(target,),
            ref=replace(plain.ref, classes=(target,)),
            caller=caller,
        )

    @torch.no_grad()
    def vectors(self, side: Side, encoded: Sequence[Encoded]) -> Tensor:
        """(B, D) the unit vectors of encoded sides, of one forward pass, on the CPU."""
        model = self.picture if side == "picture" else self.text
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
    """What a cosine is multiplied with to be the model's similarity, and what is added."""
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
    short = _short(tokenizer, caller, known, device)
    tower = Tower.of(module, "text", short)
    embeddings = find_embeddings(tower)
    encoder = TextSideEncoder(
        tokenizer,
        limit=capacity(tower, tokenizer),
        usual=None,
        padding=padding_of(module, tokenizer),
        vocabulary=getattr(next(iter(embeddings), None), "num_embeddings", None),
        device=device,
        takes=_Takes(caller, frozenset(known)),
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


@dataclass(frozen=True, slots=True)
class _Takes:
    """Whether a text tower takes an input; unlike a closure it can be sent to another process."""

    caller: Caller
    known: frozenset[str]

    def __call__(self, name: str) -> bool:
        return self.caller.takes(name) and (name != "attention_mask" or name in self.known)


def _short(
    tokenizer: Any, caller: Caller, known: set[str], device: torch.device
) -> dict[str, Tensor]:
    rows = tokenizer(["a"], return_tensors="pt", return_attention_mask=True)
    takes = _Takes(caller, frozenset(known))
    return {name: values.to(device) for name, values in rows.items() if takes(name)}


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
