"""Steps that recur are replayed where that is sound, and give what eager code gives."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architectures_measured import batch_of, ready, step_for
from everyday import only
from explainer_samples import write_explainer
from torch import nn

import transexplain as te
from transexplain.engine import compiled as compiling_module
from transexplain.engine import steps
from transexplain.engine.composites import composite
from transexplain.engine.propagate import explained_sums
from transexplain.engine.replay import ReplayedPropagation, Step
from transexplain.engine.steps import Steps
from transexplain.errors import ConfigurationError
from transexplain.methods.at_input_layer import features_at, steps_of
from transexplain.methods.relevance import step_of
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel
from transexplain.types.items import Item

AT_ONCE = {"cpu": 1e-9}  # seconds: the second batch of a shape is replayed


@pytest.fixture
def bert() -> Iterator[LoadedModel]:
    """A model whose steps are traced when they come for the second time."""
    model = ready("BERT").model
    model.steps["steps"] = Steps(earned=AT_ONCE)
    yield model
    model.steps.clear()


def step_with(*which: int, **changed: Any) -> Step:
    """The step of these items of BERT."""
    return step_for("BERT", "lrp", batch_of("BERT", *which), **changed)


def positions(kept: Steps, step: Step) -> tuple[torch.Tensor, bool]:
    """Relevance (B, T) for the first class, and whether it was replayed."""
    seed = torch.zeros(step.shape, dtype=torch.float64)
    seed[:, 0] = 1.0
    with kept.passes(step) as passes:
        return passes.relevance(seed, last=True).clone(), isinstance(passes, ReplayedPropagation)


def test_what_stays_eager(bert: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that have not earned a trace, large batches on a CPU, and where it is forbidden."""
    large = step_with(*[0, 1] * 8)
    assert large.inputs["input_ids"].numel() > 64
    kept = steps_of(bert)
    bert.steps.clear()
    monkeypatch.setenv("TRANSEXPLAIN_STEPS", "eager")
    forbidden = steps_of(bert)
    forbidden.earned = AT_ONCE
    early = Steps(earned={"cpu": 1000.0})
    for policy, step in ((early, step_with(0)), (kept, large), (forbidden, step_with(0))):
        assert not any(positions(policy, step)[1] for _ in range(3))
    bert.steps.clear()
    monkeypatch.setenv("TRANSEXPLAIN_STEPS", "fast")
    with pytest.raises(ConfigurationError, match="TRANSEXPLAIN_STEPS='fast' is none of auto, eag"):
        te.explain(bert, ready("BERT").items[0])


@pytest.mark.exhaustive
def test_a_mask_that_hides_something_gets_a_trace_of_its_own(bert: LoadedModel) -> None:
    kept = steps_of(bert)
    even = step_with(0, 1)
    ragged = step_with(0, 2)
    assert even.key == ragged.key
    wanted, _ = positions(Steps("eager"), ragged)
    found = [positions(kept, one)[1] for one in (even, even, ragged, ragged, even, ragged)]
    assert found == [False, True, False, True, True, True]
    assert torch.allclose(positions(kept, ragged)[0], wanted, rtol=1e-12, atol=1e-300)


@pytest.mark.exhaustive
def test_rows_are_filled_up_and_left_out_again(bert: LoadedModel) -> None:
    kept, step = steps_of(bert), step_with(0, 1, 2, rows=4)
    eager, _ = positions(kept, step)
    replayed, was = positions(kept, step)
    assert was
    assert replayed.shape == eager.shape
    assert torch.allclose(eager, replayed, rtol=1e-9, atol=1e-15)
    whole, was = positions(kept, step_with(2, 1, 0, 1))  # the same trace
    assert was
    assert torch.allclose(whole[[2, 1, 0]], eager, rtol=1e-9, atol=1e-15)


