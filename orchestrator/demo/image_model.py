"""Trains the demo's picture classifier: a small vision transformer on scanned digits."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.demo import digits
from orchestrator.demo.short_fit import train_classifier
from transexplain.data.snapshot import prepare
from transexplain.plans import DatasetSpec
from transexplain.training.plan import FitPlan, Optimisation, TrainingPlan

_BATCH, _RATE, _WARMUP = 32, 2e-3, 0.3
_HELD_OUT = 0.05  #: share of the training pictures that the curve of accuracy is measured on
_POSITION_SPREAD = 0.5  #: with timm's 0.02 the model learns only late where a patch is
_MEAN, _STD = 0.3, 0.32  #: of the pictures, same for every channel
_SIDE = digits.SIDE * digits.SCALE
_ARCHITECTURE: dict[str, Any] = {
    "img_size": _SIDE,
    "patch_size": digits.SCALE,
    "in_chans": 3,
    "num_classes": len(digits.DIGITS),
    "embed_dim": 64,
    "depth": 2,
    "num_heads": 4,
    "mlp_ratio": 2.0,
    "qkv_bias": True,
    "global_pool": "token",
    "class_token": True,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageDemo:
    """A digit classifier with pictures that it was not trained on."""

    model_dir: Path
    image_dir: Path  #: one folder per digit


def make_image_demo(folder: Path, seed: int, *, held_out: int = 400, epochs: int = 12) -> ImageDemo:
    """Write held-out pictures, train the classifier on the others, save it.

    Args:
        folder: made if absent; gets `training/model/` and `pictures/`.
        seed: decides the cut and the weights.
        held_out: pictures to audit.
        epochs: passes over the training pictures.
    """
    image_dir = folder / "pictures"
    training, audit = digits.load_scans(held_out=held_out, seed=seed)
    digits.write_folder(audit, image_dir)
    model_dir = train(training, folder, seed=seed, epochs=epochs)
    return ImageDemo(model_dir=model_dir, image_dir=image_dir)


def train(scans: digits.Scans, folder: Path, *, seed: int, epochs: int) -> Path:
    """Train on the scans, below `folder`; the directory of the model.

    The global random state is left as it was; weights depend on the seed and the scans only.
    """
    start, pictures = folder / "start", folder / "training-pictures"
    _write_untrained(start, seed)
    digits.write_folder(scans, pictures)
    plan = TrainingPlan(
        source=str(start),
        dataset=prepare(DatasetSpec(source=f"imagefolder:{pictures}"), folder / "snapshots"),
        output=folder / "training",
        share=_HELD_OUT,
        stages=None,
        seed=seed,
        optimisation=Optimisation(learning_rate=_RATE, weight_decay=0.05, label_smoothing=0.05),
        fit=FitPlan(
            epochs=epochs, batch_size=_BATCH, warmup=_WARMUP, clip=None, keep="last", seed=seed
        ),
    )
    return train_classifier(plan)


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
        "classes": list(digits.DIGITS),
    }
    text = json.dumps(config, indent=1)
    (folder / "config.json").write_text(text, encoding="utf-8")
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors")
