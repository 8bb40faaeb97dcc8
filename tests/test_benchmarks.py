"""The benchmarks run and their figures are complete; no timing is asserted."""

import json
import math
import os
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_audit import make_audit

from benchmarks import (
    attention_only,
    autolrp_architectures,
    corrected_rows,
    fleet_results,
    graphs,
    half_precision,
    memory,
    pipeline_log,
    report_rows,
    services,
    store,
)
from benchmarks.engine_models import Setting
from benchmarks.gpu_sheet import Sheet
from benchmarks.gpu_tasks import tasks_of
from benchmarks.host_stages import REST, STAGES, Stopwatch
from benchmarks.host_stand_in import StandIn
from transexplain.data.shard_reader import make_shards
from transexplain.engine.composites import COMPOSITES, composite
from transexplain.engine.propagate import propagate
from transexplain.store import results, runs, shards
from transexplain.store.part_reading import Part
from transexplain.store.part_summary import summary_of
from transexplain.store.part_writing import part_rows
from transexplain.store.revisions import open_database

ROOT = Path(__file__).resolve().parents[1]
AIMS = {"lrp": 1.9, "attnlrp": 2.4, "lrp-gamma": 4.0, "chefer-lrp": 6.0}
CAPTUM = {"captum input x gradient", "captum integrated gradients"}
AUTOLRP = "autolrp, CP-LRP"
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
        assert set(rows) == MEASURED | FURTHER | set(AIMS) | CAPTUM | {AUTOLRP}
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


@pytest.fixture(scope="module")
def on_card(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], str]:
    """What the benchmark for cards prints on a CPU with toy sizes, its JSON and its Markdown."""
    folder = tmp_path_factory.mktemp("card")
    words = [
        "--quick",
        "--minutes",
        "20",
        "--device",
        "cpu",
        "--markdown",
        str(folder / "figures.md"),
    ]
    found = quick("gpu", *words, folder=folder)
    markdown = (folder / "figures.md").read_text(encoding="utf-8")
    return found["printed"], found["figures"], markdown


@pytest.mark.exhaustive
def test_every_row_for_a_card_is_there_and_finite(
    on_card: tuple[str, dict[str, Any], str],
) -> None:
    _, figures, _ = on_card
    rows = figures["rows"]
    setting = Setting(dtype="float32", quick=True)
    assert {row["part"] for row in rows} == {task.part for task in tasks_of(setting)}
    assert figures["done"] == [task.key for task in tasks_of(setting)]
    for row in rows:
        if row["status"] != "measured":
            assert may_be_left_out(row), row
            continue
        for key in ("ms", "ms_lowest", "per_second", "forwards", "rank_worst", "gap_worst"):
            assert key not in row or 0 < row[key] < math.inf, row
    kinds = {"eager", "traced and captured", "compiled and captured"}
    by_name = {(row["part"], row["row"]): row for row in rows}
    assert all(("BERT-base 256 x 128", f"lrp, {kind}") in by_name for kind in kinds)
    forward = by_name["BERT-base 8 x 128", "forward, traced and captured"]
    own = by_name["BERT-base 8 x 128", "lrp, eager"]
    assert math.isclose(own["forwards"], own["ms"] / forward["ms"])


def may_be_left_out(row: dict[str, Any]) -> bool:
    """What a CPU need not have: other packages, a compiler, the engine's kernels."""
    if row["row"].startswith(("autolrp", "captum")):
        return "cannot be imported" in str(row["status"])
    optional = (
        "dV alone",
        "compiled and captured",
        "dV alone and captured",
        "dynamic graph",
        "symbolic sizes",
    )
    return row["row"].endswith(optional)


@pytest.mark.exhaustive
def test_a_row_that_fails_says_why_and_the_next_goes_on(tmp_path: Path) -> None:
    sheet = Sheet({}, "cpu", tmp_path / "rows.json", tmp_path / "rows.md")

    def broken() -> dict[str, Any]:
        raise RuntimeError("CUDA error: a | in a message\nand a line")

    sheet.row("part", "first", broken)
    sheet.row("part", "second", lambda: {"ms": 1.5, "worst": math.nan})
    sheet.left_out("part", "third")
    sheet.done.append("part: first")
    sheet.write()
    states = [row["status"].partition(":")[0] for row in sheet.rows]
    assert states == ["failed", "measured", "left out"]
    lines = (tmp_path / "rows.md").read_text(encoding="utf-8").splitlines()
    assert [line.count("|") for line in lines if line.startswith("|")] == [4] * 5
    assert "| third |  | left out: no time |" in lines
    again = Sheet({}, "cpu", tmp_path / "rows.json", None)
    again.resume()
    assert [row["row"] for row in again.rows] == ["first", "second", "third"]
    assert again.rows[1]["worst"] is None, "JSON has no NaN"
    assert again.done == ["part: first"]


