"""Perturbation methods against brute force, other libraries and their invariances."""

import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import picture, pixels, vit, wordpiece
from torch import nn

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.methods import cost_of, facts_of
from transexplain.methods.batch_explanation import generator_of
from transexplain.methods.perturbation import (
    coalitions,
    nearness,
    neighbours,
    permutations,
    windows,
)
from transexplain.methods.presence import cells
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Attribution, ItemFailure
from transexplain.types.scores import MethodSpec

explain = te.explain
METHODS = ("occlusion", "lime", "shapley-sampling", "kernel-shap")
SHAPLEY = ("shapley-sampling", "kernel-shap")
CLASSES = ("bad", "so-so", "good")
MASK, UNK, PAD = 4, 1, 0
SIX = "a nice good film x e"
TEXTS = ["a good film", "nice", "unbelievably good goods [x] a film", "film film", SIX]
TARGETS = ["predicted", "all", "top:2", "contrast:good-bad", "critical"]
GROUPS = [{"name": "critical", "classes": ["bad", "so-so"]}]


class Bag(nn.Module):
    """Logits that are a function of the sum of the attended tokens' vectors."""

    def __init__(self, of_sum: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table = nn.Embedding(18, 3)
        self.table.weight.data = torch.randn(18, 3, generator=generator)
        self.of_sum = of_sum
        self.rows: list[int] = []  # of every forward pass

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        self.rows.append(len(input_ids))
        return self.of_sum((self.table(input_ids) * attention_mask[:, :, None]).sum(dim=1))


class Mixing(Bag):
    """An item's logits depend on what shares its batch."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        logits = super().forward(input_ids, attention_mask)
        return logits + logits.mean(dim=0, keepdim=True)


def linear(sums: torch.Tensor) -> torch.Tensor:
    return 2 * sums + 1


def pairwise(sums: torch.Tensor) -> torch.Tensor:
    """No more than two tokens interact."""
    return sums.square() + sums[:, [1, 2, 0]] * sums


def entangled(sums: torch.Tensor) -> torch.Tensor:
    return torch.tanh(sums) * sums[:, [1, 2, 0]] + sums.square() * sums


def wrapped(module: nn.Module, **options: Any) -> LoadedModel:
    given = {"tokenizer": wordpiece(), "classes": CLASSES, **options}
    return te.wrap(module.double(), modality="text", **given)


@pytest.fixture(scope="module")
def tangled() -> LoadedModel:
    return wrapped(Bag(entangled))


@pytest.fixture(scope="module")
def image_model() -> LoadedModel:
    return te.wrap(vit().double(), modality="image", transform=pixels)


def content(one: Attribution) -> np.ndarray:
    """(F, ...) relevance without special positions."""
    return np.array([r for r, t in zip(one.relevance, one.features, strict=True) if not t.special])


def answers(model: LoadedModel, text: str, masks: Sequence[Any], fill: int = MASK) -> np.ndarray:
    """(N, C) logits of a text of which only some tokens are present, one pass each.

    Absent ones are replaced by `fill`, or not attended where that is negative.
    """
    ids = torch.tensor(wordpiece()(text)["input_ids"])
    found = []
    for mask in masks:
        kept = torch.tensor([True, *map(bool, mask), True])
        row = torch.where(kept, ids, max(fill, 0))[None]
        attended = kept.long()[None] if fill < 0 else torch.ones_like(row)
        with torch.no_grad():
            found.append(model.module(row, attended)[0].numpy())
    return np.array(found)


def exact_shapley(value: Callable[[tuple[bool, ...]], np.ndarray], features: int) -> np.ndarray:
    """(F, C) from the definition, over all 2^F coalitions."""
    values = {mask: value(mask) for mask in itertools.product((False, True), repeat=features)}
    found = []
    for feature in range(features):
        total = 0
        for mask, without in values.items():
            if not mask[feature]:
                size = sum(mask)
                weight = math.factorial(size) * math.factorial(features - size - 1)
                joined = (*mask[:feature], True, *mask[feature + 1 :])
                total = total + weight / math.factorial(features) * (values[joined] - without)
        found.append(total)
    return np.array(found)


def text_shapley(model: LoadedModel, text: str, features: int) -> np.ndarray:
    return exact_shapley(lambda mask: answers(model, text, [mask])[0], features)


# --- what the methods are -------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_linear_model_is_recovered(method: str) -> None:
    model = wrapped(Bag(linear))
    table = model.module.table.weight.detach().numpy()
    ids = wordpiece()(SIX)["input_ids"][1:-1]
    expected = 2 * (table[ids] - table[MASK])  # (F, C)
    coefficients = {
        "bad": [1, 0, 0],
        "so-so": [0, 1, 0],
        "good": [0, 0, 1],
        "good-bad": [-1, 0, 1],
        "critical": [1, 1, 0],
    }
    targets = ["all", "contrast:good-bad", "critical"]
    found = explain(model, SIX, method, target=targets, classifications=GROUPS)
    assert len(found) == 5
    for one in found:
        seed = np.array(coefficients[one.class_name])
        np.testing.assert_allclose(content(one), expected @ seed, atol=1e-9)
        assert (one.relevance[0], one.relevance[-1]) == (0, 0)
        assert (one.unit, one.at, one.ledger) == ("logits", "inputs", None)


@pytest.mark.parametrize(("window", "stride"), [(1, 1), (2, 1), (3, 2), (9, 4)])
def test_occlusion_is_the_fall_of_the_logit(tangled, window: int, stride: int) -> None:
    (whole,) = answers(tangled, SIX, [[True] * 6])
    totals, counts = np.zeros((6, 3)), np.zeros((6, 1))
    begin = 0
    while True:
        gone = [begin <= place < begin + window for place in range(6)]
        (without,) = answers(tangled, SIX, [[not one for one in gone]])
        totals[gone] += whole - without
        counts[gone] += 1
        if begin + window >= 6:
            break
        begin += stride
    found = explain(tangled, SIX, "occlusion", target="all", window=window, stride=stride)
    by_class = {one.class_index: content(one) for one in found}
    for index in range(3):
        np.testing.assert_allclose(by_class[index], (totals / counts)[:, index], atol=1e-12)


@pytest.mark.parametrize(
    ("method", "text", "samples"),
    [
        ("shapley-sampling", "nice good film", 6),
        ("kernel-shap", SIX, 62),
        ("kernel-shap", SIX, 5000),
    ],
)
def test_shapley_values_are_exact_with_every_order_or_coalition(
    tangled, method: str, text: str, samples: int
) -> None:
    expected = text_shapley(tangled, text, len(text.split()))
    for one in explain(tangled, text, method, target="all", samples=samples):
        np.testing.assert_allclose(content(one), expected[:, one.class_index], atol=1e-10)
    (few,) = explain(tangled, text, method, target="class:bad", samples=1)
    assert np.abs(content(few) - expected[:, 0]).max() > 1e-3


def test_reversed_orders_are_exact_for_pairs() -> None:
    model = wrapped(Bag(pairwise))
    expected = text_shapley(model, SIX, 6)
    found = {
        antithetic: [
            np.abs(content(one) - expected[:, one.class_index]).max()
            for one in explain(
                model, SIX, "shapley-sampling", target="all", samples=2, antithetic=antithetic
            )
        ]
        for antithetic in (True, False)
    }
    assert max(found[True]) < 1e-12
    assert min(found[False]) > 1e-3
    orders = permutations(4, 3, generator_of(0, "x"), antithetic=True)
    assert orders.shape == (3, 4)
    assert (orders[1] == orders[0][::-1]).all()


def test_kernel_shap_comes_near_with_a_sample(tangled) -> None:
    text = "a nice good film x e a film"
    expected = text_shapley(tangled, text, 8)
    off = {}
    for samples in (20, 160):
        runs = [
            content(one) - expected[:, one.class_index]
            for seed in range(8)
            for one in explain(
                tangled, text, "kernel-shap", target="all", samples=samples, seed=seed
            )
        ]
        off[samples] = np.sqrt(np.mean(np.square(runs)))
    assert off[160] < 0.1 * np.abs(expected).max()
    assert off[160] < off[20] / 2


@pytest.mark.parametrize("method", SHAPLEY)
@pytest.mark.parametrize("samples", [1, 7, 40])
def test_relevance_sums_to_the_rise_from_nothing(tangled, method: str, samples: int) -> None:
    for one in explain(tangled, TEXTS, method, target="all", samples=samples):
        features = len(content(one))
        (nothing,) = answers(tangled, one.text, [[False] * features])[:, one.class_index]
        np.testing.assert_allclose(one.relevance.sum(), one.logit - nothing, atol=1e-10)
        assert f"with every position absent the logit is {nothing:.6g}" in one.notes


@pytest.mark.parametrize("ridge", [0.0, 2.0])
def test_lime_is_the_weighted_regression(tangled, ridge: float) -> None:
    from sklearn.linear_model import Ridge

    masks = neighbours(6, 40, generator_of(3, "0", "lime"))
    distance = 1 - masks.sum(axis=1) / (np.sqrt(6) * np.sqrt(np.maximum(masks.sum(axis=1), 1)))
    weights = np.sqrt(np.exp(-(distance**2) / 0.5**2))
    np.testing.assert_allclose(nearness(masks, 0.5), weights, rtol=1e-12)
    twin = Ridge(alpha=ridge, solver="svd" if ridge else "lsqr", tol=1e-13)
    twin.fit(masks.astype(float), answers(tangled, SIX, masks), sample_weight=weights)
    found = explain(
        tangled, SIX, "lime", target="all", samples=40, kernel_width=0.5, ridge=ridge, seed=3
    )
    by_class = {one.class_index: content(one) for one in found}
    for index in range(3):
        np.testing.assert_allclose(by_class[index], twin.coef_[index], atol=1e-8)


def test_neighbours_lack_any_number_of_features() -> None:
    masks = neighbours(5, 4000, generator_of(0, "x"))
    assert masks[0].all()
    lacking = 5 - masks[1:].sum(axis=1)
    np.testing.assert_allclose(np.bincount(lacking, minlength=6) / 4000, [0, *[0.2] * 5], atol=0.03)
    np.testing.assert_allclose(masks[1:].mean(axis=0), 0.4, atol=0.03)


def test_coalitions_have_the_weights_of_the_kernel() -> None:
    masks, weights = coalitions(5, 30, generator_of(0, "x"))
    assert len(np.unique(masks, axis=0)) == 30
    sizes = masks.sum(axis=1)
    kernel = [4 / (math.comb(5, size) * size * (5 - size)) for size in sizes]
    np.testing.assert_allclose(weights, kernel)
    some, some_weights = coalitions(12, 100, generator_of(0, "x"))
    assert len(some) == 100
    assert set(range(1, 12)) >= set(some.sum(axis=1).tolist())
    assert (some.sum(axis=1)[:24] % 10 == 1).all()  # all of sizes 1 and 11 stand first
    total = sum(11 / (size * (12 - size)) for size in range(1, 12))
    np.testing.assert_allclose(some_weights.sum(), total)
    for few in (1, 2, 3):
        assert len(coalitions(12, few, generator_of(0, "x"))[0]) == few


# --- other libraries ------------------------------------------------------------------------


def test_captum_finds_the_same_shapley_values(tangled) -> None:
    from captum.attr import ShapleyValueSampling

    orders = permutations(6, 5, generator_of(0, "0", "shapley-sampling"))

    def logits(present: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(answers(tangled, SIX, present.numpy()))

    theirs = ShapleyValueSampling(logits)
    theirs.permutation_generator = lambda _features, _samples: orders.tolist()
    expected = theirs.attribute(torch.ones(1, 6), n_samples=5)[0].numpy()
    for one in explain(tangled, SIX, "shapley-sampling", target="all", samples=5):
        np.testing.assert_allclose(content(one), expected[one.class_index], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("window", "stride"), [(1, 1), (2, 1), (2, 2)])
def test_captum_finds_the_same_occlusion_of_pictures(image_model, window: int, stride: int) -> None:
    from captum.attr import Occlusion

    shown = pixels(picture())[None]

    def logits(given: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return image_model.module(given).logits

    size, step = 8 * window, 8 * stride
    expected = Occlusion(logits).attribute(
        shown, sliding_window_shapes=(3, size, size), strides=(3, step, step), baselines=0
    )
    options = {"window": window, "stride": stride}
    for one in explain(image_model, picture(), "occlusion", target="all", **options):
        patches = expected[one.class_index, 0, ::8, ::8].numpy()
        np.testing.assert_allclose(one.relevance, patches, rtol=1e-4, atol=1e-7)


# --- pictures -------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", ["mean", "black", "blur"])
def test_absent_patches(image_model, baseline: str) -> None:
    shown = pixels(picture())
    other = {
        "mean": torch.zeros_like(shown),
        "black": torch.full_like(shown, -1),
        "blur": torch.from_numpy(_blur(shown.numpy(), 8.0)),
    }[baseline]
    without = shown.clone()
    without[:, 8:16, 16:] = other[:, 8:16, 16:]
    with torch.no_grad():
        whole, part = image_model.module(torch.stack([shown, without])).logits
    for one in explain(image_model, picture(), "occlusion", target="all", baseline=baseline):
        fall = (whole - part)[one.class_index]
        np.testing.assert_allclose(one.relevance[1, 2], fall, atol=1e-12)
        assert len(one.notes) == 1


def _blur(pixels: np.ndarray, sigma: float) -> np.ndarray:
    """A Gaussian blur by its definition, edges repeated."""
    reach = int(3 * sigma + 0.5)
    steps = np.arange(-reach, reach + 1)
    kernel = np.exp(-(steps**2) / (2 * sigma**2))
    places = (np.arange(24) + steps[:, None]).clip(0, 23)
    matrix = np.tensordot(kernel / kernel.sum(), np.eye(24)[places], axes=1)
    return matrix @ pixels @ matrix.T


def test_every_pixel_is_in_one_patch() -> None:
    assert cells(24, 3).tolist() == [0] * 8 + [1] * 8 + [2] * 8
    assert cells(30, 4).bincount().tolist() == [8, 8, 8, 6]  # a model that pads its last patch
    assert cells(9, 6).unique().tolist() == list(range(6))
    assert windows((2, 3), 2, 1).sum(axis=1).tolist() == [4, 4]
    assert windows((3, 3), 2, 2).sum(axis=1).tolist() == [4, 2, 2, 1]


# --- the house's promises -------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_batches_memory_threads_and_random_states_change_nothing(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of words; of tokens it is a matter of every method."""
    model = wrapped(Bag(entangled))
    draws = {} if method == "occlusion" else {"samples": 9, "seed": 5}
    options = {"target": TARGETS, "classifications": GROUPS, "over": "words", **draws}

    def explained(batch_tokens: int = 10_000, **more: Any) -> list[Attribution]:
        return explain(model, TEXTS, method, batch_tokens=batch_tokens, **{**options, **more})

    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    together = explained()
    assert len(together) == len(TEXTS) * 8
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: explained(), range(4)))
    runs.append(explained(batch_tokens=1))
    monkeypatch.setattr("transexplain.methods.presence.ANSWERS_AT_ONCE", 1)
    monkeypatch.setattr("transexplain.methods.presence.POSITIONS_AT_ONCE", 50)
    monkeypatch.setattr("transexplain.methods.perturbation.CELLS_AT_ONCE", 100)
    runs.append(explained())
    for run in runs:
        for left, right in zip(together, run, strict=True):
            assert left.relevance.dtype == np.float64
            np.testing.assert_allclose(left.relevance, right.relevance, rtol=1e-9, atol=1e-9)
            assert left.notes == right.notes
    if draws:
        other = explained(seed=6)
        assert np.abs(other[-1].relevance - together[-1].relevance).max() > 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_a_model_that_mixes_its_batch_is_run_row_by_row(method: str) -> None:
    model = wrapped(Mixing(entangled))
    found = explain(model, TEXTS[0], method, target="all")
    expected = explain(wrapped(Bag(entangled)), TEXTS[0], method, target="all")
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left.relevance, 2 * right.relevance, atol=1e-10)


