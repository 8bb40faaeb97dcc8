"""The benchmarks run and their figures are complete; no timing is asserted."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_audit import make_audit

from benchmarks import fleet_results, memory, pipeline_log, services
from transexplain.data.shard_reader import make_shards
from transexplain.engine.composites import COMPOSITES
from transexplain.store import results, runs, shards
from transexplain.store.revisions import open_database

ROOT = Path(__file__).resolve().parents[1]
AIMS = {"lrp": 1.9, "attnlrp": 2.4, "lrp-gamma": 4.0, "chefer-lrp": 6.0}
CAPTUM = {"captum input x gradient", "captum integrated gradients"}
MEASURED = {"forward", "input x gradient", "lrp", "lrp, 5 classes", "lrp, 10 classes"}
FURTHER = {"lrp, each further of 5", "lrp, each further of 10"}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What the quick benchmark prints, and its JSON."""
    figures = tmp_path_factory.mktemp("benchmark") / "figures.json"
    options = ["--quick", "--threads", "1", "--rounds", "2", "--json", str(figures)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.engine", *options],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(figures.read_text(encoding="utf-8"))


@pytest.mark.exhaustive
def test_every_contender_has_a_row_on_every_model(ran: tuple[str, dict[str, Any]]) -> None:
    _, figures = ran
    for model in ("bert-base", "vit-b16"):
        rows = {row["contender"]: row for row in figures["timings"] if row["model"] == model}
        assert set(rows) == MEASURED | FURTHER | set(AIMS) | CAPTUM
        for name in MEASURED | FURTHER | (set(AIMS) & set(COMPOSITES)):
            assert rows[name]["status"] == "measured", rows[name]
            assert rows[name]["rounds"] == 2
            assert rows[name]["ratio_lowest"] <= rows[name]["ratio"] <= rows[name]["ratio_highest"]
        for name in set(AIMS) - set(COMPOSITES):
            assert rows[name]["status"].startswith("not available")
        for name in MEASURED:
            assert rows[name]["seconds"] > 0
            assert math.isclose(rows[name]["items_per_second"], 8 / rows[name]["seconds"])


@pytest.mark.exhaustive
def test_ratios_are_to_the_forward_pass_of_the_same_round(
    ran: tuple[str, dict[str, Any]],
) -> None:
    _, figures = ran
    for row in figures["timings"]:
        if row["contender"] == "forward":
            assert row["ratio_lowest"] == row["ratio"] == row["ratio_highest"] == 1.0


@pytest.mark.exhaustive
def test_aims_stand_beside_the_figures(ran: tuple[str, dict[str, Any]]) -> None:
    _, figures = ran
    expected = AIMS | dict.fromkeys(FURTHER, 0.9)
    for row in figures["timings"]:
        if row["status"] == "measured":
            assert row["aim"] == expected.get(row["contender"])
            assert row["met"] == (None if row["aim"] is None else row["ratio"] <= row["aim"])


@pytest.mark.exhaustive
def test_captum_is_measured_or_the_reason_is_reported(ran: tuple[str, dict[str, Any]]) -> None:
    _, figures = ran
    for row in figures["timings"]:
        if row["contender"] in CAPTUM:
            reported = row["status"]
            assert reported == "measured" or reported.startswith("captum cannot be imported: ")


@pytest.mark.exhaustive
def test_memory_grows_with_length_and_is_measured_in_a_process_of_its_own(
    ran: tuple[str, dict[str, Any]],
) -> None:
    _, figures = ran
    rows = {(row["method"], row["tokens"]): row for row in figures["memory"]}
    assert set(rows) == {(m, t) for m in ("lrp", "input x gradient") for t in (64, 128)}
    for method in ("lrp", "input x gradient"):
        short, long = rows[method, 64], rows[method, 128]
        assert short["status"] == long["status"] == "measured", (short, long)
        assert 0 <= short["bytes"] < long["before"]
        assert short["growth"] is None
    assert set(figures["linear"]) == {"lrp", "input x gradient"}


@pytest.mark.exhaustive
def test_the_table_is_printed_with_its_caveat(ran: tuple[str, dict[str, Any]]) -> None:
    printed, figures = ran
    assert "toy shapes" in printed
    for row in figures["timings"]:
        assert row["contender"] in printed
    assert {"torch", "transformers", "timm", "captum"} == set(figures["environment"]["versions"])


@pytest.mark.exhaustive
def test_the_benchmark_of_the_methods_measures_and_counts() -> None:
    names = ["lrp", "transformer-attribution", "integrated-gradients", "decoded-gradcam"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.methods",
            "--quick",
            "--rounds",
            "1",
            "--methods",
            *names,
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[2:]}
    assert list(rows) == names
    assert "2f 2b" in rows["transformer-attribution"]
    assert rows["transformer-attribution"].split()[-1] == "11"
    assert "not run" in rows["integrated-gradients"]
    assert "not defined" in rows["decoded-gradcam"]


def quick(module: str, *words: str, folder: Path) -> dict[str, Any]:
    """Run a benchmark on a tiny input; its JSON."""
    figures = folder / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *words, "--json", str(figures)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = {"printed": done.stdout}
    found["figures"] = json.loads(figures.read_text(encoding="utf-8"))
    return found


def tiny_data(folder: Path) -> list[str]:
    make_audit(folder, items=48)
    return ["--model", str(folder / "model"), "--data", str(folder / "texts.jsonl")]


@pytest.mark.exhaustive
def test_the_pipeline_is_measured_from_the_first_batch_to_the_last_commit(tmp_path: Path) -> None:
    words = [*tiny_data(tmp_path), "--rows", "48", "--shards", "6", "--repeats", "1"]
    found = quick("pipeline", *words, "--lanes", "bare loop", "local 1", folder=tmp_path)
    (once,) = found["figures"]["rounds"]
    assert set(once) == {"bare loop", "local 1"}
    for name, lane in once.items():
        assert list(lane["items"].values()) == [48], name
        assert lane["rate"] > 0
    one = once["local 1"]
    assert math.isclose(one["rate"], 48 / one["seconds"]), "one worker: both span the same time"
    assert one["start"] > 0
    assert one["load"] > 0
    ratio = found["figures"]["ratios"]["local 1 to bare loop"]
    assert math.isclose(ratio["median"], one["rate"] / once["bare loop"]["rate"])
    assert "local 1 to bare loop" in found["printed"]


@pytest.mark.exhaustive
@pytest.mark.postgres
@pytest.mark.redis
def test_the_pipeline_has_a_lane_on_the_queue(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    words = [*tiny_data(tmp_path), "--rows", "48", "--shards", "6", "--repeats", "1"]
    found = quick("pipeline", *words, "--lanes", "fleet 2", folder=tmp_path)
    (once,) = found["figures"]["rounds"]
    assert sum(once["fleet 2"]["items"].values()) == 48


def test_rates_of_workers_add_up_and_start_at_the_first_batch(tmp_path: Path) -> None:
    times = {"a": (0.0, 5.0, [15.0, 25.0]), "b": (1.0, 8.0, [28.0])}  # claim, batch, commits
    with open_database(f"sqlite:///{tmp_path / 'store.db'}", upgrade=True) as db:
        pipeline_log.prepare_log(db)
        insert = "INSERT INTO benchmark_log VALUES ('run', 0, ?, 100, ?, ?)"
        with db.begin() as connection:
            for worker, (claimed, begun, saved) in times.items():
                rows = [("claimed", claimed), ("begun", begun), *(("saved", at) for at in saved)]
                for event, at in rows:
                    connection.exec_driver_sql(insert, (worker, event, 1000.0 + at))
        found = pipeline_log.measured(db, "run", 990.0)
    assert math.isclose(found.rate, 200 / 20 + 100 / 20)
    assert found.items == {"a": 200, "b": 100}
    assert (found.seconds, found.start, found.load, found.shard_seconds) == (23.0, 11.0, 7.0, 10.0)


def test_a_growing_worker_would_be_seen() -> None:
    flat = memory.summary([(10, 100), (50, 102), (100, 104)], 100, 1.0)
    assert (flat["tenth"], flat["end"], flat["highest"]) == (100, 104, 104)
    assert math.isclose(flat["growth"], 0.04)
    assert "met" in " ".join(memory.reported(flat))
    grown = memory.summary([(9, 50), (10, 100), (50, 120), (90, 130), (100, 0)], 100, 1.0)
    assert math.isclose(grown["growth"], 0.3), "from the tenth on, the last while it lived"
    assert "missed" in " ".join(memory.reported(grown))


@pytest.mark.exhaustive
def test_memory_is_read_from_a_real_worker(tmp_path: Path) -> None:
    words = ["--tiny", "--rows", "120", "--shard-size", "10"]
    figures = quick("memory", *words, folder=tmp_path)["figures"]
    assert figures["samples"]
    assert figures["samples"][-1][0] <= 120
    assert figures["highest"] >= figures["end"] > 2**20


@pytest.mark.exhaustive
@pytest.mark.postgres
@pytest.mark.redis
def test_a_simulated_fleet_does_all_of_its_work(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    words = ["--items", "600", "--shard-size", "20", "--claimers", "3", "--shard-seconds", "0.2"]
    figures = quick("fleet", *words, folder=tmp_path)["figures"]
    assert figures["errors"] == []
    assert figures["committed"] == figures["shards"] == figures["claim"]["count"] == 30
    assert figures["messages"] > 0
    assert 0 <= figures["lost"]["mean"] <= figures["lost"]["worst"] < 1
    assert figures["sizes"]["attribution"] > 600 * 100, "rows were written"
    assert 3 <= figures["connections"] <= 15


@pytest.mark.exhaustive
@pytest.mark.postgres
def test_costs_by_size_are_measured_for_every_state_of_a_run(
    tmp_path: Path, postgres_url: str
) -> None:
    rows = quick("fleet_costs", "--shards", "40", "--repeats", "2", folder=tmp_path)["figures"]
    assert [row["done"] for row in rows] == [0, 20]
    for row in rows:
        assert all(row[name] > 0 for name in ("claim", "finalise", "take", "progress"))


def test_a_missing_server_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(services.MissingServerError, match="no PostgreSQL reachable"),
        services.own_database("postgresql://postgres@127.0.0.1:9/postgres"),
    ):
        pass
    with (
        pytest.raises(services.MissingServerError, match="no Redis reachable"),
        services.own_queue("redis://127.0.0.1:9/0"),
    ):
        pass
    monkeypatch.setenv("PATH", "")
    with pytest.raises(services.MissingServerError, match="initdb"), services.own_postgres(5):
        pass


def test_made_up_results_are_ones_that_the_store_takes(tmp_path: Path) -> None:
    plan, cut = fleet_results.plan_of(250, 100), make_shards(250, 100)
    with open_database(f"sqlite:///{tmp_path / 'store.db'}", upgrade=True) as db:
        run_id = runs.create(db, plan, cut)
        made = fleet_results.MadeUp()
        while claim := shards.claim(db, run_id, "worker", 60.0):
            results.save(db, claim, made.result(claim.shard, 1.0))
        assert runs.finalise(db, run_id)
        state = runs.progress(db, run_id)
        assert (state.state, state.items_done, state.items_failed) == ("done", 250, 0)
