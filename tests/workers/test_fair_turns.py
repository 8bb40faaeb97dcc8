"""Whose turn it is: quotas by share, priorities, caps, and models that are loaded."""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from store_samples import make_plan, make_result, make_shards

from transexplain.store import queueing, results, runs, shards
from transexplain.store.database import Database
from transexplain.store.queueing import Contender
from transexplain.store.revisions import open_database
from transexplain.types.plans import AuditPlan, QueuePlace
from workers.fair_turns import FairTurns, lacks


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path / 'store.db'}", upgrade=True) as database:
        yield database


def start(db: Database, count: int, name: str = "a", **place: object) -> str:
    plan = make_plan(rows=count, name=name)
    return runs.create(db, plan, make_shards(count, 1), place=QueuePlace(**place))  # type: ignore[arg-type]


class Pool:
    """Workers in virtual time: each takes what `FairTurns` says, by real claims."""

    def __init__(self, db: Database, workers: int, seconds: Mapping[str, float]) -> None:
        self.db, self.seconds = db, seconds
        self.turns = [FairTurns() for _ in range(workers)]
        self.busy: Counter[str] = Counter()  #: seconds of workers
        self.done: Counter[str] = Counter()
        self.ends: list[tuple[float, int, str]] = []  #: when, worker, run
        self.order: list[str] = []  #: runs of the shards in the order of their claims
        self.most: Counter[str] = Counter()  #: shards in hand at once

    def work(self, hinted: str, *, until: float = 1e9) -> None:
        """Every message names `hinted`, as those of a large run that was submitted first do."""
        held = {}
        idle = list(range(len(self.turns)))
        now = 0.0
        while True:
            for worker in tuple(idle):
                order = self.turns[worker].order(self.db, f"w{worker}", hinted, 0)
                if order == [(hinted, 0)]:
                    order = [(hinted, None)]  # messages of the sweep name free shards
                for run_id, index in order:
                    claim = shards.claim(self.db, run_id, f"w{worker}", 1e6, index)
                    if claim is not None:
                        held[worker] = claim
                        self.order.append(claim.run_id)
                        self.busy[claim.run_id] += self.seconds[claim.run_id]
                        end = now + self.seconds[claim.run_id]
                        heapq.heappush(self.ends, (end, worker, claim.run_id))
                        in_hand = Counter(one.run_id for one in held.values())
                        self.most |= in_hand
                        idle.remove(worker)
                        break
            if not self.ends or self.ends[0][0] > until:
                return
            now, worker, run_id = heapq.heappop(self.ends)
            idle.append(worker)
            claim = held.pop(worker)
            results.save(self.db, claim, make_result(claim.shard))
            runs.finalise(self.db, run_id)
            self.done[run_id] += 1


def contender(name: str, others: int, share: float = 1.0) -> Contender:
    return Contender(run_id=name, place=QueuePlace(share=share), others=others)


def test_quotas_are_by_share() -> None:
    found = lacks([contender("a", 4, share=3.0), contender("b", 3, share=1.0)])
    assert found == {"a": 2.0}
    assert lacks([contender("a", 0, share=3.0), contender("b", 0)]) == {"a": 0.75, "b": 0.25}


def test_a_run_that_comes_later_is_not_behind_the_messages_of_the_first(db: Database) -> None:
    first, second = start(db, 100), start(db, 5)
    pool = Pool(db, 1, {first: 1.0, second: 1.0})
    pool.work(first, until=14.5)
    assert pool.done[second] == 5
    assert pool.done[first] <= 9


@pytest.mark.exhaustive
def test_a_slow_tenant_and_a_fast_one_have_half_of_the_workers_each(db: Database) -> None:
    slow, fast = start(db, 40), start(db, 200)
    pool = Pool(db, 4, {slow: 40.0, fast: 2.0})
    pool.work(fast, until=160.0)
    in_time = sum(pool.done[run_id] * pool.seconds[run_id] for run_id in (slow, fast))
    assert 0.45 < pool.done[fast] * 2.0 / in_time < 0.55


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [1, 4])
def test_workers_are_divided_by_share(db: Database, workers: int) -> None:
    three, one = start(db, 100, share=3.0), start(db, 100)
    pool = Pool(db, workers, {three: 1.0, one: 1.0})
    pool.work(one, until=80.5 / workers)
    assert 2.5 < pool.done[three] / pool.done[one] < 3.5


def test_a_higher_priority_is_served_first_and_a_lower_one_fills_what_its_cap_leaves(
    db: Database,
) -> None:
    low, high = start(db, 30), start(db, 6, priority=5, most_workers=1)
    pool = Pool(db, 3, {low: 1.0, high: 1.0})
    pool.work(low)
    assert pool.done == {low: 30, high: 6}
    assert pool.most[high] == 1
    assert [name for name in pool.order if name == high] == [high] * 6
    assert pool.order.index(high) < 3
    last = max(place for place, name in enumerate(pool.order) if name == high)
    assert last < 20


def test_a_paused_run_is_passed_over_and_its_message_serves_another(db: Database) -> None:
    paused, other = start(db, 3), start(db, 2)
    queueing.pause(db, paused)
    pool = Pool(db, 1, {paused: 1.0, other: 1.0})
    pool.work(paused)
    assert pool.done == {other: 2}


def test_a_loaded_model_is_kept_for_a_while_and_not_for_ever(db: Database) -> None:
    first, second = start(db, 40, "loaded"), start(db, 40, "other")
    turns = FairTurns(loaded=lambda plan: plan.name == "loaded")
    chosen = [turns.order(db, "w", first, 0)[0][0] for _ in range(30)]
    assert chosen[:4] == [first] * 4
    assert 4 <= chosen.count(second) <= 15
    runs_of_second = "".join("s" if one == second else "f" for one in chosen)
    assert "fffffffff" not in runs_of_second


def test_runs_that_this_worker_cannot_serve_are_not_tried(db: Database) -> None:
    mine, foreign = start(db, 2, "mine"), start(db, 2, "foreign", priority=9)

    def serves(plan: AuditPlan) -> bool:
        return plan.name == "mine"

    turns = FairTurns(serves=serves)
    assert turns.order(db, "w", mine, 1) == [(mine, 1), (mine, None)]
    assert turns.order(db, "w", foreign, 1) == [(mine, None)]


def test_with_one_run_a_message_names_its_shard_and_no_other(db: Database) -> None:
    only = start(db, 3)
    assert FairTurns().order(db, "w", only, 2) == [(only, 2)]
    assert FairTurns().order(db, "w", "gone", 2) == [("gone", 2)]
