"""Hostile inputs of commands: each gives a message and exit code 2 or 4, never a traceback."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import cleandoc
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit, urlunsplit

import pytest
from chaos_groups import lives
from sqlalchemy import update
from store_samples import make_plan, make_result, make_shards
from typer.main import get_command
from typer.testing import CliRunner

from orchestrator.cli.command_line import app
from orchestrator.cli.verb_table import GROUPS, VERBS
from transexplain.errors import ConfigurationError, DatabaseError
from transexplain.registry import load
from transexplain.store import results, runs, shards, upkeep
from transexplain.store.columns import DatabaseTime
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schema import run as runs_table

Call = Callable[..., tuple[int, str]]

LAUGHS = "a: &a [x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{above}'] * 9)}]\n"
    for above, name in zip("abcdefghi", "bcdefghij", strict=True)
)
DOCUMENTS = {
    "deep": "model: " + "[" * 5000,
    "laughs": LAUGHS + "model: *j\n",
    "python": "model: !!python/object/apply:os.system ['id']\n",
    "number": "model: " + "9" * 100_000,
    "key-of-keys": "? {a: b}\n: 3\n",
    "nothing": "",
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


DATABASES = {
    "folder": "sqlite:///{folder}",
    "text": "sqlite:///{folder}/text.db",
    "read-only": "sqlite:///file:{folder}/old.db?uri=true&mode=ro",
    "unreachable": "postgresql://me:sekretpw@127.0.0.1:1/x",
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
        *(("status",), ("resume",), ("retry",), ("cancel", "x"), ("report",), ("sweep",)),
        *(("schedule", "list"), ("schedule", "tick"), ("gate", "--policy", "p.yaml"), ("beat",)),
        *(("db", "upgrade"), ("db", "check"), ("db", "vacuum")),
        ("metrics-server", "--port", "19464"),
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


@pytest.mark.parametrize(
    "url", ["redis://h:99999/", "redis://:p@sekretpw@127.0.0.1:1/0", "sqs://me:sekretpw@h"]
)
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


ROOT = Path(__file__).resolve().parents[2]
CHECK = """
import sys
from orchestrator.cli.command_line import app
try:
    app(["--help"])
finally:
    heavy = {"torch", "transformers", "timm", "numpy", "pydantic", "sqlalchemy", "celery"}
    assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


@pytest.mark.parametrize("name", VERBS)
def test_the_help_of_a_verb_is_the_first_paragraph_of_its_docstring(name: str) -> None:
    text = cleandoc(load(VERBS[name].place).__doc__)
    assert VERBS[name].help == " ".join(text.split("\n\n")[0].split())


def test_every_verb_is_listed() -> None:
    assert list(get_command(app).commands) == [*VERBS, *GROUPS]  # type: ignore[attr-defined]
    panels = [one.panel for one in (*VERBS.values(), *GROUPS.values())]
    assert list(dict.fromkeys(panels)) == ["Start", "Audit", "Look", "Operate", "Store"]


def python(*words: str, stdout: int = subprocess.PIPE, cwd: Path = ROOT) -> Any:
    """A Python of its own with these words, ended."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = {"stdout": stdout, "stderr": subprocess.PIPE, "text": True, "timeout": 120}
    return subprocess.run([sys.executable, *words], check=False, cwd=cwd, env=env, **pipe)


def test_the_list_of_verbs_loads_nothing_heavy() -> None:
    done = python("-c", CHECK)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in (*VERBS, *GROUPS))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run", "model: is missing"),
        ("run nothere.yaml", "nothere.yaml"),
        ("run --model m --data x.csv --method lrpp", "did you mean 'lrp'?"),
    ],
)
def test_a_wrong_request_is_answered_before_anything_slow_is_loaded(
    words: str, says: str, tmp_path: Path
) -> None:
    """The model comes last, so an empty folder stands for it."""
    (tmp_path / "m").mkdir()
    (tmp_path / "x.csv").write_text("text,label\nfine,1\n", encoding="utf-8")
    code = (
        "import sys\nfrom orchestrator.cli import main\n"
        "try:\n    main()\nfinally:\n"
        "    print(sorted({'torch', 'scipy', 'datasketch', 'sklearn'} & set(sys.modules)))"
    )
    done = python("-c", code, *words.split(), cwd=tmp_path)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_verb_that_a_text_of_the_code_names_is_there() -> None:
    known = {*VERBS, *GROUPS}
    named: dict[str, str] = {}
    for package in ("transexplain", "workers", "orchestrator"):
        for path in (ROOT / package).rglob("*"):
            if path.suffix in (".py", ".j2"):
                text = path.read_text(encoding="utf-8")
                named |= dict.fromkeys(
                    re.findall(r"[`>]transexplain ([a-z][\w-]*)", text), str(path)
                )
    assert len(named) > 10
    assert not {verb: place for verb, place in named.items() if verb not in known}


#: a verb of the command line that runs `body`
VERB = """
import sys, threading, time
from orchestrator.cli.command_line import app, main
from orchestrator.dispatch.stopping import start_ignoring_interrupts, stopping

