"""Which batches and lengths come about, and what traces, compilers and dynamic shapes cost."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import transexplain as te
from benchmarks.engine_models import Setting
from benchmarks.gpu_clock import timed
from benchmarks.gpu_sheet import Figures, Sheet
from benchmarks.gpu_steps import Shape, of_shape
from transexplain.engine.compiled import compiled
from transexplain.engine.propagate import propagate
from transexplain.engine.steps import Steps, bucket_of
from transexplain.engine.traced import fixed_shapes
from transexplain.explaining.batch_sizes import token_batches
from transexplain.explaining.explain_request import read_together

BATCHES, START, DYNAMIC = "batches", "tracing and compiling", "one graph for all lengths"
_ROOT = Path(__file__).resolve().parents[1]
#: texts: the logarithm of their positions is normal, as of sentences and short paragraphs
_TEXTS, _MEDIAN, _SPREAD, _LONGEST = 20_000, 28, 0.7, 512


def best_batch_row(sheet: Sheet, setting: Setting, texts: int) -> None:
    """The budget that the package's search finds while it explains texts of 128 positions."""
    sheet.row(BATCHES, "budget search, 128 positions", partial(_search, setting, texts))


def _search(setting: Setting, texts: int) -> Figures:
    bench = of_shape(Shape(batch=64), setting)
    model = bench.model
    model.steps.pop("budget", None)
    model.steps["steps"] = Steps("auto")
    encoded = bench.batch.encoded
    items = (dict(encoded[index % len(encoded)].inputs) for index in range(texts))
    begun = time.perf_counter()
    moments = [time.perf_counter() for _ in te.explain_iter(model, items, "lrp", "class:0")]
    search = model.steps.get("budget")
    model.steps["steps"] = Steps("eager")
    together = read_together(model)
    rate = last_rate(moments, begun, together)
    note = f"{texts} texts, the last {together} at {rate:,.0f}/s"
    if search is not None:
        note += f"; budget {search.positions} positions, found: {search.done}"
    return {
        "per_second": texts / (moments[-1] - begun),
        "budget": search and search.positions,
        "last_per_second": rate,
        "note": note,
    }


def last_rate(moments: Sequence[float], begun: float, together: int) -> float:
    """Items per second of the last ones, from when the others were done.

    Items come out in as many at once as are read together.
    """
    before = (len(moments) - 1) // together * together
    return (len(moments) - before) / (moments[-1] - (moments[before - 1] if before else begun))


def bucket_rows(sheet: Sheet, budgets: tuple[int, ...]) -> None:
    """Which shapes texts of natural lengths come in, and how much of them is padding."""
    for budget in budgets:
        sheet.row(BATCHES, f"buckets at {budget} positions", partial(_buckets, budget))


def _buckets(budget: int) -> Figures:
    drawn = np.random.default_rng(0).lognormal(np.log(_MEDIAN), _SPREAD, _TEXTS)
    lengths = [int(one) for one in np.clip(drawn, 3, _LONGEST)]
    shapes: Counter[str] = Counter()
    computed = 0
    for begin in range(0, len(lengths), 4096):
        part = lengths[begin : begin + 4096]
        for batch in token_batches(part, budget, few_shapes=True):
            rows = bucket_of(len(batch), apart=1)
            width = bucket_of(max(part[index] for index in batch))
            shapes[f"{rows} x {width}"] += 1
            computed += rows * width
    most = ", ".join(f"{shape} ({count})" for shape, count in shapes.most_common(6))
    padding = 1 - sum(lengths) / computed
    return {
        "shapes": dict(shapes),
        "padding": padding,
        "note": f"{len(lengths)} texts of median {_MEDIAN}: {sum(shapes.values())} batches of "
        f"{len(shapes)} shapes, {padding:.0%} padding; most: {most}",
    }


def start_row(sheet: Sheet, setting: Setting, name: str, shape: Shape) -> None:
    """Seconds that a process of its own takes until a step of this shape is compiled."""
    sheet.row(START, f"{name}: lrp, {shape}", partial(_start, setting, shape))


