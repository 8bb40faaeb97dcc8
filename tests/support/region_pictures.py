"""Pictures with marked squares of two colours, and a ViT set by hand that sees one of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from tiny_models import vit
from torch import nn

SIDE, PATCH = 24, 8  #: pixels
RED, BLUE = "colour/red", "colour/blue"


def red_reader(weight: float) -> "transformers.ViTForImageClassification":
    """Says *yes* by `weight` times the red of all patches; every other weight is 0 or 1.

    Attention is uniform and passes on what it reads, and the perceptron adds nothing.
    """
    model = vit(num_labels=2, num_hidden_layers=1, id2label={0: "no", 1: "yes"})
    for name, one in model.named_parameters():
        is_norm = "layernorm" in name and name.endswith("weight")
        nn.init.constant_(one, 1.0 if is_norm else 0.0)
    constant = torch.zeros(16)
    constant[2:4] = torch.tensor([1.0, -1.0])
    tell = torch.zeros(16, 3, PATCH, PATCH)
    tell[0, 0], tell[1, 0] = 1 / PATCH**2, -1 / PATCH**2
    found = dict(model.named_parameters())
    with torch.no_grad():
        found["vit.embeddings.cls_token"][0, 0] = constant
        found["vit.embeddings.patch_embeddings.projection.weight"][:] = tell
        found["vit.embeddings.patch_embeddings.projection.bias"][:] = constant
        for part in "vo":
            found[f"vit.layers.0.attention.{part}_proj.weight"][:] = torch.eye(16)
        model.classifier.weight[1, 0] = weight
        model.classifier.bias[1] = weight / 3  # between pictures with and without a red square
    return model


def make_region_audit(
    folder: Path, *, weight: float = 6.0, items: int = 24, **groups: Any
) -> dict[str, Any]:
    """The keys of an audit of noisy pictures: every one has a red square, a blue one, or both."""
    red_reader(weight).save_pretrained(folder / "model")
    size = {"height": SIDE, "width": SIDE}
    transformers.ViTImageProcessor(size=size).save_pretrained(folder / "model")
    rng, rows = np.random.default_rng(0), []
    for item in range(items):
        pixels = rng.integers(60, 140, (SIDE, SIDE, 3)).astype(np.uint8)
        squares = []
        for place, (group, channel) in enumerate(((RED, 0), (BLUE, 2))):
            if item % 3 == place:  # a third has both
                continue
            col, row = (2 * item + place) % 3, item % 2
            part = slice(row * PATCH, (row + 1) * PATCH), slice(col * PATCH, (col + 1) * PATCH)
            pixels[(*part, channel)] = 200 + rng.integers(0, 56)
            edges = [col, row, col + 1, row + 1]
            squares.append([*(edge * PATCH / SIDE for edge in edges), group])
        Image.fromarray(pixels).save(folder / f"{item}.png")
        author = f"a{item // 2}"
        rows.append({"file": f"{item}.png", "marks": squares, "by": author, "at": "ab"[item % 2]})
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "pictures.jsonl").write_text(lines, encoding="utf-8")
    return {
        "name": "regions",
        "model": {"source": str(folder / "model"), "dtype": "float64"},
        "data": {
            "source": str(folder / "pictures.jsonl"),
            "image": "file",
            "spans": "marks",
            "cluster": "by",
            "meta": ["at"],
        },
        "shard_size": 8,
        "groups": {"reference": BLUE, "randomised": False, "check": 1000, **groups},
        "evaluation": {"items": 0},
    }
