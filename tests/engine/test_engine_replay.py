"""A traced step gives what eager code gives, for other seeds and inputs too, or does not apply."""

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import architectures_measured
import pytest
import torch
from architectures import ARCHITECTURES
from architectures_measured import UNTRACED, ready
from everyday import only
from torch import Tensor, nn

import transexplain as te
from transexplain.engine import compiled
from transexplain.engine.compiled import lean
from transexplain.engine.composites import COMPOSITES, Composite, composite, parsed_overrides, tuned
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.propagate import Propagation, every_expert, explained_sums, propagate
from transexplain.engine.replay import Step, TracedStep
from transexplain.engine.traced import Traced, UntraceableError, fixed_shapes, traced
from transexplain.errors import EngineError
from transexplain.methods.relevance import lrp_rules
from transexplain.models.loaded_model import Batch, LoadedModel

#: one of each family of operators: every architecture is explained in `test_architectures`
FAMILIES = (
    *("BERT", "DeBERTa-v2", "ModernBERT", "XLNet", "BigBird", "CANINE", "FNet", "Funnel"),
    *("Longformer", "Nystromformer", "Perceiver", "Reformer", "YOSO", "GPT-2", "BLOOM", "Llama"),
    *("Mixtral", "GPT-OSS", "DeepSeek-V3", "Jamba", "JetMoE", "MiniMax", "Qwen3-Next", "Zamba2"),
    *("T5", "ViT", "Swin", "CvT", "EfficientNet", "timm gMLP", "timm Sequencer2D", "timm VOLO"),
    *("timm XCiT", "timm ConvNeXt", "timm MambaOut", "timm LeViT"),
)
EVERYDAY = ("BERT",)


def batch_of(name: str, *which: int) -> tuple[LoadedModel, Batch]:
    return ready(name).model, architectures_measured.batch_of(name, *which)


def step_of(
    model: LoadedModel, batch: Batch, method: str, rules: Composite | None = None
) -> TracedStep:
    def forward(inputs: Mapping[str, Tensor], taps: RelevanceMode) -> Tensor:
        given = replace(batch, inputs=dict(inputs))
        return model.run(given, at=model.default_at, taps=taps)

    shape = (len(batch.encoded), len(model.classes))
    rules = rules or composite(method)
    return Step(
        forward=forward, composite=rules, inputs=batch.inputs, shape=shape, module=model.module
    ).traced()


def eager(model: LoadedModel, batch: Batch, method: str | Composite) -> Propagation:
    return propagate(
        lambda taps: model.run(batch, at=model.default_at, taps=taps),
        composite(method) if isinstance(method, str) else method,
        len(batch.encoded),
        module=model.module,
    )


def seeds(shape: torch.Size) -> list[Tensor]:
    first, second = torch.zeros(2, *shape, dtype=torch.float64)
    first[:, 0] = 1.0
    second[:, -1], second[0, 0] = 1.0, -1.0
    return [first, second]


def check_equal(step: TracedStep, model: LoadedModel, batch: Batch, method: str) -> None:
    """Bit for bit where eager code takes no way that is shorter for some values."""
    found = step.propagation(batch.inputs)
    assert found is not None
    with fixed_shapes():
        wanted = eager(model, batch, method)
        assert torch.equal(found.logits, wanted.logits.detach())
        for seed in seeds(found.logits.shape):
            assert torch.equal(found.relevance(seed), wanted.relevance(seed))
            assert list(found.book.sites) == list(wanted.book.sites)
            for booked, value in zip(
                found.book.sites.values(), wanted.book.sites.values(), strict=True
            ):
                assert torch.equal(booked, value)


def check_near(step: TracedStep, model: LoadedModel, batch: Batch, method: str) -> None:
    """Against eager code as it runs on the CPU, which skips what is zero."""
    found, wanted = step.propagation(batch.inputs), eager(model, batch, method)
    tolerance = 1e-4 if found.logits.dtype == torch.float32 else 1e-10
    seed, _ = seeds(found.logits.shape)
    relevance = wanted.relevance(seed)
    apart = (found.relevance(seed) - relevance).abs().max()
    assert float(apart) <= tolerance * float(relevance.abs().max())


def check_lean(step: TracedStep, batch: Batch, caplog: pytest.LogCaptureFixture) -> None:
    """What is left out before a compilation changes nothing but rounding."""
    plain, found = step.traced, lean(step.traced)
    own = [one.getMessage() for one in caplog.records if one.name == compiled.__name__]
    assert not own, "something could not be left out"
    for seed in seeds(torch.Size(step.shape)):
        outputs = [one.begin(*batch.inputs.values()).end(seed) for one in (plain, found)]
        for wanted, made in zip(*outputs, strict=True):
            apart = float((wanted.double() - made.double()).abs().max())
            tolerance = 1e-4 if wanted.dtype == torch.float32 else 1e-6  # some cast to float32
            assert apart <= tolerance * max(1.0, float(wanted.abs().max()))


