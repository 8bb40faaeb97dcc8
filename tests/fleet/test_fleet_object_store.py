"""Two workers that share no folder, with everything in an object store: a local run's numbers."""

import json
import logging
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from chaos_groups import command, environment, wait_for
from command_line_here import run_here
from faulty_s3 import BUCKET, FaultyS3

from transexplain.files.remote_files import under, write
from transexplain.store import readers, runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database

log = logging.getLogger(__name__)
FOLDER = f"s3://{BUCKET}/t"


def local_pictures(shared: Path, folder: Path) -> dict[str, str]:
    """A hundred pictures, ten of each class, and a model for them."""
    real = shared / "real"
    with zipfile.ZipFile(real / "images" / "cifar10_jpg.zip") as archive:
        names = [one for one in archive.namelist() if one.endswith(".jpg")]
        classes = sorted({name.split("/")[1] for name in names})
        chosen = [
            name
            for one in classes
            for name in sorted(n for n in names if n.startswith(f"test/{one}/"))[:10]
        ]
        archive.extractall(folder, chosen)
    data = f"imagefolder:{folder / 'test'}"
    return {"model": str(real / "models" / "vit-cifar10"), "data": data}


def at_store(place: str) -> str:
    """The URL at which a file or folder lies after it was copied there."""
    prefix, colon, path = place.rpartition(":")
    source = Path(path)
    for one in [source] if source.is_file() else sorted(source.rglob("*")):
        if one.is_file():
            write(f"{FOLDER}/{source.name}/{one.relative_to(source).as_posix()}".rstrip("/."), one)
    return f"{prefix}{colon}{FOLDER}/{source.name}"


@contextmanager
def workers(folder: Path, env: dict[str, str], count: int = 2) -> Iterator[None]:
    """Workers, each with a folder and a cache of its own, that end when nothing waits."""
    started = []
    for number in range(count):
        here = folder / f"machine-{number}"
        here.mkdir()
        own = {**env, "TRANSEXPLAIN_CACHE_DIR": str(here / "cache"), "HOME": str(here)}
        with (here / "log").open("wb") as log:
            words = command("worker", "--device", "cpu", "--threads", "1")
            started.append(subprocess.Popen(words, env=own, cwd=here, stdout=log, stderr=log))
    try:
        yield
    finally:
        for one in started:
            one.terminate()
        assert [one.wait(60) for one in started] == [0] * count


@pytest.mark.shared
@pytest.mark.exhaustive
def test_two_workers_without_a_shared_folder(
    s3: FaultyS3,
    shared_dir: Path,
    tmp_path: Path,
    postgres_url: str,
    redis_url: str,
    queue_name: str,
) -> None:
    named = local_pictures(shared_dir, tmp_path)
    extra = {"evaluation": {"items": 0}, "shard_size": 25, "batch_tokens": 2048}
    env = environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=f"sqlite:///{tmp_path / 'local.db'}")
    spec = tmp_path / "local.yaml"
    spec.write_text(json.dumps({**named, **extra}), encoding="utf-8")
    run_here(env, tmp_path, "run", str(spec), "--quiet")
    remote = {name: at_store(place) for name, place in named.items()}
    url = write(f"{FOLDER}/remote.yaml", json.dumps({**remote, **extra}).encode()).url
    (tmp_path / "planner").mkdir()
    env |= {
        "TRANSEXPLAIN_DATABASE_URL": postgres_url,
        "TRANSEXPLAIN_BROKER_URL": redis_url,
        "TRANSEXPLAIN_QUEUE": queue_name,
        "TRANSEXPLAIN_SNAPSHOT_DIR": f"{FOLDER}/snapshots",
        "TRANSEXPLAIN_CACHE_DIR": str(tmp_path / "planner"),
    }
    with open_database(postgres_url, upgrade=True) as db:
        run_here(env, tmp_path, "submit", url)
        before, run_id = len(s3.bodies), runs.get(db, "latest").id
        with workers(tmp_path, env):
            wait_for(lambda: runs.get(db, run_id).state == "done", "the run's end", 500)
        check_reads(s3, before)
        done = shards.list_shards(db, run_id)
        assert {one.state for one in done} == {"done"}
        with open_database(env_of(tmp_path)) as local:
            compare(local, db, run_id)
    run_here(env, tmp_path, "report", "--out", f"{FOLDER}/reports")
    assert len(under(f"{FOLDER}/reports")) == 3


def env_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'local.db'}"


def check_reads(s3: FaultyS3, before: int) -> None:
    """The workers read each piece and picture once and no other byte of data, models apart."""
    read = [(path, size) for path, size in s3.bodies[before:] if "/snapshots/" in path]
    pieces = sum(one.size for one in under(f"{FOLDER}/snapshots"))
    pictures = sum(one.size for one in under(f"{FOLDER}/test"))
    shown = [(path, size) for path, size in s3.bodies[before:] if "/t/test/" in path]
    share = (sum(size for _, size in (*read, *shown))) / (pieces + pictures)
    log.info(f"read {share:.3f} of the bytes of all shards")
    assert share <= 1.05
    others = {path.split("/")[2] for path, _ in s3.bodies[before:]}
    assert others <= {"t"}


def compare(local: Database, remote: Database, run_id: str) -> None:
    """The same items, each once, with the same relevance."""
    pairs = [
        {(one.item_id, one.target, one.class_name): one for one in rows}
        for rows in (
            list(readers.iter_attributions(local, runs.get(local, "latest").id)),
            list(readers.iter_attributions(remote, run_id)),
        )
    ]
    assert pairs[0].keys() == pairs[1].keys()
    far = max(
        float(np.abs(np.subtract(one.relevance, pairs[1][key].relevance)).max())
        for key, one in pairs[0].items()
    )
    logits = max(abs(one.logit - pairs[1][key].logit) for key, one in pairs[0].items())
    log.info(f"{len(pairs[0]):,} attributions; differences up to {far:.3g}, of logits {logits:.3g}")
    assert far == 0 and logits == 0
    ids = ((local, runs.get(local, "latest").id), (remote, run_id))
    counts = [runs.progress(*one) for one in ids]
    assert counts[0].items_done == counts[1].items_done == len({key[0] for key in pairs[0]})
