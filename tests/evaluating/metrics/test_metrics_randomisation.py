"""Randomisation by hand, what is drawn, and methods of which the answer is known."""

import pytest
import torch
from benches import ScriptedBench, bench_of, case_of, explained
from tiny_models import bert, text_items, vit, wordpiece

import transexplain as te
from transexplain.evaluating.metrics.randomisation import randomisation, redrawn
from transexplain.models.loaded_model import LoadedModel

ITEMS = text_items("a nice unbelievably good film", "x e - good film")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return te.wrap(bert(initializer_range=0.5).double(), modality="text", tokenizer=wordpiece())


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


def test_the_models_are_drawn_once(model: LoadedModel) -> None:
    first, second, other = (ScriptedBench(model, [[[1.0, 2.0]]] * 4) for _ in range(3))
    for bench, seed in ((first, 0), (second, 0), (other, 1)):
        randomisation(bench, [case_of([1, 2])], seed=seed)
    made = [[id(call["model"]) for call in bench.calls] for bench in (first, second)]
    assert made[0] == made[1]
    assert other.calls[0]["model"].ref.digest != first.calls[0]["model"].ref.digest


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


def test_random_relevance_ignores_the_model_and_lrp_does_not(model: LoadedModel) -> None:
    values = {}
    for method in ("random", "lrp"):
        bench = bench_of(model, method)
        scores = randomisation(bench, explained(bench, ITEMS))
        assert all(len(one.curve) == 4 for one in scores)
        values[method] = [one.value for one in scores]
    assert values["random"] == [1, 1]
    assert all(value is not None and value < 0.9 for value in values["lrp"])


def test_pictures() -> None:
    pictures = te.wrap(vit(), modality="image")
    pixels = torch.rand(3, 24, 24, generator=torch.Generator().manual_seed(0))
    bench = bench_of(pictures, "gradient-x-input")
    (scored,) = randomisation(bench, explained(bench, text_items({"pixel_values": pixels})))
    assert len(scored.curve) == 4
    assert scored.value is not None
    assert scored.value < 0.9
