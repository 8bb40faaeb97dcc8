"""What an explanation costs in forward passes, and what memory it takes by length.

    python -m benchmarks.engine [--models M ...] [--threads N ...] [--batch B] [--rounds R]
                                [--device D] [--dtype D] [--json FILE] [--quick]

Models of BERT-base and ViT-B/16 shape with random weights; no data is needed. Every round runs
each contender once, in rotating order, and a ratio is taken to the forward pass of its own round;
the table shows medians over the rounds, with the lowest and highest ratio. Captum stands beside
the engine's methods; its integrated gradients take minutes and run in the first `--seldom-rounds`
rounds only.
"""

import argparse
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine_contenders import METHODS, PLAIN
from benchmarks.engine_memory import linear, memory_table
from benchmarks.engine_models import MODELS, Setting
from benchmarks.engine_throughput import best_batch
from benchmarks.engine_timing import time_model

_LENGTHS, _QUICK_LENGTHS = [512, 2048, 8192], [64, 128]


def main() -> None:
    """Parse, measure, print."""
    options = _parsed()
    setting = Setting(
        device=options.device,
        dtype=options.dtype,
        classes=options.classes,
        batch=options.batch,
        tokens=16 if options.quick else options.tokens,
        quick=options.quick,
    )
    found: dict[str, Any] = {"environment": _environment(options)}
    _print_environment(found["environment"])
    found["timings"] = _timings(options, setting)
    if options.device.startswith("cuda"):
        found["best_batch"] = [
            row for name in options.models for row in best_batch(name, setting, rounds=3)
        ]
        _print_best(found["best_batch"])
    found["memory"] = memory_table(
        setting,
        lengths=_QUICK_LENGTHS if options.quick else options.lengths,
        plain_up_to=2048,
        threads=max(options.threads),
    )
    found["linear"] = {name: linear(found["memory"], name) for name in ("lrp", PLAIN)}
    if found["memory"]:
        _print_memory(found["memory"], found["linear"])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _timings(options: argparse.Namespace, setting: Setting) -> list[dict[str, Any]]:
    """Time and print every model with every thread count."""
    found = []
    for name in options.models:
        for threads in options.threads:
            rows = time_model(
                name,
                setting,
                threads=threads,
                rounds=options.rounds,
                seldom_rounds=options.seldom_rounds,
                several=tuple(options.several),
                captum=not options.no_captum,
            )
            found += rows
            _print_timings(name, threads, rows)
    return found


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seldom-rounds", type=int, default=1)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128, help="length of the texts")
    parser.add_argument("--classes", type=int, default=10, help="size of the head")
    parser.add_argument(
        "--several", nargs="*", choices=METHODS, default=["lrp"], help="methods of many classes"
    )
    parser.add_argument(
        "--lengths", nargs="*", type=int, default=_LENGTHS, help="of the memory table; none: no"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--no-captum", action="store_true")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--quick", action="store_true", help="toy shapes: seconds, no meaning")
    return parser.parse_args()


def _environment(options: argparse.Namespace) -> dict[str, Any]:
    cuda = options.device.startswith("cuda")
    settings = {key: value for key, value in vars(options).items() if key != "json"}
    return {
        **settings,
        "processor": torch.cuda.get_device_name(options.device) if cuda else platform.machine(),
        "cores": os.cpu_count(),
        "versions": {name: _version(name) for name in ("torch", "transformers", "timm", "captum")},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _print_environment(facts: dict[str, Any]) -> None:
    packages = ", ".join(f"{name} {found or '-'}" for name, found in facts["versions"].items())
    print(f"{facts['device']} ({facts['processor']}, {facts['cores']} cores), {facts['dtype']}")
    print(f"{packages}; batch {facts['batch']}, at most {facts['rounds']} interleaved rounds")
    if facts["quick"]:
        print("toy shapes: these figures show that everything runs, nothing else")


def _print_timings(name: str, threads: int, rows: list[dict[str, Any]]) -> None:
    print(f"\n{name}, {threads} thread{'s' * (threads > 1)}")
    print(f"{'':28} {'forwards':>8}  {'(range)':>15} {'items/s':>8} {'aim':>5}  met  rounds")
    for row in rows:
        if row["status"] != "measured":
            print(f"{row['contender']:28} {row['status']}")
            continue
        span = f"({row['ratio_lowest']:.2f} - {row['ratio_highest']:.2f})"
        rate = "" if row["items_per_second"] is None else f"{row['items_per_second']:.2f}"
        aim = "" if row["aim"] is None else f"{row['aim']:.1f}"
        print(
            f"{row['contender']:28} {row['ratio']:8.2f}  {span:>15} {rate:>8} {aim:>5}  "
            f"{_yes(row['met']):3}  {row['rounds']:>6}",
            flush=True,
        )


def _yes(met: bool | None) -> str:
    return "" if met is None else "yes" if met else "no"


def _print_best(rows: list[dict[str, Any]]) -> None:
    print("\nbest batch size: explanations per second, share of the forward pass's own rate")
    for row in rows:
        print(
            f"{row['model']:10} {row['contender']:12} batch {row['batch']:4} "
            f"{row['items_per_second']:10.1f}/s {row['share_of_forward']:6.3f}"
        )


def _print_memory(rows: list[dict[str, Any]], is_linear: dict[str, bool | None]) -> None:
    print("\npeak memory above the loaded model, bert-base, one item")
    for row in rows:
        if row["status"] != "measured":
            print(f"{row['method']:18} T {row['tokens']:5}  {row['status']}")
            continue
        mib = row["bytes"] / 2**20
        growth = "" if row["growth"] is None else f"   growth over that of T {row['growth']:.2f}"
        print(
            f"{row['method']:18} T {row['tokens']:5} {mib:9.1f} MiB "
            f"{1024 * mib / row['tokens']:8.1f} KiB per position{growth}"
        )
    for method, verdict in is_linear.items():
        print(f"{method}: linear in T: {_yes(verdict) or 'not known'}")


if __name__ == "__main__":
    main()
