"""Watching a fleet: rate, tables, lines and Prometheus, all from SQL."""

import io
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from sqlalchemy import update
from tiny_audit import make_audit
from typer.testing import CliRunner

from orchestrator.cli.command_line import app
from orchestrator.cli.status_commands import Rate, Watcher, span, watch
from orchestrator.monitoring.fleet_metrics import FleetCollector
from orchestrator.monitoring.metrics_http import monitoring_app, serve_metrics
from orchestrator.monitoring.probes import Readiness, database_check
from orchestrator.plan import Prepared, prepare_audit
from orchestrator.spec import load_spec
from transexplain.provenance.manifest import manifest_of
from transexplain.reports.sections.manifest_section import provenance_of
from transexplain.settings import Settings
from transexplain.store import fleet_state, runs, shards
from transexplain.store.database import Database
from transexplain.store.fleet_state import device_times
from transexplain.store.revisions import open_database
from transexplain.store.schema import shard as shard_table
from transexplain.types.device_time import STAGES
from workers.claim_to_commit import Workbench
from workers.message_guard import REASONS


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    spec = load_spec(make_audit(tmp_path))
    lines = (tmp_path / "texts.jsonl").read_text(encoding="utf-8").splitlines()
    lines[2] = '{"text": "", "label": "good"}'
    (tmp_path / "texts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return prepare_audit(spec, Settings(snapshot_dir=tmp_path / "snaps"))


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.exhaustive]),
    ]
)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    url = (
        f"sqlite:///{tmp_path / 'store.db'}"
        if request.param == "sqlite"
        else request.getfixturevalue("postgres_url")
    )
    with open_database(url, upgrade=True) as store:
        yield store


def half_done(db: Database, prepared: Prepared) -> str:
    """Five shards: two saved (one item failed), one held, one whose lease ran out, one free."""
    run_id = runs.create(db, prepared.plan, prepared.shards)
    bench = Workbench(db=db, settings=Settings(), name="first")
    bench.models.put(prepared.plan.model, prepared.model)
    assert [bench.work(run_id, index) for index in (0, 1)] == ["done", "done"]
    assert shards.claim(db, run_id, "second", 60.0, 2)
    assert shards.claim(db, run_id, "[lost]", 0.0, 3)
    return run_id


@pytest.mark.exhaustive
def test_a_fleet_is_what_sql_says(db: Database, prepared: Prepared) -> None:
    run_id = half_done(db, prepared)
    now = fleet_state.status(db)
    assert now.runs == {"running": 1, "done": 0, "cancelled": 0}
    assert now.shards == {"queued": 1, "running": 2, "done": 2, "dead": 0, "cancelled": 0}
    assert (now.explained, now.failed) == (15, {"empty-text": 1})
    assert (now.claims, now.expired) == (4, 1)
    assert [(one.name, one.shards) for one in now.workers] == [("[lost]", 1), ("second", 1)]
    assert [one.worker for one in now.devices] == ["first"], "who saved a shard"
    assert now.devices[0].seconds["busy"] > 0
    assert 0 < (now.devices[0].waited or 0) < 1
    lost, second = now.workers
    assert lost.lease_left <= 0 < second.lease_left <= 60
    assert 0 <= second.heartbeat_age < 30
    assert fleet_state.failures(db, run_id) == {"empty-text": 1}
    runs.cancel(db, run_id)
    assert fleet_state.status(db, recent=-60.0).explained == 0, "an old run"
    assert fleet_state.status(db).runs["cancelled"] == 1


@pytest.mark.exhaustive
def test_prometheus_reads_the_database_at_every_scrape(db: Database, prepared: Prepared) -> None:
    answers = monitoring_app(FleetCollector(db, "q"), Readiness([database_check(db)]))
    server = serve_metrics(answers, host="127.0.0.1", port=0)
    try:
        url = f"http://127.0.0.1:{server.server_port}/metrics"

        def scrape() -> dict[tuple[str, ...], float]:
            with urllib.request.urlopen(url, timeout=30) as answer:
                text = answer.read().decode()
            return {
                (sample.name.removeprefix("transexplain_"), *sample.labels.values()): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if len(sample.labels) < 2
            }

        assert scrape()["runs", "running"] == 0
        half_done(db, prepared)
        fleet_state.add(db, {"json": 3, "of a later version": 1})
        fleet_state.add(db, {"json": 2})
        seen = scrape()
    finally:
        server.shutdown()
        server.server_close()
    assert seen["up",] == 1
    assert seen["runs", "running"] == 1
    assert seen["shards", "done"] == 2
    assert seen["items_explained",] == 15
    assert seen["items_failed", "empty-text"] == 1
    assert seen["leases_expired",] == 1
    assert seen["workers",] == 2
    assert seen["device_seconds", "busy"] > 0
    assert seen["device_seconds", "reading"] > 0
    assert not [key for key in seen if key[0] == "device_waited"], "`first` holds no shard now"
    assert 0 <= seen["oldest_heartbeat_seconds",] < 30
    refused = {key[1]: value for key, value in seen.items() if key[0] == "messages_refused"}
    assert refused == {**dict.fromkeys(REASONS, 0), "json": 5, "of a later version": 1}


