"""What every explanation method costs in forward passes, beside what its authors' code does.

    python -m benchmarks.methods [--model bert-base|vit-b16] [--methods M ...] [--batch B]
                                 [--rounds R] [--threads N] [--budget F] [--param METHOD.name=value]

Random weights; no data is needed. Every round runs a plain forward pass and each method once, for
one class; a figure is the median over the rounds of the ratio to the forward pass of the same
round. Methods whose declared count of passes is above `--budget` are not run, only counted.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import yaml

from benchmarks.engine_contenders import forward
from benchmarks.engine_models import MODELS, Setting, batch_of, build
from transexplain.errors import TransExplainError
from transexplain.methods import METHODS, bound, cost_of
from transexplain.types.items import ResolvedTarget
from transexplain.types.scores import MethodSpec

#: products of the size of a forward pass's, in the code that the authors published, for one item
#: and class. A backward pass that fills weight gradients counts 2, one that does not 1. Chefer's
#: relprop runs each linear layer for positive and for negative parts, with alpha and with beta,
#: and takes the gradient of each: 8.
AUTHORS: Mapping[str, float] = {
    "attnlrp": 1 + 2,
    "attention-last": 1,
    "rollout": 1,
    "attention-gradcam": 1 + 2,
    "gae": 1 + 2,
    "transformer-attribution": 1 + 2 + 8,
    "partial-lrp": 1 + 2 + 8,
    "full-lrp": 1 + 2 + 8,
}


def main() -> None:
    """Parse, measure, print."""
    options = _parsed()
    torch.set_num_threads(options.threads)
    setting = Setting(batch=options.batch, quick=options.quick, tokens=16 if options.quick else 128)
    model = build(options.model, setting)
    batch = batch_of(model, setting)
    width = max(encoded.length for encoded in batch.encoded)
    params = _parameters(options.param)
    print(f"{options.model}, batch {options.batch}, {options.threads} thread(s), one class")
    print(f"{'':26} {'forwards':>9} {'(range)':>17} {'declared':>12} {'authors':>8}")
    for name in options.methods:
        spec = MethodSpec(name=name, params=params.get(name, {}))
        forwards, backwards = cost_of(spec, width).of(1)
        declared = f"{forwards:g}f {backwards:g}b"
        count = f"{AUTHORS[name]:.0f}" if name in AUTHORS else ""
        if forwards + backwards > options.budget:
            print(f"{name:26} {'not run':>9} {'':17} {declared:>12} {count:>8}")
            continue
        try:
            ratios = _ratios(
                lambda: forward(model, batch),
                lambda spec=spec: bound(spec)(model, batch, _first_class),
                options.rounds,
            )
        except TransExplainError as error:
            print(f"{name:26} not defined: {str(error)[:80]}")
            continue
        span = f"({min(ratios):.2f} - {max(ratios):.2f})"
        middle = statistics.median(ratios)
        print(f"{name:26} {middle:9.2f} {span:>17} {declared:>12} {count:>8}", flush=True)


def _ratios(plain: Callable[[], Any], method: Callable[[], Any], rounds: int) -> list[float]:
    plain()
    found = []
    for _ in range(rounds):
        base = _seconds(plain)
        found.append(_seconds(method) / base)
    return found


def _seconds(run: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _first_class(logits: np.ndarray[Any, Any]) -> list[list[ResolvedTarget]]:
    target = ResolvedTarget(
        spec="class:0", rank=0, class_index=0, class_name="0", coefficients=((0, 1.0),)
    )
    return [[target] for _ in logits]


def _parameters(given: list[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for pair in given:
        key, _, value = pair.partition("=")
        method, _, name = key.partition(".")
        found.setdefault(method, {})[name] = yaml.safe_load(value)
    return found


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", choices=MODELS, default="bert-base")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=60.0, help="passes; above: only counted")
    parser.add_argument("--param", nargs="*", default=[], metavar="METHOD.NAME=VALUE")
    parser.add_argument("--quick", action="store_true", help="toy shapes: seconds, no meaning")
    return parser.parse_args()


if __name__ == "__main__":
    main()