@pytest.mark.parametrize(
    ("method", "params", "rows"),
    [
        ("occlusion", {}, 1 + 6),
        ("occlusion", {"window": 2, "stride": 2}, 1 + 3),
        ("lime", {"samples": 20}, None),
        ("shapley-sampling", {"samples": 3}, None),
        ("kernel-shap", {"samples": 40}, None),
        ("kernel-shap", {"samples": 10_000}, 1 + 1 + 62),
        ("kernel-shap", {}, 1 + 1 + 62),
    ],
)
def test_targets_cost_no_forward_pass(method: str, params: Any, rows: int | None) -> None:
    model = wrapped(Bag(entangled))
    explain(model, SIX, method, **params)  # what the model does to batches is measured once
    counts = []
    for target in ("predicted", TARGETS):
        model.module.rows.clear()
        explain(model, SIX, method, target=target, classifications=GROUPS, **params)
        counts.append(sum(model.module.rows))
    declared = cost_of(MethodSpec(name=method, params=params), 8)
    assert counts[0] == counts[1] <= declared.of(8)[0]
    assert declared.of(8)[1] == 0
    assert rows is None or counts[0] == rows
    assert facts_of(method).modalities == ("text", "image")


def test_items_share_forward_passes_and_equal_samples_are_computed_once() -> None:
    model = wrapped(Bag(entangled))
    texts = [SIX] * 8
    explain(model, texts, "shapley-sampling")  # what the model does to batches is measured once
    model.module.rows.clear()
    explain(model, texts, "shapley-sampling", samples=5)
    assert len(model.module.rows) == 2  # the items, and all that is absent somewhere
    model.module.rows.clear()
    explain(model, "good film", "lime", samples=500)
    assert sum(model.module.rows) == 1 + 3  # none, the first, the second; all is known


