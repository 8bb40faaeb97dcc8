"""Gradient methods: against their definitions written out, Captum, and invariances."""

import gzip
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architectures_measured import ready
from operator_examples import EXAMPLES
from tiny_models import bert, picture, pixels, vit, wordpiece
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms.functional import gaussian_blur
from toy_networks import inputs, seeded

import transexplain as te
from transexplain.engine.operators import KIND, rules_of_form
from transexplain.engine.rescale_mode import Rescaled, rescaled
from transexplain.errors import ConfigurationError, EngineError
from transexplain.methods import at_input_layer, cost_of
from transexplain.methods.at_input_layer import InputLayerForward
from transexplain.methods.input_gradients import (
    Noise,
    baseline_of,
    logits_at,
    own_part,
    value_range,
)
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Item
from transexplain.types.scores import MethodSpec

SUMMING = ("integrated-gradients", "gradient-shap", "deeplift-shap")
SAMPLED = {"smoothgrad": "samples", "gradient-shap": "samples", "deeplift-shap": "references"}
GRADIENT = (*SUMMING, "smoothgrad", "saliency")
TEXTS = ["a good film", "nice", "unbelievably good goods [x] a film"]


@pytest.fixture(scope="module")
def text() -> LoadedModel:
    return te.wrap(seeded(bert()), tokenizer=wordpiece(), modality="text")


@pytest.fixture(scope="module")
def image() -> LoadedModel:
    return te.wrap(seeded(vit()), modality="image", transform=pixels)


def passed(model: LoadedModel, contents: list[Any], at: str | None = None) -> InputLayerForward:
    items = [Item(id=str(n), index=n, content=content) for n, content in enumerate(contents)]
    return InputLayerForward.of(model, model.collate(model.encode(items)), at)


def one(model: LoadedModel, content: Any, method: str, **params: Any) -> np.ndarray:
    """Relevance of all positions of class 1, special ones too."""
    (found,) = te.explain(model, [content], method, target="class:1", **params)
    return np.concatenate([found.prefix_relevance, found.relevance.ravel()])


def by_hand(forward: InputLayerForward, values: Tensor) -> Tensor:
    """The gradient of class 1 of a batch of one at `values`, by autograd alone."""
    points = values.detach().clone().requires_grad_(True)
    logit = forward(points, torch.zeros(len(values), dtype=torch.long))[:, 1].sum()
    return torch.autograd.grad(logit, points)[0]


def test_saliency_is_the_norm_of_the_gradient(text, image) -> None:
    gradient = by_hand(forward := passed(text, TEXTS[:1]), forward.start)[0]
    for norm, wanted in (("l2", gradient.norm(dim=-1)), ("l1", gradient.abs().sum(-1))):
        found = one(text, TEXTS[0], "saliency", norm=norm)
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-10)
        assert (found > 0).all()
    forward = passed(image, [picture()], "pixels")
    wanted = by_hand(forward, forward.start)[0].norm(dim=0)
    (found,) = te.explain(image, [picture()], "saliency", target="class:1", at="pixels")
    assert (found.unit, found.relevance.shape) == ("score", (24, 24))
    np.testing.assert_allclose(found.relevance, wanted.numpy(), rtol=1e-10)


def test_smoothgrad_is_the_mean_gradient_times_the_input(text) -> None:
    forward = passed(text, TEXTS[:1])
    noise = Noise(forward, 3, "copies").normal(torch.zeros(5, dtype=torch.long))
    mean = by_hand(forward, forward.start + 0.2 * value_range(forward) * noise).mean(0)
    wanted = (forward.start[0] * mean).sum(-1)
    found = one(text, TEXTS[0], "smoothgrad", samples=5, sigma=0.2, seed=3)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-9, atol=1e-12)
    calm = one(text, TEXTS[0], "smoothgrad", samples=2, sigma=0)
    np.testing.assert_allclose(calm, one(text, TEXTS[0], "gradient-x-input"), rtol=1e-9)


