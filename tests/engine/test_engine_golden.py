"""The composites on real architectures against independent derivations, in float64."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import transexplain as te
from transexplain.types import Attribution

pytestmark = pytest.mark.shared

PREFIX = {
    "gradient-x-input": "gi",
    "lrp-ah": "ah",
    "lrp-ln": "ln",
    "lrp-ah-ln": "ah_ln",
    "lrp": "ah_ln.act_identity",
}
TOLERANCE = 1e-9
LEDGER = 1e-12


@pytest.fixture(scope="module")
def bert(shared_dir: Path) -> Any:
    from transformers import BertForSequenceClassification

    folder = shared_dir / "golden" / "bert_tiny" / "weights_A"
    module = BertForSequenceClassification.from_pretrained(folder, dtype=torch.float64)
    return te.wrap(module, modality="text")


@pytest.fixture(scope="module")
def vit(shared_dir: Path) -> Any:
    from timm.models.vision_transformer import VisionTransformer

    folder = shared_dir / "golden" / "vit_tiny" / "weights_A"
    module = VisionTransformer(**json.loads((folder / "timm_args.json").read_text()))
    module.load_state_dict(load_file(folder / "model.safetensors"))
    return te.wrap(module.double().eval(), modality="image")


def arrays(shared_dir: Path, model: str, source: str) -> Any:
    return np.load(shared_dir / "golden" / model / f"A.{source}.npz")


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def check_ledger(attribution: Attribution) -> None:
    assert attribution.ledger is not None
    assert attribution.ledger.relative_gap < LEDGER


@pytest.mark.parametrize("name", PREFIX)
@pytest.mark.parametrize("given", ["d0", "d1"])
def test_bert(shared_dir: Path, bert: Any, name: str, given: str) -> None:
    golden = arrays(shared_dir, "bert_tiny", "rederived_detach")
    mask = golden[f"{given}.attention_mask"]
    item = {"input_ids": golden[f"{given}.input_ids"], "attention_mask": mask}
    real = int(mask.sum())
    for at, suffix in (("encoder", "layers"), ("words", "word")):
        expected = golden[f"{given}.{PREFIX[name]}.{suffix}"]
        expected = expected[:, 0] if at == "encoder" else expected
        found = te.explain(bert, item, method=name, target="all", at=at)
        assert len(found) == len(expected)
        for attribution, row in zip(found, expected, strict=True):
            assert attribution.at == at
            assert difference(attribution.relevance[:real], row[:real]) < TOLERANCE
            assert attribution.logit == pytest.approx(
                golden[f"{given}.logits"][attribution.class_index], abs=1e-12
            )
            check_ledger(attribution)


@pytest.mark.parametrize("name", PREFIX)
@pytest.mark.parametrize("given", ["d0", "d1"])
def test_vit(shared_dir: Path, vit: Any, name: str, given: str) -> None:
    golden = arrays(shared_dir, "vit_tiny", "rederived_detach")
    image = golden[f"{given}.image"].astype(np.float64)
    item = {"pixel_values": torch.from_numpy(image)}
    at_encoder = te.explain(vit, item, method=name, target="all")
    at_pixels = te.explain(vit, item, method=name, target="all", at="pixels")
    layers = golden[f"{given}.{PREFIX[name]}.layers"][:, 0]
    pixels = golden[f"{given}.{PREFIX[name]}.pixels"].sum(axis=1)
    for first, second, tokens, picture in zip(at_encoder, at_pixels, layers, pixels, strict=True):
        assert first.features.prefix == 1
        assert first.relevance.shape == (4, 4)
        positions = np.concatenate([first.prefix_relevance, first.relevance.ravel()])
        assert difference(positions, tokens) < TOLERANCE
        assert second.relevance.shape == (32, 32)
        assert difference(second.relevance, picture) < TOLERANCE
        check_ledger(first)
        check_ledger(second)
    assert sum(a.ledger.embeddings for a in at_encoder) == 0
    assert all(a.ledger.embeddings != 0 for a in at_pixels)


@pytest.mark.parametrize("name", PREFIX)
def test_a_ragged_batch_equals_one_by_one(shared_dir: Path, bert: Any, name: str) -> None:
    golden = arrays(shared_dir, "bert_tiny", "rederived_detach")
    items = [
        {"input_ids": golden[f"{given}.input_ids"][:length]}
        for given, length in (("d0", 7), ("d1", 11), ("d1", 3), ("d0", 2))
    ]
    together = te.explain(bert, items, method=name, target="all", batch_tokens=1000)
    alone = [one for item in items for one in te.explain(bert, item, method=name, target="all")]
    assert len(together) == len(alone) == 12
    for left, right in zip(together, alone, strict=True):
        assert left.relevance.shape == right.relevance.shape
        assert difference(left.relevance, right.relevance) < 1e-10
        check_ledger(left)
