"""What a card does: forward passes, steps, methods, peers, batches, memory, a run.

    python -m benchmarks.gpu [--device D] [--dtype D] [--minutes M] [--json FILE]
                             [--markdown FILE] [--quick]

Models of BERT-base, ViT-B/16 and Llama 1B shape with random weights; no data is needed. Every row
is measured by itself: an error becomes what the row says, and the next one goes on. Rows come in
the order of their importance; what no longer fits into the minutes is named as left out.
Milliseconds are medians of several repetitions by the card's clock; `forwards` is their ratio to
the forward pass of the same shape (compiled and captured, where that works). Captum and autoLRP
(`pip install captum autolrp`) are measured where they are installed. `--quick` has toy sizes and
shows only that everything runs.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine_models import Setting
from benchmarks.gpu_clock import on_card
from benchmarks.gpu_sheet import Sheet
from benchmarks.gpu_tasks import Task, tasks_of, warm_jobs
from benchmarks.gpu_warm import warm

_PACKAGES = ("torch", "transformers", "timm", "captum", "autolrp", "triton")
_CARD = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu"
_WARM_SHARE = 0.22  #: of the time may go into compiling ahead
_RESERVE = 15.0  #: seconds kept for starting, and to write everything


def main() -> None:
    """Parse, measure, write."""
    options = _parsed()
    began = options.began or time.time()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", folder)
        sheet = Sheet(
            environment=_environment(options),
            device=options.device,
            json=options.json,
            markdown=options.markdown,
            began=began,
        )
        if options.began:
            sheet.resume()
        for name, value in sheet.environment.items():
            print(f"{name}: {value}")
        _measure(sheet, options)
        sheet.environment["seconds"] = round(time.time() - began, 1)
        sheet.environment["card afterwards"] = _card(options.device)
        sheet.write()
    print("\n".join(sheet.lines()))


def _measure(sheet: Sheet, options: argparse.Namespace) -> None:
    setting = Setting(device=options.device, dtype=options.dtype, quick=options.quick)
    tasks = tasks_of(setting)
    limit = sheet.began + 60 * options.minutes - _RESERVE
    timer = _cut_off(sheet, tasks, limit)
    if on_card(options.device) and not options.quick and not sheet.done:
        warm(sheet, setting, warm_jobs(setting), 60 * options.minutes * _WARM_SHARE)
        sheet.done.append("warm")
    for task in tasks:
        if task.key in sheet.done:
            continue
        if time.time() + task.seconds > limit:
            sheet.done.append(task.key)
            sheet.left_out(task.part, task.name)
            continue
        sheet.done.append(task.key)
        task.run(sheet)
        if not _alive(options.device):
            _start_again(sheet)
    timer.cancel()


def _cut_off(sheet: Sheet, tasks: list[Task], limit: float) -> threading.Timer:
    """End everything when the time is over, whatever hangs: what was measured is written."""

    def end() -> None:
        with sheet.lock:
            if sheet.current is not None:
                sheet.left_out(*sheet.current, "cut off at the time limit")
            for task in tasks:
                if task.key not in sheet.done:
                    sheet.left_out(task.part, task.name)
            sheet.write()
            print("\n".join(sheet.lines()), flush=True)
            os._exit(0)

    timer = threading.Timer(max(1.0, limit + _RESERVE / 2 - time.time()), end)
    timer.daemon = True
    timer.start()
    return timer


def _alive(device: str) -> bool:
    """Whether the device still computes: after some errors a process cannot use it any more."""
    try:
        return bool((torch.ones(2, device=device) + 1).sum().item() == 4.0)
    except Exception:  # noqa: BLE001 - whatever is wrong with it
        return False


def _start_again(sheet: Sheet) -> None:
    """Go on in a new process with the tasks that are left; needs a file of what is done."""
    if sheet.json is None:
        return
    sheet.write()
    words = [word for word in sys.argv[1:] if not word.startswith("--began")]
    os.execv(
        sys.executable,
        [sys.executable, "-m", "benchmarks.gpu", *words, f"--began={sheet.began}"],
    )


def _environment(options: argparse.Namespace) -> dict[str, Any]:
    card = on_card(options.device)
    found = {
        "device": torch.cuda.get_device_name(options.device) if card else platform.machine(),
        "card": _card(options.device),
        "dtype": options.dtype,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
        "minutes": options.minutes,
    }
    if options.quick:
        found["quick"] = "toy shapes: these figures show that everything runs, nothing else"
    return found


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _card(device: str) -> str:
    """Driver, clocks, power and temperature, where the driver's tool is there."""
    if not on_card(device):
        return "none"
    command = ["nvidia-smi", f"--query-gpu={_CARD}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"not known: {error}"[:100]
    return f"{done.stdout.strip().splitlines()[0]} ({_CARD})"


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    cuda = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda:0" if cuda else "cpu")
    parser.add_argument("--dtype", help="default: bfloat16, on a CPU float32")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    parser.add_argument("--quick", action="store_true", help="toy shapes: seconds, no meaning")
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.dtype = options.dtype or ("bfloat16" if on_card(options.device) else "float32")
    return options


if __name__ == "__main__":
    main()