@pytest.mark.parametrize("name", only(*EVERYDAY, of=FAMILIES))
def test_an_architecture_by_lrp(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model, batch = batch_of(name, 0, 1)
    if name in UNTRACED:
        with pytest.raises((EngineError, RuntimeError, IndexError)):
            step_of(model, batch, "lrp")
        return
    step = step_of(model, batch, "lrp")
    check_equal(step, model, batch, "lrp")
    if name in EVERYDAY or FAMILIES.index(name) % 3 == 0:
        check_lean(step, batch, caplog)
    if name in EVERYDAY:
        check_near(step, model, batch, "lrp")
    _, other = batch_of(name, 1, 0)
    found = step.propagation(other.inputs)
    if found is not None:
        with fixed_shapes():
            assert torch.equal(found.logits, eager(model, other, "lrp").logits)


def test_at_least_95_in_100_are_traced() -> None:
    assert set(FAMILIES) >= UNTRACED
    assert len(UNTRACED) <= 0.05 * len(ARCHITECTURES)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("method", "name"),
    [(m, ("BERT", "ViT", "T5", "timm XCiT")[n % 4]) for n, m in enumerate(COMPOSITES)],
)
def test_every_composite(method: str, name: str) -> None:
    model, batch = batch_of(name, 0, 1)
    check_equal(step_of(model, batch, method), model, batch, method)


@pytest.mark.exhaustive
def test_ledgers_close_and_amplification_is_kept() -> None:
    model, batch = batch_of("BERT", 0, 1)
    form: dict[str, Any] = {"gamma_form": "transexplain", "epsilon": 1e-6}  # may amplify
    items = ready("BERT").items[:2]
    wanted = te.explain(model, items, "lrp-gamma", target="class:0", **form)
    rules = lrp_rules("lrp-gamma", **form)
    found = step_of(model, batch, "lrp-gamma", rules).propagation(batch.inputs)
    seed = seeds(found.logits.shape)[0]
    positions = found.relevance(seed).sum(-1).numpy()
    explained = explained_sums(rules, found.logits, seed.numpy())
    ledgers = found.book.close(positions, 0 * positions, explained)
    for own, ledger, one in zip(positions, ledgers, wanted, strict=True):
        assert own[: len(one.relevance)] == pytest.approx(one.relevance, rel=1e-9, abs=1e-12)
        assert abs(ledger.gap) <= 1e-12 * ledger.magnitude
        assert ledger.biases_by_kind == pytest.approx(one.ledger.biases_by_kind, rel=1e-9)
    assert found.book.amplification is not None
    assert (found.book.amplification >= 1.0).all()


@pytest.mark.exhaustive
def test_inputs_of_another_shape_are_refused() -> None:
    model, two = batch_of("BERT", 0, 1)
    _, one = batch_of("BERT", 0)
    with pytest.raises(EngineError, match=r"traced for inputs of .*\(2, 8\).*not .*\(1, 8\)"):
        step_of(model, two, "lrp").propagation(one.inputs)


def test_what_is_written_in_place_in_the_second_part_is_copied() -> None:
    def function(x: Tensor, seed: Tensor) -> list[Tensor]:
        return [x.abs().mul_(seed).add_(1.0)]

    found = traced(function, [torch.tensor([-2.0, 3.0]), torch.tensor([1.0, 1.0])])
    begun = found.begin(torch.tensor([-2.0, 3.0]))
    assert begun is not None
    for factor in (1.0, 10.0, 1.0):
        (out,) = begun.end(torch.full((2,), factor))
        assert out.tolist() == [2.0 * factor + 1.0, 3.0 * factor + 1.0]


def test_numbers_read_from_the_seed_are_refused() -> None:
    def function(x: Tensor, seed: Tensor) -> list[Tensor]:
        return [x * seed if bool(seed[0] > 0) else x]

    with pytest.raises(UntraceableError, match="read from the seed"):
        traced(function, [torch.ones(2), torch.ones(2)])


def test_fixed_shapes_end_with_their_block() -> None:
    from transexplain.engine.traced import shapes_are_fixed

    with pytest.raises(ValueError, match="out"), fixed_shapes():
        assert shapes_are_fixed()
        raise ValueError("out")
    assert not shapes_are_fixed()


# --- what a trace may hold and what it knows beforehand

Function = Callable[..., Sequence[Tensor]]


def operators(found: Traced) -> list[str]:
    parts = (found.first, found.second)
    graphs = [part.graph for part in parts if isinstance(part, torch.fx.GraphModule)]
    return [str(node.target) for graph in graphs for node in graph.nodes]


def replayed(found: Traced, *inputs: Tensor) -> Tensor | None:
    if not found.applies(*inputs):
        return None
    (out,) = found.begin(*inputs).end(torch.ones(4))
    return out


