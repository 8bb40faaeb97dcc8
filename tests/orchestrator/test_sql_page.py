"""The queries of docs/sql.md on real runs of a schedule, and the role that may read."""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from report_samples import image_run
from sqlalchemy import make_url, text
from tiny_audit import make_audit, texts
from typer.testing import CliRunner

from orchestrator.cli import app
from orchestrator.dispatch import finish
from orchestrator.dispatch.local import run_here
from orchestrator.schedule import tick
from transexplain.errors import ConfigurationError
from transexplain.settings import Settings
from transexplain.store import readers
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schema import metadata
from transexplain.store.upkeep import WITHOUT
from transexplain.types.items import Attribution
from transexplain.types.words import spans_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sql.md"
_QUERY = re.compile(r"^### ([^\n]+\?)\n\n```sql\n(.*?)^```$", re.DOTALL | re.MULTILINE)
QUERIES: dict[str, str] = dict(_QUERY.findall(PAGE.read_text(encoding="utf-8")))
#: what they name -> what the runs below have
NAMED = {"'she' AND relevance < -0.3": "'good' AND relevance <> 0"}
#: within these limits a random model treats everybody alike, where there are items enough
LIMITS = {"logit": 2.0, "probability": 0.5, "changed": 0.9, "spread": 5.0, "rates": 0.6}

Found = dict[str, list[dict[str, Any]]]


def write_texts(folder: Path, count: int, *more: str) -> None:
    rows = [
        {"text": one, "label": ("bad", "so-so", "good")[place % 3]}
        for place, one in enumerate((*texts(count), *more))
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "texts.jsonl").write_text(lines, encoding="utf-8")


def make_runs(db: Database, settings: Settings, folder: Path) -> tuple[str, str, str]:
    """Two runs of one schedule, the second over more texts of which one is empty; one waits."""
    spec = make_audit(
        folder,
        items=16,
        evaluation={"items": 0},
        data={"source": str(folder / "texts.jsonl"), "duplicates": "off"},
        groups={"lexicon": str(folder / "groups.json"), "check": 60, "practical": LIMITS},
    )
    tick.add_schedule(db, settings, name="nightly", spec=spec, cron="0 3 * * *")
    made = []
    for count, more in ((16, ()), (60, ("",))):
        write_texts(folder, count, *more)
        made.append(tick.run_now(db, settings, "nightly"))
        run_here(db, made[-1], settings)
        finish.as_json(db, made[-1])
    return made[0], made[1], tick.run_now(db, settings, "nightly")


def ask(connection: Any, query: str) -> list[dict[str, Any]]:
    for word, other in NAMED.items():
        query = query.replace(word, other)
    return [dict(row) for row in connection.execute(text(query)).mappings()]


