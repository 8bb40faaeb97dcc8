"""The metrics that explain again, in the loop over items, on texts and pictures."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from benches import ScriptedBench, bench_of, case_of, explained
from tiny_models import bert, text_items, vit, wordpiece
from torch import Tensor, nn

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.evaluating.evaluate_items import evaluate_items
from transexplain.evaluating.evaluation_bench import Evaluation
from transexplain.evaluating.metrics import max_sensitivity as place
from transexplain.evaluating.metrics import metric_facts
from transexplain.evaluating.metrics.map_metrics import (
    class_sensitivity,
    class_sensitivity_scores,
    conservation,
    ledger_gap,
)
from transexplain.evaluating.metrics.max_sensitivity import max_sensitivity
from transexplain.evaluating.metrics.metric_table import MODELS
from transexplain.evaluating.metrics.randomisation import randomisation, redrawn
from transexplain.explaining import Request
from transexplain.explaining.item_loop import Silent
from transexplain.models.loaded_model import LoadedModel
from transexplain.models.variants import word_table
from transexplain.types.scores import EvaluatedMethod, EvaluationPlan, MethodSpec, MetricSpec
from transexplain.types.targets import ClassNames, parse_target

METHODS = ("lrp", "rollout", "random")


@pytest.mark.parametrize("modality", ["text", "image"])
def test_every_method_and_item_is_measured(modality: str) -> None:
    draw = torch.Generator().manual_seed(0)
    if modality == "text":
        model = te.wrap(bert(initializer_range=0.3), modality="text", tokenizer=wordpiece())
        items = text_items("a nice film", "unbelievably good goods", "e x - a film")
    else:
        model = te.wrap(vit(initializer_range=0.3), modality="image")
        items = text_items(
            *({"pixel_values": torch.rand(3, 24, 24, generator=draw)} for _ in range(2))
        )
    names = ClassNames(model.classes)
    plan = EvaluationPlan(
        methods=tuple(EvaluatedMethod(label=m, method=MethodSpec(name=m)) for m in METHODS),
        metrics=tuple(MetricSpec(name=name) for name in MODELS),
    )
    request = Request(method=MethodSpec(), targets=(parse_target("predicted", names),), names=names)
    evaluation = Evaluation(request=request, plan=plan, rows=len(items))
    before = {name: one.clone() for name, one in model.module.state_dict().items()}
    found = list(evaluate_items(model, items, evaluation, observer=Silent()))
    scores = {
        (one.metric, one.method, end.outcome.item_id): one
        for end in found
        if end.outcome is not None
        for one in end.scores
    }
    assert len(scores) == len(MODELS) * len(METHODS) * len(items)
    for (metric, method, _), score in scores.items():
        assert score.value is not None, score.reason
        assert bool(score.curve) == bool(metric_facts(metric).axis)
        if method == "random":  # the one row whose answers are known: it reads nothing
            assert score.value == {"randomisation": 1}.get(metric, 0)
    after = model.module.state_dict()
    assert all(torch.equal(after[name], values) for name, values in before.items())


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], 0),
        ([1, 2, 3, 4], [10, 20, 30, 400], 0),
        ([1, 2, 3, 4], [-1, -2, -3, -4], 1),
        ([1, 2, 3], [1, 3, 2], 0.25),  # rho = 1 - 6 * 2 / (3 * 8) = 0.5
        ([0, 0, 0], [0, 0, 0], 0),
        ([2, 2, 2], [1, 1, 1], 0),
        ([2, 2, 2], [1, 2, 1], 0.5),
        ([[1, 2], [3, 4]], [[4, 3], [2, 1]], 1),
    ],
)
def test_by_hand(one: list[float], other: list[float], expected: float) -> None:
    found = class_sensitivity(np.array(one, dtype=float), np.array(other, dtype=float))
    assert found == pytest.approx(expected)


def test_the_likeliest_other_class_is_explained() -> None:
    model = te.wrap(bert(), modality="text", tokenizer=wordpiece())
    cases = [
        case_of([1, 2, 3], index=0, logits=[2.0, -3.0, -1.0]),
        case_of([1, 2, 3], index=1, logits=[2.0, -3.0, -1.0]),
        case_of([1, 2, 3], index=2, logits=[2.0, 5.0, 9.0]),
        case_of([1], index=2, logits=[2.0, 5.0, 9.0]),
    ]
    bench = ScriptedBench(model, [[[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], "it failed", [2.0]]])
    found = class_sensitivity_scores(bench, cases)
    assert bench.calls[0] == {"classes": [2, 0, 1, 1]}
    assert [one.value for one in found[:2]] == pytest.approx([1, 0.25])
    assert [(one.value, one.reason) for one in found[2:]] == [
        (None, "it failed"),
        (None, "one position: there is no order"),
    ]
    assert cases[0].logits.tolist() == [2, -3, -1]


def test_a_model_of_one_class_is_not_measured() -> None:
    model = te.wrap(bert(num_labels=1), modality="text", tokenizer=wordpiece())
    (found,) = class_sensitivity_scores(ScriptedBench(model, []), [case_of([1, 2], logits=[1.0])])
    assert (found.value, found.reason) == (None, "the model has one class")


ITEMS = text_items("a nice unbelievably good film", "x e - good film", "good")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return te.wrap(bert(initializer_range=0.5).double(), modality="text", tokenizer=wordpiece())


def test_gradient_x_input_over_the_embedded_positions(model: LoadedModel) -> None:
    """Ali et al.: the score beside the sum of x df/dx over the embeddings with positions."""
    for case in explained(bench_of(model, "gradient-x-input"), ITEMS):
        encoded = wordpiece()(case.item.content, return_tensors="pt")
        module: Any = model.module
        hidden = module.bert.embeddings(encoded["input_ids"]).detach().requires_grad_()
        logits = module.classifier(
            module.bert.pooler(module.bert.encoder(hidden).last_hidden_state)
        )
        logit = logits[0, case.attribution.class_index]
        (gradient,) = torch.autograd.grad(logit, hidden)
        values, slopes = hidden.detach()[0].tolist(), gradient[0].tolist()
        f, total = logit.item(), 0.0
        for position in range(len(values)):
            for unit in range(len(values[0])):
                total += values[position][unit] * slopes[position][unit]
        found = conservation(case)
        assert found.detail["pair"] == pytest.approx([f, total], rel=1e-9)
        assert found.value == pytest.approx(abs(f - total) / abs(f), rel=1e-9)


def test_a_rule_that_loses_relevance_closes_its_books_but_does_not_conserve(
    model: LoadedModel,
) -> None:
    for case in explained(bench_of(model, "gradient-x-input"), ITEMS):
        books, sums = ledger_gap(case).value, conservation(case).value
        assert books is not None and books < 1e-12
        assert sums is not None and sums > 0.01


def test_by_hand_and_without_a_logit() -> None:
    case = case_of([1.0, -3.0])
    assert conservation(case).value == pytest.approx(3.0)  # |1 - (7 + 1 - 3 - 7)| / 1
    none = replace(case, attribution=replace(case.attribution, logit=0.0))
    assert conservation(none).reason == "the explained logit is 0"
    assert ledger_gap(case).reason == "the method keeps no ledger"


def test_the_largest_change_by_hand(model: LoadedModel) -> None:
    script = [[[3.0, 4.0]], [[3.0, 5.0]], [[0.0, 0.0]], [[0.0, 8.0]]]
    bench = ScriptedBench(model, script)  # type: ignore[arg-type]
    # norm 5; the changes are 0, 1, 5 and (3, 4) -> (0, 8): 5
    (scored,) = max_sensitivity(bench, [case_of([3, 4])], samples=2)
    assert scored.value == pytest.approx(0.2)
    bench.calls.clear()
    (scored,) = max_sensitivity(bench, [case_of([3, 4])], samples=4)
    assert scored.value == pytest.approx(1)


def test_items_that_cannot_be_measured_have_a_reason(model: LoadedModel) -> None:
    bench = ScriptedBench(model, [[[1.0, 2.0], [1.0, 1.0]], [[1.0, 2.0], "it failed"]])
    cases = [case_of([1, 2]), case_of([0, 0]), case_of([1, 1])]
    found = max_sensitivity(bench, cases, samples=2)
    assert [(one.value, one.reason) for one in found] == [
        (0, ""),
        (None, "no position has any relevance"),
        (None, "input 2 nearby: it failed"),
    ]
    assert max_sensitivity(bench, [case_of([0, 0])])[0].value is None, "nothing is computed"


@pytest.mark.parametrize(
    "given", [{"samples": 0}, {"samples": 1.5}, {"radius": 0}, {"radius": "1"}]
)
def test_wrong_parameters(model: LoadedModel, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(given))} is a"):
        max_sensitivity(ScriptedBench(model, []), [case_of([1, 2])], **given)


@pytest.mark.parametrize("held", [True, False])
def test_words_move_within_the_radius_and_nothing_else_does(
    model: LoadedModel, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_HELD", 1 << 30 if held else 0)
    bench = ScriptedBench(model, [[[1.0, 2.0]]] * 3)
    max_sensitivity(bench, [case_of([1, 2])], samples=3, radius=0.1, seed=5)
    name = word_table(model)
    assert name == "bert.embeddings.word_embeddings.weight"
    table = model.module.get_parameter(name).detach()
    bound = 0.1 * float(table.std(correction=0))
    moves = []
    for call in bench.calls:
        parameters = dict(call["model"].module.named_parameters())
        moved = (parameters.pop(name).detach() - table).abs()
        assert bound * 0.9 < float(moved.max()) <= bound * 1.0001
        assert float(moved.mean()) == pytest.approx(bound / 2, rel=0.1)
        moves.append(moved)
        own = dict(model.module.named_parameters())
        assert all(one.data_ptr() == own[key].data_ptr() for key, one in parameters.items())
    assert not torch.equal(moves[0], moves[1])
    again = ScriptedBench(model, [[[1.0, 2.0]]] * 3)
    max_sensitivity(again, [case_of([1, 2])], samples=3, radius=0.1, seed=5)
    same = [id(one["model"]) for one in again.calls] == [id(one["model"]) for one in bench.calls]
    assert same == held
    digests = [[one["model"].ref.digest for one in each.calls] for each in (again, bench)]
    assert digests[0] == digests[1]


class Weighted(nn.Module):
    """Two classes, each a weighted sum of 4 x 4 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(48, 2, bias=False)
        with torch.no_grad():
            self.out.weight.copy_(torch.arange(96.0).reshape(2, 48) / 10 - 4)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.out(pixel_values.flatten(1))  # type: ignore[no-any-return]