@pytest.mark.parametrize("method", METHODS)
def test_word_pieces_share_the_relevance_of_their_word(tangled, method: str) -> None:
    text = "a unbelievably film"
    (one,) = explain(tangled, text, method, target="class:good", over="words")
    pieces = one.relevance[2:5]
    assert pieces[0] == pieces[1] == pieces[2] != 0
    words = [word.relevance for word in one.words()]
    if method in ("shapley-sampling", "kernel-shap"):

        def value(mask: tuple[bool, ...]) -> np.ndarray:
            return answers(tangled, text, [(mask[0], *[mask[1]] * 3, mask[2])])[0]

        expected = exact_shapley(value, 3)[:, 2]
        np.testing.assert_allclose(words, expected, atol=1e-10)
    assert len(words) == 3


@pytest.mark.parametrize("method", METHODS)
def test_one_token_and_no_token(tangled, method: str) -> None:
    (one,) = explain(tangled, "nice", method, target="class:bad")
    whole, nothing = answers(tangled, "nice", [[True], [False]])[:, 0]
    np.testing.assert_allclose(one.relevance, [0, whole - nothing, 0], atol=1e-10)
    items = [{"input_ids": [2, 3]}, {"input_ids": [2, 6, 3]}]
    none, some = explain(tangled, items, method, target="class:bad", batch_tokens=1000)
    np.testing.assert_array_equal(none.relevance, [0, 0])
    assert some.relevance[1] != 0


