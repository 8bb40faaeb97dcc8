"""The tick over real audits: one run per fire, missed ones once, no schedule blocks another."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from broker_keys import queue_name_of_test
from chaos_groups import wait_for
from everyday import only
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update
from tiny_audit import make_audit
from typer.testing import CliRunner, Result

from orchestrator.cli.command_line import app
from orchestrator.dispatch import queue
from orchestrator.schedule import tick as ticking
from orchestrator.schedule.fire_times import check, latest, upcoming
from orchestrator.schedule.tick import add_schedule, tick
from transexplain.errors import ConfigurationError, DataSourceError
from transexplain.settings import Settings
from transexplain.store import runs, schedules
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schedules import Fire, Receiver, Schedule
from transexplain.store.schema import schedule
from workers.queue_names import queue_of

SMALL = {"evaluation": {"items": 0}}


@pytest.fixture
def settings(store_url: str, tmp_path: Path) -> Settings:
    return Settings(
        database_url=store_url,
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
    return ticking.add_schedule(db, settings, name=name, spec=spec, cron="* * * * *", **keys)  # type: ignore[arg-type]


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
    ((_, run_id, _),) = tick(db, settings)
    assert [run_id] == made(db)
    (fire,) = schedules.fires(db, "often")
    assert fire.at == now // 60 * 60, "the latest one"
    assert tick(db, settings) == []
    monkeypatch.setattr(schedules, "now", lambda _: now + 60)
    assert [run_id for _, run_id, _ in tick(db, settings)] == made(db)[:1]


def test_on_change_fires_when_model_or_data_are_others(
    db: Database, settings: Settings, tmp_path: Path
) -> None:
    make(db, settings, tmp_path, on_change=True)
    let_pass(db, 3600)
    assert [bool(run_id) for _, run_id, _ in tick(db, settings)] == [True], "the first always"
    let_pass(db, 3600)
    with db.begin() as connection:  # the fire was made an hour ago, too
        connection.exec_driver_sql("UPDATE schedule_fire SET at = at - 3600")
    assert tick(db, settings) == [("often", None, None)]
    assert schedules.fires(db, "often")[0].run_id is None, "the skipped fire is on record"
    with (tmp_path / "texts.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"text": "a nice film", "label": "good"}) + "\n")
    let_pass(db, 3600)
    with db.begin() as connection:
        connection.exec_driver_sql("UPDATE schedule_fire SET at = at - 7200")
    ((_, changed, _),) = tick(db, settings)
    assert changed is not None
    newest = schedules.fires(db, "often")[0]
    assert newest.previous == made(db)[1]
    assert runs.get(db, changed).plan.dataset.rows == 17


def test_one_that_cannot_be_prepared_blocks_no_other(
    db: Database, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "good"):
        (tmp_path / name).mkdir()
        make(db, settings, tmp_path / name, name)
    let_pass(db, 3600)
    (tmp_path / "gone" / "texts.jsonl").rename(tmp_path / "elsewhere.jsonl")
    fired = {name: (run_id, error) for name, run_id, error in tick(db, settings)}
    assert fired["good"][0]
    assert "texts.jsonl" in (fired["gone"][1] or "")
    assert "texts.jsonl" in (schedules.get(db, "gone").error or "")
    assert schedules.fires(db, "gone") == []
    assert tick(db, settings) == [], "not again at once"
    (tmp_path / "elsewhere.jsonl").rename(tmp_path / "gone" / "texts.jsonl")
    with db.begin() as connection:
        connection.execute(update(schedule).values(retry_at=schedule.c.retry_at - ticking.RETRY))
    assert "gone" in [name for name, run_id, _ in tick(db, settings) if run_id], "caught up later"
    assert schedules.get(db, "gone").error is None


def test_a_wrong_schedule_is_refused_when_it_is_added(
    db: Database, settings: Settings, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="letters, digits"):
        make(db, settings, tmp_path, "../x")
    receivers: dict[str, Receiver] = {
        "user and password": Receiver(kind="json", address="https://me:secret@x.example/hook"),
        "no http:// or": Receiver(kind="slack", address="file:///etc/passwd"),
        "_WEBHOOK_ALLOW=10.0.0.7": Receiver(kind="teams", address="http://10.0.0.7/"),
        "name@host": Receiver(kind="email", address="a@b.org, c@d.org"),
    }
    for words, receiver in receivers.items():
        with pytest.raises(ConfigurationError, match=words):
            make(db, settings, tmp_path, receivers=[receiver])
    with pytest.raises(DataSourceError):
        make(db, settings, tmp_path, overrides=("data.source=none.csv",))
    assert schedules.list_schedules(db) == []


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
        patch.setattr(ticking, "add_schedule", keep)
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
    refused = (
        *(("--remove", "9"), ("--webhook", "http://10.0.0.7/"), ("--email", "a@b.org, c@d.org")),
        *(("--webhook", "https://me:secret@x.example/"), ("--webhook-format", "slack")),
    )
    for options in refused:
        done = CliRunner().invoke(app, [*words, "--email", "new@b.example", *options])
        assert isinstance(done.exception, ConfigurationError), options
        assert "secret" not in str(done.exception)
    assert printed(*words).stdout == "receiver 3: email, ann@b.example\n", "nothing was added"


BERLIN = "Europe/Berlin"  # 2026-03-29: 2 to 3 o'clock is skipped; 2026-10-25: 2 to 3 comes twice


def utc(*parts: int) -> float:
    return datetime(*parts, tzinfo=UTC).timestamp()  # type: ignore[misc]


#: a day at each of the hours that are skipped or come twice, north and south
CHANGES = [utc(2026, 3, 8), utc(2026, 3, 29), utc(2026, 4, 5), utc(2026, 10, 25)]


def fires(cron: str, zone: str, after: float, count: int) -> list[float]:
    return list(islice(upcoming(cron, zone, after), count))


def test_the_hour_is_that_of_the_zone() -> None:
    assert fires("0 3 * * *", BERLIN, utc(2026, 1, 10), 2) == [
        utc(2026, 1, 10, 2),
        utc(2026, 1, 11, 2),
    ]
    assert fires("0 3 * * *", "Asia/Kolkata", utc(2026, 1, 10), 1) == [utc(2026, 1, 10, 21, 30)]


def test_a_skipped_time_fires_right_after_the_gap() -> None:
    assert fires("30 2 * * *", BERLIN, utc(2026, 3, 28, 12), 2) == [
        utc(2026, 3, 29, 1),  # 3:00 summer time
        utc(2026, 3, 30, 0, 30),
    ]
    assert latest("30 2 * * *", BERLIN, utc(2026, 3, 29, 1, 10)) == utc(2026, 3, 29, 1)


def test_a_repeated_time_fires_the_first_time_only() -> None:
    first = utc(2026, 10, 25, 0, 30)
    assert fires("30 2 * * *", BERLIN, utc(2026, 10, 24, 12), 2) == [
        first,
        utc(2026, 10, 26, 1, 30),
    ]
    for minutes in (0, 29, 31, 45, 59, 60, 61, 90):
        now = first + 60 * minutes
        assert latest("30 2 * * *", BERLIN, now) == first, f"{minutes} minutes later"


@pytest.mark.parametrize("day", [(2026, 3, 29, 23), (2026, 10, 25, 25)])
def test_every_half_hour_follows_real_time(day: tuple[int, int, int, int]) -> None:
    year, month, date, hours = day
    start = datetime(year, month, date, tzinfo=ZoneInfo(BERLIN))
    end = start + timedelta(days=1)
    made = fires("*/30 * * * *", BERLIN, start.timestamp() - 1, 60)
    assert sum(one < end.timestamp() for one in made) == 2 * hours
    assert {b - a for a, b in pairwise(made)} == {1800.0}


@pytest.mark.parametrize(
    "cron", ["30 2 * * *", "15 */2 * * *", "*/20 * * * *", "0 3 * * 0", "7 2,3 * * *"]
)
@pytest.mark.parametrize("zone", [BERLIN, "UTC", "America/St_Johns", "Australia/Lord_Howe"])
@pytest.mark.parametrize("around", only(utc(2026, 3, 29), utc(2026, 10, 25), of=CHANGES))
def test_the_latest_is_the_last_one_that_was_to_come(cron: str, zone: str, around: float) -> None:
    start, end = around - 10 * 86400, around + 2 * 86400
    known = []
    for fire in upcoming(cron, zone, start):
        if fire > end:
            break
        known.append(fire)
    assert known == sorted(set(known))
    for step in range(0, 2 * 86400, 601):
        now = around + step + 0.25
        past = [fire for fire in known if fire <= now]
        assert past, "the window is wide enough"
        assert latest(cron, zone, now) == past[-1]
    assert latest(cron, zone, known[-1]) == known[-1], "a fire is due in its very second"


@pytest.mark.parametrize(
    "cron",
    [
        *("every night", "61 3 * * *", "0 0 30 2 *", "0 0 31 2 *", "", "* * * *"),
        *("* * * * * *", "*/5 * * * * *", "0 0 3 * * *", "* * * * * * *"),
        *("@daily", "@every 5s", "@reboot", "*\u2003* * * *", "\u0663 3 * * *"),
        *(",".join(["1"] * 300) + " * * * *", "9" * 390 + " * * * *", "*/0 * * * *"),
        *("5-1 * * * *", "0 0 L/2-LW * *", "0 0 * * 1#6", "0 0 * * 1#2/3"),
    ],
)
def test_expressions_that_are_none_are_refused(cron: str) -> None:
    with pytest.raises(ConfigurationError, match="cron expression"):
        check(cron, "UTC")


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "../etc/passwd", ""])
def test_zones_that_are_none_are_refused(zone: str) -> None:
    with pytest.raises(ConfigurationError, match="IANA"):
        check("0 3 * * *", zone)


@given(st.text(st.sampled_from("0159*/,-#LWl? JANMON@"), max_size=14).map(" ".join) | st.text())
def test_any_expression_is_refused_or_fires_by_the_minute(cron: str) -> None:
    try:
        check(cron, "UTC")
        latest(cron, "UTC", utc(2026, 3, 28))
        made = fires(cron, "UTC", utc(2026, 3, 28), 3)
    except ConfigurationError:
        return
    assert all(second - first >= 60 for first, second in pairwise(made))


@pytest.mark.exhaustive
def test_a_clock_in_another_folder_finds_the_files(
    tmp_path: Path, db: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    names = {"model": "model", "data": "texts.jsonl", "groups": "groups.json"}
    spec = make_audit(Path.cwd(), items=16, **{**SMALL, **names})
    add_schedule(db, settings, name="often", spec=Path(spec.name), cron="* * * * *")
    monkeypatch.chdir(tmp_path)
    let_pass(db, 120)
    ((_, run_id, error),) = tick(db, settings)
    assert run_id is not None and error is None


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.redis
@pytest.mark.exhaustive
def test_two_beats_make_one_run_per_fire(
    db: Database, settings: Settings, redis_url: str, tmp_path: Path
) -> None:
    settings = replace(settings, broker_url=redis_url, queue=queue_name_of_test())
    for number in range(4):
        make(db, settings, tmp_path, f"often-{number}")
    let_pass(db, 120)  # all have missed a minute, so that both beats find them due
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TRANSEXPLAIN_DATABASE_URL": settings.database_url,
        "TRANSEXPLAIN_BROKER_URL": redis_url,
        "TRANSEXPLAIN_QUEUE": settings.queue,
        "TRANSEXPLAIN_SNAPSHOT_DIR": str(settings.snapshot_dir),
    }
    words = [sys.executable, "-m", "orchestrator.cli", "beat", "--every", "1"]
    with (tmp_path / "beats.log").open("wb") as log:
        beats = [subprocess.Popen(words, env=env, stdout=log, stderr=log) for _ in range(2)]

    def fires() -> list[Fire]:
        return [fire for n in range(4) for fire in schedules.fires(db, f"often-{n}", limit=1000)]

    def messages() -> int:
        return queue.depth(settings, queue_of(settings, runs.get(db, "latest").plan))

    def settled() -> bool:
        assert [one.poll() for one in beats] == [None, None], "a beat ended"
        return len(fires()) >= 4 and messages() > 0  # messages come after their fires

    try:
        wait_for(settled, "four fires and their messages", 120)
    finally:
        for process in beats:
            process.terminate()
        codes = [process.wait(timeout=60) for process in beats]
    written = (tmp_path / "beats.log").read_text()
    assert codes == [0, 0] and "Traceback" not in written, written
    assert sorted(str(fire.run_id) for fire in fires()) == sorted(made(db))
    assert 0 < messages() <= 2 * len(made(db)), "no message too many"
