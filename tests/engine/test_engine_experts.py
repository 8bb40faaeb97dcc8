"""Experts that take every token compute what routed experts do, and only where shapes are fixed."""

import itertools
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from architectures_measured import ready
from everyday import only
from test_engine_replay import batch_of, seeds
from torch import Tensor, nn

from transexplain.engine.composites import COMPOSITES, composite, parsed_overrides, tuned
from transexplain.engine.propagate import Propagation, every_expert, propagate
from transexplain.engine.traced import fixed_shapes
from transexplain.models.loaded_model import Batch, LoadedModel

ROUTED = (
    *("A.X K1", "DeepSeek-V2", "DeepSeek-V3", "GPT-OSS", "Hunyuan-MoE", "Jamba"),
    *("MiniMax", "Mistral 4", "Mixtral", "Qwen2-MoE", "Qwen3-MoE"),
)


def passes(model: LoadedModel, batch: Batch, rules: Any) -> Propagation:
    return propagate(
        lambda taps: model.run(batch, at=model.default_at, taps=taps),
        rules,
        len(batch.encoded),
        module=model.module,
    )


def check_alike(model: LoadedModel, batch: Batch, rules: Any) -> None:
    """Logits, relevance and ledger with shapes fixed are those of the model as it is."""
    wanted = passes(model, batch, rules)
    seed = seeds(wanted.logits.shape)[1]
    relevance = wanted.relevance(seed)
    with fixed_shapes():
        found = passes(model, batch, rules)
        near(found.logits.detach(), wanted.logits.detach())
        near(found.relevance(seed), relevance)
    # the rules of Chefer et al. divide by what they keep from 0 by 1e-9
    tolerance = 1e-7 if rules.relevance_form else 1e-10
    for key, value in kinds(wanted).items():
        torch.testing.assert_close(kinds(found)[key], value, rtol=tolerance, atol=tolerance)


def near(found: Tensor, wanted: Tensor) -> None:
    assert float((found - wanted).abs().max()) <= 1e-12 * float(wanted.abs().max())


def kinds(found: Propagation) -> dict[tuple[str, str], Tensor]:
    """(B,) of all operators of a kind: other calls of it share the same."""
    sums: dict[tuple[str, str], Tensor] = {}
    for (entry, kind, _), value in found.book.sites.items():
        key = (str(entry), "sum" if kind in ("sum", "index_add_") else kind)
        sums[key] = sums.get(key, torch.zeros_like(value)) + value
    return sums


EVERYDAY = [("Mixtral", "lrp-gamma"), ("GPT-OSS", "chefer-lrp")]
TURNS = [(name, method) for name, method in zip(ROUTED, itertools.cycle(COMPOSITES))]


@pytest.mark.parametrize(("name", "method"), only(*EVERYDAY, of=[*EVERYDAY, *TURNS]))
def test_fixed_shapes_change_no_explanation(name: str, method: str) -> None:
    model, batch = batch_of(name, 0, 1)
    check_alike(model, batch, composite(method))


def test_overrides_find_the_experts() -> None:
    model, batch = batch_of("Mixtral", 0, 1)
    pairs = [("*.experts*", {"rule": "gamma", "gamma": 0.5})]
    rules = tuned(composite("lrp"), linear={}, overrides=parsed_overrides(pairs))
    check_alike(model, batch, rules)
    seed = seeds(torch.Size((2, len(model.classes))))[0]
    plain = passes(model, batch, composite("lrp")).relevance(seed)
    assert not torch.allclose(passes(model, batch, rules).relevance(seed), plain)


def test_the_module_is_left_as_it_was() -> None:
    module = ready("Mixtral").model.module
    with pytest.raises(ValueError, match="out"), fixed_shapes(), every_expert(module):
        assert any(part._forward_pre_hooks for part in module.modules())
        raise ValueError("out")
    for part in module.modules():
        assert not part._forward_pre_hooks
        assert not part._forward_hooks


class Doubling(nn.Module):
    """Two experts, marked as transformers marks them; counts the tokens that it is given."""

    num_experts, has_gate, is_transposed = 2, False, False

    def __init__(self, implementation: str | None = "eager") -> None:
        super().__init__()
        self.config = SimpleNamespace(_experts_implementation=implementation)
        self.given: list[int] = []

    def forward(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        self.given.append(len(tokens))
        each = tokens.unsqueeze(1) * (2.0 + chosen.unsqueeze(-1))
        return (each * weights.unsqueeze(-1)).sum(1)


def routing(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    chosen = torch.tensor([[0, 1], [1, 0], [0, 2]])  # 2: of no expert
    weights = torch.tensor([[0.5, 0.25], [1.0, 0.0], [0.75, 0.0]], dtype=dtype)
    return torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=dtype), chosen, weights


def test_every_expert_takes_every_token() -> None:
    experts = Doubling()
    before = experts(*routing())
    with fixed_shapes(), every_expert(experts):
        assert torch.equal(experts(*routing()), before)
    assert experts.given == [3, 6]


def test_where_experts_are_routed_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    experts = Doubling()
    tokens, chosen, weights = routing()
    with every_expert(experts):
        experts(*routing())
    with fixed_shapes(), every_expert(None):
        experts(*routing())
    with fixed_shapes(), every_expert(experts):
        other = threading.Thread(target=experts, args=routing())
        other.start()
        other.join()
        experts(*routing(torch.float16))  # which may overflow where nobody routes to
        experts(tokens, chosen.double(), weights)
        experts(tokens=tokens, chosen=chosen, weights=weights)
        monkeypatch.setattr("transexplain.engine.propagate._MOST", 2 * tokens.numel() - 1)
        experts(*routing())
    assert experts.given == [3] * 7
    for implementation in ("batched_mm", None):  # which do not loop
        others = Doubling(implementation)
        with fixed_shapes(), every_expert(others):
            others(*routing())
        assert others.given == [3]
