"""A store without texts holds no word of them, and the numbers are the same."""

import json
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from everyday import only
from gallery import Audit, run_audit
from secret_texts import KEY, REDACT, SECRET, SECRETS, secret_audit, stored_strings, unpacked
from sqlalchemy import text as sql
from verified_runs import failed

from transexplain.reports import sql_results
from transexplain.reports.report_formats import render_html
from transexplain.reports.summary import summarise
from transexplain.store import readers
from transexplain.store.revisions import open_database
from transexplain.store.schema import metadata
from transexplain.types.items import Attribution, ItemFailure, ItemOutcome, PatchGrid


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
def test_what_the_data_calls_a_label_is_stored_as_its_metadata_are(tmp_path: Path) -> None:
    raw = {}
    for store_text in ("full", "hashed", "none"):
        made = run(tmp_path / store_text, store_text=store_text)
        with open_database(made.url) as db:
            items = list(readers.iter_items(db, made.id))
            raw[store_text] = {one.raw_label for one in items if isinstance(one, ItemOutcome)}
    assert raw["none"] == {None} and None not in raw["full"]
    assert len(raw["hashed"]) == len(raw["full"]) and not raw["hashed"] & raw["full"]


@pytest.mark.exhaustive
def test_the_tables_for_sql_hold_the_words_that_the_run_stored(tmp_path: Path) -> None:
    words, entities = {}, {}
    for store_text in ("full", "hashed", "none"):
        made = run(tmp_path / store_text, store_text=store_text)
        with open_database(made.url) as db, db.read() as connection:
            words[store_text] = set(
                connection.execute(sql("SELECT word FROM class_word")).scalars()
            )
            query = sql("SELECT entity, mentions FROM entity_result ORDER BY ordinal")
            entities[store_text] = [tuple(row) for row in connection.execute(query)]
    assert words["full"] and words["none"] == set()
    assert len(words["hashed"]) > 3 and not words["hashed"] & words["full"]
    assert all(re.fullmatch("[0-9a-f]{12}", word) for word in words["hashed"])
    assert entities["full"] and entities["full"] == entities["hashed"] == entities["none"], (
        "names of a lexicon stay"
    )


@pytest.mark.exhaustive
@pytest.mark.postgres
@pytest.mark.parametrize("store_text", only("hashed", of=["hashed", "none"]))
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
    printed = {}
    for mode, one in made.items():
        with open_database(one.url) as db:
            printed[mode] = summarise(db, one.id)
            stored = list(readers.iter_attributions(db, one.id))
        if mode != "full":
            assert all(each.text is None for each in stored)
            check_places(one, stored)
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
