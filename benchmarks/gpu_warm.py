"""What `benchmarks.gpu` measures compiled, compiled beforehand by several processes at once.

    python -m benchmarks.gpu_warm '[{"device": ..., "dtype": ..., "what": ..., ...}, ...]'

does some of it, one after the other, and prints a line of JSON for each. What it compiles is in the
cache (`TORCHINDUCTOR_CACHE_DIR`) afterwards. Nothing is lost but time where that fails.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.engine_contenders import FORWARD
from benchmarks.engine_models import Setting
from benchmarks.gpu_clock import free
from benchmarks.gpu_sheet import Sheet
from benchmarks.gpu_steps import Shape, compile_ahead

PART = "compiling ahead, all at once"
_ROOT = Path(__file__).resolve().parents[1]
_PROCESSES, _THREADS = 6, "2"
_TRIES, _PAUSE = 3, 6.0  # several processes share the card's memory

Job = tuple[Shape, str, str]  #: shape, what of it, number type


def jobs_of(shapes: Sequence[Shape], dtype: str) -> Iterator[Job]:
    """The forward pass and the steps of every shape."""
    for shape in shapes:
        yield from ((shape, method, dtype) for method in shape.methods)
        yield shape, FORWARD, dtype


def warm(sheet: Sheet, setting: Setting, jobs: Sequence[Job], seconds: float) -> None:
    """Compile all of it within so many seconds, the first ones first."""
    count = max(1, min(_PROCESSES, (os.cpu_count() or 2) // 2))
    given = [
        [
            {"shape": asdict(shape), "what": what, "dtype": dtype, "device": setting.device}
            for shape, what, dtype in jobs[place::count]
        ]
        for place in range(count)
    ]
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": _THREADS}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu_warm", json.dumps(some)],
            cwd=_ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for some in given
        if some
    ]
    until = time.monotonic() + seconds
    for process in running:
        for line in _lines(process, until):
            one = json.loads(line)
            sheet.add(PART, one["name"], {key: one[key] for key in one if key != "name"})


def _lines(process: "subprocess.Popen[str]", until: float) -> list[str]:
    """What it prints until it ends, or is ended."""
    try:
        printed, _ = process.communicate(timeout=max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        printed, _ = process.communicate()
    return [line for line in printed.splitlines() if line.startswith("{")]


def _done(job: dict[str, Any]) -> dict[str, Any]:
    shape = Shape(**{**job["shape"], "methods": tuple(job["shape"]["methods"])})
    setting = Setting(device=job["device"], dtype=job["dtype"])
    name = f"{shape}, {job['dtype']}, {job['what']}"
    for turn in range(_TRIES):
        try:
            seconds = compile_ahead(shape, job["what"], setting)
            note = ", ".join(f"{what} {took:.1f} s" for what, took in seconds.items())
            return {"name": name, "status": "measured", "seconds": seconds, "note": note}
        except Exception as error:  # noqa: BLE001 - the row that is measured says so again
            why = f"failed: {type(error).__name__}: {error}"[:200]
        finally:
            free(setting.device)
        if "out of memory" not in why.lower() or turn + 1 == _TRIES:
            break
        time.sleep(_PAUSE)
    return {"name": name, "status": why}


if __name__ == "__main__":
    for one_ in json.loads(sys.argv[1]):
        print(json.dumps(_done(one_)), flush=True)