def test_the_pictures_of_a_linear_model() -> None:
    model = te.wrap(Weighted().double(), modality="image", input_size=(3, 4, 4))
    draw = torch.Generator().manual_seed(0)
    pixels = torch.rand(3, 4, 4, generator=draw, dtype=torch.float64) * 6 - 2
    bench = bench_of(model, "gradient-x-input")
    (case,) = explained(bench, text_items({"pixel_values": pixels}))
    weight = model.module.get_parameter("out.weight").detach()[case.attribution.class_index]
    before = (weight.reshape(3, 4, 4) * pixels).sum(0)
    assert case.relevance == pytest.approx(before.flatten().numpy())
    (scored,) = max_sensitivity(bench, [case], samples=4, radius=0.05)
    # no pixel moves further than the radius, so no relevance further than |weight| times it
    radius = 0.05 * float(pixels.max() - pixels.min())
    most = weight.reshape(3, 4, 4).abs().sum(0) * radius
    assert 0 < scored.value < float(most.norm() / before.norm())
    (doubled,) = max_sensitivity(bench, [case], samples=4, radius=0.1)
    assert doubled.value == pytest.approx(2 * scored.value), "a linear model"


def test_a_picture_that_is_encoded_has_the_same_positions() -> None:
    def transform(picture: Any) -> Tensor:
        return torch.tensor(np.array(picture.resize((24, 24))) / 127.5 - 1).permute(2, 0, 1).float()

    model = te.wrap(vit(), modality="image", transform=transform)
    picture = np.random.default_rng(0).integers(0, 256, (48, 30, 3), dtype=np.uint8)
    bench = bench_of(model, "lrp")
    cases = explained(bench, text_items(picture))
    (scored,) = max_sensitivity(bench, cases)
    assert 0 < scored.value < 1
    (tiny,) = max_sensitivity(bench, cases, radius=1e-9)
    assert tiny.value == pytest.approx(0, abs=1e-4), "the same picture, seen the same way"


