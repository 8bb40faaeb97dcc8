"""Parts: what is read is what was written."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select, text, update
from store_samples import (
    CLASSES,
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
)

from transexplain.errors import ConfigurationError, DamagedRowError, DatabaseError, ItemError
from transexplain.store import (
    noteworthy,
    part_writing,
    parts,
    results,
    run_totals,
    runs,
    shard_digests,
    shards,
)
from transexplain.store import part_columns as col
from transexplain.store.database import Database
from transexplain.store.noteworthy import explained_rows, recorded_shards
from transexplain.store.part_reading import Part
from transexplain.store.part_summary import summary_of
from transexplain.store.part_writing import part_rows
from transexplain.store.plain_columns import parquet_of
from transexplain.store.plain_reading import part_of
from transexplain.store.readers import iter_pairs
from transexplain.store.revisions import open_database
from transexplain.store.schema import result_part
from transexplain.store.shard_digests import damaged
from transexplain.types.items import Attribution
from transexplain.types.plans import Shard, ShardResult
from transexplain.types.relevance_sums import RelevanceSums
from transexplain.types.scores import MetricScore
from transexplain.types.tokens import Token, Tokens

ODD = "nul \x00 surrogate \udc80 \x10 end \U0001f600"
PLACES = {name: place for place, name in enumerate(CLASSES)}


def read_back(result: ShardResult, payload: Any = "float32") -> list[Part]:
    """The parts of a shard, without a database; those of its Parquet file are the same."""
    rows = part_rows("run", result, payload, PLACES)
    found = [Part((0, row["part"]), row["payload"]) for row in rows]
    again = from_parquet(found)
    for one, other in zip(found, again, strict=True):
        if payload == "float32":  # otherwise relevance is stored in another form
            assert [
                name
                for name in one.batch.schema.names
                if not other.batch[name].equals(one.batch[name])
            ] == []
        assert [a.tobytes() for a in one.explained.relevance()] == [
            a.tobytes() for a in other.explained.relevance()
        ]
    return again


def from_parquet(written: list[Part]) -> list[Part]:
    with pq.ParquetFile(io.BytesIO(parquet_of(written))) as file:
        assert file.num_row_groups == len(written)
        return [part_of(one.key, file.read_row_group(place)) for place, one in enumerate(written)]


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


@pytest.mark.parametrize("payload", ["float16", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_attribution_comes_back(kind: str, payload: Any) -> None:
    one = make_attribution(OUTCOME, **KINDS[kind])
    [part] = read_back(of_item(OUTCOME, one), payload)
    [(place, found)] = part.attributions()
    assert place == 0
    assert part.outcomes == [OUTCOME]
    assert isinstance(found.features, Tokens)
    if payload == "float32":
        assert same(found, replace(one, relevance=one.relevance.astype(np.float32)))
        assert np.signbit(found.relevance).tolist() == np.signbit(one.relevance).tolist()
    assert str(found.logit) == str(one.logit), "the sign of a zero, too"
    assert repr(found.ledger) == repr(one.ledger)
    assert found.ledger == one.ledger


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
        [part] = read_back(of_item(outcome, one))
        [(_, found)] = part.attributions()
        assert found.features == tokens
        assert list(found.features) == list(tokens)
        assert part.outcomes == [outcome]


def test_pairs_come_back_beside_a_text_of_the_same_characters() -> None:
    text = "w0 \x1eAnn\x1ew1"
    places = (None, 3, 4, None, 8)
    outcomes = [make_outcome(n, text=text, second_at=at) for n, at in enumerate(places)]
    given = [make_attribution(one, second_at=one.second_at) for one in outcomes]
    shard = Shard(index=0, start=0, stop=5)
    result = replace(make_result(shard), outcomes=tuple(outcomes), attributions=tuple(given))
    [part] = read_back(replace(result, mentions=()))
    assert part.outcomes == outcomes
    assert [one.second_at for _, one in part.attributions()] == list(places)
    assert [one.texts for one in part.only(np.array([1, 3])).outcomes] == [
        ("w0", "\x1eAnn\x1ew1"),
        (text,),
    ]


def test_pictures_and_texts_of_no_positions_in_one_part() -> None:
    picture, bare, alone = (make_outcome(row, text=None) for row in range(3))
    image = make_image(picture)
    nothing = make_attribution(bare, features=(), relevance=np.zeros(0), text=None)
    shard = Shard(index=0, start=0, stop=3)
    given = replace(
        make_result(shard), outcomes=(alone, picture, bare), attributions=(nothing, image)
    )
    [part] = read_back(replace(given, mentions=()))
    found = [one for _, one in part.attributions()]
    assert same(found[0], image)
    assert found[0].relevance.shape == (2, 3)
    assert (len(found[1].features), found[1].relevance.shape) == (0, (0,))
    assert part.outcomes == [picture, bare, alone]
    assert [one.item_id for _, one in part.only(np.array([1])).attributions()] == ["id-1"]


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
    [part] = read_back(turned)
    place = {one.item_id: number for number, one in enumerate(made.outcomes)}
    for found, written in (
        (part.mentions(), turned.mentions),
        (part.scores(), turned.scores),
    ):
        wanted = sorted(written, key=lambda one: place[one.item_id])
        assert list(found) == [(place[one.item_id], one) for one in wanted]
    wanted = sorted(turned.attributions, key=lambda one: place[one.item_id])
    assert all(map(same, (one for _, one in part.attributions()), wanted))
    assert [one.target for _, one in part.attributions("predicted")] == ["predicted"] * 4


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
        outcome = make_outcome(row, text=words, logits=(number, 0.1))
        tokens = tuple(
            Token(
                text=words[start:end] if plain else words[::-1],
                start=start,
                end=end,
                special=not plain,
                word=end if plain else None,
            )
            for start, end, plain in spans
        )
        relevance = np.linspace(-1.0, 1.0, len(tokens), dtype=np.float32)
        outcomes.append(outcome)
        attributions.append(
            make_attribution(
                outcome, features=tokens, relevance=relevance, logit=number, class_index=0
            )
        )
    shard = Shard(index=0, start=0, stop=len(items))
    made = replace(
        make_result(shard),
        outcomes=tuple(outcomes),
        attributions=tuple(attributions),
        mentions=(),
    )
    [part] = read_back(made)
    assert part.outcomes == outcomes
    assert all(map(same, (one for _, one in part.attributions()), attributions))


@pytest.mark.exhaustive
def test_parts_have_a_limit_of_items_and_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    many = make_result(Shard(index=0, start=0, stop=2500))
    assert [len(part) for part in read_back(many)] == [1024, 1024, 452]
    rows = part_rows("run", many, "float16", PLACES)
    assert [(row["part"], row["first"], row["last"]) for row in rows] == [
        (0, 0, 1023),
        (1, 1024, 2047),
        (2, 2048, 2499),
    ]
    long = tuple(replace(one, text="x" * 1_500_000) for one in many.outcomes[:5])
    shard = Shard(index=0, start=0, stop=5)
    few = replace(make_result(shard), outcomes=long)
    assert [len(part) for part in read_back(few)] == [2, 2, 1]
    monkeypatch.setattr(part_writing, "MOST_BYTES", 10)
    assert [len(part) for part in read_back(few)] == [1] * 5, "an item is never cut"


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
    broken: tuple[dict[str, Any], ...] = (
        {"outcomes": (first, second, replace(third, logits=(nan,)), last)},
        {"mentions": (replace(made.mentions[2], relevance=nan),)},
        {"scores": (score,)},
        {"scores": (curve,)},
    )
    for change in broken:
        with pytest.raises(ItemError, match="item 'id-2'"):
            read_back(replace(made, **change))


def save_all(db: Database, results_: list[ShardResult]) -> str:
    run_id = runs.create(db, make_plan(payload="float16"), [one.shard for one in results_])
    for one in results_:
        claim = shards.claim(db, run_id, "w", 60, one.shard.index)
        results.save(db, claim, one)
    runs.finalise(db, run_id)
    return run_id


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
    attributions = list(results.iter_attributions(db, run_id))
    found: dict[str, Any] = {
        "items": list(results.iter_items(db, run_id)),
        "failed": results.failures(db, run_id),
        "some items": list(results.iter_items(db, run_id, item_ids=ids)),
        "answers": list(results.iter_answers(db, run_id)),
        "relevance": [one.relevance.tobytes() for one in attributions],
        "attributions": [
            [getattr(one, name) for name in Attribution.__dataclass_fields__ if name != "relevance"]
            for one in attributions
        ],
        "of one target": [
            (one.item_id, one.logit)
            for one in results.iter_attributions(db, run_id, item_ids=ids, target="predicted")
        ],
        "explained": list(results.iter_explained(db, run_id, target="predicted")),
        "mentions": list(results.iter_mentions(db, run_id)),
        "some mentions": list(results.iter_mentions(db, run_id, item_ids=ids)),
        "scores": list(results.iter_scores(db, run_id)),
        "pairs": [pair for page in results_pairs(db, run_id, other) for pair in page],
        "accuracy": results.accuracy(db, run_id),
        "lengths": list(run_totals.by_positions(db, run_id)),
        "labels": sorted(run_totals.by_raw_label(db, run_id), key=str),
        "truncated": run_totals.truncated(db, run_id),
        "others": run_totals.other_predictions(db, run_id, other, same_data=False),
        "conservation": results.conservation(db, run_id, 2e-7),
        "relevance sums": results.relevance_sums(db, run_id),
        "points": results.relevance_points(db, run_id, [range(2, 5), range(8, 9), range(50, 60)]),
        "gaps": run_totals.mean_gaps(db, run_id),
        "mean scores": run_totals.mean_scores(db, run_id, "lrp"),
        "items of": [run_totals.items_of(db, run_id, ["places", "x"], most) for most in (2, 99)],
        "strongest": [noteworthy.strongest(db, run_id, count) for count in (0, 1, 4, 99)],
        "wrong": [noteworthy.wrong(db, run_id, count) for count in (0, 2, 99)],
        "first": [noteworthy.first(db, run_id, count) for count in (0, 3, 99)],
        "sizes": [noteworthy.sizes_at(db, run_id, above) for above in (1, 5, 18)],
        "failures": noteworthy.failure_examples(db, run_id, 2),
        "kinds": noteworthy.failure_kinds(db, run_id),
        "explained rows": list(noteworthy.explained_rows(db, run_id)),
        "some rows": list(noteworthy.explained_rows(db, run_id, range(3, 6))),
        "aggregates": list(results.aggregates(db, run_id)),
    }
    return found


def results_pairs(db: Database, before: str, after: str) -> Any:
    from transexplain.store.readers import iter_pairs

    return iter_pairs(db, before, after)


def test_a_run_reads_alike_however_its_items_are_cut_into_parts(db, monkeypatch) -> None:
    made = [varied(shard) for shard in make_shards()]
    other = save_all(db, [make_result(shard) for shard in make_shards()])
    wanted = everything(db, save_all(db, made), other)
    assert wanted["conservation"].above == 6
    assert wanted["strongest"][1] and wanted["wrong"][1] and wanted["mean scores"]
    for most in (1, 2):
        monkeypatch.setattr(part_writing, "MOST_ITEMS", most)
        found = everything(db, save_all(db, made), other)
        for name, value in wanted.items():
            assert value == found[name] or _near(value, found[name]), name


def test_relevance_is_added_up_exactly(db: Database) -> None:
    run_id = save_all(db, [varied(shard) for shard in make_shards()])
    known = [one for one in results.iter_attributions(db, run_id) if one.ledger is not None]
    wanted = RelevanceSums.of(
        [one.logit for one in known], [one.ledger.inputs + one.ledger.special for one in known]
    )
    assert wanted.count > 5 and wanted.correlation is not None
    assert results.relevance_sums(db, run_id) == wanted


def _near(one: Any, other: Any) -> bool:
    """Means are added in another order."""
    if isinstance(one, dict) and one and isinstance(next(iter(one.values())), tuple):
        return one.keys() == other.keys() and all(
            a == pytest.approx(other[key], rel=1e-14) for key, a in one.items()
        )
    if hasattr(one, "sums"):
        return all(
            getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-14)
            if name != "worst_item"
            else one.worst_item == other.worst_item
            for name in one.__dataclass_fields__
        )
    return False


def test_one_id_is_found_in_one_part(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = save_all(db, [make_result(one) for one in make_shards(400, 4)])
    read: list[tuple[int, int]] = []
    original = Part.__init__

    def counted(self: Part, key: tuple[int, int], payload: bytes) -> None:
        read.append(key)
        original(self, key, payload)

    monkeypatch.setattr(Part, "__init__", counted)
    [found] = results.iter_items(db, run_id, item_ids=["id-217"])
    assert found.item_id == "id-217"
    assert read == [(54, 0)]
    many = [f"id-{row}" for row in range(0, 400, 40)]
    assert [one.item_id for one in results.iter_items(db, run_id, item_ids=many)] == many
    assert len(read) == 11
    assert list(results.iter_items(db, run_id, item_ids=["id-400"])) == []
    assert len(read) == 11


def test_ids_of_equal_hashes_are_told_apart(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    same_for_all = lambda ids: np.zeros(len(ids), dtype="<u4")  # noqa: E731
    monkeypatch.setattr("transexplain.store.part_columns.hashes_of", same_for_all)
    run_id = save_all(db, [make_result(one) for one in make_shards()])
    for chosen in (["id-5"], [f"id-{n}" for n in (0, 3, 4, 11)], ["nobody"]):
        wanted = [one for one in chosen if one != "nobody"]
        found = [one.item_id for one in results.iter_items(db, run_id, item_ids=chosen)]
        assert found == wanted
    [page] = results_pairs(db, run_id, run_id)
    assert len(page) == 12


def test_a_run_without_results_has_no_totals(db: Database) -> None:
    run_id = runs.create(db, make_plan(), make_shards())
    assert noteworthy.sizes_at(db, run_id, 1) is None
    assert noteworthy.strongest(db, run_id, 5) == noteworthy.first(db, run_id, 5) == []
    assert results.conservation(db, run_id) is None
    assert run_totals.mean_gaps(db, run_id) == run_totals.mean_scores(db, run_id, "lrp") == {}
    assert run_totals.items_of(db, run_id, ["names"], 5) == []
    assert shard_digests.damaged(db, run_id) == []
    with pytest.raises(ConfigurationError, match="no run 'gone'"):
        results.accuracy(db, "gone")


def test_contrasts_without_ledger_have_sizes(db: Database) -> None:
    outcome = make_outcome(0)
    run_id = save_all(db, [of_item(outcome, make_contrast(outcome))])
    assert noteworthy.sizes_at(db, run_id, 1) == (pytest.approx(0.25, rel=0.01), 0.25)
    assert results.conservation(db, run_id) is None


def test_summaries_are_fetched_once_where_that_is_asked_for(db: Database) -> None:
    first, second = (save_all(db, [make_result(make_shards()[0])]) for _ in range(2))
    asked: list[str] = []

    def noted(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.extend(["summary"] * ("result_part.summary" in statement))

    event.listen(db.engine, "before_cursor_execute", noted)
    with parts.summaries_once():
        for run_id in (first, second):
            assert results.accuracy(db, run_id) == (2, 4)
            assert noteworthy.sizes_at(db, run_id, 8) is not None
    assert len(asked) == 2
    assert results.accuracy(db, first) == (2, 4)
    assert len(asked) == 3


# ---- a damaged part is found, named, left out where that is asked for, and computed again


RESULTS = [make_result(shard) for shard in make_shards()]


def saved(db: Database) -> str:
    run_id = runs.create(db, make_plan(), make_shards())
    for one in RESULTS:
        claim = shards.claim(db, run_id, "w", 60, one.shard.index)
        results.save(db, claim, one)
    assert runs.finalise(db, run_id)
    return run_id


def flip(db: Database, column: str, place: int = -1) -> None:
    """Turn a bit of the middle shard's part."""
    with db.begin() as connection:
        where = result_part.c.shard == 1
        held = connection.execute(select(result_part.c[column]).where(where)).scalar_one()
        data = bytearray(held)
        data[place] ^= 16
        connection.execute(update(result_part).where(where).values({column: bytes(data)}))


