"""A run by actors of a Ray cluster of two nodes, one of which is killed half-way."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from chaos_groups import command, environment, wait_for
from command_line_here import run_here
from tiny_audit import make_audit

from transexplain.store import results, runs, shards
from transexplain.store.database import Database
from transexplain.store.revisions import open_database


def explained(db: Database, run_id: str) -> dict[tuple[str, str, int], list[float]]:
    """Every relevance of a run, by item, target and rank."""
    found = list(results.iter_attributions(db, run_id))
    by_key = {(one.item_id, one.target, one.rank): list(one.relevance) for one in found}
    assert len(by_key) == len(found), "nothing is there twice"
    return by_key


def two_nodes(cluster_class: Any) -> tuple[Any, Any]:
    """A cluster and the second of its nodes; tried again where a node does not start in time."""
    for attempts_left in (2, 1, 0):
        cluster = cluster_class()
        try:
            cluster.add_node(num_cpus=1, include_dashboard=False)
            second = cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes(timeout=120)
            return cluster, second
        except Exception:
            cluster.shutdown()
            if not attempts_left:
                raise
    raise AssertionError("unreachable")


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")  # Ray's own
def test_a_node_that_is_killed_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="needs the extra ray")
    spec = str(make_audit(tmp_path, items=80))
    env = environment(
        tmp_path,
        CHAOS_EVERYWHERE="1",
        CHAOS_SLOWLY="0.5",
        RAY_USAGE_STATS_ENABLED="0",
        RAY_worker_niceness="0",  # by default 15, and beside other tests they hardly get to work
        TRANSEXPLAIN_DATABASE_URL=f"sqlite:///{tmp_path / 'store.db'}",
    )
    for name, value in env.items():  # nodes and their workers have it from here
        monkeypatch.setenv(name, value)
    cluster, second = two_nodes(cluster_utils.Cluster)
    try:
        with open_database(env["TRANSEXPLAIN_DATABASE_URL"], upgrade=True) as db:
            run_with_a_kill(db, cluster, second, spec, env, tmp_path)
    finally:
        cluster.shutdown()
    run_here({**env, "CHAOS_SLOWLY": "0"}, tmp_path, "run", spec)
    with open_database(env["TRANSEXPLAIN_DATABASE_URL"]) as db:
        local, by_ray = (explained(db, one.id) for one in runs.list_runs(db))
    assert local.keys() == by_ray.keys()
    for key, relevance in local.items():
        assert relevance == pytest.approx(by_ray[key], rel=1e-5, abs=1e-5)


def run_with_a_kill(
    db: Database, cluster: object, second: object, spec: str, env: dict[str, str], folder: Path
) -> None:
    """Run the audit on the cluster; kill the second node when both have saved a shard."""
    words = ("run", spec, "--executor", "ray", "--address", cluster.address)  # type: ignore[attr-defined]
    driver = subprocess.Popen(command(*words), env=env, cwd=folder)
    try:

        def by_both() -> bool:
            assert driver.poll() is None, "it ended before a node was killed"
            listed = [shards.list_shards(db, one.id) for one in runs.list_runs(db)]
            saved = {one.worker for found in listed for one in found if one.state == "done"}
            held = {one.worker for found in listed for one in found if one.state == "running"}
            return len(saved) == 2 and len(held) == 2

        wait_for(by_both, "both nodes at work", 600)
        cluster.remove_node(second, allow_graceful=False)  # type: ignore[attr-defined]
        assert driver.wait(timeout=300) == 0
    finally:
        driver.kill()
        driver.wait()
    (run,) = runs.list_runs(db)
    listed = shards.list_shards(db, run.id)
    assert run.state == "done" and {one.state for one in listed} == {"done"}
    assert any(one.attempt > 1 for one in listed), "what the killed node held was done again"


def test_without_a_cluster_it_says_how_to_get_one(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    env = environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=f"sqlite:///{tmp_path / 'store.db'}")
    said = run_here(env, tmp_path, "run", "--model", "m", "--executor", "ray", code=2)
    assert "needs --address: `auto` on a machine of the cluster" in said