def test_the_curve_by_hand(model: LoadedModel) -> None:
    # head, two layers, embeddings: four steps
    script = [[[2.0, 4.0, 6.0]], [[1.0, 3.0, 2.0]], [[-1.0, -2.0, -3.0]], [[5.0, 5.0, 5.0]]]
    bench = ScriptedBench(model, script)  # type: ignore[arg-type]
    (scored,) = randomisation(bench, [case_of([1, 2, 3])])
    # rho = 1 - 6 * (0 + 1 + 1) / (3 * 8) = 0.5 at the second step; a constant ranks nothing
    assert scored.curve == pytest.approx((1, 0.5, -1, 0))
    assert scored.value == pytest.approx(0.125)
    requested = [call["model"] for call in bench.calls]
    assert len({one.ref.digest for one in requested}) == 4
    assert "classes" not in bench.calls[0], "the same class is explained"


def test_the_curve_of_sizes(model: LoadedModel) -> None:
    script = [[[1.0, 2.0, 3.0]], [[-1.0, -2.0, -3.0]], [[3.0, -3.0, 3.0]], [[3.0, 2.0, -1.0]]]
    bench = ScriptedBench(model, script)  # type: ignore[arg-type]
    (scored,) = randomisation(bench, [case_of([-1, 2, -3])], absolute=True)
    assert scored.curve == pytest.approx((1, 1, 0, -1))