def ready():
    sys.stderr.write("ready\\n")
    sys.stderr.flush()

@app.command()
def wait() -> None:
{body}

if __name__ == "__main__":
    sys.argv = ["transexplain", "wait"]
    main()
"""
CHILD = """
import sys, time
from orchestrator.dispatch.stopping import stopping

def work():
    with stopping():
        sys.stderr.write("ready\\n")
        sys.stderr.flush()
        time.sleep(60)
"""


@contextmanager
def started(folder: Path, body: str, ready: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A process group that has reported so many times that it is ready."""
    script = folder / "verb.py"
    script.write_text(VERB.format(body=textwrap.indent(textwrap.dedent(body), "    ")))
    (folder / "child.py").write_text(CHILD)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
    )
    try:
        assert process.stderr is not None
        for _ in range(ready):
            line = process.stderr.readline()
            assert line == "ready\n", line + process.stderr.read()
        yield process
    finally:
        process.kill()
        process.wait()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, printed = process.communicate(timeout=20)
    return process.returncode, printed


def interrupt(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGINT)


def test_the_first_ends_a_verb_with_a_line(tmp_path: Path) -> None:
    with started(tmp_path, "ready(); time.sleep(60)") as process:
        interrupt(process)
        assert ended(process) == (130, "interrupted\n")


@pytest.mark.parametrize(
    "body",
    [
        "try: ready(); time.sleep(60)\nfinally: ready(); time.sleep(60)",
        "with stopping() as stop: ready(); stop.wait(); ready(); time.sleep(60)",
        "with stopping() as stop: ready(); stop.wait()\nready(); time.sleep(60)",
        # Python waits for threads when main is through
        "with stopping() as stop: ready(); stop.wait()\n"
        "threading.Thread(target=lambda: (time.sleep(0.5), ready(), time.sleep(60))).start()",
    ],
    ids=["cleaning-up", "working", "reporting", "leaving"],
)
def test_the_second_ends_at_once_wherever_it_comes(tmp_path: Path, body: str) -> None:
    with started(tmp_path, body) as process:
        interrupt(process)
        between = process.stderr.readline()
        if between == "interrupted\n":
            between = process.stderr.readline()
        assert between == "ready\n"
        interrupt(process)
        assert ended(process) == (130, "interrupted again: ended at once\n")


def test_the_second_ends_children_too(tmp_path: Path) -> None:
    body = """
        import multiprocessing, child
        processes = [multiprocessing.get_context("spawn").Process(target=child.work) for _ in "ab"]
        with stopping() as stop:
            for one in processes: start_ignoring_interrupts(one)
            stop.wait()
            sys.stderr.write(" ".join(str(one.pid) for one in processes) + "\\n")
            sys.stderr.flush()
            for one in processes: one.join()
    """
    with started(tmp_path, body, ready=2) as process:
        os.kill(process.pid, signal.SIGINT)  # not the group: the children hear nothing of it
        pids = [int(word) for word in process.stderr.readline().split()]
        os.kill(process.pid, signal.SIGINT)
        assert ended(process) == (130, "interrupted again: ended at once\n")
        assert len(pids) == 2
        assert not any(lives(pid) for pid in pids)


def test_a_child_that_is_still_importing_does_not_hear_the_terminal(tmp_path: Path) -> None:
    body = """
        import multiprocessing, child
        process = multiprocessing.get_context("spawn").Process(target=child.work)
        with stopping() as stop:
            start_ignoring_interrupts(process)
            ready()
            stop.wait()
            process.kill(); process.join()
        raise SystemExit(7)
    """
    with started(tmp_path, body) as process:
        interrupt(process)
        code, printed = ended(process)
        assert (code, printed.replace("ready\n", "")) == (7, "")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
