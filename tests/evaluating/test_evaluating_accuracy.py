"""Accuracy while parts are hidden, draws of random relevance, and a prediction's own time."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_evaluations import evaluated, plan_of, three_classes
from tiny_models import text_items, vit

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.evaluating import evaluate_items as scoring
from transexplain.evaluating.evaluate_items import PerturbedLogits
from transexplain.evaluating.metrics import curve_of
from transexplain.explaining.long_texts import redrawn_in_windows
from transexplain.methods.at_input_layer import InputLayerForward
from transexplain.models.loaded_model import Encoded, LoadedModel, Windows
from transexplain.reports.evaluation import tables_of
from transexplain.types.items import Attribution, Item
from transexplain.types.plans import Join
from transexplain.types.scores import (
    DRAWS,
    EvaluatedMethod,
    EvaluationPlan,
    MethodSpec,
    MetricScore,
    MetricSpec,
)

TEXTS = (
    "a nice film goods",
    "unbelievably nice goods - e x",
    "a a film x good",
    "e film nice unbelievably good good x a",
    "film film good x e nice",
)
LABELS = ("good", "bad", "so-so", "good", "bad")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return three_classes()


@pytest.fixture(scope="module")
def pictures() -> LoadedModel:
    module = vit(id2label=dict(enumerate("abcd")), initializer_range=0.5).double()
    return te.wrap(module, modality="image", classes=list("abcd"), transform=transform)


def transform(image: Image.Image) -> torch.Tensor:
    """Black is not 0 in the model's input."""
    pixels = np.asarray(image.resize((24, 24)), dtype=np.float64) / 255
    return torch.from_numpy(((pixels - 0.4) / 0.25).transpose(2, 0, 1))


def labelled(labels: tuple[str | None, ...] = LABELS) -> list[Item]:
    items = text_items(*TEXTS)
    return [
        Item(id=one.id, index=one.index, content=one.content, label=label)
        for one, label in zip(items, labels, strict=True)
    ]


def scored(
    model: LoadedModel,
    items: list[Item],
    methods: tuple[Any, ...],
    metrics: tuple[Any, ...],
    target: str = "predicted",
) -> tuple[list[MetricScore], EvaluationPlan]:
    plan = plan_of(methods, metrics, targets=(target,))
    ends = evaluated(model, items, plan)
    return [score for end in ends for score in end.scores], plan


def most_relevant(attribution: Attribution) -> list[int]:
    """Positions of a text's own tokens, one after the other the most relevant of those left."""
    places = [place for place, one in enumerate(attribution.features) if not one.special]
    return sorted(places, key=lambda place: -attribution.relevance[place])


def right_without(
    model: LoadedModel, item: Item, hidden: list[int], *, masked: bool, left_out: bool
) -> float:
    """1 where the model still predicts the label; hidden are [MASK], not attended, or both."""
    (encoded,) = model.encode([item])
    ids, attended = (encoded.inputs[key].clone() for key in ("input_ids", "attention_mask"))
    for place in hidden:
        if masked:
            ids[place] = model.encoder.tokenizer.mask_token_id
        if left_out:
            attended[place] = 0
    with torch.no_grad():
        answer = model.module(
            input_ids=ids[None],
            attention_mask=attended[None],
            token_type_ids=encoded.inputs["token_type_ids"][None],
        ).logits[0]
    return float(model.classes[int(answer.argmax())] == item.label)


@pytest.mark.parametrize("baseline", ["remove", "mask"])
def test_the_hiding_and_revealing_games_are_the_papers_loop(
    model: LoadedModel, baseline: str
) -> None:
    """Hou and Castanon 2023, section 3.1 and A.1: token by token, at 0, 10, ..., 100 %."""
    params = {} if baseline == "remove" else {"baseline": baseline}
    metrics = tuple(
        MetricSpec(name=f"{game}-accuracy", params=params) for game in ("hiding", "revealing")
    )
    found, _ = scored(model, labelled(), ("lrp",), metrics)
    by_key = {(one.item_id, one.metric): one for one in found}
    seen = set()
    for item in labelled():
        (attribution,) = te.explain(model, [item], "lrp")
        order = most_relevant(attribution)
        for metric in ("hiding-accuracy", "revealing-accuracy"):
            curve = []
            for percent in range(0, 101, 10):
                first = order[: round(percent * len(order) / 100)]
                rest = [place for place in order if place not in first]
                hidden = first if metric == "hiding-accuracy" else rest
                # the paper does both at once; what is not attended may hold any token
                out = baseline == "remove"
                curve.append(right_without(model, item, hidden, masked=True, left_out=out))
            assert by_key[item.id, metric].curve == tuple(curve)
            assert by_key[item.id, metric].value == pytest.approx(np.trapezoid(curve, dx=0.1))
            seen.update(curve)
    assert seen == {0.0, 1.0}


