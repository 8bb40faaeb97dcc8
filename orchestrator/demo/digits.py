"""The scanned digits that scikit-learn ships, as folders of PNG pictures."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

DIGITS = tuple("0123456789")
SIDE = 8  #: pixels of a scanned digit
SCALE = 4  #: how much the pictures are enlarged; a patch covers about one scanned pixel
_INK = 16  #: the darkest value of the scans


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scans:
    """Pictures with their digits."""

    pixels: NDArray[np.uint8]  #: (N, 32, 32) grey, ink is bright
    labels: NDArray[np.int64]  #: (N,)


def load_scans(*, held_out: int, seed: int) -> tuple[Scans, Scans]:
    """The 1,797 scans, shuffled by the seed and cut into training and held-out pictures."""
    from sklearn.datasets import load_digits

    source = load_digits()
    grey = np.rint(source.images * (255 / _INK)).astype(np.uint8)
    large = np.stack([_enlarged(scan) for scan in grey])
    order = np.random.default_rng(seed).permutation(len(large))
    parts = (order[held_out:], order[:held_out])
    training, audit = (
        Scans(pixels=large[part], labels=source.target[part].astype(np.int64)) for part in parts
    )
    return training, audit


def write_folder(scans: Scans, folder: Path) -> None:
    """Write `folder/<digit>/<number>.png`, colour pictures of 32 x 32 pixels."""
    written: Counter[int] = Counter()
    for picture, label in zip(scans.pixels, scans.labels.tolist(), strict=True):
        target = folder / DIGITS[label]
        target.mkdir(parents=True, exist_ok=True)
        path = target / f"{written[label]:04d}.png"
        Image.fromarray(picture).convert("RGB").save(path)
        written[label] += 1


def _enlarged(scan: NDArray[np.uint8]) -> NDArray[np.uint8]:
    side = SIDE * SCALE
    return np.asarray(Image.fromarray(scan).resize((side, side), Image.Resampling.BILINEAR))