# --- what stands where a token is absent ----------------------------------------------------


@pytest.mark.parametrize(
    ("baseline", "fill", "note"),
    [
        ("auto", MASK, "absent tokens are replaced by [MASK]"),
        ("mask", MASK, "absent tokens are replaced by [MASK]"),
        ("unk", UNK, "absent tokens are replaced by [UNK]"),
        ("pad", PAD, "absent tokens are replaced by [PAD]"),
        (9, 9, "absent tokens are replaced by token 9"),
        ("remove", -1, "absent tokens are not attended"),
    ],
)
def test_absent_tokens(tangled, baseline: Any, fill: int, note: str) -> None:
    masks = [[True] * 6, *(np.arange(6) != place for place in range(6))]
    whole, *without = answers(tangled, SIX, masks, fill)[:, 1]
    (one,) = explain(tangled, SIX, "occlusion", target="class:so-so", baseline=baseline)
    np.testing.assert_allclose(content(one), whole - np.array(without), atol=1e-12)
    assert one.notes == (note,)


def without(**tokens: Any) -> Any:
    """The tokenizer without [MASK]."""
    tokenizer = wordpiece()
    for name, token in {"mask_token": None, **tokens}.items():
        setattr(tokenizer, name, token)
    return tokenizer


def test_the_first_token_that_the_tokenizer_has() -> None:
    model = wrapped(Bag(entangled), tokenizer=without())
    (one,) = explain(model, SIX, "occlusion")
    assert one.notes == ("absent tokens are replaced by [UNK]",)
    with pytest.raises(ConfigurationError, match='no mask token; use baseline="remove"'):
        explain(model, SIX, "occlusion", baseline="mask")
    ends = wrapped(Bag(entangled), tokenizer=without(pad_token="[UNK]"))
    (one,) = explain(ends, SIX, "occlusion")
    assert one.notes == ("absent tokens are replaced by [UNK], which is also its padding",)