def test_a_text_without_a_label_has_no_accuracy(model: LoadedModel) -> None:
    labels = ("good", None, "terrible", "good", "bad")
    found, _ = scored(
        model, labelled(labels), ("lrp", "random"), ("hiding-accuracy", "auac", "pruning")
    )
    reasons = {(one.item_id, one.metric): one.reason for one in found}
    for metric in ("hiding-accuracy", "auac"):
        assert reasons["i0", metric] == ""
        assert reasons["i1", metric] == "the item has no label"
        assert reasons["i2", metric] == "the label is no class of the model"
    assert all(reason == "" for (_, metric), reason in reasons.items() if metric == "pruning")


def test_auac_is_of_the_correct_class_unless_another_is_wanted(model: LoadedModel) -> None:
    """Ali et al. 2022, section 6.2: the probability of the correct class as tokens come back."""
    explained = MetricSpec(name="auac", params={"of": "explained"}, label="of the explained")
    of_label = MetricSpec(name="activation", params={"of": "label"}, label="of the label")
    found, _ = scored(model, labelled(), ("lrp",), ("auac", "activation", explained, of_label))
    by_key = {(one.item_id, one.metric): one.curve for one in found}
    differ = 0
    for item in labelled():
        assert by_key[item.id, "of the label"] == by_key[item.id, "auac"]
        assert by_key[item.id, "of the explained"] == by_key[item.id, "activation"]
        (encoded,) = model.encode([item])
        logits = model.logits(model.collate([encoded]))[0].detach()  # nothing is hidden
        of_label = float(logits.softmax(-1)[model.classes.index(item.label)])
        assert by_key[item.id, "auac"][-1] == pytest.approx(of_label, abs=1e-12)
        differ += by_key[item.id, "activation"] != by_key[item.id, "auac"]
    assert differ
    with pytest.raises(ConfigurationError, match="of is 'explained' or 'label', not 'best'"):
        curve_of(MetricSpec(name="auac", params={"of": "best"}))


def sample(number: int) -> Item:
    noise = np.random.default_rng(number).integers(0, 255, (24, 24, 3), dtype=np.uint8)
    return Item(
        id=f"p{number}", index=number, content=Image.fromarray(noise), label="abcd"[number % 4]
    )


def orders_of_ties(relevance: np.ndarray) -> list[np.ndarray]:
    """The same relevance with ties (4 rows at the edge are alike) broken in several ways.

    How they fall is a matter of the last bit, and of the processor.
    """
    dice = np.random.default_rng(0)
    size = 1e-9 * np.abs(relevance).max()
    return [relevance + size * dice.standard_normal(relevance.shape) for _ in range(5)]


