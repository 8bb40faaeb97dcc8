"""What holds of every method in the registry, over ten kinds of architecture."""

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from architectures_measured import TOGETHER, ready
from everyday import only
from explainer_samples import write_explainer

import transexplain as te
from transexplain.errors import ConfigurationError, EngineError
from transexplain.methods import METHODS, bound, facts_of
from transexplain.types.items import Attribution, Item, PatchGrid, ResolvedTarget
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import ClassNames, parse_target, resolve_target

NAMES = (
    *("BERT", "DistilBERT", "RoBERTa", "DeBERTa-v2", "ModernBERT", "Llama"),
    *("ViT", "DeiT distilled", "Swin", "DINOv2"),
)
#: few samples, for speed
FAST: dict[str, dict[str, Any]] = {
    "lime": {"samples": 24},
    "kernel-shap": {"samples": 24},
    "shapley-sampling": {"samples": 2},
    "smoothgrad": {"samples": 2},
    "integrated-gradients": {"steps": 4},
    "gradient-shap": {"samples": 2},
    "deeplift-shap": {"references": 2},
}
#: the items of texts here are ids without a tokenizer, so a baseline is named
FOR_TEXTS: dict[str, dict[str, Any]] = {
    method: {"baseline": 1} for method in ("occlusion", "lime", "kernel-shap", "shapley-sampling")
}
#: they need an attention map over all positions, read at a class token
GLOBAL_MAP = {
    *("attention-last", "rollout", "attention-flow", "attention-gradcam", "gae"),
    *("transformer-attribution", "partial-lrp"),
}
#: architectures without such a map, and what the error names
NO_GLOBAL_MAP = {"Swin": "windows", "DINOv2": "pools"}


def params_of(name: str, method: str) -> dict[str, Any]:
    texts = ready(name).architecture.modality == "text"
    given = {"explainer": explainer_of(name)} if method == "learned" else {}
    return {**given, **FAST.get(method, {}), **(FOR_TEXTS.get(method, {}) if texts else {})}


@cache
def explainer_of(name: str) -> str:
    """An explainer of the architecture that has learned nothing."""
    folder = Path(tempfile.mkdtemp(prefix="explainer-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(write_explainer(ready(name).model, folder, items_of(name)))


def items_of(name: str) -> list[Item]:
    """Items with ids of their own: two of different lengths, where lengths differ."""
    found = [
        Item(id=f"item {index}", index=index, content=content)
        for index, content in enumerate(ready(name).items)
    ]
    return found[::2] if ready(name).architecture.modality == "text" else found


def explained(name: str, method: str, items: Sequence[Item]) -> list[Attribution]:
    found: list[Attribution] = te.explain(
        ready(name).model, items, method, "all", batch_tokens=TOGETHER, **params_of(name, method)
    )
    return found


def defined(name: str, method: str) -> bool:
    """Whether the modality fits, and the method needs nothing that these models lack."""
    modality = ready(name).architecture.modality
    merges = name == "Swin" and method == "layer-gradcam"
    return modality in facts_of(method).modalities and method != "decoded-gradcam" and not merges


def in_one_batch(name: str, method: str, items: Sequence[Item]) -> list[Attribution]:
    """Called on the batch itself: `te.explain` would halve a batch that fails."""
    model = ready(name).model
    target = parse_target("all", ClassNames(model.classes))

    def resolve(logits: np.ndarray) -> list[list[ResolvedTarget]]:
        return [resolve_target(target, row, model.classes, None) for row in logits]

    run = bound(MethodSpec(name=method, params=params_of(name, method)))
    found = run(model, model.collate(model.encode(items)), resolve)
    return [one for of_item in found.attributions for one in of_item]


def refusal(name: str, method: str) -> str | None:
    """What the error names, where the method is not defined for the architecture."""
    return NO_GLOBAL_MAP.get(name) if method in GLOBAL_MAP else None


def check_equal(left: Sequence[Attribution], right: Sequence[Attribution], rtol: float) -> None:
    for one, other in zip(left, right, strict=True):
        scale = max(float(np.abs(other.relevance).max()), 1e-3)
        np.testing.assert_allclose(one.relevance, other.relevance, rtol=0, atol=rtol * scale)


#: every method on two of the ten, and on two of the others in turn; all that are refused
EVERYDAY = [(name, method) for name in ("DeBERTa-v2", "ViT") for method in METHODS]
OTHERS = [name for name in NAMES if name not in ("DeBERTa-v2", "ViT")]
CASES = [
    *EVERYDAY,
    *((OTHERS[(n + 4 * k) % 8], method) for n, method in enumerate(METHODS) for k in (0, 1)),
    *((name, method) for name in NO_GLOBAL_MAP for method in sorted(GLOBAL_MAP)),
]


@pytest.mark.parametrize(("name", "method"), only(*EVERYDAY, of=dict.fromkeys(CASES)))
def test_conformance(name: str, method: str) -> None:
    """Finite, of the item's shape, deterministic, the same in a ragged batch; model untouched."""
    one = ready(name)
    if not defined(name, method):
        with pytest.raises(ConfigurationError):
            explained(name, method, items_of(name))
        return
    named = refusal(name, method)
    if named is not None:
        with pytest.raises(EngineError, match=named):
            explained(name, method, items_of(name))
        return
    state = {key: value.clone() for key, value in one.model.module.state_dict().items()}
    items = items_of(name)
    together = in_one_batch(name, method, items)
    assert all((state[k] == v).all() for k, v in one.model.module.state_dict().items())
    rtol = 1e-3 if one.architecture.casts or one.architecture.single else 1e-9
    alone = [found for item in items for found in explained(name, method, [item])]
    check_equal(together, alone, rtol)
    check_equal(together, in_one_batch(name, method, items), 0)
    check_equal(together, explained(name, method, items), rtol)
    facts = facts_of(method)
    classes = len(one.model.classes)
    assert len(together) == classes * len(items)
    for found in together:
        assert found.method == method
        assert found.unit == facts.unit
        assert found.relevance.dtype == np.float64
        assert np.isfinite(found.relevance).all()
        grid = found.features if isinstance(found.features, PatchGrid) else None
        shape = (grid.rows, grid.cols) if grid else (len(found.features),)
        assert found.relevance.shape == shape
    assert max(np.abs(found.relevance).max() for found in together) > 1e-9
    first_classes = [found for found in together[::classes] for _ in range(classes)]
    same = all(
        np.array_equal(found.relevance, first.relevance)
        for found, first in zip(together, first_classes, strict=True)
    )
    assert same == (facts.reads_target == "no"), "whether it reads the target is declared"


@pytest.mark.parametrize("method", [name for name in METHODS if name != "decoded-gradcam"])
def test_contrasts_and_own_classes(method: str) -> None:
    """A contrast and a sum of classes each are one target; only what reads none ignores them."""
    one = ready("BERT")
    names = one.model.classes
    found = te.explain(
        one.model,
        items_of("BERT")[:1],
        method,
        [f"contrast:{names[0]}-{names[1]}", "both", f"class:{names[0]}", "predicted"],
        classifications=[{"name": "both", "classes": list(names[:2])}],
        **params_of("BERT", method),
    )
    assert len(found) == 4
    assert found[0].class_index is None
    assert found[0].class_name != found[1].class_name
    logits = {
        n: a.logit for n, a in zip(names, explained("BERT", method, one.items[:1]), strict=True)
    }
    assert found[0].logit == pytest.approx(logits[names[0]] - logits[names[1]])
    assert found[1].logit == pytest.approx(logits[names[0]] + logits[names[1]])
    assert found[2].logit == pytest.approx(logits[names[0]])