def test_encoded_items_without_a_tokenizer() -> None:
    model = wrapped(Bag(entangled), tokenizer=None)
    items = [{"input_ids": [6, 7, 11]}, {"input_ids": [5]}]
    for baseline in ("auto", "mask"):
        with pytest.raises(ConfigurationError, match='baseline="remove" or baseline=<id'):
            explain(model, items, "lime", baseline=baseline)
    for method in SHAPLEY:
        for one in explain(model, items, method, target="class:bad", baseline="remove"):
            assert one.relevance.sum() == pytest.approx(one.logit, abs=1e-12)  # 0 of nothing
        found = explain(model, items, method, target="class:bad", baseline=MASK)
        assert [len(one.relevance) for one in found] == [3, 1]


# --- wrong requests -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "reported"),
    [
        ("lime", {"samples": 0}, "samples is a whole number of at least 1, not 0"),
        ("shapley-sampling", {"samples": -3}, "samples is a whole number"),
        ("kernel-shap", {"samples": 2.5}, "samples is a whole number"),
        ("kernel-shap", {"samples": True}, "samples is a whole number"),
        ("occlusion", {"window": 0}, "window is a whole number"),
        ("occlusion", {"window": 2, "stride": 3}, "use at most 2"),
        ("occlusion", {"baseline": "nothing"}, "auto, mask, unk, pad, remove, the id of a token"),
        ("occlusion", {"baseline": "blur"}, "unknown baseline 'blur'"),
        ("occlusion", {"baseline": True}, "unknown baseline True"),
        ("occlusion", {"baseline": 18}, "its ids are 0 to 17"),
        ("occlusion", {"baseline": -1}, "its ids are 0 to 17"),
        ("occlusion", {"over": "letters"}, "tokens or words"),
        ("lime", {"kernel_width": 0}, "kernel_width is above 0"),
        ("lime", {"ridge": -1}, "ridge at least 0"),
        ("lime", {"ridge": math.nan}, "ridge at least 0"),
    ],
)
def test_wrong_parameters_are_named(tangled, method: str, params: Any, reported: str) -> None:
    with pytest.raises(ConfigurationError, match=reported):
        explain(tangled, SIX, method, **params)


