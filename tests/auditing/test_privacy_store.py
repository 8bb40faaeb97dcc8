"""A store without texts holds no word of them, and the numbers are the same."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import command_line_here
import pytest
from attribution_rows import rows_of_run, write_rows
from chaos_groups import Group, environment, wait_for
from gallery import Audit, run_audit
from secret_texts import KEY, REDACT, SECRET, SECRETS, secret_audit, stored_strings, unpacked
from sqlalchemy import text as sql
from store_samples import make_result
from verified_runs import failed

from orchestrator.dispatch.local import run_here
from orchestrator.plan.import_plan import import_spec, prepare_import
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.analysis.strategies.discover_strategies import discover, gather
from transexplain.auditing.text_redaction import TextGuard, TextKey, Withheld
from transexplain.errors import ConfigurationError, DataSourceError
from transexplain.reports import sql_results
from transexplain.reports.exports.export_run import export
from transexplain.reports.report_formats import render_html
from transexplain.reports.strategies_report import render as strategy_page
from transexplain.reports.strategies_report import strategy_report
from transexplain.reports.summary import summarise
from transexplain.settings import Settings
from transexplain.store import readers, runs
from transexplain.store.revisions import open_database
from transexplain.store.schema import metadata
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, PatchGrid
from transexplain.types.plans import Shard
from transexplain.types.tokens import Tokens


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", KEY)


def run(folder: Path, url: str = "", **keys: Any) -> Audit:
    folder.mkdir(exist_ok=True)
    audit = run_audit(secret_audit(folder, **keys), folder, url=url)
    with audit.open(read_only=False) as db:
        assert sql_results.write(db, audit.id)  # the tables for SQL are searched, too
    return audit


def found(cells: Any) -> set[str]:
    """Which secrets are in these cells."""
    lower = [cell.lower() for cell in cells]
    return {word for word in SECRETS if any(word.encode() in cell for cell in lower)}


def test_the_search_finds_every_secret_of_a_store_of_texts(tmp_path: Path) -> None:
    assert found(stored_strings(run(tmp_path).url)) == set(SECRETS)


@pytest.mark.parametrize(
    "keys",
    [
        {"store_text": "hashed"},
        pytest.param({"store_text": "none"}, marks=pytest.mark.exhaustive),
        pytest.param({"redact": REDACT}, marks=pytest.mark.exhaustive),
    ],
    ids=["hashed", "none", "redact"],
)
def test_no_secret_is_stored_logged_or_reported(tmp_path, keys: dict[str, str], caplog) -> None:
    with caplog.at_level(logging.INFO):
        made = run(tmp_path, **keys)
    assert found(stored_strings(made.url)) == set()
    assert found([caplog.text.encode()]) == set()
    assert KEY.encode() not in b"".join(stored_strings(made.url))
    with open_database(made.url) as db:
        assert found([render_html(summarise(db, made.id)).encode()]) == set()
        kinds = {one.kind for one in readers.iter_items(db, made.id, only_failed=True)}
    assert kinds == {"no-label", "redaction-failed"} if "redact" in keys else {"no-label"}
    assert failed(made.checks()) == []


@pytest.mark.exhaustive
@pytest.mark.postgres
@pytest.mark.parametrize("store_text", ["hashed", "none"])
def test_no_secret_is_in_any_table_of_postgresql(tmp_path, postgres_url: str, store_text: str):
    made = run(tmp_path, postgres_url, store_text=store_text)
    cells = []
    with open_database(made.url) as db, db.read() as connection:
        for table in metadata.sorted_tables:
            for row in connection.execute(sql(f'SELECT * FROM "{table.name}"')):
                cells += [unpacked(cell) for cell in row]
    assert len(cells) > 100
    assert found(cells) == set()
    assert failed(made.checks()) == []


def check_places(made: Audit, stored: list[Attribution]) -> None:
    """Places are numbers of tokens, which say nothing of how long words are."""
    length = {}
    for one in stored:
        assert not isinstance(one.features, PatchGrid)
        assert [token.start for token in one.features] == [*range(len(one.features))]
        assert {token.end - token.start for token in one.features if not token.special} == {1}
        length[one.item_id] = len(one.features)
    with made.open() as db:
        mentions = list(readers.iter_mentions(db, made.id))
    assert mentions and all(0 < one.start < one.end < length[one.item_id] for one in mentions)


@pytest.mark.exhaustive
def test_the_numbers_are_those_of_the_texts(tmp_path: Path) -> None:
    keys = {"targets": ["predicted"]}
    made = {
        mode: run(tmp_path / mode, store_text=mode, **keys) for mode in ("full", "hashed", "none")
    }
    printed, labels = {}, {}
    for mode, one in made.items():
        with open_database(one.url) as db:
            printed[mode] = summarise(db, one.id)
            stored = list(readers.iter_attributions(db, one.id))
            items = readers.iter_items(db, one.id)
            labels[mode] = {each.raw_label for each in items if isinstance(each, ItemOutcome)}
        if mode != "full":
            assert all(each.text is None for each in stored)
            check_places(one, stored)
    assert labels["none"] == {None} and None not in labels["full"]
    assert len(labels["hashed"]) == len(labels["full"]) and not labels["hashed"] & labels["full"]
    full, hashed, none = printed["full"], printed["hashed"], printed["none"]
    unspelled = tuple(replace(one, spellings={}) for one in full.groups.matching)
    for other in (hashed, none):
        assert other.groups == replace(full.groups, matching=unspelled), "spellings are of texts"
        assert (other.conservation, other.confusion) == (full.conservation, full.confusion)
        assert other.gallery.scale == full.gallery.scale
        assert any(
            f"store_text: {'hashed' if other is hashed else 'none'}" in n for n in other.notes
        )
    for before, after in zip(full.classes, hashed.classes, strict=True):
        # which words are function words, and so listed last, is not known of hashed ones
        numbers = sorted(
            (w.mean, w.total, w.mentions, w.documents) for w in before.raising_by_total
        )
        assert numbers
        assert numbers == sorted(
            (w.mean, w.total, w.mentions, w.documents) for w in after.raising_by_total
        )
        assert all(len(w.word) == 12 and int(w.word, 16) >= 0 for w in after.raising_by_total)
    assert not any(view.raising_by_total or view.rare for view in none.classes)
    assert {len(item.text or "") > 0 for item in none.gallery.items} == {True}
    assert set("".join(item.text or "" for item in none.gallery.items)) == {"▮", " "}
    shown = [one for item in none.gallery.items for one in item.explanations]
    assert {one.nodes for one in shown} == {()}, "texts have no nodes"


@pytest.mark.exhaustive
def test_a_hook_blanks_whole_words_and_keeps_places(tmp_path: Path) -> None:
    made = run(tmp_path, redact=REDACT, targets=["predicted"])
    with open_database(made.url) as db:
        items = list(readers.iter_items(db, made.id))
        stored = {one.item_id: one for one in readers.iter_attributions(db, made.id)}
    (failure,) = [one for one in items if isinstance(one, ItemFailure)]
    assert (failure.index, failure.kind) == (7, "redaction-failed")
    assert "ValueError" in failure.message
    before = [
        json.loads(line)["text"] for line in (tmp_path / "texts.jsonl").read_text().splitlines()
    ]
    one: Attribution = stored["0"]
    assert one.text == before[0].replace(SECRET.title(), "█" * len(SECRET))
    assert not isinstance(one.features, PatchGrid)
    blank = [token for token in one.features if "█" in token.text]
    assert blank
    assert all(token.word is None and set(token.text) == {"█"} for token in blank)
    assert not any("█" in word.text for word in one.words())
    assert stored["1"].text == before[1]


@pytest.mark.exhaustive
def test_equal_words_have_equal_hashes_of_this_key_alone(tmp_path, monkeypatch) -> None:
    def words(folder: Path) -> set[str]:
        made = run(folder, store_text="hashed")
        with open_database(made.url) as db:
            return {
                word.text for one in readers.iter_attributions(db, made.id) for word in one.words()
            }

    one, again = words(tmp_path / "one"), words(tmp_path / "again")
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", KEY[::-1])
    other = words(tmp_path / "other")
    assert one == again
    assert len(other) == len(one)
    assert not one & other


# ---- special cases: strategies, evaluations, imports, entities that the data mark


EMPTY = ShardAggregate().to_json()


def settings_of(folder: Path) -> Settings:
    return Settings(
        database_url=f"sqlite:///{folder / 'store.db'}", snapshot_dir=folder / "snapshots"
    )


def many(folder: Path) -> None:
    """Enough items of one class to be clustered: the file three times over."""
    path = folder / "texts.jsonl"
    path.write_text(path.read_text() * 3)


def made(folder: Path, task: str = "audit", **keys: Any) -> Audit:
    """As `run` of the store's tests, of another task or with more items."""
    spec = secret_audit(folder, **keys)
    many(folder)
    return run_audit(spec, folder, task=task)


