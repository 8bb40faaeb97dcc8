"""Items of a text model that come as encoded inputs instead of a string."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from transexplain.errors import ItemError
from transexplain.models.base import Encoded
from transexplain.types import Item, Token


def encode_given(
    item: Item, tokenizer: Any | None, room: int | None, vocabulary: int | None
) -> Encoded:
    """The item whose content is `{"input_ids": (T,), "attention_mask": (T,), ...}`.

    A leading batch dimension of 1 is taken off and padding on the right is cut. Raises ItemError
    `bad-input` or `too-long`.
    """
    inputs = {str(name): _row(str(name), values) for name, values in item.content.items()}
    if "input_ids" not in inputs:
        raise ItemError(
            "bad-input", f"encoded inputs need 'input_ids'; given: {', '.join(inputs) or 'nothing'}"
        )
    inputs = _unpadded(inputs)
    length = inputs["input_ids"].shape[0]
    _check(inputs["input_ids"], room, vocabulary)
    return Encoded(
        item=item,
        inputs=inputs,
        features=_tokens(inputs["input_ids"], tokenizer),
        length=length,
        truncated=False,
    )


def _row(name: str, values: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ItemError("bad-input", f"{name} is not an array of numbers: {error}") from error
    if tensor.ndim == 2 and tensor.shape[0] == 1:
        tensor = tensor[0]
    if tensor.ndim != 1 or tensor.is_floating_point() or tensor.is_complex():
        raise ItemError(
            "bad-input",
            f"{name} must hold integers of shape (T,), not {tensor.dtype} of {tuple(tensor.shape)}",
        )
    return tensor.long()


def _unpadded(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    ids = inputs["input_ids"]
    for name, values in inputs.items():
        if values.shape != ids.shape:
            raise ItemError(
                "bad-input", f"{name} has {values.shape[0]} positions, input_ids {ids.shape[0]}"
            )
    mask = inputs.get("attention_mask", torch.ones_like(ids))
    length = int(mask.ne(0).sum())
    if length == 0:
        raise ItemError("empty-text", "no position is attended to")
    if not bool(mask[:length].ne(0).all()):
        raise ItemError(
            "bad-input", "attention_mask hides positions before the last; pad on the right only"
        )
    return {name: values[:length] for name, values in {**inputs, "attention_mask": mask}.items()}


def _check(ids: Tensor, room: int | None, vocabulary: int | None) -> None:
    if room is not None and ids.shape[0] > room:
        raise ItemError(
            "too-long",
            f"{ids.shape[0]} encoded positions where at most {room} are taken; cut them, or use "
            'long_text="window" with a model that has a tokenizer',
        )
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or (vocabulary is not None and high >= vocabulary):
        raise ItemError(
            "bad-input",
            f"input_ids hold {low if low < 0 else high}; the model knows 0 to "
            f"{'...' if vocabulary is None else vocabulary - 1}",
        )


def _tokens(ids: Tensor, tokenizer: Any | None) -> tuple[Token, ...]:
    numbers: list[int] = ids.tolist()
    if tokenizer is None:
        return tuple(Token(text=str(number), start=0, end=0) for number in numbers)
    # [UNK] and [MASK] stand for words of the text, they do not frame it
    framing = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id, tokenizer.mask_token_id}
    pieces = tokenizer.convert_ids_to_tokens(numbers)
    return tuple(
        Token(text=piece or str(number), start=0, end=0, special=number in framing)
        for number, piece in zip(numbers, pieces, strict=True)
    )
