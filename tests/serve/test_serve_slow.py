"""What a process beside the server makes: the report's sections, clusters of a class."""

import time
from typing import Any

import pytest
from report_samples import Visible, biased_run, explained_text, stored_run
from serving import JSON, acting_client
from starlette.testclient import TestClient

from orchestrator.serve import slow_desk
from orchestrator.serve.links import RefusedError, link
from orchestrator.serve.slow_desk import PageJob, SlowDesk
from transexplain.reports.report_formats import pieces
from transexplain.reports.sections import SECTIONS
from transexplain.reports.summary import summarise
from transexplain.store.database import Database


@pytest.fixture
def slow_process() -> None:
    """The test has the process itself, not its work in this one."""


def ready(client: TestClient, address: str, seconds: float = 60.0) -> dict[str, Any]:
    """The JSON of a page when what it waits for is there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        answer = client.get(f"{address}.json")
        assert answer.status_code == 200, answer.text
        if not answer.json()["waiting"]:
            return answer.json()
        time.sleep(0.02)
    raise AssertionError(f"{address} was not made")


@pytest.mark.exhaustive
def test_the_sections_are_those_of_the_report(
    client: TestClient, db: Database, run_id: str
) -> None:
    found = ready(client, link("runs", run_id, "report"))
    own = {one["name"]: one["document"] for one in pieces(summarise(db, run_id))}
    assert found["sections"].keys() == own.keys() and len(own) >= 8
    assert found["sections"]["data"] == own["data"]
    page = client.get(link("runs", run_id, "report")).text
    for name in own:
        assert f"section={name}" in page
    assert 'id="untested"' in page and 'id="examples"' in page
    alone = client.get(f"{link('runs', run_id, 'report')}?section=untested").text
    assert 'id="untested"' in alone and 'id="examples"' not in alone
    assert client.get(f"{link('runs', run_id, 'report')}?section=none").status_code == 422


@pytest.mark.exhaustive
def test_the_run_page_opens_what_it_lacks_and_leads_there_without_a_script(
    client: TestClient, run_id: str
) -> None:
    page = client.get(link("runs", run_id)).text
    assert "toggle from:closest details once" in page
    links = {attrs.get("href") for tag, attrs in Visible(page).tags if tag == "a"}
    for name in set(SECTIONS) - {"failures"}:
        assert link("runs", run_id, "report", section=name) in links
    held = ready(client, link("runs", run_id, "report"))["sections"]
    later = client.get(link("runs", run_id)).text
    for name in set(SECTIONS) - {"failures"}:
        assert (f"section={name}" in later) == (name in held)


@pytest.mark.exhaustive
def test_a_run_that_works_shows_what_is_saved(client: TestClient, db: Database) -> None:
    run_id = biased_run(db, leave=2)
    found = ready(client, link("runs", run_id, "report"))
    assert found["at"] and found["sections"]
    page = client.get(link("runs", run_id, "report")).text
    assert "the run is not over" in page and 'hx-trigger="every 30s"' in page


def test_why_there_are_no_clusters_is_said(client: TestClient, db: Database) -> None:
    few = stored_run(db, [explained_text(0, "good tea", "positive")])
    address = link("runs", few, "classes", "positive", "clusters")
    assert ready(client, address)["error"] is None
    assert "Too few items" in client.get(address).text


@pytest.mark.exhaustive
def test_a_process_makes_it_and_ends(client: TestClient, slow_process: None, run_id: str) -> None:
    found = ready(client, link("runs", run_id, "report"), 120.0)
    assert found["error"] is None and "untested" in found["sections"]
    found = ready(client, link("runs", run_id, "classes", "positive", "clusters"), 120.0)
    assert found["error"] is None and found["sections"]["positive"]["clusters"]


def test_so_many_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlowDesk, "_work", lambda *_: None)
    desk = SlowDesk("sqlite:///none.db")
    for number in range(slow_desk._WAITING):
        assert desk.found(_job(number), moving=False).waiting
    assert desk.found(_job(0), moving=False).waiting, "one that waits already"
    with pytest.raises(RefusedError) as refused:
        desk.found(_job(-1), moving=False)
    assert refused.value.status == 503
    desk.close()


def test_failures_are_kept_within_bounds_and_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SlowDesk, "_made", lambda *_: "it failed")
    desk = SlowDesk("sqlite:///none.db")
    jobs = [_job(number) for number in range(2 * slow_desk._KEPT)]
    for job in jobs:
        while desk.found(job, moving=False).at is None:
            time.sleep(0.001)
    known = [desk.found(job, moving=False, begin=False).error for job in jobs]
    assert known == [None] * slow_desk._KEPT + ["it failed"] * slow_desk._KEPT
    monkeypatch.setattr(SlowDesk, "_made", lambda *_: pytest.fail("it is fresh"))
    assert not desk.found(jobs[-1], moving=False).waiting
    monkeypatch.setattr(slow_desk, "_FRESH", -1.0)
    assert desk.found(jobs[-1], moving=False).waiting
    desk.close()


def _job(number: int) -> PageJob:
    return PageJob(kind="report", run_id=f"run-{number}", finished=1.0)


def test_switched_off_no_process_is_begun_and_pages_say_so(
    db: Database, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlowDesk, "__init__", lambda *_: pytest.fail("nothing works for it"))
    sections = link("runs", run_id, "report", section="untested")
    clusters = link("runs", run_id, "classes", "positive", "clusters")
    with (
        Database(f"sqlite:///{db.path}", read_only=True) as reading,
        acting_client(reading, reports=False) as client,
    ):
        for address in (link("runs", run_id), link("runs", run_id, "classes", "positive")):
            page = client.get(address).text
            assert "--no-reports" in page and f"transexplain report {run_id}" in page
            assert "toggle from:closest" not in page and "/clusters" not in page
        for address in (sections, clusters):
            page, found = client.get(address).text, client.get(address, headers=JSON).json()
            assert "--no-reports" in page and "hx-get" not in page
            assert found["off"] and not found["waiting"] and found["sections"] == {}
        assert "Read-only." in client.get("/").text