@pytest.mark.exhaustive
@pytest.mark.parametrize("tokens", [True, False])
def test_where_the_second_text_of_a_pair_begins_is_no_character(tokens: bool) -> None:
    """With scores alone, as an evaluation has them, nothing says where."""
    result = make_result(Shard(index=0, start=0, stop=2))
    pairs = tuple(replace(outcome, second_at=2) for outcome in result.outcomes)
    attributions = tuple(replace(one, second_at=2) for one in result.attributions * tokens)
    whole = replace(result, outcomes=pairs, attributions=attributions, aggregate=EMPTY)
    guard = TextGuard(blind=Withheld(None), marked=frozenset(), name="")
    stored = guard.storable(whole)
    places = {0}
    if tokens:
        known = Tokens.of(attributions[0].features)
        behind = [n for n, token in enumerate(known) if not token.special and token.start >= 2]
        places = {behind[0] if behind else len(known)}
    assert {one.second_at for one in (*stored.outcomes, *stored.attributions)} == places


@pytest.mark.exhaustive
def test_strategies_of_hashed_words_are_made_of_the_same_relevance(tmp_path: Path) -> None:
    secret, samples = TextKey(KEY.encode()), {}
    for mode in ("full", "hashed"):
        (tmp_path / mode).mkdir()
        one = made(tmp_path / mode, store_text=mode, targets=["predicted"])
        with open_database(one.url) as db:
            samples[mode] = gather(readers.iter_attributions(db, one.id))
            page = strategy_page(strategy_report(db, discover(db, one.id)))
    assert found([page.encode()]) == set(), "the last one, of hashes"
    full, hashed = samples["full"], samples["hashed"]
    assert SECRET in full.words
    assert hashed.item_ids == full.item_ids
    places = [hashed.words.index(secret.word(word)) for word in full.words]
    assert len(places) == len(hashed.words)
    assert (hashed.bags[:, places] != full.bags).nnz == 0


