"""Rows of items: what is read is what was written."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event, text, update
from store_samples import (
    make_attribution,
    make_contrast,
    make_image,
    make_ledger,
    make_mention,
    make_outcome,
    make_plan,
    make_result,
    make_shards,
    same,
    saved,
)

from transexplain.errors import DamagedRowError, DatabaseError, ItemError
from transexplain.store import (
    blocks,
    ranked_items,
    readers,
    results,
    run_totals,
    runs,
    shard_digests,
    shards,
)
from transexplain.store.blocks import Block
from transexplain.store.columns import Columns, Ragged, taken
from transexplain.store.database import Database
from transexplain.store.readers import iter_pairs
from transexplain.store.results import rows_of
from transexplain.store.revisions import open_database
from transexplain.store.run_totals import summaries_once
from transexplain.store.runs import recorded_shards
from transexplain.store.schema import shard_aggregate
from transexplain.store.shard_digests import damaged
from transexplain.store.sink_files import attributions_of, parquet_of
from transexplain.types.items import Attribution
from transexplain.types.plans import Shard, ShardResult
from transexplain.types.relevance_sums import RelevanceSums
from transexplain.types.scores import MetricScore
from transexplain.types.tokens import Token, Tokens

ODD = "nul \x00 surrogate \udc80 \x10 end \U0001f600"


def read_back(result: ShardResult) -> Block:
    """The items of a shard, from the rows that are written; those of its Parquet file are equal."""
    rows = rows_of("run", result)
    table = pq.read_table(io.BytesIO(parquet_of(rows)))
    again = attributions_of(table)
    for name, column in again.items():
        assert np.array_equal(flat(column), flat(rows["attribution"][name])), name

    def fetch(name: str, idx: Any) -> Columns:
        columns = rows[name]
        return taken(columns, np.flatnonzero(np.isin(columns["idx"], idx)))

    return Block(rows["item"], fetch)


def flat(column: Any) -> Any:
    """A column as an array without NaN, which is NULL."""
    if isinstance(column, Ragged):
        return np.concatenate([column.counts, column.values])
    if isinstance(column, np.ndarray):
        return np.where(np.isnan(column), -1e300, column)
    return np.array(column, dtype=object)


def of_item(outcome: Any, *attributions: Attribution, **changes: Any) -> ShardResult:
    """A result of one row."""
    shard = Shard(index=0, start=int(outcome.index), stop=int(outcome.index) + 1)
    empty = make_result(shard, failing=frozenset({int(outcome.index)}))
    given = {"outcomes": (outcome,), "failures": (), "attributions": attributions}
    return replace(empty, **given, **{"mentions": (), **changes})


OUTCOME = make_outcome(0, text="w0 Ann w1 Zo\u00eb", raw_label="1")
ODD_TOKENS = (
    Token(text="[CLS]", start=0, end=0, special=True),
    Token(text="w0", start=0, end=2, word=0),
    Token(text="ann", start=3, end=6, word=1),
    Token(text="\udc80\x00", start=6, end=6, word=None),
    Token(text="", start=40, end=50, special=True, word=7),
)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no ledger": {"ledger": None},
    "contrast": {"class_index": None, "class_name": "positive-negative", "logit": 0.1 + 0.2},
    "notes": {"notes": ("one", ODD, "")},
    "kinds": {
        "ledger": replace(
            make_ledger(),
            biases_by_kind={"linear": 0.1, "norm": 0.2, ODD: 0.3},
            rules_by_kind={"softmax": -0.1},
            biases=0.6,
            rules=-0.1,
            total=0.1,
        )
    },
    "odd ledger": {
        "ledger": replace(make_ledger(), total=-0.0, gap=5e-324, biases=1e300, special=-0.0)
    },
    "minus zero": {"logit": -0.0, "relevance": np.array([0.0, -0.0, 1e-45, -1e30, 1.0])},
    "zeros": {"relevance": np.zeros(5)},
    "other classes": {"class_index": 99, "rank": 300, "unit": "score", "at": "words"},
    "odd tokens": {"features": ODD_TOKENS},
    "float64": {"relevance": np.random.default_rng(0).normal(size=5)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_attribution_comes_back(kind: str) -> None:
    one = make_attribution(OUTCOME, **KINDS[kind])
    block = read_back(of_item(OUTCOME, one))
    [(place, found)] = block.attributions()
    assert (place, block.outcomes) == (0, [OUTCOME])
    assert isinstance(found.features, Tokens)
    assert same(found, replace(one, relevance=one.relevance.astype(np.float32)))
    assert np.signbit(found.relevance).tolist() == np.signbit(one.relevance).tolist()


@pytest.mark.parametrize("stored", [None, "", "w0 Ann", ODD])
def test_positions_whatever_is_stored_of_the_text(stored: str | None) -> None:
    """Texts that are not stored, hashed words, and tokens that have their text or not."""
    outcome = replace(OUTCOME, text=stored, source="a/b.png", meta={ODD: ODD, "b": ""})
    own = Tokens.of(ODD_TOKENS)
    held = Tokens(
        starts=own.starts,
        ends=own.ends,
        words=own.words,
        special=own.special,
        pieces=own.texts,
        text="w0 Ann w1",
    )
    for tokens in (ODD_TOKENS, own, held, own.spelled(["a3f1", "", "77", ODD, ""])):
        one = make_attribution(outcome, features=tokens, text=stored)
        block = read_back(of_item(outcome, one))
        [(_, found)] = block.attributions()
        assert found.features == tokens
        assert list(found.features) == list(tokens)
        assert block.outcomes == [outcome]


def test_pairs_come_back_beside_a_text_of_the_same_characters() -> None:
    text = "w0 \x1eAnn\x1ew1"
    places = (None, 3, 4, None, 8)
    outcomes = [make_outcome(n, text=text, second_at=at) for n, at in enumerate(places)]
    given = [make_attribution(one, second_at=one.second_at) for one in outcomes]
    whole = make_result(Shard(index=0, start=0, stop=5))
    whole = replace(whole, outcomes=tuple(outcomes), attributions=tuple(given), mentions=())
    block = read_back(whole)
    assert block.outcomes == outcomes
    assert [one.second_at for _, one in block.attributions()] == list(places)
    assert [one.texts for one in block.only(np.array([1, 3])).outcomes] == [
        ("w0", "\x1eAnn\x1ew1"),
        (text,),
    ]


def test_pictures_and_texts_of_no_positions_in_one_part() -> None:
    picture, bare, alone = (make_outcome(row, text=None) for row in range(3))
    image = make_image(picture)
    nothing = make_attribution(bare, features=(), relevance=np.zeros(0), text=None)
    whole = make_result(Shard(index=0, start=0, stop=3))
    rows = {"outcomes": (alone, picture, bare), "attributions": (nothing, image), "mentions": ()}
    block = read_back(replace(whole, **rows))
    found = [one for _, one in block.attributions()]
    assert same(found[0], image) and found[0].relevance.shape == (2, 3)
    assert (len(found[1].features), found[1].relevance.shape) == (0, (0,))
    assert block.outcomes == [picture, bare, alone]
    assert [one.item_id for _, one in block.only(np.array([1])).attributions()] == ["id-1"]


def test_several_targets_mentions_and_scores_keep_their_order() -> None:
    shard = Shard(index=0, start=5, stop=9)
    made = make_result(shard)
    turned = replace(
        made,
        outcomes=made.outcomes[::-1],
        attributions=made.attributions[::-1],
        mentions=tuple(
            replace(one, start=start, surface=surface, relevance=0.1 * start)
            for one in made.mentions[::-1]
            for start, surface in ((3, "Ann"), (0, "no such"), (900, ODD), (4, ""))
        ),
        scores=tuple(
            MetricScore(item_id=one.item_id, method="m", target="t", metric=name, **values)
            for one in made.outcomes[::-1]
            for name, values in SCORES
        ),
    )
    block = read_back(turned)
    place = {one.item_id: number for number, one in enumerate(made.outcomes)}
    for found, written in (
        (block.mentions(), turned.mentions),
        (block.scores(), turned.scores),
    ):
        wanted = sorted(written, key=lambda one: place[one.item_id])
        assert list(found) == [(place[one.item_id], one) for one in wanted]
    wanted = sorted(turned.attributions, key=lambda one: place[one.item_id])
    assert all(map(same, (one for _, one in block.attributions()), wanted))
    assert [one.target for _, one in block.attributions("predicted")] == ["predicted"] * 4


SCORES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("a", {"value": -0.0, "curve": (0.1, 1e-310)}),
    ("b", {"value": None, "reason": ODD}),
    ("c", {"value": 0.1, "detail": {"n": [1, 2.5, None], ODD: {"x": 2**60}}}),
)


@given(
    st.lists(
        st.tuples(
            st.text(max_size=12),
            st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), max_size=6),
            st.floats(allow_nan=False, allow_infinity=False),
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=60)
def test_any_items_come_back(items: list[Any]) -> None:
    outcomes, attributions = [], []
    for row, (words, spans, number) in enumerate(items):
        outcomes.append(make_outcome(row, text=words, logits=(number, 0.1)))
        tokens = tuple(
            Token(text=words[start:end], start=start, end=end, word=end)
            if plain
            else Token(text=words[::-1], start=start, end=end, special=True)
            for start, end, plain in spans
        )
        relevance = np.linspace(-1.0, 1.0, len(tokens), dtype=np.float32)
        columns = {"features": tokens, "relevance": relevance, "logit": number, "class_index": 0}
        attributions.append(make_attribution(outcomes[-1], **columns))
    whole = make_result(Shard(index=0, start=0, stop=len(items)))
    rows = {"outcomes": tuple(outcomes), "attributions": tuple(attributions), "mentions": ()}
    block = read_back(replace(whole, **rows))
    assert block.outcomes == outcomes
    assert all(map(same, (one for _, one in block.attributions()), attributions))


def test_a_result_is_given_once() -> None:
    made = make_result(Shard(index=0, start=0, stop=4), failing=frozenset({1}))
    named = replace(made.failures[0], item_id="id-0")
    for twice, what in (
        ({"outcomes": (*made.outcomes[:2], replace(made.outcomes[2], item_id="id-0"))}, "item id"),
        ({"failures": (named,)}, "item id 'id-0'"),
        ({"attributions": made.attributions * 2}, "attribution"),
    ):
        with pytest.raises(ValueError, match=f"{what}.* unique"):
            read_back(replace(made, **twice))


def test_numbers_that_are_none_name_their_item() -> None:
    made = make_result(Shard(index=0, start=0, stop=4))
    nan = float("nan")
    score = MetricScore(item_id="id-2", method="m", target="t", metric="a", value=nan)
    curve = replace(score, value=1.0, curve=(0.0, nan))
    first, second, third, last = made.outcomes
    infinite = replace(made.attributions[4], relevance=np.full(5, 1e300))
    kinds = replace(make_ledger(), biases_by_kind={"linear": nan})
    broken: tuple[dict[str, Any], ...] = (
        {"attributions": (infinite,)},
        {"attributions": (replace(infinite, relevance=np.full(5, nan)),)},
        {"attributions": (replace(made.attributions[4], ledger=kinds),)},
        {"outcomes": (first, second, replace(third, logits=(nan,)), last)},
        {"mentions": (replace(made.mentions[2], relevance=nan),)},
        {"scores": (score,)},
        {"scores": (curve,)},
    )
    for change in broken:
        with pytest.raises(ItemError, match="item 'id-2'"):
            read_back(replace(made, **change))


def varied(shard: Shard) -> ShardResult:
    """A shard with failures, scores, groups, ledgers, wrong answers and several targets."""
    made = make_result(shard, failing=frozenset({shard.start + 1}))
    outcomes = tuple(
        replace(
            one,
            label=(None, "positive", "negative", "sideways")[one.index % 4],
            raw_label=(None, "1", "x")[one.index % 3],
            positions=5 + one.index % 3,
        )
        for one in made.outcomes
    )
    mentions = [
        make_mention(one, group=group)
        for one in outcomes
        for group in ("names", "names", "places")[: 1 + one.index % 3]
    ]
    scores = [
        MetricScore(
            item_id=one.item_id,
            method="lrp",
            target="predicted",
            metric=("a", "b")[one.index % 2],
            value=None if one.index % 5 == 0 else 0.25 * one.index,
        )
        for one in outcomes
    ]
    return replace(made, outcomes=outcomes, mentions=tuple(mentions), scores=tuple(scores))


def everything(db: Database, run_id: str, other: str) -> dict[str, Any]:
    """What every public reader gives of a run."""
    ids = ["id-9", "id-2", "id-3", "nobody", "id-1"]
    attributions = list(readers.iter_attributions(db, run_id))
    return {
        "items": list(readers.iter_items(db, run_id)),
        "failed": list(readers.iter_items(db, run_id, only_failed=True)),
        "some items": list(readers.iter_items(db, run_id, item_ids=ids)),
        "answers": list(readers.iter_answers(db, run_id)),
        "relevance": [one.relevance.tobytes() for one in attributions],
        "attributions": [
            [getattr(one, name) for name in Attribution.__dataclass_fields__ if name != "relevance"]
            for one in attributions
        ],
        "of one target": [
            (one.item_id, one.logit)
            for one in readers.iter_attributions(db, run_id, item_ids=ids, target="predicted")
        ],
        "explained": list(readers.iter_explained(db, run_id, target="predicted")),
        "mentions": list(readers.iter_mentions(db, run_id)),
        "some mentions": list(readers.iter_mentions(db, run_id, item_ids=ids)),
        "scores": list(readers.iter_scores(db, run_id)),
        "pairs": [pair for page in iter_pairs(db, run_id, other) for pair in page],
        "accuracy": run_totals.accuracy(db, run_id),
        "lengths": list(run_totals.by_positions(db, run_id)),
        "labels": sorted(run_totals.by_raw_label(db, run_id), key=str),
        "truncated": run_totals.truncated(db, run_id),
        "others": run_totals.other_predictions(db, run_id, other, same_data=False),
        "conservation": run_totals.conservation(db, run_id, 2e-7),
        "relevance sums": run_totals.relevance_sums(db, run_id),
        "points": run_totals.relevance_points(
            db, run_id, [range(2, 5), range(8, 9), range(50, 60)]
        ),
        "mean scores": run_totals.mean_scores(db, run_id, "lrp"),
        "items of": [run_totals.items_of(db, run_id, ["places", "x"], most) for most in (2, 99)],
        "strongest": [ranked_items.strongest(db, run_id, count) for count in (0, 1, 4, 99)],
        "wrong": [ranked_items.wrong(db, run_id, count) for count in (0, 2, 99)],
        "first": [ranked_items.first(db, run_id, count) for count in (0, 3, 99)],
        "sizes": [ranked_items.sizes_at(db, run_id, above) for above in (1, 5, 18)],
        "failures": ranked_items.failure_examples(db, run_id, 2),
        "kinds": runs.failures(db, run_id),
        "explained rows": list(readers.explained_rows(db, run_id)),
        "some rows": list(readers.explained_rows(db, run_id, range(3, 6))),
        "aggregates": list(run_totals.aggregates(db, run_id)),
    }


def test_a_run_reads_alike_however_its_items_are_read(db, monkeypatch) -> None:
    other = saved(db, *[make_result(shard) for shard in make_shards()])
    run_id = saved(db, *[varied(shard) for shard in make_shards()])
    expected = everything(db, run_id, other)
    assert expected["conservation"].above == 6
    assert expected["strongest"][1] and expected["wrong"][1] and expected["mean scores"]
    for most in (1, 2, 5):
        monkeypatch.setattr(blocks, "ITEMS", most)
        monkeypatch.setattr(blocks, "_NAMED", most)
        assert everything(db, run_id, other) == expected


def test_relevance_is_added_up_exactly(db: Database) -> None:
    run_id = saved(db, *[varied(shard) for shard in make_shards()])
    known = [one for one in readers.iter_attributions(db, run_id) if one.ledger is not None]
    wanted = RelevanceSums.of(
        [one.logit for one in known], [one.ledger.inputs + one.ledger.special for one in known]
    )
    assert wanted.count > 5 and wanted.correlation is not None
    assert run_totals.relevance_sums(db, run_id) == wanted


def test_a_run_without_results_has_no_totals_and_one_of_contrasts_has_sizes(db: Database) -> None:
    run_id = runs.create(db, make_plan(), make_shards())
    assert ranked_items.sizes_at(db, run_id, 1) is None
    assert ranked_items.strongest(db, run_id, 5) == ranked_items.first(db, run_id, 5) == []
    assert run_totals.conservation(db, run_id) is None
    assert run_totals.mean_scores(db, run_id, "lrp") == {}
    assert run_totals.items_of(db, run_id, ["names"], 5) == []
    assert shard_digests.damaged(db, run_id) == []
    outcome = make_outcome(0)
    run_id = saved(db, of_item(outcome, make_contrast(outcome)))
    assert ranked_items.sizes_at(db, run_id, 1) == (pytest.approx(0.25, rel=0.01), 0.25)
    assert run_totals.conservation(db, run_id) is None


def test_summaries_are_fetched_once_where_that_is_asked_for(db: Database) -> None:
    first, second = (saved(db, make_result(make_shards()[0])) for _ in range(2))
    asked: list[str] = []

    def noted(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.extend(["summary"] * ("shard_aggregate.summary" in statement))

    event.listen(db.engine, "before_cursor_execute", noted)
    with summaries_once():
        for run_id in (first, second):
            assert run_totals.accuracy(db, run_id) == (2, 4)
            assert ranked_items.sizes_at(db, run_id, 8) is not None
    assert len(asked) == 2
    assert run_totals.accuracy(db, first) == (2, 4)
    assert len(asked) == 3


# ---- a damaged part is found, named, left out where that is asked for, and computed again


RESULTS = [make_result(shard) for shard in make_shards()]


DAMAGE = {
    "item": "UPDATE item SET meta = 'no JSON' WHERE shard = 1",
    "attribution": "UPDATE attribution SET pieces = '{' WHERE shard = 1 AND idx = 5",
    "mention": "UPDATE mention SET idx = idx + 90 WHERE shard = 1",
    "score": "DELETE FROM item WHERE idx = 5",
    "length": "UPDATE attribution SET words = starts, starts = '[]' WHERE shard = 1",
}


def damage(db: Database, what: str) -> None:
    statement = DAMAGE[what]
    if db.engine.name == "postgresql":
        statement = statement.replace("'[]'", "'{}'")
    with db.begin() as connection:
        assert connection.execute(text(statement)).rowcount


@pytest.mark.parametrize("what", DAMAGE)
def test_a_changed_row_is_found_and_its_shard_is_done_again(db: Database, what: str) -> None:
    run_id = saved(db, *RESULTS)
    before = {each.index: each.digest for each in recorded_shards(db, run_id)}
    assert damaged(db, run_id) == [] and shards.redrive(db, run_id) == 0
    damage(db, what)
    [found] = damaged(db, run_id)
    assert (found.index, found.start, found.stop) == (1, 4, 8)
    assert shards.redrive(db, run_id) == 1
    assert runs.get(db, run_id).state == "running"
    claim = shards.claim(db, run_id, "w", 60)
    assert claim is not None and claim.shard.index == 1
    with db.begin() as connection:
        connection.execute(text("DELETE FROM mention WHERE idx > 90"))
    results.save(db, claim, RESULTS[1])
    assert runs.finalise(db, run_id)
    assert damaged(db, run_id) == []
    assert len(list(readers.iter_attributions(db, run_id))) == 24
    assert {each.index: each.digest for each in recorded_shards(db, run_id)} == before


@pytest.mark.parametrize("what", ["attribution", "length"])
def test_a_damaged_row_is_named_by_every_reader_or_spared(db: Database, what: str) -> None:
    run_id = saved(db, *RESULTS)
    damage(db, what)
    named = rf"run {run_id}: a row of shard 1 \(rows 4 to 7 .*resume {run_id}`"
    with pytest.raises(DamagedRowError, match=named):
        list(readers.iter_attributions(db, run_id))
    if what == "attribution":
        with pytest.raises(DamagedRowError, match=run_id):
            list(readers.iter_attributions(db, run_id, item_ids=["id-1", "id-5"]))
        with pytest.raises(DamagedRowError, match=named):
            ranked_items.strongest(db, run_id, 99)
    with blocks.sparing():
        kept = {each.item_id for each in readers.iter_attributions(db, run_id)}
        assert kept == {f"id-{row}" for row in (0, 1, 2, 3, 8, 9, 10, 11)}
        assert set(ranked_items.strongest(db, run_id, 99)) == kept
    # what needs nothing of these rows does not mind
    assert len(list(readers.iter_items(db, run_id))) == 12
    assert run_totals.accuracy(db, run_id) == (6, 12)
    with db.begin() as connection:
        where = shard_aggregate.c.shard == 1
        connection.execute(update(shard_aggregate).where(where).values(summary=b"no summary"))
    with pytest.raises(DamagedRowError, match="shard 1"):
        run_totals.accuracy(db, run_id)
    with blocks.sparing():
        assert run_totals.accuracy(db, run_id) == (4, 8)
    assert [each.index for each in damaged(db, run_id)] == [1]


def long_result(shard: Shard) -> ShardResult:
    """A shard of a few megabytes that do not compress."""
    random = np.random.default_rng(shard.index)
    whole = make_result(shard)
    outcomes = tuple(
        replace(one, text=random.bytes(500_000).decode("latin-1")) for one in whole.outcomes
    )
    attributions = tuple(map(make_attribution, outcomes))
    return replace(whole, outcomes=outcomes, attributions=attributions, mentions=())


def test_a_full_disk_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    with open_database(f"sqlite:///{tmp_path / 'store.db'}", upgrade=True) as db:
        run_id = runs.create(db, make_plan(), make_shards())
        first = shards.claim(db, run_id, "w", 600, 0)
        results.save(db, first, RESULTS[0])
        second = shards.claim(db, run_id, "w", 600, 1)
        with db.engine.connect() as connection:  # the pool's only one
            pages = connection.execute(text("PRAGMA page_count")).scalar_one()
            connection.execute(text(f"PRAGMA max_page_count = {pages + 100}"))
        with pytest.raises(DatabaseError, match="full"):
            results.save(db, second, long_result(second.shard))
        found = [one.item_id for one in readers.iter_items(db, run_id)]
        assert found == [f"id-{row}" for row in range(4)]
        assert damaged(db, run_id) == []
        one, other, _ = recorded_shards(db, run_id)
        assert (one.state, other.state, other.explained) == ("done", "running", 0)
        with db.engine.connect() as connection:
            connection.execute(text("PRAGMA max_page_count = 1000000"))
        results.save(db, second, long_result(second.shard))
        assert len(list(readers.iter_items(db, run_id))) == 8
