"""The tick over real audits: one run per fire, missed ones once, no schedule blocks another."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update
from tiny_audit import make_audit
from typer.testing import CliRunner, Result

from orchestrator.cli.command_line import app
from orchestrator.dispatch.local import run_local
from orchestrator.schedule import tick as adding
from orchestrator.schedule import tick as ticking
from orchestrator.schedule.tick import tick
from transexplain.errors import ConfigurationError, DataSourceError
from transexplain.settings import Settings
from transexplain.store import runs, schedules
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schedules import Receiver, Schedule
from transexplain.store.schema import schedule

SMALL = {"evaluation": {"items": 0}}


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.exhaustive]),
    ]
)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    return Settings(
        database_url=url,
        snapshot_dir=tmp_path / "snapshots",
        broker_url="redis://127.0.0.1:1/0",  # the tick needs none
    )


@pytest.fixture
def db(settings: Settings) -> Iterator[Database]:
    with open_database(settings.database_url, upgrade=True) as database:
        yield database


def make(
    db: Database, settings: Settings, folder: Path, name: str = "often", **keys: object
) -> Schedule:
    spec = make_audit(folder, items=16, **SMALL)
    return adding.add_schedule(db, settings, name=name, spec=spec, cron="* * * * *", **keys)  # type: ignore[arg-type]


def let_pass(db: Database, seconds: float) -> None:
    """As if nobody had ticked for so long."""
    with db.begin() as connection:
        connection.execute(update(schedule).values(since=schedule.c.since - seconds))


def made(db: Database) -> list[str]:
    return [one.id for one in runs.list_runs(db)]


@pytest.mark.exhaustive
def test_missed_fires_are_caught_up_once(
    db: Database, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(db, settings, tmp_path)
    let_pass(db, 3600)
    now = schedules.now(db)
    monkeypatch.setattr(schedules, "now", lambda _: now)
    fired = tick(db, settings)
    assert [one.run_id for one in fired] == made(db)
    assert len(fired) == 1
    (fire,) = schedules.fires(db, "often")
    assert fire.at == now // 60 * 60, "the latest one"
    assert tick(db, settings) == []
    monkeypatch.setattr(schedules, "now", lambda _: now + 60)
    assert [one.run_id for one in tick(db, settings)] == made(db)[:1]


def test_ticks_at_once_make_one_run(
    db: Database, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(db, settings, tmp_path)
    let_pass(db, 3600)
    now = schedules.now(db)
    monkeypatch.setattr(schedules, "now", lambda _: now)
    with ThreadPoolExecutor(3) as pool:
        fired = [
            one for ticked in pool.map(lambda _: tick(db, settings), range(3)) for one in ticked
        ]
    assert [one.run_id for one in fired] == made(db)
    assert len(fired) == 1
    assert runs.progress(db, made(db)[0]).states["queued"] == 2


def test_on_change_fires_when_model_or_data_are_others(
    db: Database, settings: Settings, tmp_path: Path
) -> None:
    make(db, settings, tmp_path, on_change=True)
    let_pass(db, 3600)
    assert [one.run_id is not None for one in tick(db, settings)] == [True], "the first always"
    let_pass(db, 3600)
    with db.begin() as connection:  # the fire was made an hour ago, too
        connection.exec_driver_sql("UPDATE schedule_fire SET at = at - 3600")
    (same,) = tick(db, settings)
    assert (same.run_id, same.error) == (None, None)
    assert schedules.fires(db, "often")[0].run_id is None, "the skipped fire is on record"
    with (tmp_path / "texts.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"text": "a nice film", "label": "good"}) + "\n")
    let_pass(db, 3600)
    with db.begin() as connection:
        connection.exec_driver_sql("UPDATE schedule_fire SET at = at - 7200")
    (changed,) = tick(db, settings)
    assert changed.run_id is not None
    newest = schedules.fires(db, "often")[0]
    assert newest.previous == made(db)[1]
    assert runs.get(db, changed.run_id).plan.dataset.rows == 17


def test_one_that_cannot_be_prepared_blocks_no_other(
    db: Database, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "good"):
        (tmp_path / name).mkdir()
        make(db, settings, tmp_path / name, name)
    let_pass(db, 3600)
    (tmp_path / "gone" / "texts.jsonl").rename(tmp_path / "elsewhere.jsonl")
    fired = {one.schedule: one for one in tick(db, settings)}
    assert fired["good"].run_id
    assert "texts.jsonl" in (fired["gone"].error or "")
    assert "texts.jsonl" in (schedules.get(db, "gone").error or "")
    assert schedules.fires(db, "gone") == []
    assert "gone" not in [one.schedule for one in tick(db, settings)], "not again at once"
    (tmp_path / "elsewhere.jsonl").rename(tmp_path / "gone" / "texts.jsonl")
    with db.begin() as connection:
        connection.execute(update(schedule).values(retry_at=schedule.c.retry_at - ticking.RETRY))
    assert "gone" in [one.schedule for one in tick(db, settings) if one.run_id], "caught up later"
    assert schedules.get(db, "gone").error is None


def test_a_wrong_schedule_is_refused_when_it_is_added(
    db: Database, settings: Settings, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="letters, digits"):
        make(db, settings, tmp_path, "../x")
    with pytest.raises(ConfigurationError, match="user and password"):
        make(
            db,
            settings,
            tmp_path,
            receivers=[Receiver(kind="json", address="https://me:secret@x.example/hook")],
        )
    with pytest.raises(ConfigurationError, match=r"no http:// or https://"):
        make(
            db, settings, tmp_path, receivers=[Receiver(kind="slack", address="file:///etc/passwd")]
        )
    with pytest.raises(ConfigurationError, match=r"TRANSEXPLAIN_WEBHOOK_ALLOW=10\.0\.0\.7"):
        make(db, settings, tmp_path, receivers=[Receiver(kind="teams", address="http://10.0.0.7/")])
    with pytest.raises(ConfigurationError, match="name@host"):
        make(db, settings, tmp_path, receivers=[Receiver(kind="email", address="a@b.org, c@d.org")])
    with pytest.raises(DataSourceError):
        make(db, settings, tmp_path, overrides=("data.source=none.csv",))
    assert schedules.list_schedules(db) == []


@pytest.mark.exhaustive
def test_paths_hold_from_every_folder(
    db: Database, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    spec = make_audit(
        folder, items=16, model="model", data="texts.jsonl", groups="groups.json", **SMALL
    )
    monkeypatch.chdir(folder)
    settings = replace(settings, snapshot_dir=tmp_path / "snapshots")
    adding.add_schedule(db, settings, name="x", spec=spec, cron="* * * * *")
    monkeypatch.chdir("/")
    run_id = ticking.run_now(db, settings, "x")
    run_local(db, run_id, settings)
    assert runs.get(db, run_id).state == "done"


def printed(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(words), catch_exceptions=True)
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def added(*words: str) -> list[tuple[str, str]]:
    """Kinds and addresses of the receivers that the options of `schedule add` name."""
    given: list[Receiver] = []

    def keep(*_: object, receivers: Sequence[Receiver], **__: object) -> None:
        given.extend(receivers)
        raise ConfigurationError("that is all")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adding, "add_schedule", keep)
        start = ("schedule", "add", "n", "a.yaml", "--cron", "* * * * *")
        done = CliRunner().invoke(app, [*start, *words])
    assert "that is all" in str(done.exception), done.output
    return [(one.kind, one.address) for one in given]


def test_receivers_by_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", f"sqlite:///{tmp_path / 'store.db'}")
    a, b = ("--webhook", "https://a/"), ("--webhook", "https://b/")
    slack, teams = ("--webhook-format", "slack"), ("--webhook-format", "teams")
    mail = ("--email", "ann@b.example", "--email", "bob@b.example")
    mailed = [("email", "ann@b.example"), ("email", "bob@b.example")]
    assert added() == []
    assert added(*mail) == mailed
    assert added(*a, *b) == [("json", "https://a/"), ("json", "https://b/")]
    assert added(*a, *b, *slack) == [("slack", "https://a/"), ("slack", "https://b/")]
    assert added(*a, *slack, *mail, *b, *teams) == [
        ("slack", "https://a/"),
        ("teams", "https://b/"),
        *mailed,
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--webhook-format slack", "1 --webhook-format for 0 --webhook"),
        ("--webhook https://a/ --webhook-format xml", "'xml' is none of json, slack, teams"),
        ("--webhook https://a/ --webhook-format json --webhook-format json", "2 --webhook-format"),
    ],
)
def test_formats_that_fit_no_webhook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, reason: str
) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", f"sqlite:///{tmp_path / 'store.db'}")
    start = ("schedule", "add", "n", "a.yaml", "--cron", "* * * * *")
    done = CliRunner().invoke(app, [*start, *words.split()])
    assert isinstance(done.exception, ConfigurationError)
    assert reason in str(done.exception)


@pytest.mark.exhaustive
def test_the_verbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", f"sqlite:///{tmp_path / 'store.db'}")
    monkeypatch.setenv("TRANSEXPLAIN_SNAPSHOT_DIR", str(tmp_path / "snapshots"))
    monkeypatch.setenv("TRANSEXPLAIN_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("TRANSEXPLAIN_WEBHOOK_ALLOW", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    spec = str(make_audit(tmp_path, items=16, **SMALL))
    night = ("--cron", "0 3 * * *", "--time-zone", "Europe/Berlin")
    hook = ("--webhook", "http://127.0.0.1:1/very-secret")
    assert "Europe/Berlin" in printed("schedule", "add", "nightly", spec, *night, *hook).stdout
    assert "run " in printed("schedule", "run-now", "nightly", "--work").stdout
    assert list((tmp_path / "audits").glob("tiny-*.html")), "worked off here, with its report"
    assert printed("schedule", "tick", "--work").stdout == "", "nothing is due"
    (document,) = json.loads(printed("schedule", "list", "--json").stdout)
    assert document["state"] == "active"
    assert document["webhook"] == "http://127.0.0.1:1"
    assert document["next"] > document["since"]
    assert document["fires"][0]["post"] == "waiting"
    _change_receivers()
    assert "paused" in printed("schedule", "pause", "nightly").stdout
    listed = printed("schedule", "list").stdout
    assert "paused" in listed
    assert "secret" not in listed
    assert "resumed" in printed("schedule", "resume", "nightly").stdout
    assert "removed" in printed("schedule", "remove", "nightly").stdout
    assert printed("schedule", "list").stdout.startswith("no schedules yet")


def _change_receivers() -> None:
    """Those of `nightly`, which has one whose verdict waits."""
    words = ("schedule", "receivers", "nightly")
    assert printed(*words).stdout == "receiver 1: json, http://127.0.0.1:1\n"
    slack = ("--webhook", "http://127.0.0.1:2/hush", "--webhook-format", "slack")
    more = printed(*words, *slack, "--email", "ann@b.example").stdout
    assert more.splitlines()[1:] == [
        "receiver 2: slack, http://127.0.0.1:2",
        "receiver 3: email, ann@b.example",
    ]
    changed = printed(*words, "--remove", "1", "--remove", "2", "--json")
    assert json.loads(changed.stdout) == [{"number": 3, "kind": "email", "to": "ann@b.example"}]
    assert "1 verdict that waited is dropped" in changed.stderr
    assert "receiver 3: email" in printed("schedule", "show", "nightly").stdout
    refused = {
        ("--remove", "9"): "no receiver 9; there are: 3",
        ("--webhook", "http://10.0.0.7/"): "TRANSEXPLAIN_WEBHOOK_ALLOW=10.0.0.7",
        ("--webhook", "https://me:secret@x.example/"): "user and password",
        ("--email", "a@b.org, c@d.org"): "name@host",
        ("--webhook-format", "slack"): "1 --webhook-format for 0 --webhook",
    }
    for options, reason in refused.items():
        done = CliRunner().invoke(app, [*words, "--email", "new@b.example", *options])
        assert isinstance(done.exception, ConfigurationError), options
        assert reason in str(done.exception)
    assert printed(*words).stdout == "receiver 3: email, ann@b.example\n", "nothing was added"
