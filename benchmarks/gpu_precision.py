"""Half precision on a card against float64, and the memory of long texts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Literal

import torch

import transexplain as te
from benchmarks.engine_contenders import PLAIN, plain
from benchmarks.engine_models import Setting
from benchmarks.gpu_clock import free, on_card, timed
from benchmarks.gpu_sheet import Figures, Sheet
from benchmarks.gpu_steps import EAGER, Shape, ShapeBench, explained_eagerly, of_shape, ready
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


def memory_rows(sheet: Sheet, setting: Setting, tokens: int, kinds: Sequence[str]) -> None:
    """The most memory above that of the loaded model and its inputs; a quarter as long, too."""
    for length in (tokens // 4, tokens):
        own = kinds if length == tokens else kinds[:1]
        for kind in own:
            call = partial(_step_call, setting, length, kind)
            name = f"lrp, {length} positions, {kind}"
            sheet.row(MEMORY, name, partial(_peak, setting, length, call))
    bench = _alone(setting, tokens // 4)
    name = f"{PLAIN}, {tokens // 4} positions"
    sheet.row(MEMORY, name, partial(_peak, setting, tokens // 4, lambda: partial(_plain, bench)))


def _alone(setting: Setting, tokens: int) -> ShapeBench:
    return of_shape(Shape(batch=1, tokens=tokens), setting)


def _plain(bench: ShapeBench) -> object:
    return plain(bench.model, bench.batch)


def _step_call(setting: Setting, tokens: int, kind: str) -> Callable[[], object]:
    bench = _alone(setting, tokens)
    if kind == EAGER:
        return partial(explained_eagerly, bench.step("lrp"))
    made, examples = bench.step_trace("lrp")
    made = ready(made, examples, kind)
    return lambda: made.begin(*examples[:-1]).end(examples[-1])


def _peak(setting: Setting, tokens: int, make: Callable[[], Callable[[], object]]) -> Figures:
    device = setting.device
    _ = _alone(setting, tokens).batch
    free(device)
    before = torch.cuda.memory_reserved(device) if on_card(device) else 0
    found = timed(make(), device, quick=setting.quick)
    peak = found["peak_gib"]
    return {**found, "peak_gib": None if peak is None else peak - before / 2**30}
