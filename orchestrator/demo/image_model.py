"""Trains the demo's picture classifier: a small vision transformer on scanned digits."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.demo import digits

if TYPE_CHECKING:
    from torch import Tensor

_BATCH, _RATE = 32, 2e-3
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
        folder: made if absent; gets `model/` and `pictures/`.
        seed: decides the cut and the weights.
        held_out: pictures to audit.
        epochs: passes over the training pictures.
    """
    model_dir, image_dir = folder / "model", folder / "pictures"
    training, audit = digits.load_scans(held_out=held_out, seed=seed)
    digits.write_folder(audit, image_dir)
    train(training, model_dir, seed=seed, epochs=epochs)
    return ImageDemo(model_dir=model_dir, image_dir=image_dir)


def train(scans: digits.Scans, model_dir: Path, *, seed: int, epochs: int) -> None:
    """Train on the scans and save `config.json` and `model.safetensors`.

    The global random state is left as it was; weights depend on the seed and the scans only.
    """
    import torch
    from safetensors.torch import save_file
    from timm.models.vision_transformer import VisionTransformer

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = VisionTransformer(**_ARCHITECTURE, weight_init="jax")  # sized for a narrow model
        torch.nn.init.normal_(model.pos_embed, std=_POSITION_SPREAD)
        _fit(model, torch.from_numpy(scans.pixels), torch.from_numpy(scans.labels), epochs)
    model_dir.mkdir(parents=True, exist_ok=True)
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
    (model_dir / "config.json").write_text(text, encoding="utf-8")
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights, model_dir / "model.safetensors")


def _fit(model: Any, pixels: "Tensor", labels: "Tensor", epochs: int) -> None:
    import torch
    from torch.nn.functional import cross_entropy
    from torch.optim import AdamW
    from torch.optim.lr_scheduler import OneCycleLR

    pictures = ((pixels.float() / 255 - _MEAN) / _STD).unsqueeze(1).expand(-1, 3, -1, -1)
    optimiser = AdamW(model.parameters(), lr=_RATE, weight_decay=0.05)
    steps = epochs * -(-len(labels) // _BATCH)
    schedule = OneCycleLR(optimiser, max_lr=_RATE, total_steps=steps)
    model.train()
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(labels)), _BATCH):
            loss = cross_entropy(model(pictures[rows]), labels[rows], label_smoothing=0.05)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
    model.eval()