class Scale(nn.Module):
    """A small classifier whose weights a test may change."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(10, 4, dtype=torch.float64)
        self.read = nn.Linear(4, 2, dtype=torch.float64)

    def forward(self, input_ids: torch.Tensor) -> Any:
        return self.read(self.embed(input_ids).mean(dim=1))


def batch_of_ids(model: LoadedModel, ids: list[int]) -> Batch:
    encoded = model.encode([Item(id="0", index=0, content={"input_ids": torch.tensor(ids)})])
    return model.collate([entry for entry in encoded if isinstance(entry, Encoded)])


def step_of_ids(model: LoadedModel, ids: list[int]) -> Step:
    batch, at = batch_of_ids(model, ids), model.default_at
    return step_of(model, batch, composite("lrp"), at, features_at(at, batch.encoded[0]))


def scale() -> tuple[LoadedModel, Steps, Step]:
    model = te.wrap(Scale(), modality="text", classes=("no", "yes"))
    step = step_of_ids(model, [1, 2, 3])
    kept = Steps(earned=AT_ONCE)
    assert [positions(kept, step)[1] for _ in range(2)] == [False, True]
    return model, kept, step


def test_weights_changed_in_place_count_and_others_in_their_place_end_a_trace() -> None:
    model, kept, step = scale()
    before, _ = positions(kept, step)
    with torch.no_grad():
        model.module.get_parameter("read.weight").mul_(2.0)
    doubled, was = positions(kept, step)
    assert was
    assert torch.allclose(doubled, 2 * before, rtol=1e-12)
    model.module.read = nn.Linear(4, 2, dtype=torch.float64)
    other, was = positions(kept, step)
    assert not was
    assert torch.equal(other, positions(Steps("eager"), step)[0])


def test_a_watched_module_stays_eager() -> None:
    model, kept, step = scale()
    seen: list[str] = []
    handle = model.module.read.register_forward_hook(lambda *_: seen.append("called"))  # type: ignore[operator, union-attr]
    assert not positions(kept, step)[1]
    handle.remove()
    assert positions(kept, step)[1]
    assert seen == ["called"]


def test_what_cannot_be_traced_is_said_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    model, _, step = scale()

    def forward(inputs: Any, taps: Any) -> torch.Tensor:
        rows = model.run(replace(batch, inputs=dict(inputs)), at="words", taps=taps)
        return torch.stack([row[row > row.mean()].sum() * torch.ones(2) for row in rows]).double()

    batch = batch_of_ids(model, [1, 2, 3])
    kept = Steps(earned=AT_ONCE)
    refused = replace(step, forward=forward)
    with caplog.at_level(logging.WARNING):
        found = [positions(kept, refused)[1] for _ in range(4)]
    assert found == [False] * 4
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("explained eagerly, for a step could not be traced: UntraceableError: ")
    assert "depends on numbers" in kept.refusals()[0]


def test_another_thread_runs_eagerly_meanwhile() -> None:
    _, kept, step = scale()
    wanted, _ = positions(kept, step)
    found: list[tuple[torch.Tensor, bool]] = []
    with kept.passes(step) as passes:
        assert isinstance(passes, ReplayedPropagation)
        other = threading.Thread(target=lambda: found.append(positions(kept, step)))
        other.start()
        other.join()
    ((values, was),) = found
    assert not was
    assert torch.allclose(values, wanted, rtol=1e-12)


def test_a_replay_that_is_slower_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    _, kept, step = scale()
    clock = iter(range(10**6))
    monkeypatch.setattr(steps.time, "perf_counter", lambda: float(next(clock)))
    (known,) = kept._kept.values()
    known.fastest = {"eager": 0.5}
    assert [positions(kept, step)[1] for _ in range(6)] == [True] * 4 + [False] * 2
    assert kept.refusals() == ["a replay is not faster"]


def test_forgotten_steps_are_eager_again() -> None:
    _, kept, step = scale()
    kept.forget()
    assert [positions(kept, step)[1] for _ in range(2)] == [False, True]


def test_only_the_latest_steps_are_kept() -> None:
    model, kept, _ = scale()
    for length in range(1, 40):
        positions(kept, step_of_ids(model, [1] * length))
    assert len(kept._kept) == 32


@pytest.mark.exhaustive
def test_a_compiled_step_gives_the_same_but_for_rounding(bert: LoadedModel) -> None:
    from torch._dynamo.utils import counters

    from transexplain.engine.compiled import compiled

    counters.clear()
    step = step_with(0, 1)
    wanted, _ = positions(Steps("eager"), step)
    traced = step.traced()
    made = replace(traced, traced=compiled(traced.traced, step.examples))
    assert not counters["inductor"]["fxgraph_cache_bypass"], "the next start finds it on disk"
    passes = made.propagation(step.inputs)
    assert passes is not None
    seed = torch.zeros(step.shape, dtype=torch.float64)
    seed[:, 0] = 1.0
    for _ in range(2):  # what a pass wrote is not there for the next one
        found = passes.relevance(seed)
        assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-12)
    explained = explained_sums(step.composite, passes.logits, seed.numpy())
    ledgers = passes.book.close(found.numpy(), 0 * found.numpy(), explained)
    assert all(abs(ledger.gap) <= 1e-10 * ledger.magnitude for ledger in ledgers)
    with pytest.raises(TypeError, match="compiled once"):
        compiled(made.traced, step.examples)


def missing(*_: Any, **__: Any) -> Any:
    raise ImportError("Cannot find a working triton installation")


def compiling(model: LoadedModel) -> Steps:
    """As on a card, where steps are compiled beside the work, but here."""
    kept = model.steps["steps"] = Steps(earned=AT_ONCE)
    kept.compiling = frozenset({"cpu"})
    return kept


def end_of_compilation() -> None:
    for thread in threading.enumerate():
        if thread.name == "compile-step":
            thread.join()


@pytest.mark.exhaustive
def test_compiled_beside_the_work_and_then_taken_up(bert: LoadedModel) -> None:
    kept, text = compiling(bert), ready("BERT").items[0]
    (eager,), _, (replayed,) = (te.explain(bert, text) for _ in range(3))
    end_of_compilation()  # begun with the second replay, for the first has to show its worth
    assert "compiled" not in kept.ran()
    (found,) = te.explain(bert, text)
    assert kept.ran() == ("compiled",)
    for one in (replayed, found):
        assert one.relevance == pytest.approx(eager.relevance, rel=1e-9, abs=1e-14)
        assert abs(one.ledger.gap) <= 1e-12 * one.ledger.magnitude


@pytest.mark.exhaustive
def test_a_broken_compiler_costs_nothing_but_speed(
    bert: LoadedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It breaks where compiled code first runs; one that is not there at all is below."""
    kept, text = compiling(bert), ready("BERT").items[0]
    (eager,) = te.explain(bert, text)
    monkeypatch.setattr(compiling_module, "compiled", lambda step, _: step)
    with caplog.at_level(logging.WARNING):
        for number in range(4):  # eager before; the second replay begins to compile
            if number:
                monkeypatch.setattr(compiling_module, "on_device", missing)
            (again,) = te.explain(bert, text)
            end_of_compilation()
            assert again.relevance == pytest.approx(eager.relevance, rel=1e-12)
    assert kept.ran() == ("eager", "replayed")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.endswith("Cannot find a working triton installation")


