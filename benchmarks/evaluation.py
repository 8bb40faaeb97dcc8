"""Where the time of an evaluation goes: explaining, asking the model, and everything else.

    python -m benchmarks.evaluation --model DIR --data FILE [--items N] [--methods M ...]
                                    [--metrics M ...] [--baseline B] [--threads N]

Every method is evaluated by itself on the first items of the data. `explaining` is the time inside
the method (forwards and backwards), `asking` the time inside forward passes of perturbed items;
what is left is masks, scores and the preparation of inputs. The aim is that explaining and asking
take at least 90 %.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.data.shard_reader import read_shard
from transexplain.evaluating.evaluate_items import evaluate_items
from transexplain.evaluating.evaluation_bench import Evaluation, MethodBench
from transexplain.explaining.item_loop import Silent
from transexplain.models.loaded_model import LoadedModel
from transexplain.settings import Settings
from transexplain.types.plans import AuditPlan, Shard

METHODS = ("lrp", "lrp-ah-ln", "gradient-x-input", "attention-last", "gae", "random")
METRICS = ("activation", "pruning", "comprehensiveness", "sufficiency", "hiding", "revealing")


@dataclass
class Clock:
    """Seconds inside forward passes that are not part of an explanation, and inside methods."""

    asking: float = 0.0
    explaining: float = 0.0
    inside: bool = False


def main() -> None:
    """Parse, measure, print."""
    options = _parsed()
    torch.set_num_threads(options.threads)
    overrides = {
        "model.source": options.model,
        "data.source": options.data,
        "data.limit": options.items,
        "evaluation.methods": options.methods,
        "evaluation.metrics": options.metrics,
        "evaluation.baseline": options.baseline,
    }
    spec = load_spec(None, overrides, options.set)
    prepared = prepare_audit(spec, Settings.from_environment(), "evaluation")
    plan = prepared.plan
    print(f"{plan.dataset.rows} items, {len(plan.evaluation.metrics)} metrics, seconds")  # type: ignore[union-attr]
    print(f"{'':26}{'all':>8} {'explaining':>11} {'asking':>8} {'the rest':>9} {'share':>7}")
    for method in plan.evaluation.methods:  # type: ignore[union-attr]
        only = replace(plan.evaluation, methods=(method,))  # type: ignore[type-var]
        _measure(method.label, replace(plan, evaluation=only), prepared.model)


def _measure(label: str, plan: AuditPlan, model: LoadedModel) -> None:
    items = list(read_shard(plan.dataset, Shard(index=0, start=0, stop=plan.dataset.rows)))
    clock = Clock()
    with timed_forwards(model, clock), timed_methods(clock):
        begun = time.perf_counter()
        for _ in evaluate_items(model, items, Evaluation.from_plan(plan), observer=Silent()):
            pass
        total = time.perf_counter() - begun
    rest = total - clock.explaining - clock.asking
    print(
        f"{label:26}{total:>8.2f} {clock.explaining:>11.2f} {clock.asking:>8.2f} {rest:>9.2f} "
        f"{1 - rest / total:>7.1%}"
    )


@contextmanager
def timed_forwards(model: LoadedModel, clock: Clock) -> Iterator[None]:
    """Count forward passes outside of methods."""
    begun: list[float] = []

    def before(*_: Any) -> None:
        begun.append(time.perf_counter())

    def after(*_: Any) -> None:
        seconds = time.perf_counter() - begun.pop()
        clock.asking += 0.0 if clock.inside else seconds

    handles = (
        model.module.register_forward_pre_hook(before),
        model.module.register_forward_hook(after),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def timed_methods(clock: Clock) -> Iterator[None]:
    """Count the time inside methods."""
    plain = MethodBench.explain

    def explain(bench: MethodBench, items: Any) -> Iterator[Any]:
        begun, clock.inside = time.perf_counter(), True
        found = list(plain(bench, items))
        clock.inside = False
        clock.explaining += time.perf_counter() - begun
        return iter(found)

    MethodBench.explain = explain  # type: ignore[method-assign]
    try:
        yield
    finally:
        MethodBench.explain = plain  # type: ignore[method-assign]


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, type=lambda text: str(Path(text)))
    parser.add_argument("--items", type=int, default=128)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--metrics", nargs="+", default=list(METRICS))
    parser.add_argument("--baseline", default=None)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[])
    return parser.parse_args()


if __name__ == "__main__":
    main()
