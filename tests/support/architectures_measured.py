"""An architecture ready to be explained, and what its own logits depend on."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from architectures import ARCHITECTURES
from architectures_record import Architecture, build
from numpy.typing import NDArray
from torch import Tensor, nn

import transexplain as te
from transexplain.engine.composites import composite
from transexplain.engine.replay import Step
from transexplain.methods.at_input_layer import features_at
from transexplain.methods.relevance import step_of
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel
from transexplain.types.items import Attribution, Item

#: two texts of one length and a shorter one, begun and ended alike, as tokenizers do
TEXTS = ((2, 5, 6, 7, 8, 9, 10, 3), (2, 11, 12, 13, 14, 15, 16, 3), (2, 17, 18, 3))
#: whose steps cannot be traced: its own code sorts tokens by expert, and splits them by how many
#: each expert has; all were tried once, and `test_engine_replay` tries one of each family
UNTRACED = frozenset({"JetMoE"})
#: more positions than any batch here has, so that items given together run together
TOGETHER = 10**6


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """A wrapped model, its items, and the logits of the module called as it is."""

    architecture: Architecture
    model: LoadedModel
    items: list[dict[str, Tensor]]  #: the first two are of one length
    logits: NDArray[np.float64]  #: (items, C), one by one
    padding_invariant: bool  #: logits of a text do not depend on a longer one beside it


@lru_cache(maxsize=2)  # tests take one architecture after the other
def ready(name: str) -> Ready:
    """The architecture `name`, built once and kept while it is in use."""
    architecture = ARCHITECTURES[name]
    module = build(architecture)
    items = _items(architecture)
    alone = np.concatenate([_logits(module, [item]) for item in items])
    tolerance = 1e-6 if architecture.casts or architecture.single else 1e-12
    return Ready(
        architecture=architecture,
        model=te.wrap(module, modality=architecture.modality, input_size=architecture.picture),
        items=items,
        logits=alone,
        padding_invariant=_close(_logits(module, items[::2]), alone[::2], tolerance),
    )


def explained(
    name: str, method: str, items: Sequence[dict[str, Tensor]], **params: Any
) -> list[Attribution]:
    """Every class of `items`, explained in one batch."""
    found: list[Attribution] = te.explain(
        ready(name).model, items, method, target="all", batch_tokens=TOGETHER, **params
    )
    return found


def batch_of(name: str, *which: int) -> Batch:
    """Some items of an architecture, by their places, in one batch."""
    model, contents = ready(name).model, ready(name).items
    items = [Item(id=str(n), index=n, content=contents[at]) for n, at in enumerate(which)]
    encoded = [entry for entry in model.encode(items) if isinstance(entry, Encoded)]
    assert len(encoded) == len(which)
    return model.collate(encoded)


def step_for(name: str, method: str = "lrp", batch: Batch | None = None, **changed: Any) -> Step:
    """The step by which a composite explains a batch, by default of the first two items."""
    model = ready(name).model
    at, batch = model.default_at, batch or batch_of(name, 0, 1)
    step = step_of(model, batch, composite(method), at, features_at(at, batch.encoded[0]))
    return replace(step, **changed)


def _items(architecture: Architecture) -> list[dict[str, Tensor]]:
    if architecture.picture is None:
        rows = [torch.tensor(row) for row in TEXTS]
        return [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in rows]
    generator = torch.Generator().manual_seed(1)
    pictures = torch.randn(2, *architecture.picture, generator=generator, dtype=torch.float64)
    return [{"pixel_values": picture} for picture in pictures]


def _logits(module: nn.Module, items: Sequence[dict[str, Tensor]]) -> NDArray[np.float64]:
    """(B, C) of the module called by hand on a batch padded on the right with zeros."""
    inputs = {
        name: nn.utils.rnn.pad_sequence([item[name] for item in items], batch_first=True)
        for name in items[0]
    }
    takes = inspect.signature(module.forward).parameters
    fixed = {"use_cache": False} if "use_cache" in takes else {}
    dtype = next(module.parameters()).dtype
    with torch.no_grad():
        if "pixel_values" in inputs:
            out = module(inputs["pixel_values"].to(dtype))
        else:
            known = {name: value for name, value in inputs.items() if name in takes}
            out = module(**known, **fixed)
    logits = out if isinstance(out, Tensor) else out.logits
    return logits.double().numpy()


def _close(left: NDArray[np.float64], right: NDArray[np.float64], tolerance: float) -> bool:
    return bool(np.abs(left - right).max() <= tolerance * np.abs(right).max())
