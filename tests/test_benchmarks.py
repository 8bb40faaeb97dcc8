"""Every benchmark can be imported and ends well on its smallest input; no timing is asserted."""

import importlib
import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_audit import make_audit

ROOT = Path(__file__).resolve().parents[1]
DATABASE = (pytest.mark.postgres,)
FLEET = (pytest.mark.postgres, pytest.mark.redis)
SHARED = (pytest.mark.shared,)
DATA = "--model FOLDER/model --data FOLDER/texts.jsonl"  # of a tiny audit
REAL = "--shared SHARED --out FOLDER"
PIPELINE = f"pipeline {DATA} --rows 48 --shards 6 --repeats 1 --json JSON --lanes"
HOST = "--lexicon FOLDER/groups.json --images FOLDER/none --databases sqlite --rate 500"

#: command, what it prints or writes, servers or data that it needs
COMMANDS = (
    ("house", "lines", ()),
    ("engine --quick --models bert-base --threads 1 --rounds 2 --json JSON", "lrp", ()),
    ("methods --quick --rounds 1 --methods lrp decoded-gradcam", "lrp", ()),
    ("gpu --quick --minutes 20 --device cpu --json JSON --markdown FOLDER/x.md", "lrp", ()),
    (f"half_precision {DATA} --positions 16 --items 6 --dtypes bfloat16 --json JSON", "lrp", ()),
    (f"{PIPELINE} 'bare loop' 'local 1'", "local 1 to bare loop", ()),
    (f"{PIPELINE} 'fleet 2'", "fleet 2", FLEET),
    (f"host --quick {DATA} {HOST} --host-processes 0 --tokens 12 --json JSON", "sqlite: ", ()),
    ("memory --tiny --rows 120 --shard-size 10 --json JSON", "highest", ()),
    ("fleet --items 600 --shard-size 20 --claimers 3 --shard-seconds 0.2 --json JSON", "", FLEET),
    ("large_plan --rows 20000000 --file-rows 5000000 --claims 4000 --json JSON", "claims", ()),
    ("fleet_costs --shards 40 --repeats 2 --json JSON", "claim", DATABASE),
    ("store --items 6 --shards 2 --positions 5 --rounds 1", "items", ()),
    ("tracing --rounds 1 --rows 32 --shard-size 16", "", ()),
    ("matching --lexicon FOLDER/groups.json --texts FOLDER/lines.txt --rounds 1", "", ()),
    (f"attention_only {REAL} --texts 256 --epochs 1 --items 4", "random", SHARED),
    (f"graphs {REAL} --sets bace --graphs 200 --epochs 1 --items 10", "random", SHARED),
    ("corrected_rows --shared SHARED --texts 2 --pictures 10 --out FOLDER/x", "AUAC 0.", SHARED),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("command", "shown"),
    [pytest.param(*rest, id=rest[0].partition(" ")[0], marks=marks) for *rest, marks in COMMANDS],
)
def test_it_prints_figures(
    command: str, shown: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for mark, server in (("postgres", "postgres_url"), ("redis", "redis_url")):
        if request.node.get_closest_marker(mark):
            request.getfixturevalue(server)  # skips where there is none
    make_audit(tmp_path, items=48)
    (tmp_path / "lines.txt").write_text("a nice film\ngoods\n")
    places = {"FOLDER": str(tmp_path), "JSON": str(tmp_path / "figures.json")}
    if "SHARED" in command:
        places["SHARED"] = str(request.getfixturevalue("shared_dir") / "real")
    for name, place in places.items():
        command = command.replace(name, place)
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(f"benchmarks.{command}")],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written = tmp_path / "figures.json"
    figures = json.loads(written.read_text(encoding="utf-8")) if written.exists() else []
    assert shown in done.stdout and (done.stdout or figures)
    numbers = [value for value in leaves(figures) if isinstance(value, float)]
    assert all(map(math.isfinite, numbers))
    assert numbers or "--json" not in command


def leaves(node: Any) -> Iterator[Any]:
    """The values of a JSON document."""
    if isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from leaves(child)
    else:
        yield node


def test_every_module_can_be_imported() -> None:
    for path in (ROOT / "benchmarks").glob("*.py"):
        importlib.import_module(f"benchmarks.{path.stem}")