@pytest.mark.parametrize("baseline", ["zero", "mask"])
def test_integrated_gradients_of_captum(text, baseline: str) -> None:
    from captum.attr import IntegratedGradients

    forward = passed(text, TEXTS[:1])

    def function(values: Tensor) -> Tensor:
        return forward(values, torch.zeros(len(values), dtype=torch.long))

    base = baseline_of(forward, baseline)
    captum = IntegratedGradients(function)
    wanted = captum.attribute(forward.start, base, target=1, n_steps=12, method="gausslegendre")
    found = one(text, TEXTS[0], "integrated-gradients", steps=12, baseline=baseline)
    # Captum keeps the places of the steps in float32
    np.testing.assert_allclose(found, wanted[0].sum(-1).detach().numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("method", ["integrated-gradients", "deeplift-shap"])
@pytest.mark.parametrize(
    ("modality", "at", "baseline"),
    [
        *(
            ("text", at, name)
            for at in ("encoder", "words")
            for name in (None, "mask", "pad", "unk")
        ),
        *(
            ("image", at, name)
            for at in ("encoder", "pixels")
            for name in ("mean", "black", "blur")
        ),
    ],
)
def test_all_positions_sum_to_the_difference(request, method, modality, at, baseline) -> None:
    model = request.getfixturevalue(modality)
    params = {"references": 1} if method == "deeplift-shap" else {}
    contents = TEXTS if modality == "text" else [picture()]
    for found in te.explain(model, contents, method, "all", at=at, baseline=baseline, **params):
        forward = passed(model, [contents[int(found.item_id)]], at)
        there = logits_at(forward, baseline_of(forward, baseline))
        wanted = (forward.logits - there)[0, found.class_index]
        total = found.relevance.sum() + sum(found.prefix_relevance)
        assert total == pytest.approx(wanted, rel=1e-6, abs=1e-8)
        assert (found.unit, found.notes, found.ledger) == ("logits", (), None)


def test_too_few_steps_are_reported(text) -> None:
    params = {"target": "class:1", "steps": 1, "baseline": "zero"}
    (found,) = te.explain(text, TEXTS[2:], "integrated-gradients", **params)
    forward = passed(text, TEXTS[2:])
    difference = (forward.logits - logits_at(forward, torch.zeros_like(forward.start)))[0, 1]
    (note,) = found.notes
    assert note.startswith("completeness: integrated-gradients")
    assert f"{found.relevance.sum():.4g}" in note and f"{difference:.4g}" in note


def test_gradient_shap_is_its_formula(text) -> None:
    forward, rows = passed(text, TEXTS[:1]), torch.zeros(6, dtype=torch.long)
    noise, places = (Noise(forward, 0, purpose) for purpose in ("baselines", "places"))
    base = baseline_of(forward, "mask") + 0.3 * value_range(forward) * noise.normal(rows)
    way = forward.start - base
    gradients = by_hand(forward, base + (1 - places.uniform(rows)) * way)
    wanted = (way * gradients).mean(0).sum(-1)
    found = one(text, TEXTS[0], "gradient-shap", samples=6, sigma=0.3, baseline="mask")
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["integrated-gradients", "gradient-shap", "deeplift-shap"])
def test_a_contrast_is_the_difference_of_its_classes(text, method: str) -> None:
    first, second = (te.explain(text, TEXTS, method, target=f"class:{index}") for index in (0, 1))
    contrasts = te.explain(text, TEXTS, method, target="contrast:LABEL_0-LABEL_1")
    for one_, other, contrast in zip(first, second, contrasts, strict=True):
        wanted = one_.relevance - other.relevance
        np.testing.assert_allclose(contrast.relevance, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("method", SAMPLED)
def test_the_seed_and_the_item_decide_the_draws(text, method: str) -> None:
    few = {SAMPLED[method]: 3}
    first = one(text, TEXTS[2], method, **few)
    np.testing.assert_array_equal(first, one(text, TEXTS[2], method, **few))
    assert not np.allclose(first, one(text, TEXTS[2], method, seed=1, **few))
    state = torch.random.get_rng_state()
    # another item of the same text: another id, other draws
    twins = te.explain(text, [TEXTS[2]] * 2, method, target="class:1", **few)
    assert not np.allclose(twins[0].relevance, twins[1].relevance)
    assert torch.equal(state, torch.random.get_rng_state())


def test_baselines(text, image) -> None:
    forward = passed(image, [picture()], "pixels")
    for baseline in ("zero", None):
        assert not baseline_of(forward, baseline).any()
    assert (baseline_of(forward, "black") == -1).all()
    blurred = baseline_of(forward, "blur")
    torch.testing.assert_close(blurred, gaussian_blur(forward.start, [9, 9], [1.5, 1.5]))
    mean = baseline_of(passed(image, [picture()], "encoder"), "mean")
    assert mean.any()  # the class token and the positions stay
    zeros = passed(image, [{"pixel_values": np.zeros((3, 24, 24))}], "encoder")
    torch.testing.assert_close(mean, zeros.start)
    forward = passed(text, TEXTS)
    masked = passed(text, ["[MASK] [MASK] [MASK]", "[MASK]", " ".join(["[MASK]"] * 10)])
    inside = own_part(forward).bool()  # what is padding stays as it is
    for baseline in ("mask", None):
        start = torch.where(inside, masked.start, forward.start)
        torch.testing.assert_close(baseline_of(forward, baseline), start)
    torch.testing.assert_close(
        baseline_of(forward, "zero"), torch.where(inside, 0.0, forward.start)
    )


def test_baselines_of_models_that_lack_something() -> None:
    bare = te.wrap(seeded(bert()), modality="text")
    item = {"input_ids": [2, 5, 6, 7, 3]}
    default, zero = (one(bare, item, "integrated-gradients", baseline=b) for b in (None, "zero"))
    np.testing.assert_array_equal(default, zero)
    with pytest.raises(ConfigurationError, match=r"needs a tokenizer .* use baseline='zero'$"):
        one(bare, item, "integrated-gradients", baseline="mask")
    tokenizer = wordpiece()
    tokenizer.mask_token = None
    bare = te.wrap(seeded(bert()), modality="text", tokenizer=tokenizer)
    with pytest.raises(ConfigurationError, match=r"mask token.* baseline='pad', baseline='unk'"):
        one(bare, TEXTS[0], "gradient-shap", baseline="mask")
    default, pad = (one(bare, TEXTS[0], "integrated-gradients", baseline=b) for b in (None, "pad"))
    np.testing.assert_array_equal(default, pad)
    bare = te.wrap(seeded(vit()), modality="image")
    for baseline, named in (("black", "baseline='mean' or 'blur'"), ("mask", "zero, mean, black")):
        with pytest.raises(ConfigurationError, match=named):
            one(
                bare, {"pixel_values": inputs(3, 24, 24)}, "integrated-gradients", baseline=baseline
            )


@pytest.mark.parametrize(
    ("method", "params", "reported"),
    [
        ("saliency", {"norm": "l3"}, "norm is 'l2' or 'l1', not 'l3'"),
        ("smoothgrad", {"samples": 0}, "samples is a whole number of at least 1, not 0"),
        ("smoothgrad", {"samples": True}, "samples is a whole number of at least 1, not True"),
        ("smoothgrad", {"sigma": -1}, "sigma is a number of at least 0, not -1"),
        ("smoothgrad", {"sigma": float("nan")}, "sigma is a number of at least 0, not nan"),
        ("integrated-gradients", {"steps": 0}, "steps is a whole number of at least 1, not 0"),
        ("integrated-gradients", {"baseline": "blur"}, "known: zero, mask, pad, unk"),
        ("gradient-shap", {"samples": -3}, "samples is a whole number of at least 1, not -3"),
        ("gradient-shap", {"sigma": "much"}, "sigma is a number of at least 0, not 'much'"),
        ("gradient-shap", {"alpha": 1}, "no parameter 'alpha'"),
        ("deeplift-shap", {"references": 0}, "references is a whole number of at least 1, not 0"),
        ("deeplift-shap", {"sigma": -0.1}, "sigma is a number of at least 0"),
        ("deeplift-shap", {"baseline": "black"}, "unknown baseline 'black'.*known: zero, mask"),
    ],
)
def test_wrong_parameters(text, method: str, params: dict[str, Any], reported: str) -> None:
    with pytest.raises(ConfigurationError, match=reported):
        te.explain(text, TEXTS, method, **params)


@pytest.mark.parametrize("method", GRADIENT)
@pytest.mark.parametrize("baseline", ["zero", "mask"])
def test_cost_is_what_is_run(text, method: str, baseline: str) -> None:
    """Forward passes of the item, counted at the module; DeepLIFT's second one is beside it."""
    params = {"baseline": baseline} if method in SUMMING else {}
    te.explain(text, TEXTS[:1], method, **params)  # what is measured once, is
    rows: list[int] = []
    handle = text.module.register_forward_hook(lambda *call: rows.append(len(call[2].logits)))
    te.explain(text, TEXTS[:1], method, target="top:2", **params)
    handle.remove()
    cost = cost_of(MethodSpec(name=method, params=params), positions=5)
    references = 4 if method == "deeplift-shap" else 0
    forwards, backwards = cost.of(targets=2)
    assert sum(rows) == forwards - 2 * references
    wanted = {"saliency": 1, "deeplift-shap": 4, "integrated-gradients": 64}.get(method, 25)
    assert backwards == 2 * wanted


@pytest.mark.parametrize("method", GRADIENT)
def test_half_precision_stays_finite(method: str) -> None:
    model = te.wrap(bert().to(torch.bfloat16), tokenizer=wordpiece(), modality="text")
    for found in te.explain(model, TEXTS, method):
        assert found.relevance.dtype == np.float32
        assert np.isfinite(found.relevance).all()


@pytest.mark.exhaustive
@pytest.mark.shared
def test_completeness_on_real_sentences(shared_dir: Path) -> None:
    model = te.load_model(shared_dir / "real/models/minilm-sst2")
    with gzip.open(shared_dir / "real/text/sst2_dev.tsv.gz", "rt", encoding="utf-8") as file:
        texts = [line.rstrip("\n").split("\t")[1] for line in file.readlines()[1:4]]
    for method, params in (("integrated-gradients", {}), ("deeplift-shap", {"references": 1})):
        for found in te.explain(model, texts, method, **params):
            forward = passed(model, [texts[int(found.item_id)]])
            there = logits_at(forward, baseline_of(forward, None))
            wanted = (forward.logits - there)[0, found.class_index]
            assert found.relevance.sum() == pytest.approx(wanted, rel=1e-2)
            assert not found.notes


#: what rounds the values that it hands on
ROUNDING = {"float": 1e-5, "half": 1e-2, "bfloat16": 5e-2}
#: linear only where the order is the same at the reference
ORDERS = ("topk", "sort")


def lifted(function: Callable[[Tensor], Tensor], x: Tensor, reference: Tensor) -> Rescaled:
    return rescaled(
        lambda taps: function(taps.input_layer(x)), x, reference, method="deeplift-shap"
    )


def check(
    function: Callable[[Tensor], Tensor], x: Tensor, reference: Tensor, tolerance: float = 1e-11
) -> Tensor:
    """Relevance of random seeds, after its sum and both values were compared."""
    passes = lifted(function, x, reference)
    torch.testing.assert_close(passes.logits.detach(), function(x).detach(), rtol=1e-12, atol=1e-12)
    there = function(reference).detach()
    torch.testing.assert_close(passes.reference_logits, there, rtol=1e-12, atol=1e-12)
    seed = inputs(*there.shape, seed=9)
    relevance = passes.relevance(seed)
    wanted = (seed * (function(x) - there)).sum(1).detach()
    torch.testing.assert_close(relevance.flatten(1).sum(1), wanted, rtol=tolerance, atol=tolerance)
    return relevance


def with_head(name: str) -> Callable[[Tensor], Tensor]:
    def model(x: Tensor) -> Tensor:
        hidden = EXAMPLES[name](x)
        hidden = hidden.reshape(len(x), -1).to(torch.float64)
        return F.linear(hidden, inputs(2, hidden.shape[1], seed=3))

    return model


def test_every_kind_of_operator_has_a_rule() -> None:
    rules = rules_of_form("rescale")
    assert set(rules) == set(KIND.values())
    assert all(callable(rule) for rule in rules.values())


@pytest.mark.filterwarnings("ignore:.*upsample.*deprecated")
@pytest.mark.parametrize("kind", sorted(set(KIND.values())))
def test_operators_sum_to_their_difference(kind: str, subtests: pytest.Subtests) -> None:
    """From another input, from zeros and from a half of it; equal inputs get no relevance."""
    x, other = inputs(3, 4, 6), 0.7 * inputs(3, 4, 6, seed=8)
    partly = torch.where(torch.arange(4)[:, None] < 2, x, other)
    for name in EXAMPLES:
        if name in ("cuda", *ORDERS) or KIND[name.partition(" ")[0]] != kind:
            continue
        with subtests.test(name=name):
            for reference in (other, torch.zeros_like(x), partly):
                check(with_head(name), x, reference, ROUNDING.get(name, 1e-11))
            passes = lifted(with_head(name), x, x.clone())
            assert not passes.relevance(torch.ones_like(passes.logits)).any()


@pytest.mark.parametrize("name", ORDERS)
def test_another_order_is_refused(name: str) -> None:
    x = inputs(2, 4, 6)
    check(with_head(name), x, 0.5 * x)
    with pytest.raises(EngineError, match=f"operator '{name}' .* the order is another"):
        lifted(with_head(name), x, -x)


@pytest.mark.parametrize("far", [1e-7, 1e-3, 1.0, 30.0])
def test_softmax_multipliers_are_its_gradient_on_the_way(far: float) -> None:
    """Near the reference they become the Jacobian; anywhere they sum to the difference."""
    x = inputs(2, 1, 7)
    reference = x + far * inputs(2, 1, 7, seed=4)

    def function(tensor: Tensor) -> Tensor:
        return tensor.softmax(-1)[:, 0]

    relevance = check(function, x, reference)
    if far == 1e-7:
        seed = inputs(2, 7, seed=9)
        point = x.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(function(point), point, seed)
        torch.testing.assert_close(relevance, gradient * (x - reference), rtol=1e-5, atol=1e-15)


def test_a_spelled_out_function_has_the_multiplier_of_the_function() -> None:
    def spelled(x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x.pow(3))))

    x, reference = inputs(2, 8), inputs(2, 8, seed=5)
    one = check(spelled, x, reference)
    other = check(lambda t: F.gelu(t, approximate="tanh"), x, reference)
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    seed = inputs(2, 8, seed=9)
    torch.testing.assert_close(one, seed * (spelled(x) - spelled(reference)), rtol=1e-9, atol=0)


