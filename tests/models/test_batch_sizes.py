"""Which batches are made: few shapes where steps are traced, and as large as is faster."""

from typing import Any

import numpy as np
import pytest
import torch
from architectures_measured import ready

import transexplain as te
from transexplain.engine.steps import Steps, bucket_of, power_of_two
from transexplain.explaining.batch_sizes import BudgetSearch, Room, batches_of, token_batches
from transexplain.methods.at_input_layer import in_bucket
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.items import Item


def test_buckets_are_16_apart_up_to_128_and_wider_beyond() -> None:
    lengths = (1, 16, 17, 127, 128, 129, 257, 512, 513)
    buckets = [16, 16, 32, 128, 128, 160, 320, 512, 640]
    assert [bucket_of(length) for length in lengths] == buckets
    for length in range(1, 3000):
        assert length <= bucket_of(length) == bucket_of(bucket_of(length))
        assert bucket_of(length) <= max(16, 1.25 * length + 16)
    assert len({bucket_of(length) for length in range(1, 513)}) == 16
    items = [bucket_of(count, apart=1) for count in range(1, 20)]
    assert items == [*range(1, 9), *(10, 10, 12, 12, 14, 14, 16, 16, 20, 20, 20)]
    assert sum(bucket_of(n, apart=1) for n in range(1, 1025)) <= 1.125 * sum(range(1, 1025))
    assert [power_of_two(number) for number in (1, 5, 8, 1023)] == [1, 4, 8, 512]


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("budget", [1, 40, 256, 8192])
def test_batches_are_those_of_one_item_after_another(equal: bool, few: bool, budget: int) -> None:
    lengths = np.random.default_rng(budget).integers(1, 90, 500).tolist()
    wanted: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        most = max(1, budget // (bucket_of(lengths[index]) if few else lengths[index]))
        last = wanted[-1] if wanted else []
        other = equal and last and lengths[last[0]] != lengths[index]
        if last and len(last) < (power_of_two(most) if few else most) and not other:
            last.append(index)
        else:
            wanted.append([index])
    assert token_batches(lengths, budget, equal=equal, few_shapes=few) == wanted


def test_few_shapes_in_a_corpus() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 128, 4096).tolist()
    usual = token_batches(lengths, 8192)
    few = token_batches(lengths, 8192, few_shapes=True)
    assert sorted(i for batch in few for i in batch) == list(range(4096))

    def shapes(batches: list[list[int]]) -> set[tuple[int, int]]:
        return {
            (bucket_of(len(b), apart=1), bucket_of(max(lengths[i] for i in b))) for b in batches
        }

    for batch in few:
        width = bucket_of(max(lengths[i] for i in batch))
        assert bucket_of(len(batch), apart=1) * width <= 8192
    assert len(shapes(few)) <= 16
    assert len({(len(b), max(lengths[i] for i in b)) for b in usual}) > 30


class Rates:
    """Stands for a card: so many positions per second, by the size of a batch."""

    def __init__(self, search: BudgetSearch, half: float, memory: float) -> None:
        self.search, self.half, self.memory = search, half, memory
        self.sizes: list[int] = []

    def work(self, batches: int) -> int:
        for _ in range(batches):
            size = self.search.positions
            self.sizes.append(size)
            rate = 1e6 * size / (size + self.half)
            self.search.took(size, size / rate, size * self.memory)
        return self.search.positions


def test_the_budget_grows_until_it_gains_less_than_5_percent() -> None:
    rates = Rates(BudgetSearch(), half=3000.0, memory=1e-9)
    # 2n / (2n + half) : n / (n + half) is less than 1.05 from n = 28,500 on
    assert rates.work(100) == 32768
    assert rates.search.done
    assert max(rates.sizes) == 65536


def test_the_budget_stops_before_the_memory_is_full() -> None:
    rates = Rates(BudgetSearch(), half=1e9, memory=0.3 / 8192)
    assert rates.work(100) == 16384  # 0.6 of the memory: twice that is more than there is
    assert max(rates.sizes) == 16384