def test_places_of_constants_are_settled() -> None:
    def function(x: Tensor, seed: Tensor) -> list[Tensor]:
        ones = torch.zeros(4).scatter_(0, torch.arange(1, 4, 2), 1.0)  # written in place
        (rows,) = torch.where(ones > 0)
        return [torch.zeros(4).index_add_(0, rows, x[rows]) * seed]

    found = traced(function, [torch.arange(4.0), torch.ones(4)])
    assert not any("nonzero" in one for one in operators(found))
    out = replayed(found, torch.tensor([5.0, 6.0, 7.0, 8.0]))
    assert out.tolist() == [0.0, 6.0, 0.0, 8.0]


def test_what_inputs_write_into_is_not_settled() -> None:
    def function(x: Tensor, seed: Tensor) -> list[Tensor]:
        places = torch.zeros(4, dtype=torch.long)
        view = places[:]
        places.add_(x)
        return [view.nonzero().sum() * seed]

    found = traced(function, [torch.tensor([0, 1, 0, 1]), torch.ones(4)])
    assert any("nonzero" in one for one in operators(found))
    out = replayed(found, torch.tensor([1, 1, 0, 0]))
    assert out is None or out.tolist() == [1.0] * 4


def test_a_mask_in_floats_is_no_computed_number() -> None:
    def function(mask: Tensor, seed: Tensor) -> list[Tensor]:
        added = torch.where(mask > 0, 0.0, -1.0)
        return [(added < 0).nonzero().sum() * seed]

    found = traced(function, [torch.tensor([0, 1, 0, 1]), torch.ones(4)])
    out = replayed(found, torch.tensor([0, 7, 0, 7]))
    assert out.tolist() == [2.0] * 4
    assert replayed(found, torch.tensor([0, 1, 1, 1])) is None


@pytest.mark.parametrize("numbers", ["weights", "pixels"])
def test_shapes_of_computed_numbers_are_refused(numbers: str) -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, -1.0, 1.0, -1.0]))

    def function(given: Tensor, seed: Tensor) -> list[Tensor]:
        scores = given * weight.detach() if numbers == "weights" else given.float() * 2.0
        return [(scores > 0).nonzero().sum() * seed]

    given = torch.ones(4, dtype=torch.long if numbers == "weights" else torch.float32)
    with pytest.raises(UntraceableError, match="how large a tensor is depends on numbers"):
        traced(function, [given, torch.ones(4)])


@pytest.mark.parametrize(
    "decides",
    [lambda x: bool(x[0] > 0), lambda x: x.round()[:2].tolist() == [1.0, 1.0]],
    ids=["branch", "list"],
)
def test_a_course_that_values_decide_is_guarded(decides: Callable[[Tensor], bool]) -> None:
    def function(x: Tensor, seed: Tensor) -> list[Tensor]:
        return [x * seed * (2.0 if decides(x) else 1.0)]

    step = traced(function, [torch.ones(4), torch.ones(4)])
    out = replayed(step, 1.25 * torch.ones(4))
    assert out.tolist() == [2.5] * 4
    assert replayed(step, -torch.ones(4)) is None


# --- experts that take every token, as routed ones do, only where shapes are fixed

ROUTED = (
    *("A.X K1", "DeepSeek-V2", "DeepSeek-V3", "GPT-OSS", "Hunyuan-MoE", "Jamba"),
    *("MiniMax", "Mistral 4", "Mixtral", "Qwen2-MoE", "Qwen3-MoE"),
)


def check_alike(model: LoadedModel, batch: Batch, rules: Any) -> None:
    """Logits, relevance and ledger with shapes fixed are those of the model as it is."""
    wanted = eager(model, batch, rules)
    seed = seeds(wanted.logits.shape)[1]
    relevance = wanted.relevance(seed)
    with fixed_shapes():
        found = eager(model, batch, rules)
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


EXPERTS = [("Mixtral", "lrp-gamma"), ("GPT-OSS", "chefer-lrp")]


TURNS = [(name, method) for name, method in zip(ROUTED, itertools.cycle(COMPOSITES))]


@pytest.mark.parametrize(("name", "method"), only(*EXPERTS, of=[*EXPERTS, *TURNS]))
def test_fixed_shapes_change_no_explanation(name: str, method: str) -> None:
    model, batch = batch_of(name, 0, 1)
    check_alike(model, batch, composite(method))


def test_overrides_find_the_experts() -> None:
    model, batch = batch_of("Mixtral", 0, 1)
    pairs = [("*.experts*", {"rule": "gamma", "gamma": 0.5})]
    rules = tuned(composite("lrp"), linear={}, overrides=parsed_overrides(pairs))
    check_alike(model, batch, rules)
    seed = seeds(torch.Size((2, len(model.classes))))[0]
    plain = eager(model, batch, "lrp").relevance(seed)
    assert not torch.allclose(eager(model, batch, rules).relevance(seed), plain)


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
