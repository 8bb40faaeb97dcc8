"""Special cases without stored texts: strategies, evaluations, imports, marked entities, logs."""

import json
import logging
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attribution_rows import rows_of_run, write_rows
from gallery import Audit, run_audit
from secret_texts import FAILED_SECRET, KEY, REDACT, SECRET, SECRETS, secret_audit, stored_strings
from store_samples import make_result
from test_privacy_store import found, run
from verified_runs import failed

from orchestrator.dispatch.local import run_here
from orchestrator.plan import prepare_audit
from orchestrator.plan.import_plan import import_spec, prepare_import
from orchestrator.spec import load_spec
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.analysis.strategies.discover_strategies import discover, gather
from transexplain.auditing.text_redaction import Nothing, TextGuard, TextKey
from transexplain.errors import ConfigurationError, DataSourceError
from transexplain.reports.exports.export_run import export
from transexplain.reports.report_formats import render_html
from transexplain.reports.strategies_report import render as strategy_page
from transexplain.reports.strategies_report import strategy_report
from transexplain.reports.summary import summarise
from transexplain.settings import Settings
from transexplain.store import readers, runs
from transexplain.store.revisions import open_database
from transexplain.types.plans import Shard
from transexplain.types.tokens import Tokens

EMPTY = ShardAggregate().to_json()

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", KEY)


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


@pytest.mark.parametrize("tokens", [True, False])
def test_where_the_second_text_of_a_pair_begins_is_no_character(tokens: bool) -> None:
    """With scores alone, as an evaluation has them, nothing says where."""
    result = make_result(Shard(index=0, start=0, stop=2))
    pairs = tuple(replace(outcome, second_at=2) for outcome in result.outcomes)
    attributions = tuple(replace(one, second_at=2) for one in result.attributions * tokens)
    whole = replace(result, outcomes=pairs, attributions=attributions, aggregate=EMPTY)
    guard = TextGuard(blind=Nothing(), marked=frozenset(), name="")
    stored = guard.storable(whole)
    places = {0}
    if tokens:
        known = Tokens.of(attributions[0].features)
        behind = [n for n, token in enumerate(known) if not token.special and token.start >= 2]
        places = {behind[0] if behind else len(known)}
    assert {one.second_at for one in (*stored.outcomes, *stored.attributions)} == places


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


def test_strategies_without_words_are_refused(tmp_path: Path) -> None:
    one = made(tmp_path, store_text="none", targets=["predicted"])
    with (
        open_database(one.url) as db,
        pytest.raises(ConfigurationError, match=r"store_text: none.*store_text: hashed"),
    ):
        discover(db, one.id)


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


@pytest.mark.postgres
@pytest.mark.redis
@pytest.mark.parametrize("keys", [{"store_text": "hashed"}, {"redact": REDACT}])
def test_a_worker_logs_no_text_of_an_item_that_fails(
    tmp_path: Path, postgres_url: str, redis_url: str, queue_name: str, keys: dict[str, str]
) -> None:
    spec = secret_audit(tmp_path, **keys)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")]),
        "OMP_NUM_THREADS": "1",
        "TRANSEXPLAIN_SNAPSHOT_DIR": str(tmp_path / "snapshots"),
        "TRANSEXPLAIN_DATABASE_URL": postgres_url,
        "TRANSEXPLAIN_BROKER_URL": redis_url,
        "TRANSEXPLAIN_QUEUE": queue_name,
    }
    command = [sys.executable, "-m", "orchestrator.cli"]
    log = tmp_path / "worker.log"
    with open_database(postgres_url, upgrade=True) as db, log.open("wb") as file:
        worker = subprocess.Popen(
            [*command, "worker", "--threads", "1"], env=env, cwd=tmp_path, stdout=file, stderr=file
        )
        try:
            submit = [*command, "submit", str(spec)]
            subprocess.run(submit, env=env, cwd=tmp_path, check=True, timeout=120)
            deadline = time.monotonic() + 180
            while runs.get(db, "latest").state == "running":
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            failures = readers.iter_items(db, runs.get(db, "latest").id, only_failed=True)
        finally:
            worker.terminate()
            worker.wait(timeout=60)
    text = log.read_text().lower()
    assert "shard ended: done" in text, "it logs at INFO"
    assert failures
    assert not any(word in text for word in SECRETS), text


def test_a_shard_that_breaks_over_a_text_logs_nothing_of_it(tmp_path, monkeypatch, caplog) -> None:
    import transexplain.auditing.explained_shard

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"cannot read {SECRET}")

    settings = settings_of(tmp_path)
    prepared = prepare_audit(load_spec(secret_audit(tmp_path, store_text="none")), settings)
    monkeypatch.setattr(transexplain.auditing.explained_shard, "StagedShard", broken)
    with caplog.at_level(logging.DEBUG), open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        run_here(db, run_id, settings)
        assert runs.progress(db, run_id).items_done == 0
    assert found([caplog.text.encode()]) == set()
    assert found(stored_strings(settings.database_url)) == set()
    assert FAILED_SECRET not in caplog.text