@pytest.mark.parametrize(
    ("transform", "params", "reported"),
    [
        (pixels, {"baseline": "mask"}, "auto, mean, black, blur"),
        (pixels, {"over": "words"}, "its patches"),
        (None, {"baseline": "black"}, "use baseline='mean' or 'blur'"),
    ],
)
def test_wrong_parameters_of_pictures_are_named(transform: Any, params: Any, reported: str) -> None:
    model = te.wrap(vit().double(), modality="image", transform=transform)
    with pytest.raises(ConfigurationError, match=reported):
        explain(model, {"pixel_values": pixels(picture())}, "lime", **params)


class Blind(Bag):
    """Takes no mask of what is attended."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(input_ids, torch.ones_like(input_ids))


def test_models_without_attention_mask() -> None:
    model = wrapped(Blind(entangled))
    with pytest.raises(ConfigurationError, match="takes no attention_mask"):
        explain(model, SIX, "occlusion", baseline="remove")
    assert explain(model, SIX, "occlusion")[0].relevance.any()


@pytest.mark.parametrize("method", METHODS)
def test_logits_that_are_not_finite_cost_their_item_only(method: str) -> None:
    good = wrapped(Bag(lambda sums: sums)).module.table.weight[11]

    def fails(sums: torch.Tensor) -> torch.Tensor:
        """NaN where the token `good` is replaced and nothing else is there."""
        alone = (sums - 2 * good).abs().sum(dim=1, keepdim=True) < 1e-9
        return sums / torch.where(alone, 0 * sums, 1)

    model = wrapped(Bag(fails))
    table = model.module.table.weight.data
    table[[2, 3]] = 0  # CLS and SEP
    table[MASK] = 2 * good.detach().double()
    table[11] = 0.3
    found = te.explain(model, ["film nice", "good"], method, on_error="record")
    assert isinstance(found[0], Attribution)
    assert isinstance(found[1], ItemFailure)
    assert "not finite for item 1 where absent tokens are replaced by [MASK]" in found[1].message


@pytest.mark.parametrize("method", ["lime", "kernel-shap"])
def test_too_few_samples_are_noted(tangled, method: str) -> None:
    (few,) = explain(tangled, SIX, method, samples=3)
    assert "too few samples" in few.notes[-1]
    (enough,) = explain(tangled, SIX, method, samples=60)
    assert "too few" not in " ".join(enough.notes)
