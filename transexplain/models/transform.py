"""The form of every picture transform."""

from collections.abc import Callable

from PIL import Image
from torch import Tensor

#: an RGB picture to the model's input (3, H, W)
Transform = Callable[[Image.Image], Tensor]
