"""Pictures and masks of unknown origin: an input is the file."""

from pathlib import Path

import numpy as np

from fuzz.guard import promise
from transexplain.data.image_files import MAX_PIXELS, load_image, load_mask
from transexplain.errors import ItemError

_FILE = Path("picture.png")


def target(data: bytes) -> None:
    """A picture that opens is RGB of a bounded size, and the same when opened again."""
    _FILE.write_bytes(data)
    try:
        mask = load_mask(_FILE)
        promise(mask.ndim == 2 and mask.dtype == np.bool_, "a mask is not (H, W) of truths")
        promise(mask.size <= MAX_PIXELS, "a mask beyond the limit")
    except ItemError:
        pass
    image = load_image(_FILE)
    promise(image.mode == "RGB", f"the mode is {image.mode}")
    promise(0 < image.width * image.height <= MAX_PIXELS, "a picture beyond the limit")
    if image.width * image.height < 1_000_000:
        promise(image.tobytes() == load_image(_FILE).tobytes(), "opened again it is another")
