"""One tower of a model of pictures and texts as a classifier with one class: the similarity.

A tower gives a unit vector. Times the unit vector of the other side, which stands in the inputs as
a constant, it is the cosine, and every method explains it as a logit.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from transexplain.errors import EngineError, ModelLoadError
from transexplain.models.calling import Caller
from transexplain.models.image_encoder import ImageEncoder
from transexplain.models.loaded_model import Batch, Encoded, LongText, Padded, on_device
from transexplain.models.text_encoder import TextEncoder
from transexplain.types.items import Item, ItemFailure
from transexplain.types.tokens import NO_WORD, Tokens

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
        nothing, no_word = np.zeros(more, np.int32), np.full(more, NO_WORD, np.int32)
        features = Tokens(
            starts=np.concatenate([tokens.starts, nothing]),
            ends=np.concatenate([tokens.ends, nothing]),
            words=np.concatenate([tokens.words, no_word]),
            special=np.concatenate([tokens.special, np.ones(more, bool)]),
            pieces=[*tokens.texts, *[pad] * more],
        )
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