@pytest.mark.exhaustive
def test_what_is_wrong_with_many_shapes_is_said_once(
    bert: LoadedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Texts of three lengths, each a step of its own: no compiler, then nothing can be traced."""

    ids = ready("BERT").items[0]["input_ids"]
    texts = [{"input_ids": ids[:length]} for length in (3, 4, 5)]
    wanted = [te.explain(bert, text)[0].relevance for text in texts]
    assert len({len(one) for one in wanted}) == 3
    kept = compiling(bert)
    monkeypatch.setattr(compiling_module, "compiled", missing)
    found: list[np.ndarray[Any, Any]] = []
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            for text in texts:
                found.append(te.explain(bert, text)[0].relevance)
                end_of_compilation()
    assert kept.ran() == ("eager", "replayed")
    kept = bert.steps["steps"] = Steps(earned=AT_ONCE)
    monkeypatch.setattr(Step, "traced", missing)
    with caplog.at_level(logging.WARNING):
        found += [te.explain(bert, text)[0].relevance for _ in range(3) for text in texts]
    assert kept.ran() == ("eager",)
    assert len(kept.refusals()) == 3, "three steps were tried"
    reason = "Cannot find a working triton installation"
    assert [one.getMessage() for one in caplog.records] == [
        f"replayed as traced, for compiling failed: {reason}",
        f"explained eagerly, for a step could not be traced: ImportError: {reason}",
    ]
    for one, other in zip(found, wanted * 6, strict=True):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-14)


@pytest.mark.exhaustive
def test_numbers_of_a_pass_are_the_callers_own(bert: LoadedModel) -> None:
    kept, step = steps_of(bert), step_with(0, 1)
    positions(kept, step)
    seed = np.zeros(step.shape)
    seed[:, 0] = 1.0
    with kept.passes(step) as passes:
        assert isinstance(passes, ReplayedPropagation)
        first = passes.relevance(torch.from_numpy(seed))
        other = passes.relevance(torch.from_numpy(-seed))
        assert torch.allclose(first, -other, rtol=1e-12)


SMALL: dict[str, dict[str, Any]] = {
    "integrated-gradients": {"steps": 4},
    "smoothgrad": {"samples": 4},
    "occlusion": {"baseline": 3},
    "shapley-sampling": {"baseline": 3},
    "attention-flow": {"stop_layer": 1},
}
REPLAYED = (
    *SMALL,
    *("lrp", "saliency", "attention-gradcam", "attention-last", "chefer-lrp", "gae"),
    *("partial-lrp", "rollout", "transformer-attribution"),
)


@pytest.mark.parametrize(
    "method", only("attention-flow", "gae", "integrated-gradients", "rollout", of=REPLAYED)
)
def test_other_methods_are_replayed_with_the_same_result(bert: LoadedModel, method: str) -> None:
    text = ready("BERT").items[2]
    params = SMALL.get(method, {})
    bert.steps["steps"] = Steps("eager")
    (wanted,) = te.explain(bert, text, method, **params)
    kept = bert.steps["steps"] = Steps(earned=AT_ONCE)
    found = [te.explain(bert, text, method, **params)[0] for _ in range(3)]
    assert kept.ran() == ("eager", "replayed")
    assert not kept.refusals()
    for one in found:
        assert one.relevance == pytest.approx(wanted.relevance, rel=1e-10, abs=1e-14)
        assert one.logit == pytest.approx(wanted.logit, rel=1e-12)
        if one.ledger is not None:
            assert one.ledger.biases_by_kind == pytest.approx(wanted.ledger.biases_by_kind)
            assert abs(one.ledger.gap) <= 1e-12 * one.ledger.magnitude


ATTENTION = [
    ("gae", {}),
    ("gae", {"variant": "authors", "padded_length": 20}),
    ("attention-gradcam", {"variant": "authors"}),
    ("transformer-attribution", {"gradient": False}),
    ("transformer-attribution", {"variant": "authors"}),
    ("partial-lrp", {"gradient": True}),
    ("rollout", {"readout": "all"}),
]


@pytest.mark.parametrize(("method", "params"), only(*ATTENTION[:2], of=ATTENTION))
def test_attention_methods_in_batches_of_few_shapes(
    bert: LoadedModel, method: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine texts become ten rows of 16 positions; every class of each is explained."""
    items = [ready("BERT").items[i % 3] for i in range(9)]
    check_buckets(bert, [items, items], monkeypatch, method=method, **params)


def check_buckets(
    model: LoadedModel, batches: list[Any], monkeypatch: pytest.MonkeyPatch, **params: Any
) -> None:
    """Batches in few shapes, the first eager and the others replayed, against eager code."""
    monkeypatch.setattr(steps, "_SMALL_ON_CPU", 1 << 20)
    kept = Steps(earned=AT_ONCE)
    kept.in_buckets = frozenset({"cpu"})
    for number, items in enumerate(batches):
        left, right = (
            explained_by(model, policy, items, **params) for policy in (Steps("eager"), kept)
        )
        assert kept.ran() == (("replayed",) if number else ("eager",))
        for one, other in zip(left, right, strict=True):
            assert other.relevance == pytest.approx(one.relevance, rel=1e-9, abs=1e-13)
            assert other.logit == pytest.approx(one.logit, rel=1e-11)
    assert not kept.refusals()


def explained_by(
    model: LoadedModel, policy: Steps, items: list[Any], **params: Any
) -> list[te.Attribution]:
    model.steps["steps"] = policy
    return te.explain(model, items, target="all", batch_tokens=1000, **params)


def test_a_learned_explainer_is_replayed_with_the_same_result(
    bert: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of other lengths than those of the trace have their own masks."""
    items = [ready("BERT").items[i] for i in (0, 1, 2)]
    path = str(write_explainer(bert, tmp_path, items))
    batches = [items, items[::-1], items[:1] * 3]
    check_buckets(bert, batches, monkeypatch, method="learned", explainer=path)


_ENDING = """
import atexit, time, torch
from transexplain.engine import compiled
from transexplain.engine.traced import traced

def slow(plain, inputs):
    print("begun", flush=True)
    time.sleep(1)
    print("compiled", flush=True)
    return plain

compiled.compiled = slow
given = [torch.ones(2), torch.ones(2)]
plain = traced(lambda values, seed: [values * 2, values * seed], given)
for _ in range(3):
    compiled.Replay.of(plain, given, print).compile()
atexit.register(print, "torch ends its own")
"""


def test_a_process_ends_behind_the_compilation_that_it_began_and_begins_no_other() -> None:
    command = [sys.executable, "-c", _ENDING]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split("\n") == ["begun", "compiled", "torch ends its own", ""]
