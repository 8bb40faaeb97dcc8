"""Hostile inputs of commands: each gives a message and exit code 2 or 4, never a traceback."""

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from orchestrator.schedule.tick import tick
from transexplain.settings import Settings
from transexplain.store import runs, schedules
from transexplain.store.revisions import open_database
from transexplain.store.schedules import Planned, Receiver

Call = Callable[..., tuple[int, str]]

LAUGHS = "a: &a [x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{above}'] * 9)}]\n"
    for above, name in zip("abcdefghi", "bcdefghij", strict=True)
)
DOCUMENTS = {
    "deep": "model: " + "[" * 5000,
    "deep-enough": "model: " + "[" * 300 + "]" * 300,
    "laughs": LAUGHS + "model: *j\n",
    "itself": "model: &a [*a]\n",
    "set": "model: !!set {a, b}\n",
    "no-date": "model: !!timestamp x\n",
    "no-int": "model: !!int abc\n",
    "python": "model: !!python/object/apply:os.system ['id']\n",
    "number": "model: " + "9" * 100_000,
    "keys": "1: 2\nnull: 3\n",
    "key-of-keys": "? {a: b}\n: 3\n",
    "infinite": "max_failed: .inf\nmodel: .nan\n",
    "nothing": "",
    "text": "model",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents(name: str, tmp_path: Path, call: Call) -> None:
    (tmp_path / "x.yaml").write_text(DOCUMENTS[name])
    for verb in (
        ("validate", "x.yaml"),
        ("run", "x.yaml"),
        ("gate", "--policy", "x.yaml"),
        ("train", "x.yaml"),
        ("evaluate", "x.yaml"),
        ("schedule", "add", "s", "x.yaml", "--cron", "0 3 * * *"),
    ):
        code, printed = call(*verb)
        assert (code, printed.startswith("error: ")) == (2, True), (verb, printed)
        assert "x.yaml" in printed
        assert len(printed) < 2000


@pytest.mark.parametrize(
    "value", ["[" * 3000, "[&a [x, x], *a", "9" * 100_000, "!!bool x", "!!python/name:os.system"]
)
def test_values_of_options(value: str, call: Call) -> None:
    for words in (
        ("validate", "--set", f"model.dtype={value}"),
        ("explain", "--model", "m", "--text", "x", "--param", f"a={value}"),
        ("doctor", "m", "--param", f"a={value}"),
        ("validate", "--model", "m", "--data", "d.csv", "--set", f"data.limit={value}"),
    ):
        code, printed = call(*words)
        assert code == 2, (words[:1], printed[-300:])


@pytest.mark.parametrize(
    "params",
    ["{1: 2, a: 3}", "{a: {1: 2, b: 3}}", "{a: {null: 1}}", "{gamma: .nan}", "{gamma: .inf}"],
)
def test_parameters_that_no_json_can_hold(params: str, tmp_path: Path, call: Call) -> None:
    (tmp_path / "x.yaml").write_text(f"model: m\ndata: d\nmethod: {{name: lrp, params: {params}}}")
    code, printed = call("validate", "x.yaml")
    assert code == 2
    assert "method.params" in printed


DATABASES = {
    "folder": "sqlite:///{folder}",
    "text": "sqlite:///{folder}/text.db",
    "absent": "sqlite:///{folder}/absent/x.db",
    "read-only": "sqlite:///file:{folder}/old.db?uri=true&mode=ro",
    "no-mode": "sqlite:///file:{folder}/old.db?uri=true&mode=zz",
    "option": "sqlite:///{folder}/x.db?nonsense=1",
    "unreachable": "postgresql://me:sekretpw@127.0.0.1:1/x",
    "options": "postgresql://me@127.0.0.1:1/x?nonsense=sekretpw",
    "timeout": "postgresql://me@127.0.0.1:1/x?connect_timeout=abc",
    "ssl": "postgresql://me@127.0.0.1:1/x?sslmode=bad",
    "at": "postgresql://me:p@sekretpw@127.0.0.1:1/x",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", DATABASES)
def test_databases(kind: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.db").write_text("not a database, however long one looks at it\n" * 40)
    (tmp_path / "p.yaml").write_text("max_failed: 0\n")
    (tmp_path / "old.db").touch()
    url = DATABASES[kind].format(folder=tmp_path)
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", url)
    monkeypatch.setenv("TRANSEXPLAIN_BROKER_URL", "redis://127.0.0.1:1/0")
    for words in (
        ("status",),
        ("resume",),
        ("retry",),
        ("cancel", "x"),
        ("report",),
        ("schedule", "list"),
        ("schedule", "tick"),
        ("gate", "--policy", "p.yaml"),
        ("metrics-server", "--port", "19464"),
        ("sweep",),
        ("beat",),
        ("db", "upgrade"),
        ("db", "check"),
        ("db", "vacuum"),
    ):
        code, printed = call(*words)
        assert code in (2, 4), (words, printed)
        assert "error: " in printed, (words, printed)
        assert "sekret" not in printed


def test_a_setting_of_the_server_that_is_not_one_is_not_repeated(
    postgres_url: str, call: Call
) -> None:
    code, printed = call("status", "--db", f"{postgres_url}?options=-csekretpw%3D1")
    assert code == 4
    assert "sekret" not in printed


BROKERS = (
    "redis://127.0.0.1/abc",
    "redis://h:99999/",
    "redis://h:abc/",
    "redis://[::1/0",
    "redis://",
    "redis://127.0.0.1:1/0?nonsense=sekretpw",
    "redis://:p@sekretpw@127.0.0.1:1/0",
    "amqp://me:p/sekretpw@127.0.0.1:1//",
    "sqs://me:sekretpw@h",
)


@pytest.mark.parametrize("url", BROKERS)
def test_brokers_that_are_not_supported_are_refused(
    url: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_by_every_verb(url, "error: ", call, monkeypatch, status=2)


@pytest.mark.parametrize("fault", ["password", "host"])
def test_rabbitmq_that_refuses(
    amqp_url: str, fault: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = urlsplit(amqp_url)
    user, _, address = parts.netloc.rpartition("@")
    if fault == "password":
        url = urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:sekretpw@{address}"))
    else:
        url = urlunsplit(parts._replace(path="/nowhere-at-all"))
    refused_by_every_verb(url, "refuses", call, monkeypatch)


def test_redis_that_refuses(redis_url: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    url = redis_url.rpartition("/")[0] + "/9999"
    refused_by_every_verb(url, "DB index is out of range", call, monkeypatch)


def refused_by_every_verb(
    url: str, reason: str, call: Call, monkeypatch: pytest.MonkeyPatch, status: int = 4
) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_BROKER_URL", url)
    for words in (
        ("submit", "--model", "m", "--data", "d.csv"),
        ("worker",),
        ("worker", "--devices", "cpu"),
        ("beat",),
        ("sweep", "--every", "1"),
    ):
        code, printed = call(*words)
        assert (code, printed.startswith("error: ")) == (status, True), (words, printed)
        assert reason in printed
        assert "sekret" not in printed


def test_a_schedule_by_the_second_of_an_earlier_version(tmp_path: Path, call: Call) -> None:
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'transexplain.db'}")
    with open_database(settings.database_url, upgrade=True) as db:
        schedules.add(
            db,
            Planned(
                name="wild",
                cron="* * * * * *",
                time_zone="UTC",
                spec={"model": "m", "data": "d"},
                on_change=False,
                receivers=(Receiver(kind="json", address="http://h:99999/"),),
            ),
        )
        (fired,) = tick(db, settings)
        assert "6 fields" in str(fired.error)
        assert tick(db, settings) == []
        assert runs.list_runs(db) == []
    code, printed = call("schedule", "list")
    assert (code, "6 fields" in printed, "no fire to come" in printed) == (0, True, True)
    code, printed = call("schedule", "list", "--json")
    assert (code, json.loads(printed)[0]["next"]) == (0, None)
    assert call("schedule", "remove", "wild")[0] == 0
    code, printed = call("schedule", "add", "wild", "x.yaml", "--cron", "* * * * * *")
    assert (code, "6 fields" in printed) == (2, True)