def test_the_rate_is_that_of_the_last_minute() -> None:
    rate = Rate()
    assert rate.note(10.0, 100) == 10.0, "one look: the mean"
    assert rate.note(20.0, 100) == 5.0, "nothing yet: still the mean"
    assert rate.note(30.0, 300) == 10.0
    for second in range(40, 130, 10):
        latest = rate.note(float(second), 300 + (second - 30) * 2)
    assert latest == 2.0, "the fast beginning is more than a minute ago"


def test_spans_are_for_people() -> None:
    assert [span(one) for one in (None, 4.4, 125, 11045)] == [
        "-",
        "4 s",
        "2 min 05 s",
        "3 h 04 min",
    ]


def shown(db: Database, *, terminal: bool, run_id: str | None = None, looks: int = 1) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=200)
    left = iter([False] * (looks - 1) + [True])
    watch(Watcher(db, run_id), console, every=0.0, wait=lambda _: next(left))
    return out.getvalue()


@pytest.mark.exhaustive
def test_watching_shows_runs_workers_and_failures(db: Database, prepared: Prepared) -> None:
    assert shown(db, terminal=False) == "no run runs\n"
    run_id = half_done(db, prepared)
    plain = shown(db, terminal=False, looks=2)
    assert plain.count(run_id) == 2, "one line a look"
    for words in ("16/40 items", "1 queued, 2 running, 2 done", "workers: 2", "1 empty-text"):
        assert words in plain
    assert "\x1b" not in plain
    picture = shown(db, terminal=True)
    for words in ("16/40", "second", "[lost]", "empty-text", "heartbeat"):
        assert words in picture
    runs.cancel(db, run_id)
    assert "cancelled" in shown(db, terminal=False, run_id=run_id), "its end is shown"


def test_the_verb_ends_with_the_run(tmp_path: Path, prepared: Prepared) -> None:
    url = f"sqlite:///{tmp_path / 'verb.db'}"
    with open_database(url, upgrade=True) as db:
        runs.cancel(db, runs.create(db, prepared.plan, prepared.shards))
    printed = CliRunner().invoke(app, ["status", "latest", "--watch", "--db", url])
    assert printed.exit_code == 0, printed.output
    assert "cancelled" in printed.output


def test_the_status_of_all_names_refused_messages(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'verb.db'}"
    with open_database(url, upgrade=True) as db:
        assert "refused" not in CliRunner().invoke(app, ["status", "--db", url]).output
        fleet_state.add(db, {"json": 3, "arguments": 2})
    printed = CliRunner().invoke(app, ["status", "--db", url])
    assert printed.exit_code == 0, printed.output
    assert printed.output.endswith("messages that workers refused: 2 arguments, 3 json\n")


@pytest.mark.exhaustive
def test_what_devices_waited_for_is_shown(
    db: Database, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = half_done(db, prepared)
    bench = Workbench(db=db, settings=Settings(), name="third")
    bench.models.put(prepared.plan.model, prepared.model)
    assert bench.work(run_id, 4) == "done"
    assert shards.claim(db, run_id, "first", 60.0, 3)
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", db.engine.url.render_as_string(False))
    shown = CliRunner().invoke(app, ["status", run_id]).stdout
    assert re.search(r"  device waited \d+\.\d% \(.*reading \d", shown.splitlines()[0])
    assert {f"  worker {name}:" for name in ("first", "third")} == set(
        re.findall(r"  worker \w+:", shown)
    )
    (state,) = json.loads(CliRunner().invoke(app, ["status", run_id, "--json"]).stdout)
    assert set(state["device"]["seconds"]) == {"busy", *STAGES, "no_work"}
    assert 0 < state["device"]["waited"] < 1
    assert [one["worker"] for one in state["device"]["workers"]] == ["first", "third"]
    screen = io.StringIO()
    watch(Watcher(db, run_id), Console(file=screen), every=0.0, wait=lambda _: True)
    assert "device waited" in screen.getvalue()
    held = {
        sample.labels["worker"]: sample.value
        for family in FleetCollector(db, "q").collect()
        for sample in family.samples
        if sample.name == "transexplain_device_waited"
    }
    assert list(held) == ["first"], "of who is at work now"
    assert 0 < held["first"] < 1


@pytest.mark.exhaustive
def test_shards_of_an_older_version_tell_nothing_of_their_device(
    db: Database, prepared: Prepared
) -> None:
    run_id = half_done(db, prepared)
    with db.begin() as connection:
        made = {"software": {"python": "3.11"}, "hardware": {}}
        connection.execute(update(shard_table).values(environment=made))
        connection.execute(
            update(shard_table).where(shard_table.c.index == 1).values(environment=None)
        )
    assert device_times(db, run_id) == []
    assert "waited" not in CliRunner().invoke(app, ["status", run_id]).stdout
    assert manifest_of(db, run_id).execution["device"] is None


@pytest.mark.exhaustive
def test_a_manifest_tells_what_devices_waited_for(db: Database, prepared: Prepared) -> None:
    run_id = half_done(db, prepared)
    execution = manifest_of(db, run_id).execution
    assert len(execution["computed"]) == 1, "two shards, one machine"
    assert "device" not in execution["computed"][0]
    assert [one["computed"] for one in execution["shards"]] == [0, 0, None, None, None]
    assert execution["device"]["seconds"]["busy"] > 0
    assert [one["worker"] for one in execution["device"]["workers"]] == ["first"]
    assert provenance_of(manifest_of(db, run_id)).waited == pytest.approx(
        execution["device"]["waited"], abs=1e-3
    )
