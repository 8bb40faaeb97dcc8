"""Max-sensitivity by hand, of a linear model, and the noise itself."""

from typing import Any

import numpy as np
import pytest
import torch
from benches import ScriptedBench, bench_of, case_of, explained
from tiny_models import bert, text_items, vit, wordpiece
from torch import Tensor, nn

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics import max_sensitivity as place
from transexplain.evaluating.metrics.max_sensitivity import max_sensitivity
from transexplain.models.loaded_model import LoadedModel
from transexplain.models.variants import word_table

ITEMS = text_items("a nice unbelievably good film", "x e - good film")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return te.wrap(bert(initializer_range=0.5), modality="text", tokenizer=wordpiece())


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
    assert scored.value is not None
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
    assert scored.value is not None
    assert 0 < scored.value < 1
    (tiny,) = max_sensitivity(bench, cases, radius=1e-9)
    assert tiny.value == pytest.approx(0, abs=1e-4), "the same picture, seen the same way"


def test_texts_of_real_methods(model: LoadedModel) -> None:
    for method, moves in (("random", False), ("lrp", True), ("rollout", True)):
        bench = bench_of(model, method)
        for scored in max_sensitivity(bench, explained(bench, ITEMS)):
            assert scored.value is not None
            assert (scored.value > 0) == moves
            assert scored.value < 1
