"""Breadcrumbs: what is known after attempts that died, quarantine, and dead shards."""

from collections.abc import Mapping
from dataclasses import replace

from store_samples import claimable, claimed, make_result, saved, start

from transexplain.store import ranked_items, readers, results, run_totals, runs, shards
from transexplain.store.browsing_items import failed_page, item_record, troubled_shards
from transexplain.store.columns import Columns
from transexplain.store.database import Database
from transexplain.store.results import _ALIKE, rows_of
from transexplain.store.runs import Claim, ShardStatus
from transexplain.store.shard_digests import digest_of, stored_of
from transexplain.store.shards import after_death, caution_of
from transexplain.types.items import ItemFailure
from transexplain.types.observer import Caution
from transexplain.types.plans import Shard, ShardResult

EXPIRED = -1.0  # seconds: a lease that is over when it begins
ODD = "odd \x00 \udc80"


def die(db: Database, run_id: str, *names: str) -> Claim:
    """Claim the first shard and vanish with these items in hand."""
    claim = claimed(db, run_id, EXPIRED)
    assert shards.note(db, claim, names)
    return claim


def status_of(db: Database, run_id: str) -> ShardStatus:
    return shards.list_shards(db, run_id)[0]


def test_deaths_accuse_and_only_a_trial_convicts() -> None:
    assert after_death(None, (), "x") is None is after_death(None, None, "x"), "outside a batch"
    assert caution_of(None).alone == frozenset()
    known = after_death(None, ["a", "b"], "first")
    assert caution_of(known) == Caution(alone=frozenset("ab"))
    for _ in range(5):
        known = after_death(known, ["a"], "alone")
        assert caution_of(known) == Caution(alone=frozenset("ab"), accused=frozenset("a"))
    known = after_death(known, ["a"], "on trial", convicted=True)
    assert caution_of(known) == Caution(alone=frozenset("b"), quarantined={"a": "on trial"})
    known = after_death(known, ["b", "c"], "another batch")
    assert caution_of(known).alone == {"b", "c"}


def test_a_poisonous_item_is_narrowed_down_and_quarantined(db: Database) -> None:
    run_id = start(db, 4, max_attempts=3)
    die(db, run_id, "id-0", "id-1", ODD, "id-3")
    second = die(db, run_id, ODD)
    assert second.caution.alone == {"id-0", "id-1", ODD, "id-3"}
    assert not second.caution.accused
    third = claimed(db, run_id)
    assert shards.hang(db, third, [ODD], "it died again", convicted=True) == "queued"
    assert third.caution.accused == {ODD}
    fourth = claimed(db, run_id)
    assert fourth.caution.alone == {"id-0", "id-1", "id-3"}
    assert fourth.caution.quarantined == {ODD: "it died again"}
    assert (fourth.attempt, status_of(db, run_id).fruitless) == (4, 0)
    assert status_of(db, run_id).caution == fourth.caution
    results.save(db, fourth, make_result(fourth.shard))
    assert status_of(db, run_id).breadcrumb == ()


def test_whoever_ends_workers_from_outside_convicts_nobody(db: Database) -> None:
    """Repeated kills, each in the same item: the shard is dead, and names it."""
    run_id = start(db, 4, max_attempts=3)
    for _ in range(3):
        assert die(db, run_id, "id-2").caution.quarantined == {}
    assert shards.claim(db, run_id, "w", 60, 0) is None
    status = status_of(db, run_id)
    assert (status.state, status.fruitless) == ("dead", 3)
    assert status.error is not None and "'id-2'" in status.error
    assert runs.get(db, run_id).state == "done", "the claim that buries the last shard closes it"
    assert shards.redrive(db, run_id) == 1
    assert status_of(db, run_id).fruitless == 0
    assert claimed(db, run_id).caution == Caution()


def test_giving_back_a_shard_records_nothing_about_its_items(db: Database) -> None:
    run_id = start(db, 4)
    claim = claimed(db, run_id)
    assert shards.renew(db, claim, 60, ["id-0"])
    assert status_of(db, run_id).breadcrumb == ("id-0",)
    assert shards.renew(db, claim, 60)
    assert status_of(db, run_id).breadcrumb == ("id-0",), "renewing alone leaves it"
    assert shards.give_back(db, claim)
    status = status_of(db, run_id)
    assert (status.breadcrumb, status.fruitless, status.attempt) == ((), 0, 0)


