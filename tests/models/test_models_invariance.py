"""Whether logits depend on the batch is measured once, and batches follow from it."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import bert, text_items, vit, wordpiece
from torch import Tensor, nn

import transexplain as te
from transexplain.explaining.batch_sizes import batches_of, token_batches
from transexplain.models.invariance import invariance_of
from transexplain.models.loaded_model import Encoded, LoadedModel

LENGTHS = (8, 3, 5, 8, 3, 6, 5, 8)


class Toy(nn.Module):
    """Embedding, two blocks with a residual, and a head over a mean of positions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(40, 12)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(12, 12), nn.Sequential(nn.GELU())) for _ in range(2)
        )
        self.head = nn.Linear(12, 3)
        self.seen: list[tuple[int, ...]] = []
        self.double()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        self.seen.append(tuple(input_ids.shape))
        x = self.embedding(input_ids)
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.pooled(x, attention_mask))

    def pooled(self, x: Tensor, mask: Tensor) -> Tensor:
        weights = mask.to(x.dtype).unsqueeze(-1)
        return (x * weights).sum(1) / weights.sum(1)


class ReadsPadding(Toy):
    def pooled(self, x: Tensor, mask: Tensor) -> Tensor:
        return x.mean(1)


class ReadsNeighbours(Toy):
    def pooled(self, x: Tensor, mask: Tensor) -> Tensor:
        x = super().pooled(x, mask)
        return x + 0.5 * x.detach().mean(0)


class RefusesPadding(Toy):
    def pooled(self, x: Tensor, mask: Tensor) -> Tensor:
        if not mask.all():
            raise ValueError("no padding here")
        return x.mean(1)


def given(lengths: tuple[int, ...] = LENGTHS) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [{"input_ids": torch.randint(4, 40, (n,), generator=generator)} for n in lengths]


def encoded(model: LoadedModel, contents: list[Any]) -> list[Encoded]:
    made = model.encode(text_items(*contents))
    assert all(isinstance(one, Encoded) for one in made)
    return made  # type: ignore[return-value]


def wrapped(module: nn.Module) -> LoadedModel:
    return te.wrap(module, modality="text", classes=("a", "b", "c"))


def toy(kind: type[Toy]) -> tuple[LoadedModel, list[tuple[int, ...]]]:
    """A model and the shapes of the batches that it runs from now on."""
    module = kind()
    model = wrapped(module)
    module.seen.clear()
    return model, module.seen


@pytest.mark.parametrize(
    ("dtype", "tolerance", "rounding"),
    [(torch.float64, 1e-9, 1e-13), (torch.float32, 1e-4, 1e-5)],
)
def test_bert_depends_on_nothing_and_keeps_ragged_batches(
    dtype: torch.dtype, tolerance: float, rounding: float
) -> None:
    model = te.wrap(bert().to(dtype), modality="text", tokenizer=wordpiece())
    made = encoded(model, ["a nice film", "good", "film film film film film film"])
    found = invariance_of(model, made[0])
    assert (found.batch, found.padding, found.tolerance) == (True, True, tolerance)
    assert found.batch_difference < rounding
    assert found.padding_difference is not None
    assert found.padding_difference < rounding
    assert batches_of(model, made, 100) == token_batches([5, 3, 8], 100) == [[1, 0, 2]]


@pytest.mark.parametrize(
    ("make", "batches"),
    [
        (Toy, [[1, 4, 2, 6, 5, 0, 3, 7]]),
        (ReadsPadding, [[1, 4], [2, 6], [5], [0, 3, 7]]),
        (ReadsNeighbours, [[1], [4], [2], [6], [5], [0], [3], [7]]),
        (RefusesPadding, [[1, 4], [2, 6], [5], [0, 3, 7]]),
    ],
)
def test_results_are_those_of_one_by_one(make: type[Toy], batches: list[list[int]]) -> None:
    model, seen = toy(make)
    contents = given()
    assert batches_of(model, encoded(model, contents), 1000) == batches
    seen.clear()
    together = te.explain(model, contents, "gradient-x-input", target="all", batch_tokens=1000)
    assert [rows for rows, _ in seen] == [len(batch) for batch in batches]
    alone = [
        found
        for content in contents
        for found in te.explain(model, content, "gradient-x-input", target="all")
    ]
    for left, right in zip(together, alone, strict=True):
        np.testing.assert_allclose(left.relevance, right.relevance, rtol=1e-9, atol=1e-12)
        assert left.logit == pytest.approx(right.logit, rel=1e-12)


def test_the_test_costs_three_forwards_once_and_measures_padding_only_on_request() -> None:
    model, seen = toy(Toy)
    equal, ragged = encoded(model, given((6, 6))), encoded(model, given((3, 6)))
    assert batches_of(model, encoded(model, given((6,))), 100) == [[0]]
    assert batches_of(model, ragged, 3) == [[0], [1]]
    assert len(seen) == 0, "no batch of two, nothing to find out"
    batches_of(model, equal, 100)
    assert len(seen) == 2
    assert invariance_of(model, equal[0], ragged=False).padding is None
    batches_of(model, ragged, 100)
    assert len(seen) == 3
    assert invariance_of(model, ragged[0]).padding is True
    batches_of(model, ragged, 100)
    assert len(seen) == 3


def test_several_threads_measure_once() -> None:
    model, seen = toy(ReadsPadding)
    made = encoded(model, given())
    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(lambda _: invariance_of(model, made[0]), range(4))
    assert len(seen) == 3
    assert all(other is first for other in others)


def test_an_item_that_the_model_fails_on_says_nothing_of_the_others() -> None:
    class NoNines(Toy):
        def pooled(self, x: Tensor, mask: Tensor) -> Tensor:
            if x.shape[1] == 9:
                raise RuntimeError("nine")
            return super().pooled(x, mask)

    model = wrapped(NoNines())
    fails = Encoded(
        item=text_items("x")[0],
        inputs={"input_ids": torch.tensor([99] * 4), "attention_mask": torch.ones(4).long()},
        features=(),
        length=4,
        truncated=False,
    )
    assert not invariance_of(model, fails).batch, "an id beyond the table"
    assert invariance_of(model, encoded(model, given((6,)))[0]).batch


def test_pictures_have_no_padding() -> None:
    model = te.wrap(vit().double(), modality="image")
    pixels = [{"pixel_values": torch.randn(3, 24, 24)} for _ in range(3)]
    made = encoded(model, pixels)
    assert batches_of(model, made, 1000) == [[0, 1, 2]]
    found = invariance_of(model, made[0], ragged=False)
    assert (found.batch, found.padding) == (True, None)
    assert found.batch_difference < 1e-13
