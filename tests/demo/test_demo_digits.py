from pathlib import Path

import numpy as np
from PIL import Image

from orchestrator.demo import image_model


def test_the_cut_loses_nothing_and_shares_nothing() -> None:
    training, audit = image_model.load_scans(held_out=300, seed=1)
    assert (len(training.labels), len(audit.labels)) == (1497, 300)
    assert training.pixels.shape == (1497, 32, 32)
    assert set(training.labels.tolist()) == set(audit.labels.tolist()) == set(range(10))
    whole, nothing = image_model.load_scans(held_out=0, seed=2)
    assert len(nothing.labels) == 0
    cut = sorted(p.tobytes() for part in (training, audit) for p in part.pixels)
    assert cut == sorted(p.tobytes() for p in whole.pixels)


def test_the_seed_decides_the_cut() -> None:
    _, first = image_model.load_scans(held_out=50, seed=1)
    _, again = image_model.load_scans(held_out=50, seed=1)
    _, other = image_model.load_scans(held_out=50, seed=2)
    assert np.array_equal(first.pixels, again.pixels)
    assert not np.array_equal(first.pixels, other.pixels)


def test_pictures_keep_their_ink_and_place() -> None:
    from sklearn.datasets import load_digits

    source = load_digits()
    scans, _ = image_model.load_scans(held_out=0, seed=0)
    mean = scans.pixels.mean(axis=0).reshape(8, 4, 8, 4).mean(axis=(1, 3))
    assert np.corrcoef(mean.ravel(), source.images.mean(axis=0).ravel())[0, 1] > 0.99
    assert 200 < scans.pixels.max() <= 255


def test_the_folder_holds_every_picture_under_its_digit(tmp_path: Path) -> None:
    _, audit = image_model.load_scans(held_out=40, seed=0)
    image_model.write_folder(audit, tmp_path)
    found = []
    for path in tmp_path.glob("*/*.png"):
        with Image.open(path) as picture:
            assert (picture.mode, picture.size) == ("RGB", (32, 32))
            pixels = np.asarray(picture)
        assert (pixels[..., 0] == pixels[..., 1]).all()
        found.append((path.parent.name, pixels[..., 0].tobytes()))
    wanted = zip(audit.labels.tolist(), audit.pixels, strict=True)
    assert sorted(found) == sorted((str(label), p.tobytes()) for label, p in wanted)
