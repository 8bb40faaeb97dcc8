"""Gradient methods: against their definitions written out, Captum, and invariances."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import bert, picture, pixels, vit, wordpiece
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur
from toy_networks import inputs, seeded

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.methods import at_input_layer, bound, cost_of
from transexplain.methods.at_input_layer import InputLayerForward
from transexplain.methods.baselines import Noise, baseline_of, logits_at, own_part, value_range
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Item, ResolvedTarget
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


def test_the_range_is_that_of_the_item_itself(text) -> None:
    forward = passed(text, TEXTS)
    for row, content in enumerate(TEXTS):
        alone = passed(text, [content]).start
        torch.testing.assert_close(value_range(forward)[row, 0, 0], alone.max() - alone.min())


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
@pytest.mark.parametrize("at", ["encoder", "words"])
@pytest.mark.parametrize("baseline", [None, "mask", "pad", "unk"])
def test_all_positions_sum_to_the_difference_of_texts(text, method, at, baseline) -> None:
    params = {"references": 1} if method == "deeplift-shap" else {}
    for found in te.explain(text, TEXTS, method, target="all", at=at, baseline=baseline, **params):
        forward = passed(text, [TEXTS[int(found.item_id)]], at)
        there = logits_at(forward, baseline_of(forward, baseline))
        wanted = (forward.logits - there)[0, found.class_index]
        assert found.relevance.sum() == pytest.approx(wanted, rel=1e-6, abs=1e-8)
        assert (found.unit, found.notes, found.ledger) == ("logits", (), None)


@pytest.mark.parametrize("method", ["integrated-gradients", "deeplift-shap"])
@pytest.mark.parametrize("at", ["encoder", "pixels"])
@pytest.mark.parametrize("baseline", ["mean", "black", "blur"])
def test_all_positions_sum_to_the_difference_of_pictures(image, method, at, baseline) -> None:
    params = {"references": 1} if method == "deeplift-shap" else {}
    forward = passed(image, [picture()], at)
    wanted = (forward.logits - logits_at(forward, baseline_of(forward, baseline)))[0, 1]
    found = one(image, picture(), method, at=at, baseline=baseline, **params)
    assert found.sum() == pytest.approx(wanted, rel=1e-6, abs=1e-8)


def test_too_few_steps_are_reported(text) -> None:
    (found,) = te.explain(
        text, TEXTS[2:], "integrated-gradients", target="class:1", steps=1, baseline="zero"
    )
    forward = passed(text, TEXTS[2:])
    wanted = (forward.logits - logits_at(forward, torch.zeros_like(forward.start)))[0, 1]
    (note,) = found.notes
    assert note == (
        f"completeness: integrated-gradients sums to {found.relevance.sum():.4g} "
        f"where f(x) - f(baseline) is {wanted:.4g}"
    )


def test_gradient_shap_is_its_formula(text) -> None:
    forward, rows = passed(text, TEXTS[:1]), torch.zeros(6, dtype=torch.long)
    noise, places = (Noise(forward, 0, purpose) for purpose in ("baselines", "places"))
    base = baseline_of(forward, "mask") + 0.3 * value_range(forward) * noise.normal(rows)
    way = forward.start - base
    gradients = by_hand(forward, base + (1 - places.uniform(rows)) * way)
    wanted = (way * gradients).mean(0).sum(-1)
    found = one(text, TEXTS[0], "gradient-shap", samples=6, sigma=0.3, baseline="mask")
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-9, atol=1e-12)


def test_gradient_shap_without_noise_estimates_integrated_gradients(text) -> None:
    exact = one(text, TEXTS[0], "integrated-gradients")
    few, many = (
        one(text, TEXTS[0], "gradient-shap", samples=samples, sigma=0) for samples in (4, 400)
    )
    scale = np.abs(exact).sum()
    assert np.abs(many - exact).sum() < 0.05 * scale
    assert np.abs(many - exact).sum() < np.abs(few - exact).sum()


def top_two(logits: np.ndarray) -> list[list[ResolvedTarget]]:
    """Both largest classes of every item."""
    return [
        [
            ResolvedTarget(
                spec="top:2", rank=rank, class_index=c, class_name="", coefficients=((c, 1.0),)
            )
            for rank, c in enumerate(row.argsort()[::-1][:2].tolist())
        ]
        for row in logits
    ]


def in_one_batch(model: LoadedModel, items: list[Item], method: str) -> list[np.ndarray]:
    """Called on the batch itself: `te.explain` halves a batch that fails until it is alone."""
    batch = model.collate(model.encode(items))
    found = bound(MethodSpec(name=method))(model, batch, top_two)
    return [one.relevance for of_item in found.attributions for one in of_item]


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", GRADIENT)
@pytest.mark.parametrize("kind", ["text", "image"])
def test_neither_batch_nor_padding_nor_chunks_matter(
    kind, method: str, request, monkeypatch
) -> None:
    model = request.getfixturevalue(kind)
    contents = TEXTS if kind == "text" else [picture(seed) for seed in range(3)]
    items = [Item(id=str(n), index=n, content=content) for n, content in enumerate(contents)]
    together = in_one_batch(model, items, method)
    alone = [found for item in items for found in in_one_batch(model, [item], method)]
    monkeypatch.setattr(at_input_layer, "POSITIONS_AT_ONCE", 25)
    chunked = in_one_batch(model, items, method)
    for several in zip(together, alone, chunked, strict=True):
        for other in several[1:]:
            np.testing.assert_allclose(several[0], other, rtol=1e-9, atol=1e-11)


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


def test_token_baselines_keep_special_tokens_and_padding(text) -> None:
    forward = passed(text, TEXTS)
    zero, mask = baseline_of(forward, "zero"), baseline_of(forward, "mask")
    masked = passed(text, ["[MASK] [MASK] [MASK]", "[MASK]", " ".join(["[MASK]"] * 10)])
    for row, encoded in enumerate(forward.batch.encoded):
        own = slice(encoded.length)
        assert not zero[row, own].any()
        torch.testing.assert_close(
            zero[row, encoded.length :], forward.start[row, encoded.length :]
        )
        special = torch.tensor([token.special for token in encoded.features])
        torch.testing.assert_close(mask[row, own][special], forward.start[row, own][special])
        torch.testing.assert_close(mask[row, own], masked.start[row, own])
    torch.testing.assert_close(baseline_of(forward, None), mask)
    assert own_part(forward)[:, :, 0].sum(1).tolist() == [
        one.length for one in forward.batch.encoded
    ]


def test_picture_baselines(image) -> None:
    forward = passed(image, [picture()], "pixels")
    assert not baseline_of(forward, "zero").any()
    assert not baseline_of(forward, None).any()
    assert (baseline_of(forward, "black") == -1).all()
    blurred = baseline_of(forward, "blur")
    torch.testing.assert_close(blurred, gaussian_blur(forward.start, [9, 9], [1.5, 1.5]))
    mean = baseline_of(passed(image, [picture()], "encoder"), "mean")
    assert mean.any()  # the class token and the positions stay
    zeros = passed(image, [{"pixel_values": np.zeros((3, 24, 24))}], "encoder")
    torch.testing.assert_close(mean, zeros.start)


def test_without_a_tokenizer_the_baseline_is_zero() -> None:
    bare = te.wrap(seeded(bert()), modality="text")
    item = {"input_ids": [2, 5, 6, 7, 3]}
    default, zero = (one(bare, item, "integrated-gradients", baseline=b) for b in (None, "zero"))
    np.testing.assert_array_equal(default, zero)
    with pytest.raises(ConfigurationError, match=r"needs a tokenizer .* use baseline='zero'$"):
        one(bare, item, "integrated-gradients", baseline="mask")


def test_a_tokenizer_without_that_token() -> None:
    tokenizer = wordpiece()
    tokenizer.mask_token = None
    bare = te.wrap(seeded(bert()), modality="text", tokenizer=tokenizer)
    with pytest.raises(ConfigurationError, match=r"mask token.* baseline='pad', baseline='unk'"):
        one(bare, TEXTS[0], "gradient-shap", baseline="mask")
    np.testing.assert_array_equal(
        one(bare, TEXTS[0], "integrated-gradients"),
        one(bare, TEXTS[0], "integrated-gradients", baseline="pad"),
    )


def test_black_needs_a_transform() -> None:
    bare = te.wrap(seeded(vit()), modality="image")
    item = {"pixel_values": inputs(3, 24, 24)}
    with pytest.raises(ConfigurationError, match=r"what is black.*baseline='mean' or 'blur'"):
        one(bare, item, "integrated-gradients", baseline="black")


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
    ],
)
def test_wrong_parameters(text, method: str, params: dict[str, Any], reported: str) -> None:
    with pytest.raises(ConfigurationError, match=reported):
        te.explain(text, TEXTS, method, **params)


def test_a_picture_has_no_mask(image) -> None:
    with pytest.raises(ConfigurationError, match=r"'mask' .* known: zero, mean, black, blur"):
        te.explain(image, [picture()], "integrated-gradients", baseline="mask")


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
