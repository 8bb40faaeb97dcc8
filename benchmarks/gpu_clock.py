"""Milliseconds of a call on a device, by its own clock, and the highest memory meanwhile."""

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Call = Callable[[], object]
_WARM_UP = 3
#: seconds that one measurement may take, and the least milliseconds of one repetition: of shorter
#: calls several are timed together
_SECONDS, _LEAST = 0.7, 20.0
_REPETITIONS = (3, 11)


def on_card(device: str) -> bool:
    """Whether this is a CUDA device."""
    return device.startswith("cuda")


def wait(device: str) -> None:
    """Until the device has done all that it was told to do."""
    if on_card(device):
        torch.cuda.synchronize(device)


def free(device: str) -> None:
    """Give back what nothing holds any more."""
    gc.collect()
    if on_card(device):
        torch.cuda.empty_cache()


def seconds_of(call: Call, device: str) -> float:
    """Seconds of one call, by the host's clock."""
    wait(device)
    begun = time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - begun


def timed(call: Call, device: str, *, quick: bool = False) -> dict[str, Any]:
    """Median, lowest and highest milliseconds of one call, after a warm-up.

    Also `peak_gib`, on a card: the most memory that was taken from it, models included. What is
    captured takes its memory once and for all, so that is counted, and not what is in use.
    """
    if on_card(device):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(1 if quick else _WARM_UP):
        estimate = seconds_of(call, device)
    least, most = (2, 2) if quick else _REPETITIONS
    together = 1 if quick else max(1, round(_LEAST / 1000 / max(estimate, 1e-6)))
    repetitions = min(most, max(least, int(_SECONDS / (estimate * together))))
    found = sorted(_repetition(call, device, together) for _ in range(repetitions))
    peak = torch.cuda.max_memory_reserved(device) / 2**30 if on_card(device) else None
    return {
        "ms": statistics.median(found),
        "ms_lowest": found[0],
        "ms_highest": found[-1],
        "repetitions": repetitions,
        "peak_gib": peak,
    }


def _repetition(call: Call, device: str, together: int) -> float:
    """Milliseconds of one of `together` calls in a row."""
    if not on_card(device):
        return 1000 * seconds_of(lambda: [call() for _ in range(together)], device) / together
    event: Any = torch.cuda.Event
    first, last = event(enable_timing=True), event(enable_timing=True)
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        first.record()
        for _ in range(together):
            call()
        last.record()
        torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / together