def test_relevance_that_moved_is_judged_item_by_item() -> None:
    def one(relevance: list[float], logit: float, index: int = 0) -> Any:
        return SimpleNamespace(
            relevance=np.array(relevance), logit=logit, class_index=index, ledger=None
        )

    right = [one([1, 2, 3], 1.0), one([1, 2, 3], -2.0), one([3, 2, 1], 1.0)]
    found = [one([1, 2, 9], 1.1), one([3, 2, 1], -2.0), one([3, 2, 1], 1.0, index=1)]
    judgement = half_precision.judged(right, found)
    assert (judgement["rank_median"], judgement["rank_worst"]) == (0.0, -1.0)
    assert math.isclose(judgement["logit_worst"], 0.1)
    assert (judgement["items"], judgement["other_class"]) == (3, 1)
    assert judgement["gap_worst"] is None


@pytest.mark.exhaustive
def test_half_precision_is_judged_on_a_model_and_its_texts(tmp_path: Path) -> None:
    words = [*tiny_data(tmp_path), "--positions", "16", "--items", "6", "--dtypes", "bfloat16"]
    rows = quick("half_precision", *words, folder=tmp_path)["figures"]
    assert [(row["method"], row["way"]) for row in rows] == [
        (method, way) for method in ("lrp", "attnlrp") for way in ("weights only", "eager")
    ]
    for row in rows:
        assert row["items"] == 6
        assert row["rank_worst"] <= row["rank_median"] <= 1
        assert 0 <= row["gap_median"] <= row["gap_worst"] < 0.1
        assert (row["gap_worst"] < 1e-12) == (row["way"] == "weights only")


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


@pytest.mark.exhaustive
def test_the_cost_of_the_host_is_measured_by_stage(tmp_path: Path) -> None:
    words = [*tiny_data(tmp_path), "--lexicon", str(tmp_path / "groups.json")]
    words += ["--images", str(tmp_path / "none"), "--databases", "sqlite", "--rate", "500"]
    words += ["--host-processes", "0"]  # so that every stage is timed here
    found = quick("host", "--quick", *words, "--tokens", "12", folder=tmp_path)
    rows = {row["case"]: row for row in found["figures"]}
    texts = "texts of 12 tokens"
    pictures = {f"pictures in {one}" for one in ("files", "a tar", "Parquet")}
    assert set(rows) == {f"{texts}, no lexicon", f"{texts}, lexicon", *pictures}
    for name, row in rows.items():
        stages = row["stages"]
        assert set(stages) == {*STAGES, REST} - {"stand-in"}
        idle = set() if name == f"{texts}, lexicon" else {"mentions"}
        assert {one for one, ms in stages.items() if ms == 0} - {REST} == idle
        assert row["rate"] < 500, "the device is no faster"
        assert 0 < row["waited"] < 1
        assert row["bytes"] > 10
        assert row["ms"] > 0
        assert f"{name}, sqlite: " in found["printed"]
    assert all(rows[name]["loop_ms"] > 0 for name in pictures)


def test_the_time_of_a_stage_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 2.0, 5.0, 9.0, 20.0, 21.0, 30.0, 33.0, 40.0, 40.5])
    monkeypatch.setattr(time, "thread_time", lambda: next(clock))
    watch = Stopwatch()

    def inner() -> str:
        return "found"

    def outer() -> str:
        return str(timed())

    timed = watch.around("inner", inner)
    assert watch.around("outer", outer)() == "found"
    assert watch.seconds == {"outer": (2.0 - 1.0) + (9.0 - 5.0), "inner": 5.0 - 2.0}
    assert list(watch.around("steps", lambda: iter("a"))()) == ["a"]
    assert watch.seconds["steps"] == (21.0 - 20.0) + (33.0 - 30.0) + (40.5 - 40.0), "and its end"


def test_a_device_that_stands_in_waits_for_the_rest_of_the_time() -> None:
    device = StandIn()
    device.rate = 100.0
    with device.batch(1):
        time.sleep(0.02)
    with device.batch(1):
        pass
    assert device.items == 2
    assert device.busy >= 0.02
    assert device.waited is not None
    assert 0 < device.waited < 1
    device.rate = None
    assert device.waited is None, "its time is no measure"


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
    assert figures["sizes"]["result_part"] > 600 * 100, "rows were written"
    assert 3 <= figures["connections"] <= 15


