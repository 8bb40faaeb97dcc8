"""What the host costs for each item, beside a device that costs nothing: the whole path by stage.

    python -m benchmarks.host [--rate 6000] [--parts texts pictures] [--tokens 24 128]
        [--lexicons without with] [--databases sqlite postgresql] [--host-processes 1]
        [--json FILE]

Claim, read, encode, batch, records, totals, mentions, rows, digest and commit are those of a run;
in the place of the model a stand-in returns prepared arrays, as fast as asked or at `--rate` items
a second. It stands for a card: as many items are read and sorted by length together as for one,
what it has in hand is noted beside it, batches have the positions that cards take
(`--batch-tokens`), and as many processes read and encode as beside one on this machine
(`--host-processes`; 0: a thread of the run's own process). Each row is run twice and measured from
its first batch to its last commit: once with every stage timed, which costs a little itself (what
other processes do is among the rest), and once without, which gives items/s, milliseconds of
processor time per item over all processes, the share of the time that the device waited for the
host, and bytes an item in the database.
Pictures are read from files, from a tar and from Parquet, and stand beside a loop that decodes and
resizes the same files and does nothing else. Without files of your own it takes the sentiment
model, the SST-2 training sentences, the lexicon and the pictures of the reference data beside the
checkout (or of `TRANSEXPLAIN_SHARED`).
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from itertools import product
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import torch
from sqlalchemy import text

from benchmarks import host_data, services
from benchmarks.host_data import Case, Packing
from benchmarks.host_stages import REST, STAGES, Stopwatch, timed_stages
from benchmarks.host_stand_in import StandIn, offered
from benchmarks.pipeline import SHARED
from orchestrator.dispatch.local import run_here
from orchestrator.plan import PreparedAudit
from transexplain.data.shard_reader import read_shard
from transexplain.explaining import explain_request
from transexplain.models.invariance import invariance_of
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.columns import stored_content
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.runs import recorded_shards
from transexplain.store.schema import OF_ITEMS
from workers import claim_to_commit
from workers.reader_pool import host_processes

Figures = dict[str, Any]
_TICKS = os.sysconf("SC_CLK_TCK")


def rows_of(options: argparse.Namespace) -> list[Case]:
    """The cases that are asked for."""
    lexicons = {"without": None, "with": options.lexicon}
    given = {"shard_size": options.shard_size, "batch_tokens": options.batch_tokens}
    found = [
        Case(
            tokens=tokens,
            items=max(1, options.items * 24 // max(24, tokens)),
            lexicon=lexicons[name],
            **given,
        )
        for tokens in (options.tokens if "texts" in options.parts else ())
        for name in options.lexicons
    ]
    if "pictures" in options.parts:
        found += [
            Case(items=options.pictures, packing=packing, **given) for packing in get_args(Packing)
        ]
    return found


def measured(
    case: Case, prepared: PreparedAudit, device: StandIn, url: str, settings: Settings
) -> Figures:
    """The figures of one case on one database."""
    first = next(one for one in read_shard(prepared.plan.dataset, prepared.shards[0]))
    (encoded,) = prepared.model.encode([first])  # what shares a batch is measured by the model
    invariance_of(prepared.model, encoded)
    _, stages = _run(prepared, device, url, settings, timed=True)
    plain, _ = _run(prepared, device, url, settings, timed=False)
    per_item = {name: 1e3 * stages.seconds[name] / case.items for name in STAGES}
    per_item[REST] = max(0.0, plain["ms"] - sum(per_item.values()))
    own = per_item.pop("stand-in")
    return {"case": case.name, "items": case.items, **plain, "stages": per_item, "stand_in": own}


def _run(
    prepared: PreparedAudit, device: StandIn, url: str, settings: Settings, *, timed: bool
) -> tuple[Figures, Stopwatch]:
    """One run of all items in this process; its figures, and the time of its stages."""
    items = prepared.plan.dataset.rows
    with (
        open_database(url, upgrade=True) as db,
        timed_stages() if timed else nullcontext(Stopwatch()) as stages,
        mock.patch.object(explain_request, "READ_TOGETHER", explain_request.READ_FOR_A_CARD),
        mock.patch.object(claim_to_commit, "device_class", lambda device: "gpu"),
    ):
        before = _size(db)
        run_id = runs.create(db, prepared.plan, prepared.shards)
        begun: list[float] = []
        device.reset(lambda: begun.extend((time.perf_counter(), _processor_seconds())))
        run_here(db, run_id, settings, model=prepared.model)
        seconds, spent = time.perf_counter() - begun[0], _processor_seconds() - begun[1]
        if (done := runs.progress(db, run_id).items_done) != items:
            raise RuntimeError(f"{done} of {items} items are explained; see the shards' errors")
        found = {
            "database": db.engine.name,
            "rate": items / seconds,
            "ms": 1e3 * spent / items,
            "cores": spent / seconds,
            "waited": device.waited,
            "bytes": (_size(db) - before) / items,
            "item_bytes": _part_bytes(db, run_id) / items,
        }
    return found, stages


def _processor_seconds() -> float:
    """Processor time so far of this process and of those below it, ended ones too (Linux)."""
    found = time.process_time()
    for pid in _below(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found += sum(int(ticks) for ticks in fields[11:15]) / _TICKS
    return found


def _below(pid: int) -> Iterator[int]:
    """Processes that this one started, and those that these did."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            yield int(child)
            yield from _below(int(child))