def test_small_batches_do_not_change_the_budget() -> None:
    search = BudgetSearch()
    for _ in range(20):
        search.took(1024, 1.0, 0.0)
    assert search.positions == 2048
    assert not search.done


@pytest.fixture
def bert() -> Any:
    model = ready("BERT").model
    yield model
    model.steps.clear()


def test_on_a_cpu_the_budget_is_fixed(bert: LoadedModel) -> None:
    assert Room(None, bert).positions == 2048
    assert Room(7, bert).positions == 7
    assert Room(None, bert).search is None


@pytest.mark.exhaustive
def test_short_memory_forgets_the_traces(bert: LoadedModel) -> None:
    kept = bert.steps["steps"] = Steps(earned={"cpu": 1e-9})
    text = ready("BERT").items[0]
    for _ in range(2):
        te.explain(bert, text)
    assert kept._kept
    room = Room(64, bert)
    (made,) = bert.encode([Item(id="0", index=0, content=text)])
    assert isinstance(made, Encoded)
    room.was_too_small_for([made, made])
    assert room.positions == made.length
    assert not kept._kept


def in_buckets(model: LoadedModel) -> Steps:
    """As on a card, but here."""
    kept = Steps(earned={"cpu": 1e-9})
    kept.in_buckets = frozenset({"cpu"})
    model.steps["steps"] = kept
    return kept


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("attnlrp", {}),
        ("gradient-shap", {"samples": 4}),
        ("integrated-gradients", {"steps": 4}),
        ("kernel-shap", {"baseline": 3, "samples": 40}),
        ("occlusion", {"baseline": 3}),
        ("occlusion", {"baseline": "remove"}),
        ("saliency", {}),
        ("smoothgrad", {"samples": 4}),
    ],
)
def test_buckets_change_no_method(bert: LoadedModel, method: str, params: dict[str, Any]) -> None:
    """Eager and, where its trace is earned, replayed."""
    items = [ready("BERT").items[i] for i in (0, 1, 2)]
    plain = te.explain(bert, items, method, batch_tokens=1000, **params)
    kept = in_buckets(bert)
    for _ in range(2):
        found = te.explain(bert, items, method, batch_tokens=1000, **params)
        for one, other in zip(plain, found, strict=True):
            assert other.relevance.shape == one.relevance.shape
            assert other.relevance == pytest.approx(one.relevance, rel=1e-9, abs=1e-13)
            assert other.logit == pytest.approx(one.logit, rel=1e-11)
            if other.ledger is not None:
                assert abs(other.ledger.gap) <= 1e-12 * other.ledger.magnitude
    if method == "attnlrp":
        (key,) = kept._kept
        assert "[3, 16]" in str(key)  # three texts of eight positions


def test_a_model_that_mixes_what_shares_a_batch_is_not_filled_up() -> None:
    model = ready("FNet").model
    made = model.encode([Item(id="0", index=0, content=ready("FNet").items[0])])
    batch = model.collate([one for one in made if isinstance(one, Encoded)])
    in_buckets(model)
    try:
        found, rows = in_bucket(model, batch)
    finally:
        model.steps.clear()
    assert found.inputs["input_ids"].shape == batch.inputs["input_ids"].shape
    assert rows == 1
    assert torch.equal(found.inputs["input_ids"], batch.inputs["input_ids"])


def test_buckets_stay_within_what_the_model_reads(bert: LoadedModel) -> None:
    items = ready("BERT").items[:1]
    made = list(bert.encode([Item(id="0", index=0, content=items[0])]))
    batch = bert.collate([one for one in made if isinstance(one, Encoded)])
    assert in_bucket(bert, batch) == (batch, None), "on a CPU batches come as they are"
    in_buckets(bert)
    widened, _ = in_bucket(bert, batch)
    limit = getattr(bert.encoder, "limit", None)
    assert widened.inputs["input_ids"].shape[1] == min(16, limit or 16)
    assert batches_of(bert, [one for one in made if isinstance(one, Encoded)], 10) == [[0]]
