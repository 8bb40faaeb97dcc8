"""One engine for many architectures: same logits, a closed ledger, batches change nothing."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architectures import IMAGE, REFUSED, TEXT, randomised

import transexplain as te
from transexplain.errors import EngineError
from transexplain.methods import METHODS

TEXTS = [{"input_ids": torch.tensor(ids)} for ids in ([2, 5, 6, 7, 8, 9, 10, 3], [2, 11, 12, 3])]


def pictures(model: Any) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    shape = model.encoder.shape
    return [
        {"pixel_values": torch.randn(shape, generator=generator, dtype=torch.float64)}
        for _ in range(2)
    ]


#: norms or rotates in float32, whatever the model's type
CASTS = dict.fromkeys(("ModernBERT", "Llama", "Mistral", "Qwen2"), 1e-5)


def check(model: Any, items: list[Any], method: str, tolerance: float = 1e-12) -> None:
    together = te.explain(model, items, method, target="all", batch_tokens=10**6)
    alone = [one for item in items for one in te.explain(model, item, method, target="all")]
    for left, right in zip(together, alone, strict=True):
        np.testing.assert_allclose(
            left.relevance, right.relevance, rtol=max(tolerance, 1e-9), atol=1e-10
        )
        assert left.ledger.relative_gap < tolerance
        assert np.isfinite(left.relevance).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", TEXT)
def test_text_architectures(name: str, method: str) -> None:
    module = randomised(TEXT[name]())
    model = te.wrap(module, modality="text")
    check(model, TEXTS, method, CASTS.get(name, 1e-12))
    explained = te.explain(model, TEXTS[0], method, target="all")
    plain = module(**{key: value[None] for key, value in TEXTS[0].items()}).logits[0]
    torch.testing.assert_close(
        torch.tensor([one.logit for one in explained], dtype=torch.float64), plain.detach()
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", IMAGE)
def test_image_architectures(name: str, method: str) -> None:
    model = te.wrap(randomised(IMAGE[name]()), modality="image")
    check(model, pictures(model), method)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_covered_is_refused_by_name(name: str) -> None:
    make, operator = REFUSED[name]
    model = te.wrap(randomised(make()), modality="text")
    with pytest.raises(EngineError, match=f"operator '{operator}'"):
        te.explain(model, TEXTS[0])


def test_the_readme_names_them() -> None:
    readme = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"Measured with tiny random models.*?\n\n", readme, re.DOTALL)
    flat = " ".join(sentence.split())
    for name in (*TEXT, *IMAGE, *REFUSED):
        assert name.removeprefix("timm ") in flat, name
