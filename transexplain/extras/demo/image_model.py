"""The demo's picture classifier: a small vision transformer on the digits of scikit-learn."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from transexplain.extras.demo.text_model import trained_whole
from transexplain.extras.training.training_plans import Optimisation
from transexplain.types.plans import DatasetSpec

DIGITS = tuple("0123456789")
SIDE = 8  #: pixels of a scanned digit
SCALE = 4  #: how much the pictures are enlarged; a patch covers about one scanned pixel
_INK = 16  #: the darkest value of the scans


#: pictures (N, 32, 32), grey, ink is bright, and their digits (N,)
Scans = tuple[NDArray[np.uint8], NDArray[np.int64]]


def load_scans(*, held_out: int, seed: int) -> tuple[Scans, Scans]:
    """The 1,797 scans, shuffled by the seed and cut into training and held-out pictures."""
    from sklearn.datasets import load_digits

    source = load_digits()
    grey = np.rint(source.images * (255 / _INK)).astype(np.uint8)
    size, smooth = (SIDE * SCALE, SIDE * SCALE), Image.Resampling.BILINEAR
    large = np.stack([np.asarray(Image.fromarray(scan).resize(size, smooth)) for scan in grey])
    order = np.random.default_rng(seed).permutation(len(large))
    labels, training, audit = source.target.astype(np.int64), order[held_out:], order[:held_out]
    return (large[training], labels[training]), (large[audit], labels[audit])


def write_folder(scans: Scans, folder: Path) -> None:
    """Write `folder/<digit>/<number>.png`, colour pictures of 32 x 32 pixels."""
    written: Counter[int] = Counter()
    pixels, labels = scans
    for picture, label in zip(pixels, labels.tolist(), strict=True):
        target = folder / DIGITS[label]
        target.mkdir(parents=True, exist_ok=True)
        path = target / f"{written[label]:04d}.png"
        Image.fromarray(picture).convert("RGB").save(path)
        written[label] += 1


_BATCH, _RATE = 32, 2e-3
_POSITION_SPREAD = 0.5  #: with timm's 0.02 the model learns only late where a patch is
_MEAN, _STD = 0.3, 0.32  #: of the pictures, same for every channel
_SIDE = SIDE * SCALE
_ARCHITECTURE: dict[str, Any] = {
    "img_size": _SIDE,
    "patch_size": SCALE,
    "in_chans": 3,
    "num_classes": len(DIGITS),
    "embed_dim": 64,
    "depth": 2,
    "num_heads": 4,
    "mlp_ratio": 2.0,
    "qkv_bias": True,
    "global_pool": "token",
    "class_token": True,
}


def make_image_demo(
    folder: Path, seed: int, *, held_out: int = 400, epochs: int = 12
) -> tuple[Path, Path]:
    """Write held-out pictures, train the classifier on the others, save it.

    Returns the folder of the model and that of the pictures, which has one folder per digit.

    Args:
        folder: made if absent; gets `training/model/` and `pictures/`.
        seed: decides the cut and the weights.
        held_out: pictures to audit.
        epochs: passes over the training pictures.
    """
    image_dir = folder / "pictures"
    training, audit = load_scans(held_out=held_out, seed=seed)
    write_folder(audit, image_dir)
    return train(training, folder, seed=seed, epochs=epochs), image_dir


def train(scans: Scans, folder: Path, *, seed: int, epochs: int) -> Path:
    """Train on the scans, below `folder`; the directory of the model.

    The global random state is left as it was; weights depend on the seed and the scans only.
    """
    pictures = folder / "training-pictures"
    _write_untrained(folder / "start", seed)
    write_folder(scans, pictures)
    return trained_whole(
        DatasetSpec(source=f"imagefolder:{pictures}"),
        folder,
        seed=seed,
        epochs=epochs,
        batch_size=_BATCH,
        optimisation=Optimisation(learning_rate=_RATE, weight_decay=0.05, label_smoothing=0.05),
    )


def _write_untrained(folder: Path, seed: int) -> None:
    """Weights drawn from the seed, as `config.json` and `model.safetensors`."""
    import torch
    from safetensors.torch import save_file
    from timm.models.vision_transformer import VisionTransformer

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = VisionTransformer(**_ARCHITECTURE, weight_init="jax")  # sized for a narrow model
        torch.nn.init.normal_(model.pos_embed, std=_POSITION_SPREAD)
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architecture": "timm.models.vision_transformer.VisionTransformer",
        "timm_args": _ARCHITECTURE,
        "mean": [_MEAN] * 3,
        "std": [_STD] * 3,
        "input_size": [3, _SIDE, _SIDE],
        "interpolation": "bicubic",
        "classes": list(DIGITS),
    }
    text = json.dumps(config, indent=1)
    (folder / "config.json").write_text(text, encoding="utf-8")
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors")