def _start(setting: Setting, shape: Shape) -> Figures:
    command = [sys.executable, "-m", "benchmarks.gpu_shapes", setting.device, setting.dtype]
    command += [str(shape.batch), str(shape.tokens), str(int(setting.quick))]
    done = subprocess.run(
        command, cwd=_ROOT, env=os.environ, capture_output=True, text=True, timeout=240, check=False
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it ended"])[-1])
    found = json.loads(done.stdout.strip().splitlines()[-1])
    note = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in found["seconds"].items())
    return {**found, "note": f"{note}; graph cache {found['cache'] or 'unused'}"}


def _measure_start(setting: Setting, shape: Shape) -> dict[str, Any]:
    from torch._dynamo.utils import counters

    seconds, begun = {}, time.perf_counter()
    bench = of_shape(shape, setting)
    step = bench.step("lrp")
    step.eager()
    seconds["model and first forward"] = time.perf_counter() - begun
    begun = time.perf_counter()
    made = step.traced().traced
    seconds["tracing"] = time.perf_counter() - begun
    begun = time.perf_counter()
    ready = compiled(made, step.examples)
    ready.begin(*step.given).end(step.examples[-1])[0].cpu()
    seconds["compiling"] = time.perf_counter() - begun
    cache = {key: n for key, n in counters["inductor"].items() if key.startswith("fxgraph_cache")}
    return {"seconds": seconds, "operators": made.operators, "cache": cache}


def dynamic_rows(sheet: Sheet, setting: Setting, lengths: tuple[int, ...]) -> None:
    """A step traced with symbols for its sizes; and what they cost a compiled forward pass."""
    sheet.row(DYNAMIC, "lrp, traced with symbolic sizes", partial(_symbolic, setting))
    dynamic = torch.compile(dynamic=True)
    held: dict[str, Any] = {}
    for tokens in lengths:
        shape = Shape(batch=8192 // tokens, tokens=tokens)
        name = f"forward, {shape}, one dynamic graph"
        sheet.row(DYNAMIC, name, partial(_dynamic, setting, shape, held, dynamic))


def _symbolic(setting: Setting) -> Figures:
    from torch.fx.experimental.proxy_tensor import make_fx

    bench = of_shape(Shape(batch=64), setting)
    step = bench.step("lrp")
    names = list(step.inputs)

    def function(*given: Tensor) -> list[Tensor]:
        *inputs, seed = given
        named = dict(zip(names, inputs, strict=True))
        with fixed_shapes():
            passes = propagate(
                lambda taps: step.forward(named, taps),
                step.composite,
                inputs[0].shape[0],
                module=step.module,
                summed=step.summed,
            )
            return [passes.relevance(seed, last=True), *passes.book.sites.values()]

    trace = make_fx(function, tracing_mode="symbolic", _allow_non_fake_inputs=True)
    graph = trace(*step.examples)
    found = timed(lambda: graph(*step.examples), setting.device, quick=setting.quick)
    return {**found, "note": f"{len(graph.graph.nodes)} nodes, replayed"}


def _dynamic(setting: Setting, shape: Shape, held: dict[str, Any], compiler: Any) -> Figures:
    bench = of_shape(shape, setting)
    call = held.setdefault("forward", compiler(bench.model.module))
    inputs = {name: values.clone() for name, values in bench.batch.inputs.items()}
    for values in inputs.values():
        torch._dynamo.mark_dynamic(values, 0)
        torch._dynamo.mark_dynamic(values, 1)
    with torch.no_grad():
        found = timed(lambda: call(**inputs), setting.device, quick=setting.quick)
    return {**found, "per_second": 1000 * bench.setting.batch / found["ms"]}


if __name__ == "__main__":
    device_, dtype_, *numbers_ = sys.argv[1:]
    batch_, tokens_, quick_ = map(int, numbers_)
    wanted_ = replace(Setting(), device=device_, dtype=dtype_, quick=bool(quick_))
    print(json.dumps(_measure_start(wanted_, Shape(batch=batch_, tokens=tokens_))))
