"""Every composite and method through `te.explain`: eager, and what it reaches once it is warm."""

import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import transexplain as te
from benchmarks.engine_contenders import AUTOLRP, CAPTUM_GRADIENT, PLAIN, contenders
from benchmarks.engine_models import Setting
from benchmarks.gpu_clock import timed
from benchmarks.gpu_sheet import Figures, Sheet
from benchmarks.gpu_steps import Shape, ShapeBench, of_shape, related
from transexplain.engine.steps import Steps
from transexplain.methods.at_input_layer import steps_of
from transexplain.models.loaded_model import LoadedModel
from transexplain.settings import StepPolicy

METHODS = (
    "lrp",
    "gradient-x-input",
    "chefer-lrp",
    "transformer-attribution",
    "gae",
    "rollout",
    "lrp-gamma",
    "lrp-epsilon",
    "lrp-alpha-beta",
    "integrated-gradients",
)
#: methods with passes of their own besides, or instead of, one step
BY_OTHER_PASSES = ("transformer-attribution", "gae", "rollout", "integrated-gradients")
_POLICIES: Mapping[str, StepPolicy] = {"eager": "eager", "warm": "auto"}
PART = "methods through te.explain"
#: seconds after which a method is taken as it is
_PATIENCE = 60.0
_BY_THREAD = "compile-step"  # the name of the thread that compiles


def method_rows(sheet: Sheet, bench: ShapeBench, method: str) -> None:
    """Eager, and as it runs once all of its steps are traced and compiled."""
    for name, policy in _POLICIES.items():
        measure = partial(explained, bench, method, policy)
        sheet.row(PART, f"{method}, {name}", partial(related, sheet, str(bench.shape), measure))


def explained(bench: ShapeBench, method: str, policy: StepPolicy) -> Figures:
    """Milliseconds of `te.explain` for the batch, from encoded inputs to attributions."""
    model, device = bench.model, bench.setting.device
    with_steps(model, policy)
    call = partial(_once, bench, method)
    reached = "eager" if policy == "eager" else reach(model, call)
    found = timed(call, device, quick=bench.setting.quick)
    refused = steps_of(model).refusals()
    with_steps(model, "eager")  # traces are given back
    return {
        **found,
        "per_second": 1000 * bench.setting.batch / found["ms"],
        "reached": reached,
        "note": "; ".join([reached, *refused])[:200] if policy != "eager" else None,
    }


def with_steps(model: LoadedModel, policy: StepPolicy) -> None:
    """Steps that are traced when they recur at all, and compiled when they recur again."""
    model.steps["steps"] = Steps(policy, earned={"cuda": 0.0, "cpu": 0.0})


def _once(bench: ShapeBench, method: str) -> list[Any]:
    setting = bench.setting
    items = [dict(one.inputs) for one in bench.batch.encoded]
    room = setting.batch * max(one.length for one in bench.batch.encoded)
    return te.explain(bench.model, items, method, "class:0", batch_tokens=room)


def reach(model: LoadedModel, call: Any) -> str:
    """Call it until nothing gets better any more; how it runs then."""
    until = time.perf_counter() + _PATIENCE
    ran: tuple[str, ...] = ()
    for turn in range(1000):
        steps_of(model).ran()
        call()
        ran = steps_of(model).ran() or ("without steps",)
        compiles = any(one.name == _BY_THREAD for one in threading.enumerate())
        if time.perf_counter() > until:
            return f"{'+'.join(ran)}, after {_PATIENCE:g} s"
        if turn >= 3 and not compiles:
            break
        if compiles:
            time.sleep(0.2)
    call()
    return "+".join(steps_of(model).ran() or ran)


def peer_rows(sheet: Sheet, shape: Shape, setting: Setting) -> None:
    """Plain gradients, and other packages where they are installed."""
    part = f"peers, {shape}"
    bench = of_shape(shape, setting)
    wanted = (PLAIN, CAPTUM_GRADIENT, AUTOLRP)
    try:
        found = {one.name: one for one in contenders(bench.model, bench.batch)}
    except Exception as error:  # noqa: BLE001 - each peer's row says it
        for name in wanted:
            sheet.add(part, name, {"status": f"failed: {error}"[:200]})
        return
    for name in wanted:
        one = found[name]
        if one.run is None:
            sheet.left_out(part, name, one.why)
            continue
        measure = partial(_peer, bench, one.run)
        sheet.row(part, name, partial(related, sheet, str(shape), measure))


def _peer(bench: ShapeBench, run: Any) -> Figures:
    found = timed(run, bench.setting.device, quick=bench.setting.quick)
    return {**found, "per_second": 1000 * bench.setting.batch / found["ms"]}
