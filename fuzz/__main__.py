"""`python -m fuzz`: search ways in for findings, or give one input again."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fuzz import corpus
from fuzz.guard import Guard, sandbox
from fuzz.ways import WAYS

_ROOT = Path(__file__).resolve().parents[1]
_console = Console()


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """What one search gave."""

    way: str
    executions: int
    seconds: float
    corpus: int  #: inputs that reach something of their own
    findings: tuple[Path, ...]
    broken: str = ""  #: why the process ended early


def main() -> int:
    """The exit code: 0, or 1 where anything was found."""
    options = _arguments()
    if options.input is not None:
        return _once(options.way, options.input)
    ways = list(WAYS) if options.all else [options.way]
    with ThreadPoolExecutor(options.jobs) as jobs:
        found = list(jobs.map(lambda way: search(options, way), ways))
    _console.print(_table(found))
    for one in found:
        for path in one.findings:
            _console.print(_first_line(path), soft_wrap=True, markup=False)
            _console.print(f"    python -m fuzz {one.way} --input {path}", soft_wrap=True)
        if one.broken:
            _console.print(f"{one.way} ended early: {one.broken}", soft_wrap=True, markup=False)
    return int(any(one.findings or one.broken for one in found))


def search(options: argparse.Namespace, way: str) -> Searched:
    """Search one way in, in a process and a sandbox of its own."""
    folder = options.work.absolute() / way
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("found-*"), *folder.glob("*-[0-9a-f]*"), folder / "met.json"):
        with contextlib.suppress(IsADirectoryError):
            old.unlink(missing_ok=True)
    begun = time.monotonic()
    with _temporary() as parent:
        words = [way, str(folder), parent, str(options.seconds), str(options.seed)]
        done = subprocess.run(
            [sys.executable, "-m", "fuzz.drive", *words],
            cwd=_ROOT,
            env=_environment(),
            capture_output=True,
            check=False,
        )
    taken = time.monotonic() - begun
    with contextlib.suppress(OSError, ValueError):
        met = json.loads((folder / "met.json").read_text())
        return Searched(
            way=way,
            executions=met["executions"],
            seconds=taken,
            corpus=sum(1 for _ in folder.glob("corpus/*")) + len(corpus.seeds(way)),
            findings=_findings(folder),
            broken="" if done.returncode == 0 else _end_of(done.stderr, done.returncode),
        )
    return Searched(
        way=way,
        executions=0,
        seconds=taken,
        corpus=0,
        findings=_findings(folder),
        broken=_end_of(done.stderr, done.returncode),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("way", nargs="?", choices=sorted(WAYS), help="one way in")
    parser.add_argument("--all", action="store_true", help="every way in")
    parser.add_argument("--seconds", type=float, default=120.0, help="for each; default 120")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once; default 1")
    parser.add_argument("--seed", type=int, default=0, help="of the search; 0: one of its own")
    parser.add_argument(
        "--work", type=Path, default=corpus.WORK, help="folder of what fuzzing makes"
    )
    parser.add_argument("--input", type=Path, help="give this file once and show what happens")
    options = parser.parse_args()
    if options.all == (options.way is not None) or (options.input and options.all):
        parser.error("name one way in, or give --all")
    return options


def _once(way: str, path: Path) -> int:
    data = path.read_bytes()
    target = WAYS[way].target
    warnings.simplefilter("error")
    with _temporary() as parent, sandbox(Path(parent)) as inside:
        finding = Guard(target, WAYS[way].limits, inside).attempt(data)
    _console.print(finding.text if finding else "no finding", markup=False, highlight=False)
    return int(finding is not None)


def _temporary() -> tempfile.TemporaryDirectory[str]:
    """In memory where the system has such a folder: every input writes files."""
    shared = "/dev/shm"
    return tempfile.TemporaryDirectory(
        prefix="fuzz-", dir=shared if os.access(shared, os.W_OK) else None
    )


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TRANSEXPLAIN_")}
    return {**kept, "PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def _findings(folder: Path) -> tuple[Path, ...]:
    ours = [path for path in folder.glob("found-*") if path.suffix != ".txt"]
    kinds = ("crash", "timeout", "oom", "leak")
    return tuple(sorted([*ours, *(path for kind in kinds for path in folder.glob(f"{kind}-*"))]))


def _first_line(path: Path) -> str:
    """What was found, in a line; libFuzzer's own files say so by their names."""
    report = path.with_name(f"{path.name}.txt")
    if not report.is_file():
        return path.name.partition("-")[0]
    return report.read_text(encoding="utf-8", errors="replace").partition("\n")[0]


def _end_of(output: bytes, code: int) -> str:
    return f"exit code {code}: {output.decode('utf-8', 'replace')[-1500:]}"


def _table(found: Sequence[Searched]) -> Table:
    table = Table("way in", "executions", "per second", "corpus", "findings")
    for one in found:
        rate = one.executions / one.seconds if one.seconds else 0.0
        numbers = (f"{one.executions:,}", f"{rate:,.0f}", f"{one.corpus:,}")
        table.add_row(one.way, *numbers, str(len(one.findings)))
    return table


if __name__ == "__main__":
    sys.exit(main())
