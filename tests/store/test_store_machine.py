"""Several workers do anything in any order; the store must agree with a plain Python model."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import update
from store_samples import make_result, start

from transexplain.errors import FencedError
from transexplain.store import readers, results, run_totals, runs, shards
from transexplain.store.database import Database
from transexplain.store.runs import Claim
from transexplain.store.schema import shard

SHARDS, SIZE, ATTEMPTS = 3, 2, 2
LONG = 1000.0
POSITIONS = st.integers(0, SHARDS - 1)
CLAIMS = st.integers(0, 30)


@dataclass
class Expected:
    """One shard as it should be."""

    state: str = "queued"
    token: int = 0
    attempt: int = 0
    fruitless: int = 0
    expired: bool = False
    crumb: tuple[str, ...] = ()
    deaths: dict[str, int] = field(default_factory=dict)
    quarantined: set[str] = field(default_factory=set)
    note: str | None = None  #: of the result that is stored

    def ends_with(self, crumb: tuple[str, ...], *, convicted: bool = False) -> None:
        """An attempt ended without a result."""
        for name in crumb:
            self.deaths[name] = self.deaths.get(name, 0) + (len(crumb) == 1)
        self.quarantined |= set(crumb) if convicted else set()
        self.fruitless = 0 if convicted else self.fruitless + 1

    def anew(self) -> None:
        """Queued again as if new; the token stays."""
        self.state, self.attempt, self.fruitless = "queued", 0, 0
        self.crumb, self.deaths, self.quarantined = (), {}, set()


class Fleet(RuleBasedStateMachine):
    """Workers that claim, renew, die, save, fail and come too late; and a user who meddles."""

    db: Database  #: set by the test

    def __init__(self) -> None:
        super().__init__()
        self.run_id = start(self.db, SHARDS * SIZE, SIZE, max_attempts=ATTEMPTS)
        self.expected = [Expected() for _ in range(SHARDS)]
        self.state = "running"
        self.claims: list[Claim] = []

    # --- workers

    @rule(index=POSITIONS)
    def claim(self, index: int) -> None:
        one = self.expected[index]
        got = shards.claim(self.db, self.run_id, "w", LONG, index)
        free = one.state == "queued" or (one.state == "running" and one.expired)
        if self.state != "running" or not free:
            assert got is None
            return
        if one.state == "running":
            one.ends_with(one.crumb)
        if one.fruitless >= ATTEMPTS:
            assert got is None
            one.state, one.crumb = "dead", ()
            self.close()  # the claim that buries the last shard closes the run
            return
        one.state, one.expired, one.crumb = "running", False, ()
        one.token, one.attempt = one.token + 1, one.attempt + 1
        assert (got.token, got.attempt) == (one.token, one.attempt)
        assert set(got.caution.quarantined) == one.quarantined
        assert got.caution.alone == set(one.deaths) - one.quarantined
        accused = {name for name, times in one.deaths.items() if times} - one.quarantined
        assert got.caution.accused == accused
        self.claims.append(got)

    @rule(which=CLAIMS)
    def renew(self, which: int) -> None:
        if (claim := self.pick(which)) is None:
            return
        assert shards.renew(self.db, claim, LONG) == self.holds(claim)
        if self.holds(claim):
            self.of(claim).expired = False

    @rule(which=CLAIMS, names=st.sets(st.sampled_from("ab"), max_size=2))
    def note(self, which: int, names: set[str]) -> None:
        if (claim := self.pick(which)) is None:
            return
        self.note_of(claim, tuple(sorted(names)))

    @rule(index=POSITIONS)
    def lease_runs_out(self, index: int) -> None:
        one = self.expected[index]
        if one.state == "running":
            one.expired = True
            self.set_lease(index, 0.0)

    @rule(index=POSITIONS, crumb=st.sampled_from([(), ("a",), ("a", "b")]))
    def worker_dies(self, index: int, crumb: tuple[str, ...]) -> None:
        self.claim(index)
        if self.expected[index].state == "running":
            self.note_of(self.claims[-1], crumb)
            self.lease_runs_out(index)

    @rule(which=CLAIMS)
    def save(self, which: int) -> None:
        if (claim := self.pick(which)) is None:
            return
        note = f"{claim.shard.index}/{claim.token}"
        result = make_result(claim.shard, note=note)
        if not self.holds(claim):
            with pytest.raises(FencedError):
                results.save(self.db, claim, result)
            return
        results.save(self.db, claim, result)
        one = self.of(claim)
        one.state, one.note, one.crumb = "done", note, ()

    @rule(which=CLAIMS, crumb=st.sampled_from([None, (), ("a",), ("a", "b")]), sure=st.booleans())
    def fail_or_hang(self, which: int, crumb: tuple[str, ...] | None, sure: bool) -> None:
        if (claim := self.pick(which)) is None:
            return
        held, one = self.holds(claim), self.of(claim)
        convicted = sure and crumb == ("a",)
        if crumb is None:
            ended = shards.fail(self.db, claim, "error")
        else:
            ended = shards.hang(self.db, claim, crumb, "hung", convicted=convicted)
        if not held:
            assert ended is None
            return
        one.ends_with(crumb or (), convicted=convicted)
        one.state, one.crumb = "dead" if one.fruitless >= ATTEMPTS else "queued", ()
        assert ended == one.state
        if one.state == "dead":
            self.close()

    @rule(which=CLAIMS)
    def give_back(self, which: int) -> None:
        if (claim := self.pick(which)) is None:
            return
        held, one = self.holds(claim), self.of(claim)
        assert shards.give_back(self.db, claim) == held
        if held:
            one.state, one.attempt, one.crumb = "queued", one.attempt - 1, ()

    @rule()
    def finalise(self) -> None:
        closes = self.state == "running" and self.is_over()
        assert runs.finalise(self.db, self.run_id) == closes
        self.close()

    # --- the user

    @rule(sure=st.integers(0, 5))
    def cancel(self, sure: int) -> None:
        if sure:
            return  # seldom: little happens afterwards
        assert runs.cancel(self.db, self.run_id) == (self.state == "running")
        if self.state == "running":
            self.state = "cancelled"
            for one in self.expected:
                if one.state in ("queued", "running"):
                    one.state = "cancelled"

    @rule()
    def redrive(self) -> None:
        dead = [one for one in self.expected if one.state == "dead"]
        if self.state == "cancelled":
            dead = []
        assert shards.redrive(self.db, self.run_id) == len(dead)
        for one in dead:
            one.anew()
        if dead:
            self.state = "running"

    # --- what holds at any time

    @invariant()
    def store_and_model_agree(self) -> None:
        found = shards.list_shards(self.db, self.run_id)
        for one, status in zip(self.expected, found, strict=True):
            assert (status.state, status.attempt) == (one.state, one.attempt)
            assert (status.fruitless, status.breadcrumb) == (one.fruitless, one.crumb)
        assert runs.claims(self.db, self.run_id) == sum(one.token for one in self.expected)
        assert runs.get(self.db, self.run_id).state == self.state

    @invariant()
    def every_row_is_there_once_from_the_last_saved_claim(self) -> None:
        notes = [one.note for one in self.expected if one.note is not None]
        assert [one["note"] for one in run_totals.aggregates(self.db, self.run_id)] == notes
        rows = [
            f"id-{index * SIZE + row}"
            for index, one in enumerate(self.expected)
            for row in range(SIZE)
            if one.note is not None
        ]
        assert [one.item_id for one in readers.iter_items(self.db, self.run_id)] == rows
        assert len(list(readers.iter_attributions(self.db, self.run_id))) == 2 * len(rows)

    def teardown(self) -> None:
        """Whatever happened: a few honest workers bring the run to its end, once."""
        for index, one in enumerate(self.expected):
            if one.state == "running":
                self.set_lease(index, 0.0)
        while (claim := shards.claim(self.db, self.run_id, "honest", LONG)) is not None:
            results.save(self.db, claim, make_result(claim.shard, note="end"))
        closed = [runs.finalise(self.db, self.run_id) for _ in range(2)]
        assert closed[1] is False
        ended = runs.get(self.db, self.run_id)
        assert ended.state == ("cancelled" if self.state == "cancelled" else "done")
        assert ended.shards["queued"] + ended.shards["running"] == 0

    # --- helpers

    def pick(self, which: int) -> Claim | None:
        return self.claims[-1 - which % len(self.claims)] if self.claims else None

    def note_of(self, claim: Claim, crumb: tuple[str, ...]) -> None:
        assert shards.note(self.db, claim, crumb) == self.holds(claim)
        if self.holds(claim):
            self.of(claim).crumb = crumb

    def of(self, claim: Claim) -> Expected:
        return self.expected[claim.shard.index]

    def holds(self, claim: Claim) -> bool:
        one = self.of(claim)
        return one.state == "running" and one.token == claim.token

    def is_over(self) -> bool:
        return all(one.state in ("done", "dead") for one in self.expected)

    def close(self) -> None:
        if self.state == "running" and self.is_over():
            self.state = "done"

    def set_lease(self, index: int, until: float) -> None:
        with self.db.begin() as connection:
            connection.execute(
                update(shard)
                .where(shard.c.run_id == self.run_id, shard.c.index == index)
                .values(lease_until=until)
            )


def test_invariants_hold_for_any_order_of_events(db: Database) -> None:
    machine = type("FleetHere", (Fleet,), {"db": db})
    examples = settings.default.max_examples // 2
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=20)
    )
