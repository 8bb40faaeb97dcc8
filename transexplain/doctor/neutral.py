"""An item to examine where the user gives none: nothing in it stands out."""

from typing import Any

import numpy as np
import torch

from transexplain.errors import ConfigurationError
from transexplain.models.base import NEUTRAL_TEXT, LoadedModel
from transexplain.models.image import ImageEncoder
from transexplain.models.text import TextEncoder


def neutral_content(model: LoadedModel) -> Any:
    """A plain sentence, or a picture whose colours change from side to side.

    Raises ConfigurationError for a graph model and for a text model without a tokenizer.
    """
    encoder = model.encoder
    if isinstance(encoder, ImageEncoder):
        return _picture(encoder)
    if model.modality == "nodes":
        raise ConfigurationError(
            f"no graph suits every model: pass an item, {{'{model.caller.main}': (T, F), ...}}"
        )
    if isinstance(encoder, TextEncoder) and encoder.tokenizer is None:
        raise ConfigurationError(
            "this model was wrapped without a tokenizer: pass an item, {'input_ids': ...}"
        )
    return NEUTRAL_TEXT


def _picture(encoder: ImageEncoder) -> Any:
    channels, height, width = encoder.shape
    down, across = np.mgrid[0:height, 0:width] / max(height - 1, width - 1, 1)
    ramps = np.stack([across, down, (across + down) / 2], axis=-1)
    if encoder.transform is not None:
        return ramps
    wanted = np.resize(ramps.transpose(2, 0, 1), (channels, height, width))
    return {"pixel_values": torch.from_numpy(2 * wanted - 1)}
