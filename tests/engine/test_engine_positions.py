"""Targets at output positions: one logit of a token, sums over several, on every architecture."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from architectures_measured import TEXTS
from architectures_record import Architecture, build
from architectures_text import TOKEN_LABELS
from everyday import only
from numpy.typing import NDArray

from transexplain.methods import METHODS, bound, facts_of
from transexplain.methods.batch_explanation import BatchExplanation, seed_of
from transexplain.models.assemble import Origin, assemble_text
from transexplain.models.invariance import invariance_of
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.items import Item, ResolvedTarget
from transexplain.types.scores import MethodSpec

LABELS = ("O", "B-PER", "I-PER")
BY_NAME = {one.name: one for one in TOKEN_LABELS}
#: few samples, for speed, and baselines that need no tokenizer
PARAMS: dict[str, dict[str, Any]] = {
    "smoothgrad": {"samples": 2},
    "integrated-gradients": {"steps": 2, "baseline": "zero"},
    "gradient-shap": {"samples": 2, "baseline": "zero"},
    "deeplift-shap": {"references": 1, "baseline": "zero"},
    "occlusion": {"baseline": 1},
    "lime": {"baseline": 1, "samples": 8},
    "kernel-shap": {"baseline": 1, "samples": 8},
    "shapley-sampling": {"baseline": 1, "samples": 1},
}


def labelling(architecture: Architecture) -> LoadedModel:
    origin = Origin(source="module:random", digest="", device="cpu")
    module = build(architecture)
    return assemble_text(module, tokenizer=None, classes=LABELS, origin=origin, head="tokens")


def encoded(model: LoadedModel) -> list[Encoded]:
    rows = [torch.tensor(row) for row in TEXTS]
    items = [
        Item(id=f"i{n}", index=n, content={"input_ids": row, "attention_mask": row > 0})
        for n, row in enumerate(rows)
    ]
    made = model.encode(items)
    return [one for one in made if isinstance(one, Encoded)]


def at_positions(*places: tuple[int, int]) -> ResolvedTarget:
    """The sum of logits of these positions and classes."""
    return ResolvedTarget(
        spec="predicted",
        rank=0,
        class_index=None,
        class_name="x",
        coefficients=tuple((label, 1.0) for _, label in places),
        positions=tuple(position for position, _ in places),
    )


def entity(logits: NDArray[Any]) -> list[list[ResolvedTarget]]:
    """B-PER at position 1 and I-PER at position 2 of every item, and one logit at position 0."""
    return [[at_positions((1, 1), (2, 2)), at_positions((0, 0))] for _ in logits]


def explained(
    model: LoadedModel, some: list[Encoded], method: str, **params: Any
) -> BatchExplanation:
    run = bound(MethodSpec(name=method, params=params))
    found: BatchExplanation = run(model, model.collate(some), entity)
    return found


@pytest.mark.parametrize("name", only(*sorted(BY_NAME)[::4], of=sorted(BY_NAME)))
def test_ledgers_of_logits_at_positions_close(name: str) -> None:
    architecture = BY_NAME[name]
    model = labelling(architecture)
    some = encoded(model)
    together = [some[:2], some[2:]]
    if invariance_of(model, some[0]).padding:
        together.append(some)  # the shorter text is padded
    alone: dict[str, list[Any]] = {}
    for batch in together:
        found = explained(model, batch, "lrp")
        for one, attributions in zip(batch, found.attributions, strict=True):
            first, second = attributions
            logits = found.logits[batch.index(one)]
            assert logits.shape[1] == len(LABELS)
            assert first.logit == pytest.approx(logits[1, 1] + logits[2, 2], rel=1e-12)
            assert second.logit == pytest.approx(logits[0, 0], rel=1e-12)
            for attribution in attributions:
                assert attribution.ledger is not None
                assert attribution.ledger.relative_gap <= architecture.tolerance
                assert np.abs(attribution.relevance).max() > 1e-9
            before = alone.setdefault(one.item.id, attributions)
            for left, right in zip(before, attributions, strict=True):
                scale = float(np.abs(left.relevance).max())
                near = 1e-3 if architecture.casts or architecture.single else 1e-9
                np.testing.assert_allclose(
                    left.relevance, right.relevance, rtol=0, atol=near * scale
                )


@pytest.mark.parametrize("method", [name for name in METHODS if facts_of(name).at_positions])
def test_methods_explain_logits_at_positions(method: str) -> None:
    model = labelling(BY_NAME["BERT"])
    some = encoded(model)
    found = explained(model, some, method, **PARAMS.get(method, {}))
    alone = explained(model, some[2:], method, **PARAMS.get(method, {}))
    for left, right in zip(found.attributions[2], alone.attributions[0], strict=True):
        np.testing.assert_allclose(left.relevance, right.relevance, rtol=1e-6, atol=1e-9)
    if method == "occlusion":
        # by hand: the logit with everything, minus that without the token
        whole = found.logits[0, 1, 1] + found.logits[0, 2, 2]
        content = some[0].item.content
        ids = content["input_ids"].clone()
        ids[3] = 1
        (without,) = model.encode([Item(id="x", index=0, content={"input_ids": ids})])
        assert isinstance(without, Encoded)
        with torch.no_grad():
            logits = model.logits(model.collate([without]))[0]
        expected = whole - float(logits[1, 1] + logits[2, 2])
        assert found.attributions[0][0].relevance[3] == pytest.approx(expected, rel=1e-6)


def test_coefficients_of_one_logit_add_up() -> None:
    target = at_positions((2, 1), (2, 1), (0, 0))
    target = replace(target, coefficients=((1, 1.0), (1, 0.5), (0, -1.0)))
    seed = seed_of([target, None], (2, 3, 2))
    assert seed[0].tolist() == [[-1.0, 0.0], [0.0, 0.0], [0.0, 1.5]]
    assert not seed[1].any()