@pytest.mark.exhaustive
def test_strategies_without_words_are_refused(tmp_path: Path) -> None:
    one = made(tmp_path, store_text="none", targets=["predicted"])
    with (
        open_database(one.url) as db,
        pytest.raises(ConfigurationError, match=r"store_text: none.*store_text: hashed"),
    ):
        discover(db, one.id)


@pytest.mark.exhaustive
@pytest.mark.parametrize("keys", [{"store_text": "hashed"}, {"store_text": "none"}])
def test_an_evaluation_stores_no_secret(tmp_path: Path, keys: dict[str, str]) -> None:
    evaluation = {
        "methods": ["lrp", "random"],
        "metrics": ["comprehensiveness", "hiding", "token-overlap"],
        "items": 30,
    }
    folder = tmp_path / "full"
    folder.mkdir()
    full = made(folder, "evaluation", evaluation=evaluation, targets=["predicted"])
    assert SECRET in found(stored_strings(full.url)), "the search finds it where texts are stored"
    one = made(tmp_path, "evaluation", evaluation=evaluation, targets=["predicted"], **keys)
    assert found(stored_strings(one.url)) == set()
    assert failed(one.checks()) == []
    with open_database(full.url) as db:
        wanted = [(s.item_id, s.metric, s.value, s.curve) for s in readers.iter_scores(db, full.id)]
    with open_database(one.url) as db:
        scores = list(readers.iter_scores(db, one.id))
    assert [(s.item_id, s.metric, s.value, s.curve) for s in scores] == wanted
    assert any(s.curve for s in scores)


@pytest.mark.exhaustive
def test_rarities_of_hashed_words_name_no_word(tmp_path: Path) -> None:
    reference = tmp_path / "everyday.csv"
    reference.write_text("text\n" + "".join(f"{'the ' * (n < 7)}film good {n}\n" for n in range(9)))
    metric = {"name": "token-overlap", "params": {"reference": str(reference)}}
    evaluation = {"methods": ["lrp"], "metrics": [metric], "items": 30}
    one = made(
        tmp_path, "evaluation", evaluation=evaluation, targets=["predicted"], store_text="hashed"
    )
    assert found(stored_strings(one.url)) == set()
    with open_database(one.url) as db:
        scores = [score.detail for score in readers.iter_scores(db, one.id) if score.detail]
    # of random relevance each draw has its own
    details = [one for detail in scores for one in detail.get("draws", [detail])]
    assert len(details) > len(scores)
    rarities = {value for detail in details for value in detail["rarity"]}
    # exact ones would be ln(9 / n), which tell the words of a known table apart
    assert rarities == {0.0, 2.0}
    assert all(len(d["rarity"]) == len(d["relevance"]) == len(d["words"]) for d in details)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["hashed", "none"])