def _size(db: Database) -> int:
    """Bytes of the database."""
    with db.read() as connection:
        if db.engine.name == "postgresql":
            return int(
                connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
            )
        pages, free, page = (
            connection.execute(text(f"PRAGMA {name}")).scalar_one()
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * page)


def _part_bytes(db: Database, run_id: str) -> int:
    """Bytes that the columns of the run's rows of items take, without their indices."""
    total = 0
    with db.read() as connection:
        recorded = recorded_shards(db, run_id)
        for each, table in product(recorded, OF_ITEMS):
            names = [column.name for column in table.c]
            rows = range(each.start, each.stop)
            total += len(stored_content(connection, table, names, run_id, rows))
    return total


def reported(found: Figures) -> Iterator[str]:
    """The lines to print of one case."""
    waited = "-" if found["waited"] is None else f"{found['waited']:.1%}"
    yield (
        f"{found['case']}, {found['database']}: {found['rate']:,.0f} items/s, "
        f"{found['ms']:.3f} ms/item of processor time ({found['cores']:.2f} cores), "
        f"device waited {waited}, {found['bytes']:,.0f} bytes/item, of them "
        f"{found['item_bytes']:,.0f} the items'"
    )
    stages = found["stages"].items()
    yield "    " + "  ".join(f"{name} {value:.3f}" for name, value in stages) + "  (ms/item)"
    if "loop_ms" in found:
        yield (
            f"    decoding and resizing alone: {found['loop_ms']:.3f} ms/item, "
            f"{found['loop_rate']:,.0f} items/s by one core; the pipeline takes "
            f"{found['ms'] / found['loop_ms']:.2f} times its processor time"
        )


def measure(options: argparse.Namespace) -> Iterator[Figures]:
    """Every case on every database, one after the other."""
    device = offered()
    device.rate = options.rate
    for case in rows_of(options):
        for database in options.databases:
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                url = f"sqlite:///{folder}/host.db"
                if database == "postgresql":
                    try:
                        url = stack.enter_context(services.own_database())
                    except services.MissingServerError as missing:
                        print(f"{case.name} on PostgreSQL is not measured: {missing}")
                        continue
                data = options.images if case.tokens is None else options.data
                prepared = host_data.prepared(case, model=options.model, data=data, folder=folder)
                settings = Settings(
                    database_url=url, snapshot_dir=folder, host_processes=options.host_processes
                )
                found = measured(case, prepared, device, url, settings)
                if case.tokens is None:
                    files = [folder / one for one in host_data.picture_files(data, folder)]
                    spent, seconds = host_data.decoding_loop(files, case.items)
                    found["loop_ms"] = 1e3 * spent / case.items
                    found["loop_rate"] = case.items / seconds
            yield found


def main(words: list[str] | None = None) -> None:
    """Parse, measure, print."""
    options = _parsed(words)
    services.end_cleanly()
    torch.set_num_threads(1)
    rate = "as fast as asked" if options.rate is None else f"{options.rate:g} items/s"
    load = ", ".join(f"{one:.2f}" for one in os.getloadavg())
    print(
        f"stand-in: {rate}; {options.host_processes} host processes, {os.cpu_count()} cores, "
        f"load before {load}"
    )
    rows = []
    for found in measure(options):
        rows.append(found)
        for line in reported(found):
            print(line, flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


def _parsed(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=float, help="items/s of the device; default: no limit")
    choices = ("texts", "pictures")
    parser.add_argument("--parts", nargs="+", choices=choices, default=list(choices))
    parser.add_argument("--tokens", nargs="+", type=int, default=[24, 128])
    names = ("without", "with")
    parser.add_argument("--lexicons", nargs="+", choices=names, default=list(names))
    databases = ("sqlite", "postgresql")
    parser.add_argument("--databases", nargs="+", choices=databases, default=list(databases))
    parser.add_argument(
        "--host-processes",
        type=int,
        default=host_processes(None, "cuda"),
        help="that read and encode; default: as many as beside a card on this machine",
    )
    parser.add_argument("--items", type=int, default=24576, help="texts; fewer of longer ones")
    parser.add_argument("--pictures", type=int, default=512)
    parser.add_argument("--shard-size", type=int, default=1024)
    parser.add_argument("--batch-tokens", type=int, default=8192, help="positions of a batch")
    parser.add_argument("--model", default=str(SHARED / "models" / "minilm-sst2"))
    parser.add_argument("--data", type=Path, default=SHARED / "text" / "sst2_train.tsv.gz")
    parser.add_argument("--images", type=Path, default=SHARED / "images" / "coco128" / "images")
    lexicon = SHARED / "lexicons" / "entity_groups.json"
    parser.add_argument("--lexicon", type=Path, default=lexicon)
    parser.add_argument("--quick", action="store_true", help="few items: shows only that it runs")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args(words)
    if options.quick:
        options.items, options.pictures, options.shard_size = 96, 8, 32
    return options


if __name__ == "__main__":
    main()
