"""Explainers that have learned nothing, for any model: their weights are drawn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from transexplain.extras.learned.learned_explainer import Explainer, save
from transexplain.extras.learned.learned_facts import Architecture, Facts
from transexplain.methods import METHODS
from transexplain.models.hidden_states import readable_layers
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.items import Item
from transexplain.types.scores import MethodSpec, TeacherAgreement

#: methods that need no file beside the model
UNAIDED = [name for name in METHODS if name not in ("decoded-gradcam", "learned")]


def drawn_explainer(widths: Mapping[int, int], classes: int, **shape: Any) -> Explainer:
    """An explainer whose every weight is drawn, so that every part has an effect."""
    architecture = Architecture(
        **{
            "layers": tuple(widths),
            "widths": tuple(widths.values()),
            "classes": classes,
            "width": 16,
            "depth": 2,
            "heads": 4,
            "conserve": True,
            **shape,
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        explainer = Explainer(architecture)
        for parameter in explainer.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        explainer.calibrate(torch.rand(8, 2) + 0.5, torch.randn(8, classes))
    return explainer.eval()


def facts_for(model: LoadedModel, explainer: Explainer, **changes: Any) -> Facts:
    """The facts of an explainer of `model`."""
    return Facts(
        **{
            "architecture": explainer.architecture,
            "base": model.ref.digest,
            "base_name": model.ref.source,
            "classes": model.classes,
            "teacher": MethodSpec(name="lrp"),
            "at": "encoder",
            "mode": "separate",
            "forwards": 1.25,
            "agreement": TeacherAgreement(items=12, rank_correlation=0.5, relative_error=0.75),
            **changes,
        }
    )


def write_explainer(model: LoadedModel, folder: Path, items: Sequence[Any], **changes: Any) -> Path:
    """The file of an explainer of `model` that reads its first and last readable layers."""
    given = [
        one if isinstance(one, Item) else Item(id=str(index), index=index, content=one)
        for index, one in enumerate(items)
    ]
    encoded = [one for one in model.encode(given) if isinstance(one, Encoded)]
    readable = readable_layers(model, model.collate(encoded[:1]))
    widths = {layer: readable[layer] for layer in (min(readable), max(readable))}
    explainer = drawn_explainer(widths, len(model.classes))
    path = folder / "explainer.safetensors"
    save(explainer, facts_for(model, explainer, **changes), path)
    return path
