"""Presets of a training: the columns of TransExplain's Table 2, and shorter ones.

`joint-*` and `separate-*` are the columns of the paper's Table 2: `joint` trains classifier and
explainer together, `separate` the explainer afterwards, of a base that is frozen. `quick-*` are
shorter: text backbones at the rates usual for BERT (Devlin et al. 2019, section A.3: 2e-5 to 5e-5,
batches of 16 or 32, 2 to 4 epochs), vision backbones at those for fine-tuning ViT and DeiT.
"""

from collections.abc import Mapping
from typing import Any, Literal

_TEXT: dict[str, Any] = {
    "stages": {"head_epochs": 1, "interval_epochs": 1, "layers_per_interval": 3, "decay": 0.7},
    "optimisation": {
        "epochs": 8,
        "batch_size": 16,
        "learning_rate": 3e-5,
        "head_learning_rate": 1e-3,
        "weight_decay": 0.01,
        "clip": 1.0,
        "warmup": 0.1,
        "patience": 3,
    },
}
_VISION: dict[str, Any] = {
    "stages": {"head_epochs": 2, "interval_epochs": 2, "layers_per_interval": 3, "decay": 0.7},
    "optimisation": {
        "epochs": 20,
        "batch_size": 32,
        "learning_rate": 1e-4,
        "head_learning_rate": 1e-3,
        "weight_decay": 0.05,
        "label_smoothing": 0.1,
        "augment": True,
        "clip": 1.0,
        "warmup": 0.1,
        "patience": 5,
    },
}

#: what the columns of Table 2 share: of the base, and of the explanation (XAI) module
_BASE: dict[str, Any] = {
    "weight_decay": 0.01,
    "dropout": 0.1,
    "clip": 1.0,
    "warmup": 0.1,
    "schedule": "whole",
    "patience": 5,
    "patience_from": "start",
}
_XAI: dict[str, Any] = {
    "loss": "mse",
    "learning_rate": 1e-4,
    "weight_decay": 0.01,
    "dropout": 0.1,
    "patience": 5,
}
#: section 4.1: the top 2 to 3 layers every 5 epochs; its lower rate has no figure, so a half
_GRADUAL: dict[str, Any] = {
    "head_epochs": 5,
    "interval_epochs": 5,
    "layers_per_interval": 3,
    "decay": 0.5,
    "decays_first": True,
}


def _joint(epochs: int, weight: float) -> dict[str, Any]:
    return {
        "precision": "mixed",
        "stages": _GRADUAL,
        "optimisation": {**_BASE, "epochs": epochs, "batch_size": 32, "learning_rate": 1e-4},
        "explainer": {**_XAI, "mode": "joint", "weight": weight},
    }


def _separate(epochs: int) -> dict[str, Any]:
    """`epochs`: of the explainer, once the base is trained and frozen."""
    return {
        "precision": "mixed",
        "stages": "none",
        "optimisation": {**_BASE, "epochs": 10, "batch_size": 16, "learning_rate": 2e-5},
        "explainer": {**_XAI, "mode": "separate", "epochs": epochs, "batch_size": 16},
    }


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "joint-text": _joint(25, 0.3),
    "joint-vision": _joint(30, 0.2),
    "separate-text": _separate(15),
    "separate-vision": _separate(20),
    "quick-joint-text": {**_TEXT, "explainer": {"mode": "joint"}},
    "quick-joint-vision": {**_VISION, "explainer": {"mode": "joint"}},
    "quick-separate-text": {**_TEXT, "explainer": {"mode": "separate"}},
    "quick-separate-vision": {**_VISION, "explainer": {"mode": "separate"}},
}
PresetName = Literal[
    "joint-text",
    "joint-vision",
    "separate-text",
    "separate-vision",
    "quick-joint-text",
    "quick-joint-vision",
    "quick-separate-text",
    "quick-separate-vision",
]


def renamed_preset(name: str | None) -> str | None:
    """What to know of a preset whose name had other values once; None: nothing."""
    if name is None or f"quick-{name}" not in PRESETS:
        return None
    return (
        f"preset {name} is Table 2 of the TransExplain paper; the values that it had before are "
        f"quick-{name}"
    )