@pytest.fixture
def role(postgres_url: str) -> Iterator[str]:
    """A role that may log in and nothing else; dropped afterwards with its rights."""
    name = f"analyst-{make_url(postgres_url).database}"
    with psycopg.connect(plain(postgres_url), autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{name}" LOGIN')
        yield name
        connection.execute(f'DROP OWNED BY "{name}"')
        connection.execute(f'DROP ROLE "{name}"')


def plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")


def settings_of(url: str, folder: Path) -> Settings:
    broker = "redis://127.0.0.1:1/0"  # nothing is sent
    return Settings(database_url=url, snapshot_dir=folder / "snapshots", broker_url=broker)


def test_the_queries_answer_about_runs_of_a_schedule(store_url: str, tmp_path: Path) -> None:
    settings = settings_of(store_url, tmp_path)
    with open_database(store_url, upgrade=True) as db:
        first, second, third = make_runs(db, settings, tmp_path)
        pictures = image_run(db, tmp_path, count=1)
        with db.read() as connection:
            found = {question: ask(connection, query) for question, query in QUERIES.items()}
        drawn = list(readers.iter_attributions(db, pictures))
        stored = list(readers.iter_attributions(db, first))
    assert len(QUERIES) == 15
    assert [question for question, rows in found.items() if not rows] == []
    check_answers(found, first, second, third)
    patches = [row for row in answer(found, "picture") if row["class_name"] == drawn[0].class_name]
    grid = np.zeros((2, 2))
    for row in patches:
        grid[row["grid_row"], row["grid_column"]] = row["relevance"]
    np.testing.assert_array_equal(grid.astype(np.float32), drawn[0].relevance)
    check_tokens(found, first, [one for one in stored if one.target == "predicted"])


def check_tokens(found: Found, run_id: str, stored: list[Attribution]) -> None:
    """The answers about tokens and words, against what the library reads."""
    first = next(one for one in stored if one.item_id == "0")
    tokens = list(zip(first.features, first.relevance, strict=True))
    ours = [row for row in answer(found, "tokens of an item") if row["run_id"] == run_id]
    assert [
        (row["token"], np.float32(row["relevance"]))
        for row in ours
        if row["class_name"] == first.class_name
    ] == [(token.text, relevance) for token, relevance in tokens if not token.special]
    words = [row for row in answer(found, "a word speak") if row["run_id"] == run_id]
    for row in words:
        assert row["word"].lower() == "good"
    assert {row["item_id"] for row in words if row["target"] == "predicted"} == {
        one.item_id
        for one in stored
        if any(word.relevance and word_of(one, word) == "good" for word in spans_of(one)[1])
    }


def word_of(one: Attribution, word: Any) -> str:
    return spans_of(one)[0][word.start : word.end].lower()


def answer(found: Found, words: str) -> list[dict[str, Any]]:
    [rows] = [rows for question, rows in found.items() if words in question]
    return rows


def check_answers(found: Found, first: str, second: str, third: str) -> None:
    means = answer(found, "mean relevance of a group")
    assert {row["run_id"] for row in means} == {first, second}
    [changed] = [row for row in answer(found, "What changed") if row["id"] == second]
    assert (changed["previous"], changed["items"], changed["predicted_otherwise"]) == (first, 16, 0)
    trend = answer(found, "over the runs of a schedule")
    things = [row for row in trend if (row["group_name"], row["target"]) == ("things", "predicted")]
    assert [row["schedule"] for row in things] == ["nightly"] * 2
    assert things[0]["documents"] < things[1]["documents"]
    moved = answer(found, "moved most")
    sizes = [abs(row["mean_after"] - row["mean_before"]) for row in moved]
    assert {row["id"] for row in moved} == {second} and sizes == sorted(sizes, reverse=True)
    [model] = answer(found, "which model")
    assert model["runs"] == 2 and model["model"].endswith("model")
    changed = answer(found, "another verdict")
    assert {row["group_name"] for row in changed} == {"praise", "things"}
    assert {(row["id"], row["outcome_before"], row["outcome"]) for row in changed} == {
        (second, "open", "do not differ")
    }
    assert {row["id"] for row in answer(found, "widest difference")} <= {first, second}
    [lost] = answer(found, "lost items")
    assert (lost["id"], lost["items_failed"], lost["failed_share"]) == (second, 1.0, 1 / 61)
    assert {row["run_id"] for row in answer(found, "Which words")} == {second}
    assert all(row["entities"] < 5 for row in answer(found, "could not be compared"))
    metrics = answer(found, "accuracy, failures")
    assert [r["run_id"] for r in metrics if r["metric"] == "accuracy"] == [first, second]
    [waiting] = answer(found, "not finished")
    assert (waiting["id"], waiting["items"], waiting["items_done"]) == (third, 61, 0)
    assert waiting["shards"] == 8 and waiting["shards_done"] == 0


# ---- the role -------------------------------------------------------------------------------


def call(url: str, *words: str) -> Any:
    return CliRunner().invoke(app, ["db", *words, "--db", url], catch_exceptions=False)


def refused(connection: Any, statement: str) -> bool:
    try:
        with connection.transaction():
            connection.execute(statement)
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False


@pytest.mark.exhaustive
@pytest.mark.postgres
def test_a_role_that_reads_results_asks_and_cannot_write_or_read_texts(
    postgres_url: str, role: str, tmp_path: Path
) -> None:
    with open_database(postgres_url, upgrade=True) as db:
        make_runs(db, settings_of(postgres_url, tmp_path), tmp_path)
    granted = call(postgres_url, "grant-read", role)
    assert granted.output == f"{role} may read results and progress\n"
    with psycopg.connect(plain(postgres_url), user=role) as connection:
        for question, query in QUERIES.items():
            if re.search(r"FROM (word|token)\b", query):
                assert refused(connection, query), question
            else:
                connection.execute(query)
        for table in metadata.tables.values():
            for column in table.c:
                known = column.name not in WITHOUT.get(table, {column.name})
                statement = f'SELECT "{column.name}" FROM "{table.name}" LIMIT 0'
                assert refused(connection, statement) != known, statement
            for statement in (
                f'DELETE FROM "{table.name}"',
                f'TRUNCATE "{table.name}"',
                f'INSERT INTO "{table.name}" DEFAULT VALUES',
                f'DROP TABLE "{table.name}"',
            ):
                assert refused(connection, statement), statement
        assert refused(connection, "UPDATE run SET name = 'x'")


def test_sqlite_has_no_roles(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    call(url, "upgrade")
    with pytest.raises(ConfigurationError, match="mode=ro"):
        call(url, "grant-read", "analyst")
    address = f"file:{tmp_path / 'store.db'}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        assert connection.execute("SELECT count(*) FROM run_metric").fetchall() == [(0,)]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM run")
