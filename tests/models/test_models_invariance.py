"""Whether logits depend on the batch is measured once, and batches follow from it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tiny_models import SIZES, bert, text_items, vit, wordpiece
from torch import Tensor, nn

import transexplain as te
from transexplain.explaining.batch_sizes import batches_of, token_batches
from transexplain.models.calling import logits_of
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


@contextmanager
def forwards(module: nn.Module) -> Iterator[list[int]]:
    """The batch sizes that the module runs."""
    sizes: list[int] = []
    hook = module.register_forward_hook(lambda *_: sizes.append(1))
    try:
        yield sizes
    finally:
        hook.remove()


def test_bert_depends_on_nothing_and_keeps_ragged_batches() -> None:
    model = te.wrap(bert().double(), modality="text", tokenizer=wordpiece())
    made = encoded(model, ["a nice film", "good", "film film film film film film"])
    found = invariance_of(model, made[0])
    assert (found.batch, found.padding, found.tolerance) == (True, True, 1e-9)
    assert found.batch_difference < 1e-13
    assert found.padding_difference is not None
    assert found.padding_difference < 1e-13
    assert batches_of(model, made, 100) == token_batches([5, 3, 8], 100) == [[1, 0, 2]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_fnet_depends_on_padding_and_gets_batches_of_equal_length(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    config = transformers.FNetConfig(vocab_size=40, num_labels=3, pad_token_id=0, **SIZES)
    model = wrapped(transformers.FNetForSequenceClassification(config).to(dtype).eval())
    made = encoded(model, given())
    found = invariance_of(model, made[0])
    assert (found.batch, found.padding) == (True, False)
    assert found.padding_difference is not None
    assert found.padding_difference > 100 * found.tolerance
    batches = batches_of(model, made, 1000)
    assert batches == [[1, 4], [2, 6], [5], [0, 3, 7]]
    for batch in batches:
        members = [made[index] for index in batch]
        together = logits_of(model.module, model.caller, model.collate(members).inputs)
        for row, one in zip(together, members, strict=True):
            alone = logits_of(model.module, model.caller, model.collate([one]).inputs)[0]
            torch.testing.assert_close(row, alone)


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
    model = wrapped(make())
    contents = given()
    assert batches_of(model, encoded(model, contents), 1000) == batches
    module = model.module
    assert isinstance(module, Toy)
    module.seen.clear()
    together = te.explain(model, contents, "gradient-x-input", target="all", batch_tokens=1000)
    assert [rows for rows, _ in module.seen] == [len(batch) for batch in batches]
    alone = [
        found
        for content in contents
        for found in te.explain(model, content, "gradient-x-input", target="all")
    ]
    for left, right in zip(together, alone, strict=True):
        np.testing.assert_allclose(left.relevance, right.relevance, rtol=1e-9, atol=1e-12)
        assert left.logit == pytest.approx(right.logit, rel=1e-12)


def test_the_test_costs_three_forwards_once_and_measures_padding_only_on_request() -> None:
    model = wrapped(Toy())
    equal, ragged = encoded(model, given((6, 6))), encoded(model, given((3, 6)))
    with forwards(model.module) as made:
        assert batches_of(model, encoded(model, given((6,))), 100) == [[0]]
        assert batches_of(model, ragged, 3) == [[0], [1]]
        assert len(made) == 0, "no batch of two, nothing to find out"
        batches_of(model, equal, 100)
        assert len(made) == 2
        assert invariance_of(model, equal[0], ragged=False).padding is None
        batches_of(model, ragged, 100)
        assert len(made) == 3
        assert invariance_of(model, ragged[0]).padding is True
        batches_of(model, ragged, 100)
        assert len(made) == 3


def test_several_threads_measure_once() -> None:
    model = wrapped(ReadsPadding())
    made = encoded(model, given())
    found: list[Any] = []
    with forwards(model.module) as runs:
        threads = [
            threading.Thread(target=lambda: found.append(invariance_of(model, made[0])))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(runs) == 3
    assert len(found) == 4
    assert all(one is found[0] for one in found)


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


def test_one_position_cannot_be_padded_but_two_can() -> None:
    model = wrapped(ReadsPadding())
    one, two = encoded(model, given((1, 2)))
    found = invariance_of(model, one)
    assert (found.batch, found.padding) == (True, None)
    assert invariance_of(model, two).padding is False


def test_pictures_have_no_padding() -> None:
    model = te.wrap(vit().double(), modality="image")
    pixels = [{"pixel_values": torch.randn(3, 24, 24)} for _ in range(3)]
    made = encoded(model, pixels)
    assert batches_of(model, made, 1000) == [[0, 1, 2]]
    found = invariance_of(model, made[0], ragged=False)
    assert (found.batch, found.padding) == (True, None)
    assert found.batch_difference < 1e-13


def test_equal_batches_stay_within_the_budget() -> None:
    lengths = [4, 2, 4, 2, 4, 2, 9]
    assert token_batches(lengths, 8, equal=True) == [[1, 3, 5], [0, 2], [4], [6]]