def test_an_import_stores_no_secret(tmp_path: Path, mode: str) -> None:
    folder = tmp_path / "full"
    full = run(folder, targets=["predicted"])
    rows = [{**row, "label": "good"} for row in rows_of_run(full.url)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    given = {
        "groups.lexicon": str(folder / "groups.json"),
        "store_text": mode,
        "data.meta": ["author"],
    }
    settings = settings_of(tmp_path)
    classes = ("bad", "so-so", "good")
    imported = prepare_import(import_spec(file, given, []), settings, classes=classes)
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, imported.plan, imported.shards)
        run_here(db, run_id, settings)
        assert runs.progress(db, run_id).items_done == len(rows)
        assert found([render_html(summarise(db, run_id)).encode()]) == set()
    assert found(stored_strings(settings.database_url)) == set()
    assert failed(Audit(tmp_path, (run_id,)).checks()) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
@pytest.mark.parametrize(("mode", "redact"), [("hashed", False), ("none", False), ("full", True)])
def test_an_import_of_an_export_without_texts_says_why(
    tmp_path: Path, mode: str, redact: bool, form: str
) -> None:
    one = run(tmp_path / "run", store_text=mode, targets=["predicted"])
    path = tmp_path / f"run.{form}"
    with open_database(one.url) as db:
        export(db, one.id, form, path, redact=redact)
    columns = {"scores": "attributions"}
    with pytest.raises(DataSourceError, match="store_text: hashed"):
        prepare_import(import_spec(str(path), {}, []), settings_of(tmp_path), columns=columns)


def marked_audit(folder: Path) -> Path:
    """The secret audit, whose data name an entity by the secret in every text that holds it.

    So is the author of these texts named.
    """
    path = secret_audit(
        folder,
        data={"source": str(folder / "texts.jsonl"), "spans": "marked", "cluster": "author"},
        groups=None,
        store_text="hashed",
        targets=["predicted"],
    )
    rows = [json.loads(line) for line in (folder / "texts.jsonl").read_text().splitlines()]
    for row in rows:
        start = row["text"].lower().find(SECRET)
        inside = [[start, start + len(SECRET), "people", SECRET]] if start >= 0 else []
        row["author"] = SECRET if inside else "somebody"
        row["marked"] = json.dumps([*inside, [0, 1, "letters", "a letter"]])
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.exhaustive
def test_entities_that_the_data_mark_are_stored_as_hashes(tmp_path: Path) -> None:
    audit = run_audit(marked_audit(tmp_path), tmp_path)
    with audit.open() as db:
        mentions = list(readers.iter_mentions(db, audit.id))
        assert found([render_html(summarise(db, audit.id)).encode()]) == set()
    people = [one for one in mentions if one.group == "people"]
    assert people and {len(one.entity) for one in people} == {12}
    assert len({one.entity for one in people}) == 1
    assert found(stored_strings(audit.url)) == set()
    assert not any(b"a letter" in cell for cell in stored_strings(audit.url))
    assert failed(audit.checks()) == []


@pytest.mark.exhaustive
@pytest.mark.postgres
@pytest.mark.redis
def test_a_worker_logs_no_text_of_an_item_that_fails(
    tmp_path: Path, postgres_url: str, redis_url: str, queue_name: str
) -> None:
    spec = secret_audit(tmp_path, store_text="hashed")
    env = environment(
        tmp_path,
        TRANSEXPLAIN_DATABASE_URL=postgres_url,
        TRANSEXPLAIN_BROKER_URL=redis_url,
        TRANSEXPLAIN_QUEUE=queue_name,
    )
    with open_database(postgres_url, upgrade=True) as db:
        group = Group("a", env, tmp_path)
        try:
            command_line_here.run_here(env, tmp_path, "submit", str(spec))
            wait_for(lambda: runs.get(db, "latest").state != "running", "the run ends", 180)
            assert list(readers.iter_items(db, runs.get(db, "latest").id, only_failed=True))
        finally:
            group.end()
    text = group.log.read_text(encoding="utf-8").lower()
    assert "shard ended: done" in text, "it logs at INFO"
    assert found([text.encode()]) == set()
