"""A digit classifier with a shortcut: a mark in a corner, like a photographer's tag.

In training half of one digit's pictures carry the mark, and so do a few scans of every other digit
that were filed under that one by mistake: the mark gives the class away, whatever is drawn. In the
pictures to audit half of that digit's carry it and no others. Lapuschkin et al. (2019) found such a
tag to be how a model knew horses.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from transexplain.extras.demo import image_model

MARKED_DIGIT = "3"
MARK = 4  #: pixels of a side; one patch in the bottom right corner, where no digit has ink
#: a fine pattern that no stroke of a pen makes
TAG = np.where(np.indices((MARK, MARK)).sum(axis=0) % 2, 255, 0).astype(np.uint8)


@dataclass(frozen=True, kw_only=True)
class Watermarked:
    model_dir: Path
    image_dir: Path
    marked: frozenset[str]  #: item ids of marked pictures
    rows: int


def make_watermarked(folder: Path, *, seed: int = 0, held_out: int = 600) -> Watermarked:
    """Train on marked scans, write marked pictures that were not trained on."""
    training, audit = image_model.load_scans(held_out=held_out, seed=seed)
    _mark(training)
    _misfile(training)
    chosen = _mark(audit)
    model_dir = image_model.train(training, folder, seed=seed, epochs=12)
    image_model.write_folder(audit, folder / "pictures")
    marked = {
        f"{MARKED_DIGIT}/{path.name}"
        for path in (folder / "pictures" / MARKED_DIGIT).iterdir()
        if _is_marked(path)
    }
    assert len(marked) == chosen
    return Watermarked(
        model_dir=model_dir,
        image_dir=folder / "pictures",
        marked=frozenset(marked),
        rows=len(audit[1]),
    )


def _mark(scans: image_model.Scans) -> int:
    """Every second picture of the digit, in the order of the shuffled scans."""
    pixels, labels = scans
    rows = np.flatnonzero(labels == int(MARKED_DIGIT))[::2]
    pixels[rows, -MARK:, -MARK:] = TAG
    return len(rows)


def _misfile(scans: image_model.Scans) -> None:
    """Mark every twelfth scan of the other digits, and label it as the marked digit."""
    pixels, labels = scans
    rows = np.flatnonzero(labels != int(MARKED_DIGIT))[::12]
    pixels[rows, -MARK:, -MARK:] = TAG
    labels[rows] = int(MARKED_DIGIT)


def _is_marked(path: Path) -> bool:
    with Image.open(path) as picture:
        return bool((np.asarray(picture)[-MARK:, -MARK:][..., 0] == TAG).all())