@pytest.mark.exhaustive
def test_large_data_are_planned_and_their_shards_made(tmp_path: Path) -> None:
    words = ["--rows", "20000000", "--file-rows", "5000000", "--claims", "4000"]
    (row,) = quick("large_plan", *words, folder=tmp_path)["figures"]
    assert row["shards"] == -(-20_000_000 // 4096)
    assert row["queued"] == row["shards"] - 4000
    assert row["memory"] >= row["memory_before"] > 0
    assert all(row[name] > 0 for name in ("dataset", "labels", "run", "last_item", "claims"))


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


def test_the_store_is_measured_by_parts(tmp_path: Path) -> None:
    options = Namespace(items=6, shards=2, positions=5, rounds=1)
    with open_database(f"sqlite:///{tmp_path / 'store.db'}", upgrade=True) as db:
        assert all(rate > 0 for rate in store.measure(db, options))
        items, size = store.size_of_parts(db)
        assert (items, 100 < size / items < 2000) == (12, True)
        [run] = runs.list_runs(db)
        assert len(list(results.iter_attributions(db, run.id))) == 24


def test_a_part_is_moved_with_its_ids_and_its_summary() -> None:
    corpus = report_rows.Corpus(items=256, entities=40, groups=2)
    made = report_rows.shard_of((corpus, 0))
    [row] = part_rows("run", made, "float16", {})
    moved = report_rows.moved(row, 512, 2)
    assert (moved["shard"], moved["first"], moved["last"]) == (2, 513, 767)
    before, after = Part((0, 0), row["payload"]), Part((2, 0), moved["payload"])
    assert after.rows.tolist() == [one + 512 for one in before.rows.tolist()]
    assert after.ids == [f"row-{one}" for one in after.rows.tolist()]
    assert after.texts == before.texts
    old, new = summary_of(row["summary"]).ledgers, summary_of(moved["summary"]).ledgers
    assert old is not None and new is not None
    assert (new.row, new.item) == (old.row + 512, f"row-{old.row + 512}".encode())


@pytest.mark.shared
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", list(attention_only.SETS))
def test_a_network_of_attention_alone_is_trained_and_explained(
    name: str, shared_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--shared", str(shared_dir / "real"), "--out", str(tmp_path), "--sets", name]
    attention_only.main([*options, "--texts", "256", "--epochs", "1", "--items", "4"])
    printed = capsys.readouterr().out
    assert "  epoch 1: " in printed and "4 texts, explained for their label" in printed
    for method in ("random", *attention_only.METHODS):
        assert f"  {method} " in printed
    assert printed.count("rank correlation with the paper's order") == 2


@pytest.mark.shared
@pytest.mark.exhaustive
def test_corrected_rows_are_measured_and_compared(
    shared_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = str(tmp_path / "kept.npz")
    options = ["--shared", str(shared_dir / "real"), "--texts", "2", "--pictures", "10"]
    corrected_rows.main([*options, "--out", kept])
    first = capsys.readouterr().out
    corrected_rows.main([*options, "--out", kept, "--beside", kept])
    second = capsys.readouterr().out
    assert "2 texts" in first and "10 pictures" in first and "--beside" not in first
    for method in corrected_rows.METHODS:
        assert f"  {method}: AUAC 0." in first
    assert "overlay with alpha 1, of 255: 0.0" in first
    assert second.count("rank correlation with --beside, median 1.00") == 11


@pytest.mark.shared
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["superpixels", "bace"])
def test_graph_transformers_are_trained_explained_and_drawn(
    name: str, shared_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--shared", str(shared_dir / "real"), "--out", str(tmp_path), "--sets", name]
    few = ["--graphs", "200", "--epochs", "1", "--items", "10"]
    graphs.main([*options, *few])
    printed = capsys.readouterr().out
    assert "training on" in printed and "10 test graphs" in printed
    for method in (*graphs.METHODS, "random"):
        assert f"  {method} " in printed
    assert printed.count("rank correlation") == 2
    assert (tmp_path / f"{name}.txt").read_text().strip() in printed
    assert (tmp_path / "graphs" / name / "graphs.parquet").is_file()
    pictures = sorted(path.suffix for path in tmp_path.iterdir() if path.suffix in (".png", ".svg"))
    assert pictures == ([".png"] if name == "superpixels" else [".svg"] * 2 * graphs.SHOWN)
    graphs.main([*options, *few])
    assert "training on" not in capsys.readouterr().out, "the trained model is read again"


@pytest.mark.parametrize(
    ("kept", "leaks", "judged"),
    [(1.0, 0.0, ("yes", "yes", "yes")), (0.5, 0.1, ("yes", "no", "no")), (0.0, 0.0, ("no",) * 3)],
)
def test_a_peer_is_judged(
    monkeypatch: pytest.MonkeyPatch, kept: float, leaks: float, judged: tuple[str, ...]
) -> None:
    """In the place of autoLRP `lrp` itself, of which some is lost, or goes to another item."""

    def peer(model: Any, batch: Any, classes: Any) -> autolrp_architectures.Found:
        items = len(classes)
        passes = propagate(
            lambda taps: model.run(batch, at=model.default_at, taps=taps), composite("lrp"), items
        )
        logits = passes.logits.detach()
        seed = torch.nn.functional.one_hot(torch.tensor(classes), logits.shape[1]) / logits
        relevance = passes.relevance(seed) * kept
        return autolrp_architectures.Found(relevance + leaks * relevance.roll(1, 0), logits)

    monkeypatch.setattr(autolrp_architectures, "by_autolrp", peer)
    row = autolrp_architectures.measured("BERT")
    assert (row.runs, row.conserves, row.batches) == judged
    if kept == 1:
        assert float(row.gap) < 1e-12
    elif kept:
        assert row.why == "relevance of an item depends on the batch"