def test_items_that_cannot_be_ranked_or_explained_have_a_reason(model: LoadedModel) -> None:
    failing = [[[2.0, 1.0], "the model failed"] for _ in range(4)]
    bench = ScriptedBench(model, failing)
    cases = [case_of(values) for values in ([1, 2], [3, 3], [1], [4, 5])]
    found = randomisation(bench, cases)
    assert found[0].value == pytest.approx(-1)
    assert [scored.value for scored in found[1:]] == [None, None, None]
    assert [scored.reason for scored in found[1:]] == [
        "the explanation is constant: there is no order",
        "one position: there is no order",
        "step 1 of 4 of the randomisation: the model failed",
    ]


def test_every_step_draws_more_and_keeps_what_was_drawn(model: LoadedModel) -> None:
    bench = ScriptedBench(model, [[[1.0, 2.0]]] * 4)
    randomisation(bench, [case_of([1, 2])])
    steps = [dict(call["model"].module.named_parameters()) for call in bench.calls]
    place = {"classifier": 0, "pooler": 0, "layer.1": 1, "layer.0": 2, "embeddings.w": 3}
    for name, old in model.module.named_parameters():
        begins = next((step for part, step in place.items() if part in name), None)
        if begins is None or name.endswith("bias") or "LayerNorm" in name:
            continue  # biases are 0 and norm weights 1 here
        for number, step in enumerate(steps):
            assert torch.equal(step[name], old) == (number < begins), (name, number)
        assert all(
            step[name].data_ptr() == steps[begins][name].data_ptr() for step in steps[begins:]
        )


def test_matrices_are_drawn_from_their_own_normal() -> None:
    matrix = 3 + 0.5 * torch.rand(200, 300, generator=torch.Generator().manual_seed(0))
    new = redrawn(matrix, "one", 0)
    # standard errors of 60,000 draws: 0.0006 of the mean, 0.0004 of the deviation
    assert float(new.mean()) == pytest.approx(float(matrix.mean()), abs=0.003)
    assert float(new.std()) == pytest.approx(float(matrix.std()), abs=0.003)
    together = torch.stack([new.flatten(), matrix.flatten()])
    assert abs(float(torch.corrcoef(together)[0, 1])) < 0.02
    assert torch.equal(new, redrawn(matrix.clone(), "one", 0))
    assert not torch.equal(new, redrawn(matrix, "two", 0))
    assert not torch.equal(new, redrawn(matrix, "one", 1))
    assert redrawn(matrix.half(), "one", 0).dtype == torch.float16


def test_vectors_are_permuted_and_constants_stay() -> None:
    vector = torch.arange(50.0)
    new = redrawn(vector, "one", 0)
    assert not torch.equal(new, vector)
    assert torch.equal(new.sort().values, vector)
    for constant in (torch.zeros(7), torch.full((3, 4), 0.1), torch.tensor(2.0), torch.ones(1, 1)):
        assert torch.equal(redrawn(constant, "one", 0), constant)
    assert redrawn(torch.zeros(0, 3), "one", 0).shape == (0, 3)
