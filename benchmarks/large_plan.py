"""What planning takes by the number of rows, where data are listed and not copied.

    python -m benchmarks.large_plan [--rows N ...] [--file-rows N] [--claims N] [--postgres]

Synthetic Parquet files (one text and one label, repeated; row groups of 62,500 rows), planned by a
manifest, the run and its first shards written to a database of its own. Each size is planned in a
process of its own, by one thread: seconds of its processor and of the clock, and the most memory
that it had. Then `--claims` shards are claimed one after the other, which makes further blocks.
"""

import argparse
import json
import multiprocessing
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import services
from benchmarks.fleet_results import plan_of
from transexplain.data.shard_reader import items_per_shard, labels_of, make_shards, read_shard
from transexplain.store import runs, shards
from transexplain.store.revisions import open_database

_GROUP = 62_500  #: rows of a row group


def main(words: list[str] | None = None) -> None:
    """Parse, plan, print."""
    options = _parsed(words)
    services.end_cleanly()
    rows = []
    for count in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            files = made(Path(folder), count, min(count, options.file_rows))
            print(f"{count:,} rows in {files:,} files, made in {time.perf_counter() - begun:.0f} s")
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                job = (folder, count, options.claims, options.postgres)
                row = pool.apply(planned, job)
        print(shown(row), flush=True)
        rows.append(row)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


def made(folder: Path, rows: int, file_rows: int) -> int:
    """Write the files: one that is copied, and a shorter one for the rest; how many there are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(path: Path, count: int) -> None:
        some = min(_GROUP, count)
        texts = pa.DictionaryArray.from_arrays(
            pa.array([0] * some, type=pa.int8()), ["a film that is neither good nor bad"]
        )
        labels = pa.array(["negative", "positive"] * (some // 2 + 1))[:some]
        table = pa.table({"text": texts, "label": labels})
        with pq.ParquetWriter(path, table.schema) as writer:
            for start in range(0, count, _GROUP):
                writer.write_table(table[: min(_GROUP, count - start)], row_group_size=_GROUP)

    whole, rest = divmod(rows, file_rows)
    write(folder / "part-000000.parquet", file_rows)
    for number in range(1, whole):
        shutil.copyfile(folder / "part-000000.parquet", folder / f"part-{number:06}.parquet")
    if rest:
        write(folder / f"part-{whole:06}.parquet", rest)
    return whole + bool(rest)


def planned(folder: str, rows: int, claims: int, postgres: bool) -> dict[str, Any]:
    """Plan the files in `folder`; what that took."""
    from transexplain.data.dataset_plan import plan_dataset
    from transexplain.types.plans import DatasetSpec

    with ExitStack() as stack:
        url = f"sqlite:///{folder}/plan.db"
        if postgres:
            url = stack.enter_context(services.own_database(services.POSTGRES))
        db = stack.enter_context(open_database(url, upgrade=True))
        spec = DatasetSpec(source=f"{folder}/part-*.parquet", snapshot="manifest")
        took: dict[str, Any] = {"rows": rows, "memory_before": _memory()}
        timed = _Times(took)
        dataset = timed("dataset", lambda: plan_dataset(spec, Path(folder) / "snapshots"))
        timed("labels", lambda: labels_of(dataset))
        size = items_per_shard("auto", dataset.rows)
        cut = make_shards(dataset.rows, size)
        run_id = timed("run", lambda: runs.create(db, plan_of(dataset.rows, size), cut))
        took |= {"shards": len(cut), "memory": _memory()}
        timed("first_item", lambda: next(iter(read_shard(dataset, cut[0]))))
        timed("last_item", lambda: next(iter(read_shard(dataset, cut[-1]))))
        count = min(claims, len(cut))

        def claim() -> None:
            for _ in range(count):
                assert shards.claim(db, run_id, "benchmark", 3600.0) is not None

        timed("claims", claim)
        took |= {"claimed": count, "queued": runs.progress(db, run_id).states["queued"]}
        return took | {"memory_after": _memory()}


class _Times:
    """Takes the seconds of calls by name: of the clock, and of this process's processor."""

    def __init__(self, took: dict[str, Any]) -> None:
        self._took = took

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        clock, processor = time.perf_counter(), time.process_time()
        found = call()
        self._took[name] = time.perf_counter() - clock
        self._took[f"{name}_processor"] = time.process_time() - processor
        return found


def _memory() -> float:
    """The most that the process had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def shown(row: dict[str, Any]) -> str:
    """A row as it is printed."""
    stages = ("dataset", "labels", "run", "first_item", "last_item", "claims")
    times = ", ".join(f"{one} {row[one]:.2f} ({row[f'{one}_processor']:.2f})" for one in stages)
    return (
        f"{row['rows']:>14,} rows, {row['shards']:,} shards: seconds (of the processor): {times} "
        f"of {row['claimed']:,} shards; memory {row['memory_before']:.0f} MB before, "
        f"{row['memory']:.0f} MB planned, {row['memory_after']:.0f} MB at the end"
    )


def _parsed(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**8, 10**9])
    parser.add_argument("--file-rows", type=int, default=10**6)
    parser.add_argument("--claims", type=int, default=5_000)
    parser.add_argument("--postgres", action="store_true", help="not SQLite")
    parser.add_argument("--json", help="also write the figures to this file")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
