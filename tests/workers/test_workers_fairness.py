"""Two runs on a real broker with a real worker: the second is not behind the first's messages."""

from pathlib import Path

import pytest
from celery_fleets import CeleryFleet, celery_fleet
from chaos_groups import wait_for
from command_line_here import run_here

from transexplain.store import queueing, runs


def claim_order(fleet: CeleryFleet, first: str, second: str) -> int:
    """Shards of the first run that were done when the second one ended."""
    counts: list[int] = []

    def over() -> bool:
        ended = runs.progress(fleet.db, second).state == "done"
        counts.append(runs.progress(fleet.db, first).states["done"])
        return ended

    wait_for(over, "the end of the second run")
    return counts[-1]


@pytest.mark.exhaustive
def test_a_run_that_comes_later_ends_long_before_a_large_one(
    tmp_path: Path, redis_url: str
) -> None:
    with celery_fleet(redis_url, tmp_path) as fleet:
        large = fleet.submit("large", items=240, shard_size=1)
        small = fleet.submit("small", items=6, shard_size=1)
        with fleet.worker():
            done = claim_order(fleet, large, small)
            run_here(fleet.env, tmp_path, "pause", large)
        state = runs.progress(fleet.db, large)
        assert done <= 40, "messages of the large run served the small one"
        assert state.paused
        assert state.states["running"] == 0, "what was in hand is finished"
        assert state.states["queued"] > 0


@pytest.mark.exhaustive
def test_a_run_below_its_cap_goes_on_without_a_sweep(tmp_path: Path, redis_url: str) -> None:
    """Messages that came while the cap was reached are gone; the end of a shard sends another."""
    with celery_fleet(redis_url, tmp_path) as fleet:
        run_id = fleet.submit("capped", items=8, shard_size=1, queue={"most_workers": 1})
        with fleet.worker():
            wait_for(lambda: runs.progress(fleet.db, run_id).state == "done", "the end")
        assert queueing.change(fleet.db, run_id) is None