@pytest.mark.exhaustive
def test_an_output_that_nobody_reads_is_no_error(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = python("-m", "orchestrator.cli", *arguments, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_named() -> None:
    with Path("/dev/full").open("w") as full:
        done = python("-m", "orchestrator.cli", "--version", stdout=full.fileno())
    assert done.returncode == 4
    assert done.stderr.strip() == "error: the output cannot be written: No space left on device"


def test_doctor_says_what_is_covered_and_leaves_nothing_behind(
    call: Call, bert_dir: Path, vit_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    code, printed = call("doctor", str(bert_dir))
    assert code == 0 and "verdict: covered" in printed.splitlines(), printed
    assert re.search(r"^gap [+-].*: within 5e-06$", printed, re.MULTILINE)
    code, printed = call("doctor", str(vit_dir), "--at", "pixels", "--dtype", "float64")
    assert code == 0 and "conv2d" in printed, printed
    assert re.search(r": within 1e-12$", printed, re.MULTILINE)
    measured = call("doctor", str(vit_dir), "--method", "lrp-ah")[1]
    assert re.search(r"^ *gelu +gradient, measured +2 +[+-]\d\.\d{4} +\d", measured, re.MULTILINE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert", "vit"]
    from transexplain.engine import mode, operators

    for table in (mode.KIND, operators.KIND):
        monkeypatch.delitem(table, "gelu", raising=False)
    code, printed = call("doctor", str(bert_dir))
    assert code == 1 and "verdict: not covered: gelu" in printed.splitlines()
    code, printed = call("doctor", str(bert_dir), "--json")
    assert code == 1
    assert [use["operator"] for use in json.loads(printed)["uncovered"]] == ["gelu", "gelu"]


DAY = 86_400.0


def db_verb(url: str, *arguments: str, **options: Any) -> Any:
    return CliRunner().invoke(
        app, ["db", *arguments, "--db", url], catch_exceptions=False, **options
    )


def worked(db: Database, days: float) -> str:
    """A run that is over for so many days."""
    run_id = runs.create(db, make_plan(), make_shards())
    while (claim := shards.claim(db, run_id, "w", 60)) is not None:
        results.save(db, claim, make_result(claim.shard))
    assert runs.finalise(db, run_id)
    over = update(runs_table).where(runs_table.c.id == run_id)
    with db.begin() as connection:
        connection.execute(over.values(finished=DatabaseTime() - days * DAY))
    return run_id


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_sqlite_from_upgrade_to_backup(url: str, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="transexplain db upgrade"):
        db_verb(url, "check")
    for verb in ("upgrade", "check"):
        assert "is at this version" in db_verb(url, verb).output
    assert "no partitions" in db_verb(url, "maintain").output
    with open_database(url) as db:
        old, young = worked(db, 91), worked(db, 1)
    copy = tmp_path / "copy.db"
    assert f"{copy}: 0." in db_verb(url, "backup", str(copy)).output
    dry = db_verb(url, "prune", "--older-than", "90d", "--dry-run").output
    assert f"1 runs with 12 items:\n  {old}  sample audit  over since" in dry
    assert "deleted" not in dry
    said = db_verb(url, "prune", "--older-than", "90d", "-y").output
    assert "deleted 1 runs with 12 items" in said
    assert "no run is that old" in db_verb(url, "prune", "--older-than", "90d").output
    assert "before" in db_verb(url, "vacuum").output
    for file, left in ((url, {young}), (f"sqlite:///{copy}", {old, young})):
        with open_database(file) as db:
            assert {one.id for one in runs.list_runs(db)} == left


@pytest.mark.parametrize(("answer", "stays"), [("n\n", True), ("\n", True), ("y\n", False)])
def test_prune_confirms_at_a_terminal(url: str, answer: str, stays: bool) -> None:
    with open_database(url, upgrade=True) as db:
        old = worked(db, 91)
    with mock.patch("orchestrator.cli.operator_commands.sys", mock.Mock(wraps=sys)) as here:
        here.stdin.isatty = lambda: True
        found = db_verb(url, "prune", "--older-than", "12w", input=answer)
    assert "delete these 1 runs for good? [y/N]" in found.output
    with open_database(url) as db:
        assert [one.id for one in runs.list_runs(db)] == [old] * stays


def test_prune_refuses_without_a_terminal(url: str) -> None:
    with open_database(url, upgrade=True) as db:
        old = worked(db, 91)
    with pytest.raises(ConfigurationError, match=r"--yes.*--dry-run"):
        db_verb(url, "prune", "--older-than", "36h")
    with open_database(url) as db:
        assert runs.get(db, "latest").id == old
    assert db_verb(url, "prune", "--older-than", "36h", "--keep-last", "1", "--yes").exit_code == 0
    with open_database(url) as db:
        assert runs.get(db, "latest").id == old


@pytest.mark.postgres
def test_postgresql_gets_its_partitions(postgres_url: str) -> None:
    assert "partitions made: 20" in db_verb(postgres_url, "upgrade").output
    assert "every partition is there" in db_verb(postgres_url, "maintain").output
    with open_database(postgres_url) as db:
        with db.read() as connection:
            assert len(upkeep.months(connection)) == 4
        with mock.patch.object(runs, "_new_id", return_value="20260105-00000000"):
            worked(db, 200)
    assert "partitions made: 202601" in db_verb(postgres_url, "maintain").output
    found = db_verb(postgres_url, "prune", "--older-than", "90d", "--yes").output
    assert "deleted 1 runs with 12 items\ndropped the partitions of 202601: 0." in found
    assert "after" in db_verb(postgres_url, "vacuum").output
    with pytest.raises(ConfigurationError, match="pg_dump"):
        db_verb(postgres_url, "backup", "copy.db")
