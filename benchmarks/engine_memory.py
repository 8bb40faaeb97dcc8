"""Peak memory of one explanation by length, each in a process of its own.

    python -m benchmarks.engine_memory METHOD TOKENS [--device D] [--dtype D] [--quick]

prints bytes above what the loaded model holds. METHOD is a composite, or `input x gradient`.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine_contenders import PLAIN, explain, plain
from benchmarks.engine_models import Setting, batch_of, build
from transexplain.engine.composites import COMPOSITES

#: memory grows no faster than length, up to this factor (allocators round up)
LINEAR = 1.1


def memory_table(
    setting: Setting, *, lengths: list[int], plain_up_to: int, threads: int
) -> list[dict[str, Any]]:
    """One row per method and length; `growth` is peak over length, against the row before."""
    rows: list[dict[str, Any]] = []
    for method in ("lrp", PLAIN):
        last: dict[str, Any] | None = None
        for tokens in lengths:
            if method == PLAIN and tokens > plain_up_to:
                continue
            row = {
                "method": method,
                "tokens": tokens,
                **_measured(method, tokens, setting, threads),
            }
            row["growth"] = None
            if last is not None and "bytes" in row and "bytes" in last:
                row["growth"] = (row["bytes"] / last["bytes"]) / (tokens / last["tokens"])
            rows.append(row)
            last = row
    return rows


def linear(rows: list[dict[str, Any]], method: str) -> bool | None:
    """Whether a method's memory is linear in length; None where too little was measured."""
    growths = [row["growth"] for row in rows if row["method"] == method and row["growth"]]
    return all(growth <= LINEAR for growth in growths) if growths else None


def _measured(method: str, tokens: int, setting: Setting, threads: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.engine_memory", method, str(tokens)]
    command += ["--device", setting.device, "--dtype", setting.dtype]
    if setting.quick:
        command.append("--quick")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        # large blocks go back to the system at once: the peak is what was held together
        "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
    }
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        command, env=environment, cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        reported = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return {"status": f"failed: {reported[0]}"}
    return {"status": "measured", **json.loads(done.stdout)}


def _peak(method: str, setting: Setting) -> dict[str, int]:
    attention = "eager" if method == PLAIN else "sdpa"
    model = build("bert-base", setting, attention=attention)
    short = dataclasses.replace(setting, tokens=16)
    _explain(method, model, batch_of(model, short, items=1))  # what is set up only once
    batch = batch_of(model, setting, items=1)
    before = _restart(setting.device)
    _explain(method, model, batch)
    return {"bytes": _highest(setting.device) - before, "before": before}


def _explain(method: str, model: Any, batch: Any) -> None:
    if method == PLAIN:
        plain(model, batch)
    else:
        explain(model, batch, method)


def _restart(device: str) -> int:
    """Bytes held now; the peak counts from here."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM := VmRSS
    return _status("VmRSS")


def _highest(device: str) -> int:
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device)
    return _status("VmHWM")


def _status(field: str) -> int:
    """Bytes of one entry of this process's status (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def main() -> None:
    """Measure once and print it as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("method", choices=(*COMPOSITES, PLAIN))
    parser.add_argument("tokens", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    setting = Setting(
        device=options.device, dtype=options.dtype, tokens=options.tokens, quick=options.quick
    )
    print(json.dumps(_peak(options.method, setting)))


if __name__ == "__main__":
    main()