def test_values_below_one_are_not_taken_for_equal() -> None:
    """The root under a norm of small activations, in float32: near 0, yet far apart."""
    x, reference = 1e-3 * inputs(4, 8).float(), 1e-5 * inputs(4, 8, seed=2).float()

    def normed(tensor: Tensor) -> Tensor:
        return tensor * torch.rsqrt(tensor.pow(2).mean(-1, keepdim=True) + 1e-6)

    passes = lifted(normed, x, reference)
    found = passes.relevance(torch.ones_like(passes.logits)).sum(1)
    wanted = (normed(x) - normed(reference)).double().sum(1)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_captum_shap_over_several_references() -> None:
    from captum.attr import DeepLiftShap

    network = seeded(nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 5), nn.Tanh()))
    network.append(seeded(nn.Linear(5, 2), 3))
    x, references = inputs(3, 6), 0.6 * inputs(4, 6, seed=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = DeepLiftShap(network).attribute(x, references, target=1).detach()
    rows = [lifted(network, x, row.expand(3, 6)) for row in references]
    found = sum(one.relevance(torch.tensor([[0.0, 1.0]] * 3)) for one in rows) / 4
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("DistilBERT", 1e-10), ("Llama", 1e-5), ("Swin", 1e-10)],  # norms of Llama are in float32
)
def test_relevance_sums_to_the_difference(name: str, tolerance: float) -> None:
    model, contents = ready(name).model, ready(name).items
    if model.modality == "text":
        model, contents = te.wrap(model.module, tokenizer=wordpiece()), TEXTS
    for at in model.input_layers:
        found = te.explain(model, contents, "deeplift-shap", target="all", at=at, references=1)
        for row, content in enumerate(contents):
            forward = passed(model, [content], at)
            difference = (forward.logits - logits_at(forward, baseline_of(forward, None)))[0]
            of_item = [each for each in found if each.item_id == str(row)]
            sums = [each.relevance.sum() + sum(each.prefix_relevance) for each in of_item]
            np.testing.assert_allclose(sums, difference, rtol=tolerance, atol=tolerance)
            assert not [each.notes for each in of_item if each.notes]