def test_any_flipped_byte_of_a_payload_is_found(db: Database) -> None:
    saved(db)
    with db.read() as connection:
        row = connection.execute(select(result_part).limit(1)).one()
    assert len(Part((0, 0), row.payload)) == summary_of(row.summary).attributions / 2
    for name in ("payload", "summary", "ids"):
        data = bytes(getattr(row, name))
        for place in (*range(9), len(data) // 3, len(data) // 2, len(data) - 1):
            broken = bytearray(data)
            broken[place] ^= 1
            with pytest.raises(ValueError, match="those that were"):
                col.unsealed(bytes(broken))
    for data in (b"", b"x", b"\x00" * 4 + b"more"):
        with pytest.raises(ValueError, match=r"not those|not in|nothing|Corrupt|decompress"):
            Part((0, 0), data)


@pytest.mark.parametrize(("place", "what"), [(4, "payload"), (-1, "payload"), (30, "payload")])
def test_a_damaged_payload_is_named_by_every_reader(db: Database, place: int, what: str) -> None:
    run_id = saved(db)
    flip(db, what, place)
    named = rf"run {run_id}: part 0 of shard 1 \(rows 4 to 7\) cannot be read.*resume {run_id}`"
    readers = (
        lambda: list(results.iter_items(db, run_id)),
        lambda: list(results.iter_items(db, run_id, item_ids=["id-5"])),
        lambda: list(results.iter_attributions(db, run_id)),
        lambda: list(results.iter_mentions(db, run_id)),
        lambda: list(results.iter_answers(db, run_id)),
        lambda: list(results.iter_scores(db, run_id)),
        lambda: list(iter_pairs(db, run_id, run_id)),
        lambda: list(explained_rows(db, run_id)),
        lambda: noteworthy.strongest(db, run_id, 99),
        lambda: noteworthy.wrong(db, run_id, 99),
    )
    for read in readers:
        with pytest.raises(DamagedRowError, match=named):
            read()
    with pytest.raises(DamagedRowError, match=named):
        run_totals.items_of(db, run_id, ["names"], 99)
    # what needs nothing of that part does not mind
    assert [one.item_id for one in results.iter_items(db, run_id, item_ids=["id-9"])] == ["id-9"]
    assert results.accuracy(db, run_id) == (6, 12)


@pytest.mark.parametrize("what", ["payload", "summary", "ids"])
def test_who_spares_damaged_parts_loses_their_items_only(db: Database, what: str) -> None:
    run_id = saved(db)
    assert damaged(db, run_id) == []
    flip(db, what)
    [found] = damaged(db, run_id)
    assert (found.index, found.start, found.stop) == (1, 4, 8)
    assert str(found) == "shard 1 (rows 4 to 7): part 0 (rows 4 to 7) is damaged"
    left = {f"id-{row}" for row in (0, 1, 2, 3, 8, 9, 10, 11)}
    with parts.sparing():
        if what == "payload":
            assert {one.item_id for one in results.iter_items(db, run_id)} == left
            assert set(noteworthy.strongest(db, run_id, 99)) == left
        if what == "summary":
            assert results.accuracy(db, run_id) == (4, 8)
        if what == "ids":
            some = results.iter_items(db, run_id, item_ids=["id-9", *(f"id-{n}" for n in range(9))])
            assert {one.item_id for one in some} == left - {"id-10", "id-11"}
    with pytest.raises(DamagedRowError):
        results.accuracy(db, run_id) if what == "summary" else [
            *results.iter_items(db, run_id, item_ids=[f"id-{n}" for n in range(12)])
        ]


def test_a_part_in_an_unknown_layout_is_read_by_nobody(db: Database) -> None:
    run_id = saved(db)
    with db.begin() as connection:
        connection.execute(text("UPDATE result_part SET format = 'arrow-2' WHERE shard = 2"))
    readers = (
        lambda: list(results.iter_items(db, run_id)),
        lambda: list(results.iter_items(db, run_id, item_ids=["id-9"])),
        lambda: results.accuracy(db, run_id),
        lambda: list(parts.hashes(db, run_id)),
    )
    for read in readers:
        with pytest.raises(DatabaseError, match="layout 'arrow-2'"):
            read()
    with parts.sparing():
        assert len(list(results.iter_items(db, run_id))) == 8
        assert results.accuracy(db, run_id) == (4, 8)
    [found] = damaged(db, run_id)
    assert found.index == 2 and "layout 'arrow-2'" in found.what
    assert shards.redrive(db, run_id) == 1


def test_a_shard_with_a_damaged_part_is_done_again_and_whole(db: Database) -> None:
    run_id = saved(db)
    before = {one.index: one.digest for one in recorded_shards(db, run_id)}
    assert shards.redrive(db, run_id) == 0
    flip(db, "payload")
    assert shards.redrive(db, run_id) == 1
    assert runs.get(db, run_id).state == "running"
    claim = shards.claim(db, run_id, "w", 60)
    assert claim is not None and claim.shard.index == 1
    results.save(db, claim, RESULTS[1])
    assert runs.finalise(db, run_id)
    assert damaged(db, run_id) == []
    assert len(list(results.iter_attributions(db, run_id))) == 24
    assert {one.index: one.digest for one in recorded_shards(db, run_id)} == before
    assert shards.retry_failed(db, run_id) == 0


def long_result(shard: Shard) -> ShardResult:
    """A shard of a few megabytes that do not compress."""
    random = np.random.default_rng(shard.index)
    outcomes = [
        make_outcome(row, text=random.bytes(500_000).decode("latin-1")) for row in range(4, 8)
    ]
    made = make_result(shard)
    return ShardResult(
        shard=shard,
        outcomes=tuple(outcomes),
        attributions=tuple(make_attribution(one, text=one.text) for one in outcomes),
        failures=(),
        mentions=(),
        aggregate=made.aggregate,
        seconds=1.0,
    )


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
        found = [one.item_id for one in results.iter_items(db, run_id)]
        assert found == [f"id-{row}" for row in range(4)]
        assert damaged(db, run_id) == []
        one, other, _ = recorded_shards(db, run_id)
        assert (one.state, other.state, other.explained) == ("done", "running", 0)
        with db.engine.connect() as connection:
            connection.execute(text("PRAGMA max_page_count = 1000000"))
        results.save(db, second, long_result(second.shard))
        assert len(list(results.iter_items(db, run_id))) == 8
