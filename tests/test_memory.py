"""Short of memory: smaller batches for the rest, and an item at fault that costs only itself."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from everyday import only
from tiny_models import bert, text_items, wordpiece

import transexplain as te
from transexplain.engine import compiled, steps
from transexplain.engine.steps import Steps
from transexplain.engine.traced import Traced
from transexplain.explaining import Explained, Request, batch_sizes, explain_items
from transexplain.explaining.batch_sizes import is_out_of_memory
from transexplain.explaining.explain_request import portions, screened
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import ItemFailure
from transexplain.types.observer import Caution
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import ClassNames, parse_target

TEXTS = ["good film", "a nice film", "nice goods", "x e", "film film", "good goods", "e x", "a x"]
LONG = "a nice film and good goods " * 6


@pytest.fixture(autouse=True)
def freed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each time that caches are freed, which takes long in a process of many tests."""
    times: list[int] = []
    monkeypatch.setattr(batch_sizes, "free_caches", lambda: times.append(1))
    return times


def out_of_cuda() -> Exception:
    return torch.OutOfMemoryError("CUDA out of memory")


def out_of_ram() -> Exception:
    return RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 8 bytes")


def model_with_room(most: int, error: Callable[[], Exception]) -> tuple[LoadedModel, list[int]]:
    """A model that fails for more than so many rows, and the sizes of all its batches."""
    module = bert(id2label={0: "bad", 1: "so-so", 2: "good"}).double()
    model = te.wrap(module, tokenizer=wordpiece(), modality="text")
    sizes: list[int] = []

    def watch(_module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        sizes.append(kwargs["input_ids"].shape[0])
        if sizes[-1] > most:
            raise error()

    model.module.register_forward_pre_hook(watch, with_kwargs=True)
    return model, sizes


def explained(model: LoadedModel, texts: list[str], **options: Any) -> list[Explained]:
    names = ClassNames(model.classes)
    request = Request(
        method=MethodSpec(name="lrp"),
        targets=(parse_target("class:good", names),),
        names=names,
        **options,
    )
    return list(explain_items(model, text_items(*texts), request))


def same_relevance(left: list[Explained], right: list[Explained], *, exactly: bool = False) -> None:
    for one, other in zip(left, right, strict=True):
        assert one.failure is None
        pair = one.attributions[0].relevance, other.attributions[0].relevance
        assert np.array_equal(*pair) if exactly else np.allclose(*pair, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("error", [out_of_cuda, out_of_ram, MemoryError])
def test_a_shortage_is_met_once(error: Callable[[], Exception], monkeypatch, freed: list[int]):
    model, sizes = model_with_room(10**9, error)
    wanted = explained(model, TEXTS)
    monkeypatch.setattr("transexplain.explaining.explain_request.READ_TOGETHER", {"text": 4})
    model, sizes = model_with_room(2, error)
    explained(model, TEXTS[:1])  # what the model does not depend on is measured before
    sizes.clear()
    found = explained(model, TEXTS)
    assert [size for size in sizes if size > 2] == [4], "one batch was too large, no second one"
    assert len(freed) == 1
    same_relevance(found, wanted)


def test_other_errors_leave_the_batches_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transexplain.explaining.explain_request.READ_TOGETHER", {"text": 4})
    model, sizes = model_with_room(2, lambda: RuntimeError("bad luck"))
    found = explained(model, TEXTS)
    assert sizes.count(4) == 2
    assert all(one.failure is None for one in found)


@pytest.mark.parametrize("options", [{}, {"long_text": "window", "window": 8}])
def test_an_item_too_large_by_itself_says_so(options: dict[str, Any], freed: list[int]) -> None:
    model, _ = model_with_room(0, out_of_cuda)
    [one] = explained(model, [LONG], **options)
    assert freed and one.failure.kind == "out-of-memory" and "'i0'" in one.failure.message


def test_windows_keep_to_what_fits() -> None:
    model, sizes = model_with_room(2, out_of_cuda)
    options = {"long_text": "window", "window": 8, "batch_tokens": 40}
    first, second = explained(model, [LONG, LONG + "film"], **options)
    assert first.failure is None is second.failure
    last_too_large = max(place for place, size in enumerate(sizes) if size > 2)
    assert last_too_large < len(sizes) // 2, "the second text was begun with small batches"


def test_signs_of_a_shortage() -> None:
    cublas = RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate")
    assert all(map(is_out_of_memory, (MemoryError(), out_of_cuda(), out_of_ram(), cublas)))
    others = RuntimeError("shapes do not match"), ValueError("out of memory")
    assert not any(map(is_out_of_memory, others))


def test_suspects_are_portions_of_their_own() -> None:
    items = text_items(*TEXTS)
    failure = ItemFailure(item_id="bad", index=9, kind="empty-text", message="")
    names = [
        [one.item_id if isinstance(one, ItemFailure) else one.id for one in portion]
        for portion in portions([*items, failure], 3, {"i1", "i2", "i7", "bad"})
    ]
    assert names == [["i0"], ["i1"], ["i2"], ["i3", "i4", "i5"], ["i6"], ["i7"], ["bad"]]
    assert list(portions([], 3, ())) == []
    assert [len(portion) for portion in portions(items, 3, ())] == [3, 3, 2]


def test_the_quarantined_are_failures_in_their_place() -> None:
    items = text_items(*TEXTS[:3])
    first, second, third = screened(items, Caution(quarantined={"i1": "attempt 3: it hung"}))
    assert (first, third) == (items[0], items[2]) and isinstance(second, ItemFailure)
    assert (second.item_id, second.index, second.kind) == ("i1", 1, "quarantined")
    assert "3: it hung" in second.message


# --- replays, which hold memory of their own


def replaying(monkeypatch: pytest.MonkeyPatch) -> tuple[LoadedModel, Steps]:
    """A model whose steps are replayed from the second time on, however long that takes."""
    monkeypatch.setattr(steps, "_TIMED", 0)
    module = bert(id2label={0: "bad", 1: "so-so", 2: "good"}).double()
    model = te.wrap(module, tokenizer=wordpiece(), modality="text")
    kept = model.steps["steps"] = Steps(earned={"cpu": 1e-9})
    return model, kept


def short_of_memory(
    monkeypatch: pytest.MonkeyPatch, positions: int, *, eager: bool = False
) -> list[str]:
    """Passes over batches of so many positions run out of memory; `eager`: not only replays."""
    met: list[str] = []

    def check(width: int, kind: str) -> None:
        if width == positions:
            met.append(kind)
            raise out_of_cuda()

    begin, run = Traced.begin, LoadedModel.run

    def begun(self: Traced, *inputs: torch.Tensor) -> Any:
        check(inputs[0].shape[1], "replayed")
        return begin(self, *inputs)

    def ran(self: LoadedModel, batch: Any, **options: Any) -> Any:
        check(next(iter(batch.inputs.values())).shape[1] if eager else 0, "eager")
        return run(self, batch, **options)

    monkeypatch.setattr(Traced, "begin", begun)
    monkeypatch.setattr(LoadedModel, "run", ran)
    return met


#: texts of 4, 6 and 5 positions, each a batch of its own
APART = ["good film", "a nice film x", "a nice film"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", only({}, of=[{}, {"long_text": "window", "window": 6}]))
def test_a_replay_without_room_gives_traces_back_and_the_item_is_explained(
    monkeypatch: pytest.MonkeyPatch, freed: list[int], options: dict[str, Any]
) -> None:
    model, kept = replaying(monkeypatch)
    texts = [*APART, LONG] if options else APART
    for _ in range(2):
        wanted = explained(model, texts, batch_tokens=1, **options)
    assert "replayed" in kept.ran()
    met = short_of_memory(monkeypatch, 6)
    found = explained(model, texts, batch_tokens=1, **options)
    assert met and set(met) == {"replayed"} and freed
    assert kept.ran() == ("eager", "replayed")
    same_relevance(found, wanted)


@pytest.mark.exhaustive
def test_an_item_that_no_way_has_room_for_costs_only_itself(monkeypatch, freed: list[int]) -> None:
    model, _ = replaying(monkeypatch)
    for _ in range(2):
        explained(model, APART, batch_tokens=1)
    met = short_of_memory(monkeypatch, 6, eager=True)
    first, second, third = explained(model, APART, batch_tokens=1)
    assert met == ["replayed", "eager"], "once more without traces, and no third time"
    assert len(freed) == 2
    assert first.failure is None and third.failure is None
    assert second.failure is not None and second.failure.kind == "out-of-memory"


@pytest.mark.exhaustive
def test_a_trace_that_there_is_no_room_for_leaves_the_step_eager(monkeypatch, caplog) -> None:
    def no_room(*_: Any) -> Any:
        raise out_of_cuda()

    model, kept = replaying(monkeypatch)
    wanted = explained(model, APART)
    monkeypatch.setattr(compiled, "on_device", no_room)
    with caplog.at_level(logging.WARNING):
        found = [explained(model, APART) for _ in range(3)]
    assert kept.ran() == ("eager",)
    assert len(caplog.records) == 1 and "CUDA out of memory" in caplog.text
    for again in found:
        same_relevance(again, wanted, exactly=True)