def test_more_references_are_drawn_around_the_first(text, monkeypatch) -> None:
    def explained(**params: object) -> np.ndarray:
        (one,) = te.explain(text, TEXTS[:1], "deeplift-shap", target="class:0", **params)
        return one.relevance

    first, four = explained(references=1), explained(references=4)
    assert not np.allclose(first, four)
    np.testing.assert_array_equal(four, explained(references=4))
    assert not np.allclose(four, explained(references=4, seed=1))
    np.testing.assert_allclose(first, explained(references=4, sigma=0.0), rtol=1e-9)
    monkeypatch.setattr(at_input_layer, "POSITIONS_AT_ONCE", 1)
    np.testing.assert_allclose(four, explained(references=4), rtol=1e-9)


def by_sign(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0.1 * x)


def scripted(x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.script(by_sign)
    return torch.tanh(script(x))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x.exp()

    @staticmethod
    def backward(ctx, gradient):
        raise AssertionError("a model's own backward was used")


def filled(x: Tensor) -> Tensor:
    """A buffer filled piece by piece, and a function that writes in place."""
    out = torch.zeros_like(x)
    out[:, :3] = F.silu(x[:, :3])
    out[:, 3:].copy_(x[:, 3:] * x[:, :3])
    F.relu(out, inplace=True)
    out += x.exp()
    return out


def viewed(x: Tensor) -> Tensor:
    """A constant buffer written through a view of it; the rest stays constant."""
    out = torch.ones(len(x), 3, 4, dtype=x.dtype)
    out.transpose(1, 2)[:, 1:, :2].copy_(x.view(-1, 3, 2).exp())
    return (out * out.flip(-1)).flatten(1)


def cut_off(x: Tensor) -> Tensor:
    """What is explained are values, so what the model hides from the gradient counts."""
    with torch.no_grad():
        shift = x.exp().sum(-1, keepdim=True)
    return x * shift + x.detach().tanh() / (1 + x.square())


@pytest.mark.parametrize("function", [filled, viewed, cut_off, Doubled.apply])
def test_code_that_autograd_would_miss(function: Callable[[Tensor], Tensor]) -> None:
    check(function, inputs(2, 6), inputs(2, 6, seed=3))


@pytest.mark.parametrize(
    ("function", "reported"),
    [
        (by_sign, "operator 'where' .* differs at the reference"),
        (lambda x: x.gather(1, x.argmax(1, keepdim=True)), "operator 'gather' .* differs"),
        (lambda x: torch.prod(x, 1, keepdim=True), "operator 'prod' .* no rescale rule"),
        (lambda x: torch.pow(x.exp(), x), "second argument"),
        (lambda x: torch.einsum("bi,bi,bi->bi", x, x, x), "more than two carriers"),
        (lambda x: x / torch.linalg.vector_norm(x, 1, -1, True), "order 2"),
        (lambda x: F.dropout(x, 0.5), "dropout is active"),
        (lambda x: F.batch_norm(x, None, None, training=True), "statistics from the batch"),
        (lambda x: torch.div(x, x.exp(), rounding_mode="floor"), "it rounds"),
        (scripted, "scripted or compiled"),
        (lambda x: torch.zeros(2, 6), "do not depend on the input layer"),
    ],
)
def test_operators_without_a_multiplier_are_refused(function, reported: str) -> None:
    x = inputs(2, 6)
    with pytest.raises(EngineError, match=reported):
        lifted(function, x, -x)


class Deciding(nn.Module):
    """Python reads a value: at the reference it would go the other way."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 8 * 8, 2)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = pixel_values.flatten(1)
        return self.head(x + 3 if x.abs().sum() > 1 else x)


def test_a_model_that_decides_by_its_values_is_refused() -> None:
    model = te.wrap(seeded(Deciding()), modality="image", classes=("a", "b"), input_size=(3, 8, 8))
    items = [{"pixel_values": inputs(3, 8, 8)}]
    with pytest.raises(EngineError, match=r"decides in Python .* use 'integrated-gradients'"):
        te.explain(model, items, "deeplift-shap", at="pixels", references=1)
    te.explain(model, items, "integrated-gradients", at="pixels")
