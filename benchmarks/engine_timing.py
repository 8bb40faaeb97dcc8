"""Interleaved timing: every round runs each contender once, in rotating order."""

import gc
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.engine_contenders import (
    AIMS,
    COUNTS,
    FORWARD,
    FURTHER_CLASS_AIM,
    Contender,
    Run,
    contenders,
    many,
)
from benchmarks.engine_models import Setting, batch_of, build
from transexplain.errors import TransExplainError

Seconds = dict[str, list[float | None]]  #: contender -> one entry per round


def seconds_of(run: Run, device: str) -> float:
    """Wall-clock seconds of one run; what the run before left is freed first."""
    gc.collect()
    _wait(device)
    begun = time.perf_counter()
    run()
    _wait(device)
    return time.perf_counter() - begun


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def interleaved(
    found: Sequence[Contender], *, rounds: int, seldom_rounds: int, device: str
) -> tuple[Seconds, dict[str, str]]:
    """Seconds per contender and round, and why a contender has none.

    The first contender must be the forward pass. Each is run once beforehand (but the seldom
    ones), so that nobody pays for lazy initialisation.
    """
    refused = {one.name: one.why for one in found if one.run is None}
    ready: list[tuple[str, Run, int]] = []
    for one in found:
        if one.run is not None and _warm(one, refused):
            ready.append((one.name, one.run, seldom_rounds if one.seldom else rounds))
    table: Seconds = {name: [] for name, _, _ in ready}
    for turn in range(rounds):
        shift = turn % len(ready)
        for name, run, times in (*ready[shift:], *ready[:shift]):
            table[name].append(seconds_of(run, device) if turn < times else None)
    return table, refused


def _warm(one: Contender, refused: dict[str, str]) -> bool:
    """Whether the contender runs; why not goes to `refused`."""
    try:
        if one.run is not None and not one.seldom:
            one.run()
    except TransExplainError as error:
        refused[one.name] = f"refused: {error}"
    return one.name not in refused


def time_model(
    name: str,
    setting: Setting,
    *,
    threads: int,
    rounds: int,
    seldom_rounds: int,
    several: tuple[str, ...] = ("lrp",),
    captum: bool = True,
) -> list[dict[str, Any]]:
    """One row per contender for one model and thread count."""
    torch.set_num_threads(threads)
    model = build(name, setting)
    found = contenders(model, batch_of(model, setting), several=several, captum=captum)
    table, refused = interleaved(
        found, rounds=rounds, seldom_rounds=seldom_rounds, device=setting.device
    )
    rows = [_row(one.name, table, refused, setting.batch) for one in found]
    rows += _further_classes(table, several)
    return [{"model": name, "threads": threads, **row} for row in rows]


def _row(name: str, table: Seconds, refused: dict[str, str], batch: int) -> dict[str, Any]:
    if name in refused:
        return {"contender": name, "status": refused[name]}
    pairs = [
        (own, reference)
        for own, reference in zip(table[name], table[FORWARD], strict=True)
        if own is not None and reference is not None
    ]
    if not pairs:
        return {"contender": name, "status": "not run: no rounds asked for"}
    seconds = statistics.median(own for own, _ in pairs)
    ratios = [own / reference for own, reference in pairs]
    return {
        "contender": name,
        "status": "measured",
        "rounds": len(pairs),
        "seconds": seconds,
        "items_per_second": batch / seconds,
        **_judged(ratios, AIMS.get(name)),
    }


def _further_classes(table: Seconds, several: tuple[str, ...]) -> list[dict[str, Any]]:
    """What each class beyond the first costs, in forward passes of the same round."""
    rows = []
    for method in several:
        for count in COUNTS[1:]:
            if many(method, count) not in table:
                continue
            columns = (table[many(method, count)], table[method], table[FORWARD])
            extra = [
                ((all_of_them - one) / (count - 1), reference)
                for all_of_them, one, reference in zip(*columns, strict=True)
                if all_of_them is not None and one is not None and reference is not None
            ]
            rows.append(
                {
                    "contender": f"{method}, each further of {count}",
                    "status": "measured",
                    "rounds": len(extra),
                    "seconds": statistics.median(seconds for seconds, _ in extra),
                    "items_per_second": None,
                    **_judged([own / reference for own, reference in extra], FURTHER_CLASS_AIM),
                }
            )
    return rows


def _judged(ratios: list[float], aim: float | None) -> dict[str, Any]:
    ratio = statistics.median(ratios)
    return {
        "ratio": ratio,
        "ratio_lowest": min(ratios),
        "ratio_highest": max(ratios),
        "aim": aim,
        "met": None if aim is None else ratio <= aim,
    }
