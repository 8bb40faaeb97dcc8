"""Explanations per second at the best batch size of a device."""

import statistics
from functools import partial
from typing import Any

import torch

from benchmarks.engine_contenders import FORWARD, METHODS, Run, explain, forward
from benchmarks.engine_models import Setting, batch_of, build
from benchmarks.engine_timing import seconds_of
from transexplain.engine.composites import COMPOSITES
from transexplain.errors import TransExplainError
from transexplain.models.loaded_model import LoadedModel

SIZES = (8, 16, 32, 64, 128, 256)


def best_batch(
    name: str, setting: Setting, *, rounds: int, sizes: tuple[int, ...] = SIZES
) -> list[dict[str, Any]]:
    """Items per second of the forward pass and of each method, and its share of the forward's.

    Batches grow until one does not fit into the device's memory; each contender at its own best.
    """
    model = build(name, setting)
    wanted = [FORWARD, *(method for method in METHODS if method in COMPOSITES)]
    rates = {
        contender: _rates(contender, model, setting, rounds=rounds, sizes=sizes)
        for contender in wanted
    }
    rows = []
    for contender, by_batch in rates.items():
        if not by_batch:
            continue
        batch, rate = max(by_batch.items(), key=lambda pair: pair[1])
        rows.append(
            {
                "model": name,
                "contender": contender,
                "batch": batch,
                "items_per_second": rate,
                "share_of_forward": rate / max(rates[FORWARD].values()),
                "by_batch": {str(size): found for size, found in by_batch.items()},
            }
        )
    return rows


def _rates(
    contender: str, model: LoadedModel, setting: Setting, *, rounds: int, sizes: tuple[int, ...]
) -> dict[int, float]:
    """Items per second by batch size, up to the largest that fits."""
    found: dict[int, float] = {}
    for size in sizes:
        batch = batch_of(model, setting, items=size)
        run: Run = partial(forward, model, batch)
        if contender != FORWARD:
            run = partial(explain, model, batch, contender)
        try:
            run()
            times = [seconds_of(run, setting.device) for _ in range(rounds)]
        except (torch.OutOfMemoryError, TransExplainError):
            break
        finally:
            if setting.device.startswith("cuda"):
                torch.cuda.empty_cache()
        found[size] = size / statistics.median(times)
    return found