def accuracies(pictures: LoadedModel, item: Item, first: np.ndarray) -> list[float]:
    """Whether the answer is right with 10 to 90 % of pixels black, by rising values of `first`."""
    order = np.argsort(first.reshape(-1), kind="stable")
    curve = []
    for tenths in range(1, 10):
        picture = np.array(item.content)
        for pixel in order[: round(tenths * 576 / 10)]:
            picture[pixel // 24, pixel % 24] = 0
        with torch.no_grad():
            logits = pictures.module(transform(Image.fromarray(picture))[None]).logits[0]
        curve.append(float("abcd"[int(logits.argmax())] == item.label))
    return curve


@pytest.mark.parametrize(("target", "held"), [("predicted", 2**27), ("label", 5_000)])
def test_perturbation_by_accuracy_blackens_the_pixels_of_the_picture(
    pictures: LoadedModel, target: str, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chefer et al. 2021a, section 4 and table 1, on the bytes of the picture."""
    monkeypatch.setattr(scoring, "MASKS_AT_ONCE", held)
    signs = {"positive-perturbation-accuracy": -1.0, "negative-perturbation-accuracy": 1.0}
    items = [sample(number) for number in range(8)]
    found, _ = scored(pictures, items, ("lrp",), tuple(signs), target)
    by_key = {(one.item_id, one.metric): one for one in found}
    seen, certain = set(), 0
    for item in items:
        (attribution,) = te.explain(pictures, [item], "lrp", target)
        relevance = torch.from_numpy(np.asarray(attribution.relevance, dtype=np.float64))
        of_pixels = torch.nn.functional.interpolate(
            relevance[None, None], scale_factor=8, mode="bilinear"
        )[0, 0].numpy()
        for metric, sign in signs.items():
            possible = [
                accuracies(pictures, item, sign * order) for order in orders_of_ties(of_pixels)
            ]
            one = by_key[item.id, metric]
            for measured, expected in zip(one.curve, zip(*possible, strict=True), strict=True):
                if len(set(expected)) == 1:
                    assert measured == expected[0]
                    certain += 1
            assert one.value == pytest.approx(np.trapezoid(one.curve, dx=0.1) / 0.8)
            seen.update(one.curve)
    assert certain > 0.9 * len(found) * 9
    assert seen == {0.0, 1.0}


def test_pixels_are_hidden_of_pictures_alone_and_explained_by_no_method(
    model: LoadedModel, pictures: LoadedModel
) -> None:
    of_pixels = MetricSpec(name="activation", params={"over": "pixels"})
    with pytest.raises(ConfigurationError, match="a text has tokens or words"):
        scored(model, labelled(), ("lrp",), (of_pixels,))
    with pytest.raises(ConfigurationError, match="lime explains tokens"):
        te.explain(pictures, [sample(0)], "lime", over="pixels")


def random_of(draws: int, **params: Any) -> EvaluatedMethod:
    return EvaluatedMethod(
        label="random", method=MethodSpec(name="random", params=params), draws=draws
    )


def test_random_relevance_is_the_mean_of_its_draws(model: LoadedModel) -> None:
    """20 draws there (Hou and Castanon 2023, section 3.1), each an evaluation of its own here."""
    metrics = ("activation", "hiding-accuracy", "sparsity", "runtime", "conservation")
    found, plan = scored(model, labelled(), ("lrp", random_of(4, seed=7)), metrics)
    together = {(one.item_id, one.metric): one for one in found if one.method == "random"}
    alone = []
    for seed in range(7, 11):
        one_draw, _ = scored(model, labelled(), (random_of(1, seed=seed),), metrics)
        alone.append({(one.item_id, one.metric): one for one in one_draw if one.method == "random"})
    for metric in ("activation", "hiding-accuracy", "sparsity"):
        means = []
        for draw in alone:
            means.append(sum(draw[f"i{row}", metric].value for row in range(5)) / 5)
        for row in range(5):
            key = (f"i{row}", metric)
            values = [draw[key].value for draw in alone]
            assert together[key].detail["draws"] == pytest.approx(values, abs=1e-12)
            assert together[key].value == pytest.approx(sum(values) / 4, abs=1e-12)
            curves = np.mean([draw[key].curve for draw in alone], axis=0)
            assert together[key].curve == pytest.approx(curves, abs=1e-12)
        (table,) = [one for one in tables_of(found, plan)[0] if one.metric == metric]
        (row,) = [one for one in table.rows if one.kind == "random"]
        assert row.mean == pytest.approx(sum(means) / 4)
        middle = sum(means) / 4
        deviation = (sum((one - middle) ** 2 for one in means) / 3) ** 0.5
        assert (row.spread.draws, row.spread.low, row.spread.high) == (
            4,
            pytest.approx(min(means)),
            pytest.approx(max(means)),
        )
        assert row.spread.deviation == pytest.approx(deviation)
    # neither where the relevance lies: the first draw
    assert together["i0", "conservation"] == alone[0]["i0", "conservation"]
    assert "draws" not in together["i0", "runtime"].detail


@pytest.mark.parametrize("stride", [None, 4])
@pytest.mark.parametrize("join", ["mean", "sum"])
def test_later_draws_of_a_text_in_windows_run_no_model(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, join: Join, stride: int | None
) -> None:
    long = Item(id="long", index=0, content=" ".join([*TEXTS, *TEXTS]), label="good")
    keys = {"long_text": "window", "window": 8, "stride": stride, "long_text_join": join}
    (first,), (other,) = (te.explain(model, long, "random", seed=seed, **keys) for seed in (3, 5))
    (encoded,) = model.encode([long], long_text=Windows(stride=stride), max_length=8)
    assert isinstance(encoded, Encoded) and len(encoded.windows) > 2
    made = redrawn_in_windows(first, encoded, join, 5)
    assert np.array_equal(made.relevance, other.relevance)
    assert made.relevance.dtype == other.relevance.dtype
    assert not np.array_equal(made.relevance, first.relevance)
    assert (made.logit, made.notes, made.item_id) == (other.logit, other.notes, "long")
    passes: list[int] = []
    plain = InputLayerForward.of
    monkeypatch.setattr(InputLayerForward, "of", lambda *given: passes.append(1) or plain(*given))
    counts = []
    for draws in (1, 4):
        passes.clear()
        evaluated(model, [long], plan_of((random_of(draws),), ("activation",)), **keys)
        counts.append(len(passes))
    assert counts[0] == counts[1] > 0


def test_values_of_all_items_together_have_draws_as_well(model: LoadedModel) -> None:
    items, metrics = labelled(), ("token-overlap",)
    found, plan = scored(model, items, ("lrp", random_of(3)), metrics, "label")
    (table,) = tables_of(found, plan)[0]
    (row,) = [one for one in table.rows if one.kind == "random"]
    values = []
    for seed in range(3):
        one_draw, only = scored(model, items, (random_of(1, seed=seed),), metrics, "label")
        (alone,) = tables_of(one_draw, only)[0]
        values.append(alone.rows[0].mean)
    assert row.mean == pytest.approx(sum(values) / 3)
    assert row.spread.deviation == pytest.approx(np.std(values, ddof=1))


def test_draws_are_of_random_relevance_alone(model: LoadedModel) -> None:
    for label, draws in (("lrp", 2), ("random", 0)):
        with pytest.raises(ConfigurationError, match=f"draws={draws} of {label}"):
            EvaluatedMethod(label=label, method=MethodSpec(name=label), draws=draws)
    (table,) = te.evaluate(model, labelled(), ["lrp"], ["sparsity"])
    (row,) = [one for one in table.rows if one.kind == "random"]
    assert row.spread is not None and row.spread.draws == DRAWS


def test_no_time_holds_what_the_first_pass_of_a_process_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock that moves 100 s in the first pass with gradients and without, 1 s in others."""
    fresh, now, ran = three_classes(), 0.0, set[bool]()

    def moved(*_: Any) -> None:
        nonlocal now
        kind = torch.is_grad_enabled()
        now += 1 if kind in ran else 100
        ran.add(kind)

    fresh.module.register_forward_pre_hook(moved)
    for module in ("evaluation_bench", "evaluate_items"):
        monkeypatch.setattr(f"transexplain.evaluating.{module}.time.perf_counter", lambda: now)
    found, _ = scored(fresh, labelled()[:1], ("lrp", "random"), ("runtime",))
    assert ran == {False, True}
    assert {one.method: one.value for one in found} == {"prediction": 1, "lrp": 1, "random": 1}


def test_predictions_are_timed_in_batches_as_large_as_those_that_are_explained() -> None:
    fresh, sizes = three_classes(), []
    encoded = fresh.encode(text_items(*TEXTS))
    asked = PerturbedLogits.of(fresh, encoded, "mean", lambda: None)
    fresh.module.register_forward_pre_hook(
        lambda _, given, named: sizes.append(len(named["input_ids"])), with_kwargs=True
    )
    for positions, expected in ((1, [1] * 5), (None, [5])):
        sizes.clear()
        seconds = asked.seconds(positions)
        assert sizes == expected
        assert len(seconds) == 5 and min(seconds) > 0
