"""Presets of trainings: defaults over which the keys of a specification win.

Text backbones are tuned at the rates usual for BERT (Devlin et al. 2019, section A.3: 2e-5 to
5e-5, batches of 16 or 32, 2 to 4 epochs), vision backbones at those for fine-tuning ViT and DeiT.
`joint` trains classifier and explainer together, `separate` the explainer after the classifier.
"""

from collections.abc import Mapping
from typing import Any

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

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "joint-text": {**_TEXT, "explainer": {"mode": "joint"}},
    "joint-vision": {**_VISION, "explainer": {"mode": "joint"}},
    "separate-text": {**_TEXT, "explainer": {"mode": "separate"}},
    "separate-vision": {**_VISION, "explainer": {"mode": "separate"}},
}


def with_preset(document: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    """`document` with what it leaves open from `preset`, section by section."""
    merged = dict(document)
    for key, default in preset.items():
        given = merged.get(key)
        if key not in merged:
            merged[key] = default
        elif isinstance(default, Mapping) and isinstance(given, Mapping):
            merged[key] = with_preset(given, default)
    return merged
