"""Both inputs of an encoder-decoder as one input layer: the text, and what was answered so far."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from transexplain.errors import ModelLoadError


class TwoSides(nn.Module):
    """An encoder-decoder whose word vectors of both sides pass through one place.

    `joined` sees (B, T + S, D): the decoder's T vectors, then the encoder's S, so padding is at
    the end. What it gives stands in the place of what the two embeddings give.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.config = model.config
        self.joined = nn.Identity()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Any:
        """The model's own output; its words (B, S) and (B, T) are embedded before it is called."""
        encoder, decoder = tables(self.model)
        words = [decoder(decoder_input_ids), encoder(input_ids)]
        length = decoder_input_ids.shape[1]
        both = self.joined(torch.cat(words, dim=1))
        sides = {"decoder": both[:, :length], "encoder": both[:, length:]}
        handles = [decoder.register_forward_hook(_giving([sides["decoder"]]))]
        if encoder is decoder:
            handles[0].remove()
            handles = [encoder.register_forward_hook(_giving([sides["encoder"], sides["decoder"]]))]
        else:
            handles.append(encoder.register_forward_hook(_giving([sides["encoder"]])))
        try:
            return self.model(
                input_ids=input_ids,
                attention_mask=attention_mask,
                decoder_input_ids=decoder_input_ids,
                use_cache=False,
            )
        finally:
            for handle in handles:
                handle.remove()


def _giving(values: list[Tensor]) -> Callable[..., Tensor]:
    """A hook that gives these in the order of the calls, and the last one from then on."""
    waiting = list(reversed(values))

    def hook(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        given = waiting.pop() if len(waiting) > 1 else waiting[0]
        if given.shape != output.shape:
            raise ModelLoadError(
                f"a word embedding gave {tuple(output.shape)} where {tuple(given.shape)} was "
                "expected: this encoder-decoder does not embed each side once"
            )
        return given

    return hook


def tables(model: Any) -> tuple[nn.Module, nn.Module]:
    """The word embeddings of the encoder and of the decoder; ModelLoadError where they have none.

    Both may be the same module.
    """
    try:
        embeddings = [
            side().get_input_embeddings() for side in (model.get_encoder, model.get_decoder)
        ]
    except (AttributeError, NotImplementedError, TypeError) as error:
        raise ModelLoadError(
            f"{type(model).__name__} does not say what embeds the words of its encoder and of its "
            f"decoder: {error}"
        ) from error
    if not all(isinstance(embedding, nn.Module) for embedding in embeddings):
        raise ModelLoadError(f"{type(model).__name__} has no word embedding on one of its sides")
    return embeddings[0], embeddings[1]
