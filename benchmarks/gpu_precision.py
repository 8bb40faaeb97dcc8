"""Half precision on a card against float64, and the memory of long texts."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal

import torch

import transexplain as te
from benchmarks.engine_memory import memory_table
from benchmarks.engine_models import Setting
from benchmarks.gpu_clock import on_card, timed
from benchmarks.gpu_sheet import Figures, Sheet
from benchmarks.gpu_steps import Shape, of_shape, ready
from benchmarks.half_precision import Replay, TracedSteps, judged
from transexplain.engine.steps import Steps
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Attribution

Way = Replay | Literal["eager"]
PART = "half precision against float64"
MEMORY = "memory of one item"
METHODS = ("lrp", "attnlrp")
WAYS: tuple[Way, ...] = ("eager", "compiled")
#: between these two: whether tracing, capturing or rounding moves relevance
BETWEEN: tuple[Way, ...] = ("replayed", "compiled, rounded as eager")
SHAPE = Shape(batch=64)  # that of a row of timings: it is compiled already


def precision_rows(
    sheet: Sheet, setting: Setting, dtype: str, ways: Sequence[Way], methods: Sequence[str]
) -> None:
    """Rank correlation of each item with its float64 explanation, and the ledger's gap."""
    for method in methods:
        for way in ways:
            name = f"{dtype}, {method}, {way}"
            sheet.row(PART, name, partial(_half, setting, dtype, method, way))


def _half(setting: Setting, dtype: str, method: str, way: Way) -> Figures:
    model = of_shape(SHAPE, replace(setting, dtype=dtype)).model
    steps = Steps("eager") if way == "eager" else TracedSteps(way)
    found = judged(_right(setting, dtype, method), _explained(model, setting, method, steps))
    model.steps["steps"] = Steps("eager")
    note = (
        f"rank {found['rank_median']:.4f}, worst {found['rank_worst']:.4f} "
        f"(item {found['ranks'].index(min(found['ranks']))}); "
        f"gap {found['gap_median']:.1e}, worst {found['gap_worst']:.1e}; "
        f"other class {found['other_class']} of {found['items']}"
    )
    return {**found, "note": note}


@cache
def _right(setting: Setting, dtype: str, method: str) -> list[Attribution]:
    """In float64, with the weights of the model in half precision."""
    right = of_shape(SHAPE, replace(setting, dtype="float64")).model
    weights = of_shape(SHAPE, replace(setting, dtype=dtype)).model.module.state_dict()
    right.module.load_state_dict(weights)
    return _explained(right, setting, method, Steps("eager"))


def _explained(
    model: LoadedModel, setting: Setting, method: str, steps: Steps
) -> list[Attribution]:
    model.steps["steps"] = steps
    own = SHAPE.of(setting)
    bench = of_shape(SHAPE, replace(setting, dtype=model.ref.dtype))
    items = [dict(one.inputs) for one in bench.batch.encoded]
    return te.explain(model, items, method, batch_tokens=own.batch * own.tokens)


def memory_rows(sheet: Sheet, setting: Setting, tokens: int, *, kinds: Sequence[str]) -> None:
    """Peak above the loaded model: eager in a process of its own, captured and compiled here."""
    for row in _in_processes(setting, tokens):
        name = f"{row['method']}, {row['tokens']} positions, eager"
        gib = {"peak_gib": row["bytes"] / 2**30} if "bytes" in row else {}
        sheet.add(MEMORY, name, {"status": row["status"], **gib})
    for kind in kinds:
        name = f"lrp, {tokens} positions, {kind}"
        sheet.row(MEMORY, name, partial(_replayed, setting, tokens, kind))


def _in_processes(setting: Setting, tokens: int) -> list[dict[str, Any]]:
    try:
        lengths = sorted({min(2048, tokens), tokens})
        return memory_table(setting, lengths=lengths, plain_up_to=lengths[0], threads=1)
    except Exception as error:  # noqa: BLE001 - becomes a row
        return [{"method": "lrp", "tokens": tokens, "status": f"failed: {error}"[:200]}]


def _replayed(setting: Setting, tokens: int, kind: str) -> Figures:
    bench = of_shape(Shape(batch=1, tokens=tokens), setting)
    device = setting.device
    _ = bench.batch  # what the model and its inputs take is not counted
    before = torch.cuda.memory_allocated(device) if on_card(device) else 0
    made, examples = bench.step_trace("lrp")
    made = ready(made, examples, kind)
    found = timed(lambda: made.begin(*examples[:-1]).end(examples[-1]), device, quick=setting.quick)
    peak = found["peak_gib"]
    return {**found, "peak_gib": None if peak is None else peak - before / 2**30}