def test_retrying_takes_shards_whose_failures_may_pass(db: Database) -> None:
    for kind, again in (
        ("model-error", 1),
        ("out-of-memory", 1),
        ("quarantined", 1),
        ("empty-text", 0),
    ):
        run_id = start(db, 12)
        for _ in range(3):
            claim = shards.claim(db, run_id, "w", 60)
            failing = frozenset({5}) if claim.shard.index == 1 else frozenset[int]()
            made = make_result(claim.shard, failing=failing, note="old", kind=kind)
            results.save(db, claim, made)
        assert runs.finalise(db, run_id)
        assert shards.redrive(db, run_id) == 0
        assert shards.retry_failed(db, run_id) == again
        assert claimable(db, run_id) == [1] * again
        assert runs.progress(db, run_id).items_done == (8 if again else 11)
        assert len(list(readers.iter_items(db, run_id))) == 12, "the old ones stay until then"
        if again:
            claim = shards.claim(db, run_id, "w", 60)
            assert not runs.finalise(db, run_id)
            results.save(db, claim, make_result(claim.shard, note="new"))
            assert runs.finalise(db, run_id)
            assert not any(isinstance(one, ItemFailure) for one in readers.iter_items(db, run_id))
            notes = [one["note"] for one in run_totals.aggregates(db, run_id)]
            assert notes == ["old", "new", "old"]
    run_id = start(db, 12)
    claim = claimed(db, run_id)
    results.save(db, claim, make_result(claim.shard, failing=frozenset({0}), kind="model-error"))
    runs.cancel(db, run_id)
    assert shards.retry_failed(db, run_id) == 0, "a cancelled run is not retried"
    assert status_of(db, run_id).state == "done"


# ---- where errors were raised: of items, of shards that failed, of items that hung


WHERE = "  transexplain/x.py:1 in f\nValueError"


def failed(count: int, *others: ItemFailure) -> ShardResult:
    alike = [
        ItemFailure(item_id=f"i{n}", index=n, kind="model-error", message="m", traceback=WHERE)
        for n in range(count)
    ]
    shard = Shard(index=0, start=0, stop=count + len(others))
    return replace(
        make_result(shard), outcomes=(), attributions=(), mentions=(), failures=(*alike, *others)
    )


def test_it_comes_back_with_the_item(db: Database) -> None:
    other = ItemFailure(item_id="o", index=2, kind="null", message="n", traceback=ODD)
    run_id = saved(db, failed(2, other))
    wanted = [WHERE, WHERE, ODD]
    assert [one.traceback for one in readers.iter_items(db, run_id, only_failed=True)] == wanted
    assert [one.traceback for one in failed_page(db, run_id, start=0, limit=9)] == wanted
    found = item_record(db, run_id, "o")
    assert isinstance(found, ItemFailure) and found.traceback == ODD
    examples = ranked_items.failure_examples(db, run_id, 5)
    assert [one.traceback for one in examples["model-error"][1]] == [WHERE, WHERE]


def test_equal_ones_are_kept_with_the_first_items() -> None:
    other = ItemFailure(item_id="o", index=9, kind="null", message="n", traceback="elsewhere")
    kept = rows_of("r", failed(9, other))["failure"]["traceback"]
    assert kept[: _ALIKE + 1] == [WHERE] * _ALIKE + [None]
    assert kept[-1] == "elsewhere"


def test_the_digest_of_a_shard_does_not_cover_lines_of_code(db: Database) -> None:
    dialect = db.engine.dialect

    def digest(rows: Mapping[str, Columns]) -> str:
        return digest_of(dialect, stored_of(dialect, rows), {}, ())

    rows = rows_of("r", failed(2))
    moved = ["moved", "moved"]
    other = {**rows, "failure": {**rows["failure"], "traceback": moved}}
    assert digest(rows) == digest(other)
    failure = ItemFailure(item_id="i", index=0, kind="k", message="m")
    assert replace(failure, traceback=WHERE) == failure, "nor is it part of a failure"
    changed = {**rows, "failure": {**rows["failure"], "error": moved}}
    assert digest(rows) != digest(changed)


def test_a_shard_keeps_that_of_its_last_error(db: Database) -> None:
    run_id = start(db, 4, max_attempts=1)
    claim = shards.claim(db, run_id, "w", 60, 0)
    assert shards.fail(db, claim, "ValueError: no", WHERE) == "dead"
    (found,) = troubled_shards(db, run_id, 9)
    assert (found["error"], found["traceback"]) == ("ValueError: no", WHERE)
    assert shards.list_shards(db, run_id)[0].traceback == WHERE


def test_an_item_in_quarantine_keeps_where_it_hung(db: Database) -> None:
    run_id = start(db, 4)
    for where, convicted in (("first", False), (WHERE, True)):
        claim = shards.claim(db, run_id, "w", 60, 0)
        shards.hang(db, claim, ["id-1"], "it hung", where, convicted=convicted)
    (found,) = troubled_shards(db, run_id, 9)
    assert found["quarantined"] == {"id-1": "it hung"} and found["tracebacks"] == {"id-1": WHERE}
    claim = shards.claim(db, run_id, "w", 60, 0)
    assert claim is not None and claim.caution.tracebacks == {"id-1": WHERE}


def test_a_death_without_one_forgets_the_one_before(db: Database) -> None:
    run_id = start(db, 4)
    claim = shards.claim(db, run_id, "w", 60, 0)
    shards.fail(db, claim, "ValueError: no", WHERE)
    shards.claim(db, run_id, "w", -1.0, 0)
    assert shards.claim(db, run_id, "w", 60, 0) is not None
    (found,) = troubled_shards(db, run_id, 9)
    assert "ran out" in str(found["error"]) and found["traceback"] is None
