"""What pages of `transexplain serve` cost: p50, p95 and processor time, ten at once; memory.

    python -m benchmarks.serving [--rows N] [--seconds S] [--at-once N] [--sqlite]

The run of `benchmarks.report_at_scale` is made up in a database of its own, its rows for SQL are
written, and `transexplain serve` is started over it. Each page is asked for `--seconds` by
`--at-once` clients that wait for no one, each request of another item, row, group or entity where
the page has one. `cpu ms` is the processor time of the server for a request, that of its database
not counted: beside p95 it is little changed by what else the machine does.
Aims for 10^6 attributions in PostgreSQL: p95 under 300 ms on every page, memory under 300 MB.
"""

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report_at_scale import made_up_database, store
from benchmarks.report_rows import Corpus
from benchmarks.services import end_cleanly
from orchestrator.serve.links import link
from transexplain.reports.sql_results import write
from transexplain.store.revisions import open_database

Address = Callable[[random.Random], str]
PORT = 18_321
SECTIONS = ("untested", "data", "groups", "classes", "evidence", "examples", "about")
_AIM_MS, _AIM_MB = 300, 300


@contextmanager
def served(url: str) -> Iterator[int]:
    """Start the verb and wait for its first page; the id of its process."""
    command = [sys.executable, "-m", "orchestrator.cli", "serve", "--port", str(PORT)]
    running = subprocess.Popen([*command, "--db", url], stdout=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                asked("/fleet")
                break
            except OSError:
                time.sleep(0.1)
        yield running.pid
    finally:
        running.terminate()
        running.wait(30)


def asked(address: str) -> bytes:
    """The body of a page; raises ValueError where it is no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    try:
        connection.request("GET", address, headers={"Accept": "text/html"})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError(f"{address}: {answer.status} {body[-300:]!r}")
    return body


def pages(run_id: str, items: int) -> dict[str, Address]:
    """Name of a page -> an address of it, another one for every request."""
    run = json.loads(asked(link("runs", run_id) + ".json"))
    groups = [one["group_name"] for one in run["groups"]]
    group = json.loads(asked(link("runs", run_id, "groups", groups[0]) + ".json"))
    entities = [one["entity"] for one in group["entities"]]
    classes = [one["class_name"] for one in run["classes"]]

    def of(*words: str, **query: str) -> Address:
        return lambda _: link("runs", run_id, *words, **query)

    def row(dice: random.Random) -> int:
        return dice.randrange(items)

    def item(dice: random.Random) -> str:
        start = row(dice)
        # failed items have pages, too
        return link("runs", run_id, "items", f"row-{start}")

    return {
        "runs": lambda _: "/",
        "run": of(),
        "report": of("report"),
        "a section": lambda dice: link("runs", run_id, "report", section=dice.choice(SECTIONS)),
        "clusters": of("classes", classes[0], "clusters"),
        "group": lambda dice: link("runs", run_id, "groups", dice.choice(groups)),
        "entity": lambda dice: link(
            "runs", run_id, "groups", groups[0], "entities", dice.choice(entities)
        ),
        "class": lambda dice: link("runs", run_id, "classes", dice.choice(classes)),
        "items": lambda dice: link("runs", run_id, "items", start=row(dice)),
        "items, a text": lambda dice: link(
            "runs", run_id, "items", text=f"nowhere {row(dice)}", start=row(dice)
        ),
        "items, an entity": lambda dice: link(
            "runs", run_id, "items", entity=dice.choice(entities), start=row(dice)
        ),
        "item": item,
        "failures": lambda dice: link("runs", run_id, "failures", start=row(dice)),
        "audit": lambda _: link("audits", run["run"]["name"]),
        "compare": lambda _: link("compare", a=run_id, b=run_id),
        "fleet": lambda _: "/fleet",
        "schedules": lambda _: "/schedules",
    }


def made(run_id: str) -> None:
    """Have the report and the clusters made that pages show, and say how long that took."""
    run = json.loads(asked(link("runs", run_id) + ".json"))
    clustered = ("classes", run["classes"][0]["class_name"], "clusters")
    for name, address in (
        ("report", link("runs", run_id, "report")),
        ("clusters", link("runs", run_id, *clustered)),
    ):
        begun = time.perf_counter()
        while (found := json.loads(asked(f"{address}.json")))["waiting"]:
            time.sleep(0.5)
        if found["error"]:
            raise ValueError(f"{address}: {found['error']}")
        print(f"{name} made in {time.perf_counter() - begun:.1f} s", flush=True)


def timed(address: Address, seconds: float, at_once: int) -> list[float]:
    """Seconds of each request of a page by so many clients; raises what the first error was."""
    spent: list[float] = []
    errors: list[Exception] = []
    until = time.perf_counter() + seconds

    def client(seed: int) -> None:
        dice = random.Random(seed)
        while time.perf_counter() < until and not errors:
            wanted, begun = address(dice), time.perf_counter()
            try:
                asked(wanted)
            except (OSError, ValueError) as error:
                errors.append(error)
                return
            spent.append(time.perf_counter() - begun)

    clients = [threading.Thread(target=client, args=(seed,)) for seed in range(at_once)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    if errors:
        raise errors[0]
    return sorted(spent)


def memory(pid: int, name: str) -> float:
    """`VmRSS` or `VmHWM` of a process in MB (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"{name} is not known of process {pid}")


def processor_seconds(pid: int) -> float:
    """What a process has computed so far, all its threads together (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(url: str, run_id: str, options: argparse.Namespace) -> None:
    """Print a line for each page, and the server's memory."""
    with served(url) as pid:
        print(f"memory at first         {memory(pid, 'VmRSS'):8.0f} MB")
        made(run_id)
        print(
            f"{'page':<20}{'requests':>10}{'cpu ms':>10}{'p50 ms':>10}{'p95 ms':>10}  aim {_AIM_MS}"
        )
        for name, address in pages(run_id, options.rows).items():
            before = processor_seconds(pid)
            spent = [1000 * one for one in timed(address, options.seconds, options.at_once)]
            p95 = spent[min(len(spent) - 1, int(0.95 * len(spent)))]
            cpu = 1000 * (processor_seconds(pid) - before) / len(spent)
            middle = statistics.median(spent)
            print(f"{name:<20}{len(spent):>10,}{cpu:>10.1f}{middle:>10.0f}{p95:>10.0f}", flush=True)
        print(f"highest memory          {memory(pid, 'VmHWM'):8.0f} MB   aim {_AIM_MB}")


def main() -> None:
    """Parse, make up, serve, ask."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="items, an attribution each")
    parser.add_argument("--entities", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--pool", type=int, default=16, help="shards that are no copies")
    parser.add_argument("--processes", type=int, default=2, help="that make these")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each page")
    parser.add_argument("--at-once", type=int, default=10, help="clients")
    parser.add_argument("--sqlite", action="store_true", help="a file instead of a server")
    options = parser.parse_args()
    end_cleanly()
    corpus = Corpus(
        items=options.rows, entities=options.entities, groups=options.groups, size="auto"
    )
    with made_up_database(options) as url:
        begun = time.perf_counter()
        run_id = store(url, corpus, options.pool, options.processes)
        with open_database(url) as db:
            if not write(db, run_id):
                raise SystemExit("the run has no rows for SQL")
        print(f"made in                 {time.perf_counter() - begun:8.1f} s", flush=True)
        measure(url, run_id, options)


if __name__ == "__main__":
    main()
