"""Prompts with a picture: a language model whose words and patches pass through one place."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import pad

from transexplain.errors import EngineError, ItemError, ModelLoadError
from transexplain.models.calling import Caller
from transexplain.models.image_encoder import NAME, ImageEncoder, Transform
from transexplain.models.input_layer import (
    FORWARD_ERRORS,
    Sites,
    find_blocks,
    infer_grid,
    input_of,
    probing_pictures,
)
from transexplain.models.loaded_model import Encoded
from transexplain.types.items import Item, ItemFailure
from transexplain.types.prompts import Prompt


def shape_of(transform: Transform) -> tuple[int, int, int]:
    """(3, H, W) that pictures are read as; raises ModelLoadError."""
    try:
        shape = tuple(transform(Image.new("RGB", (96, 64), (128, 128, 128))).shape)
    except Exception as error:  # numbers of its configuration that fit no picture
        raise ModelLoadError(f"the image processor cannot read a picture: {error}") from error
    if len(shape) != 3:
        raise ModelLoadError(
            f"the image processor gives pictures of shape {shape} where (3, H, W) is needed; "
            "models that cut a picture into a list of patches themselves are not supported"
        )
    return shape[0], shape[1], shape[2]


def reads_pictures(model: Any) -> bool:
    """Whether a module of transformers puts pictures in the place of a token of its prompts."""
    token = getattr(getattr(model, "config", None), "image_token_id", None)
    return isinstance(token, int) and callable(getattr(model, "get_image_features", None))


class WordsAndPatches(nn.Module):
    """A model of pictures and texts whose word vectors and patches pass through one place.

    `joined` sees (B, T + P, D): the T words, then the P positions that the first block of the
    picture's tower reads; the narrower of both is filled up with zeros.
    """

    def __init__(self, model: nn.Module, block: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.config = model.config
        self.joined = nn.Identity()
        self._block = (block,)  # in a tuple: it is a part of the model already

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        logits_to_keep: Any = 0,
    ) -> Any:
        """The model's own output; without pictures the words alone are joined."""
        table, length = self.model.get_input_embeddings(), input_ids.shape[1]  # type: ignore[operator]
        words = table(input_ids)
        own = {"input_ids": input_ids, "attention_mask": attention_mask, "use_cache": False}
        own["logits_to_keep"] = logits_to_keep
        if pixel_values is None:
            both = self.joined(words)
            handles = [table.register_forward_hook(lambda *_: both)]
        else:
            patches = self.patches(pixel_values)
            sides, width = (words, patches), max(words.shape[-1], patches.shape[-1])
            wide = [pad(side, (0, width - side.shape[-1])) for side in sides]
            both = self.joined(torch.cat(wide, dim=1))
            read, seen = both[:, :length, : words.shape[-1]], both[:, length:, : patches.shape[-1]]
            own["pixel_values"] = pixel_values
            handles = [table.register_forward_hook(lambda *_: read), self._before_block(seen)]
        try:
            return self.model(**own)
        finally:
            for handle in handles:
                handle.remove()

    def patches(self, pixel_values: Tensor) -> Tensor:
        """(B, P, D) what the first block of the picture's tower reads."""
        return input_of(self.model, _Seeing(), self._sites, {NAME: pixel_values})

    @property
    def _sites(self) -> Sites:
        return Sites(block=self._block[0], block_name="the picture's tower")

    def _before_block(self, seen: Tensor) -> Any:
        def hook(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if args:
                return (seen, *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": seen}

        return self._block[0].register_forward_pre_hook(hook, with_kwargs=True)


class _Seeing(Caller):
    """Runs the picture's side of a model alone, up to where a tap ends it."""

    def __init__(self) -> None:
        super().__init__(main=NAME, positional=False, names=None, fixed={})

    def __call__(self, module: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
        return module.get_image_features(inputs[NAME])  # type: ignore[operator, no-any-return]


def words_of(module: nn.Module) -> nn.Module:
    """The part of a model that reads words: all of it, or that behind the picture's tower."""
    if not isinstance(module, WordsAndPatches):
        return module
    decoder = module.model.get_decoder()  # type: ignore[operator]
    return decoder if isinstance(decoder, nn.Module) else module


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PromptPictures:
    """How a language model reads the picture of a prompt."""

    encoder: ImageEncoder
    token: str  #: the text that a picture stands in the place of
    count: int  #: tokens that it takes there

    def placed(self, prompt: Prompt) -> Prompt:
        """The prompt with as many picture tokens as a picture takes.

        Raises ItemError `no-place` where the picture has no place, or several.
        """
        if prompt.text.count(self.token) != 1:
            raise ItemError(
                "no-place",
                f"the prompt needs {self.token} once, where the picture stands, and has it "
                f"{prompt.text.count(self.token)} times",
            )
        parts = tuple(
            (name, text.replace(self.token, self.token * self.count)) for name, text in prompt.parts
        )
        return replace(prompt, parts=parts)

    def read(self, item: Item, picture: Any) -> Encoded:
        """The picture as the model takes it; raises ItemError."""
        shown = Item(id=item.id, index=item.index, content=picture)
        (made,) = self.encoder.encode([shown], long_text="error", max_length=None)
        if isinstance(made, ItemFailure):
            raise ItemError(made.kind, made.message)
        return replace(made, inputs={NAME: made.inputs[NAME].to(self.encoder.dtype)})

    @classmethod
    def of(
        cls, model: nn.Module, transform: Transform, shape: tuple[int, int, int], tokenizer: Any
    ) -> "tuple[PromptPictures, nn.Module]":
        """The reader of pictures for `model`, and the first block of its picture tower.

        Raises ModelLoadError where no layer list has one position for each patch.
        """
        first = next(model.parameters())
        dtype, device = first.dtype, first.device
        pictures = probing_pictures(shape, dtype, device)
        for name, block in find_blocks(model):
            sites = Sites(block=block, block_name=name)
            try:
                seen = input_of(model, _Seeing(), sites, {NAME: pictures})
                grid, layout = infer_grid(seen, shape)
            except (AttributeError, EngineError, ModelLoadError, *FORWARD_ERRORS):
                continue
            if layout != "sequence":
                continue
            encoder = ImageEncoder(transform, shape=shape, grid=grid, dtype=dtype, device=device)
            number = getattr(model.config, "image_token_id", None)
            token = str(tokenizer.convert_ids_to_tokens(number))
            return cls(encoder=encoder, token=token, count=_count(model, pictures[:1])), block
        raise ModelLoadError(
            f"{type(model).__name__} reads pictures by a tower whose blocks do not have one "
            "position for each patch, and no other is explained"
        )


def with_pictures(
    model: nn.Module, tokenizer: Any, transform: Transform
) -> tuple[PromptPictures, WordsAndPatches]:
    """How a model reads the pictures of prompts, and the model with one input layer for both.

    Raises ModelLoadError without a tokenizer, and for a model that reads no pictures.
    """
    if tokenizer is None:
        raise ModelLoadError("where a picture stands in a prompt is told by a tokenizer: give it")
    if not reads_pictures(model):
        raise ModelLoadError(
            f"{type(model).__name__} puts no pictures in the place of a token (image_token_id): "
            "leave the image processor out"
        )
    pictures, block = PromptPictures.of(model, transform, shape_of(transform), tokenizer)
    return pictures, WordsAndPatches(model, block)


def _count(model: Any, picture: Tensor) -> int:
    """Tokens of the prompt that a picture takes."""
    with torch.no_grad():
        features = model.get_image_features(picture)
    features = getattr(features, "pooler_output", features)
    rows = [feature.reshape(-1, feature.shape[-1]) for feature in features]
    return sum(len(row) for row in rows)
