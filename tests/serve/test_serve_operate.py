"""Cancel, retry and resume from a browser: confirmed, by forms of this server alone, and logged."""

import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ipaddress import ip_network
from typing import Any

import pytest
from chaos_groups import wait_for
from report_samples import Visible, biased_run, explained_text, stored_run
from served_pages import faults, listening, looked_at
from serving import JSON, OWN, acting_client, form_of
from sqlalchemy import text, update
from starlette.testclient import TestClient

from orchestrator.serve.access import AccessRules
from orchestrator.serve.acting_pages import ACTIONS, FleetOperator
from orchestrator.serve.links import link
from transexplain.reports import sql_results
from transexplain.settings import Settings
from transexplain.store import browsing, runs
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schema import form_key, shard
from transexplain.store.upkeep import grant_read
from transexplain.types.items import ItemFailure

TOKEN = "a-token-of-thirty-two-characters"
Acting = Callable[..., TestClient]
Call = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def _closed_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows for SQL are written by this process, but for the test of the other."""
    if "apart" not in request.node.name:
        monkeypatch.setattr(
            FleetOperator, "close_apart", lambda _, db, run_id: sql_results.close(db, run_id)
        )


@pytest.fixture
def acting(db: Database, serve: Acting) -> Iterator[Acting]:
    """Makes clients of servers that may act on the store."""
    url = f"sqlite:///{db.path}"
    with Database(url) as writing:

        def make(*, settings: Settings | None = None, has_broker: bool = False, **more: Any) -> Any:
            settings = settings or Settings(database_url=url)
            operator = FleetOperator(db=writing, settings=settings, has_broker=has_broker)
            return serve(**{"operator": operator, **more})

        yield make


@pytest.fixture
def open_run(db: Database) -> str:
    """A run of two shards of which one waits."""
    words = [explained_text(number, "good tea", "positive") for number in range(14)]
    return stored_run(db, words, leave=1)


@pytest.fixture
def form(open_run: str) -> str:
    """The address of the form that cancels it."""
    return link("runs", open_run, "operate", "cancel")


def give_up(db: Database, run_id: str) -> None:
    """Its waiting shards are dead, and the run is over."""
    with db.begin() as connection:
        connection.execute(
            update(shard)
            .where(shard.c.run_id == run_id, shard.c.state == "queued")
            .values(state="dead", attempt=3, error="lost")
        )
    assert runs.finalise(db, run_id)


def states(db: Database, run_id: str) -> dict[str, int]:
    return {name: count for name, count in runs.progress(db, run_id).states.items() if count}


def act(client: TestClient, run_id: str, action: str, **more: Any) -> Any:
    """Confirm an action in the way of a browser."""
    address = link("runs", run_id, "operate", action)
    token = form_of(client, address)["form_token"]
    data = {"form_token": token, **more.pop("data", {})}
    return client.post(address, data=data, headers={**OWN, **JSON, **more.pop("headers", {})})


def test_without_operate_nothing_can_be_done(client: TestClient, db: Database, run_id: str) -> None:
    for action in ACTIONS:
        address = link("runs", run_id, "operate", action)
        assert client.get(address).status_code == 403
        assert "--operate" in client.get(address, headers=JSON).json()["error"]
        assert client.post(address, data={}, headers=OWN).status_code == 405
    page = Visible(client.get(link("runs", run_id)).text)
    assert not [one for _, one in page.tags if "operate" in (one.get("href") or "")]
    assert "Read-only." in page.text
    assert runs.get(db, run_id).state == "done"


def test_a_cancel_is_shown_first_and_done_once(
    acting: Acting, db: Database, open_run: str, caplog: pytest.LogCaptureFixture
) -> None:
    client, address = acting(), link("runs", open_run, "operate", "cancel")
    page = client.get(address, headers={"Accept": "text/html"})
    shown = " ".join(Visible(page.text).text.split())
    assert "Waiting1 shard" in shown and "In hand0" in shown and "Given up0" in shown
    assert 'method="post"' in page.text and states(db, open_run) == {"queued": 1, "done": 1}
    cookie = page.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "domain" not in cookie
    assert page.headers["referrer-policy"] == "same-origin"
    with caplog.at_level(logging.WARNING):
        done = act(client, open_run, "cancel")
    assert done.status_code == 200 and "is cancelled" in done.json()["done"]
    assert runs.get(db, open_run).state == "cancelled"
    assert states(db, open_run) == {"done": 1, "cancelled": 1}
    assert f"cancel of run {open_run} by 'local': The run is cancelled" in caplog.text
    again = act(client, open_run, "cancel")
    assert "nothing was changed" in again.json()["done"]
    assert "cancelled already" in client.get(address, headers=JSON).json()["against"]


def test_dead_shards_are_retried(acting: Acting, db: Database, open_run: str) -> None:
    give_up(db, open_run)
    client = acting()
    form = form_of(client, link("runs", open_run, "operate", "retry"))
    assert form["progress"]["states"]["dead"] == 1 and form["against"] == ""
    done = act(client, open_run, "retry").json()
    assert done["shards_queued"] == 1 and done["hints_sent"] is None
    assert f"`transexplain resume {open_run}`" in done["done"]
    assert states(db, open_run) == {"queued": 1, "done": 1}
    assert runs.get(db, open_run).state == "running"


def test_failed_items_are_retried_where_that_is_wanted(acting: Acting, db: Database) -> None:
    failures = [ItemFailure(item_id="row-1", index=1, kind="out-of-memory", message="too long")]
    run_id = stored_run(db, [explained_text(0, "good tea", "positive")], failures)
    client = acting()
    form = form_of(client, link("runs", run_id, "operate", "retry"))
    assert form["failed_to_retry"] == 1 and form["failures"] == {"out-of-memory": 1}
    assert act(client, run_id, "retry").json()["shards_queued"] == 0
    assert act(client, run_id, "retry", data={"failed": "1"}).json()["shards_queued"] == 1
    assert states(db, run_id) == {"queued": 1}


def test_a_cancelled_run_does_not_go_on(acting: Acting, db: Database, open_run: str) -> None:
    assert runs.cancel(db, open_run)
    client = acting()
    for action in ("retry", "resume"):
        form = form_of(client, link("runs", open_run, "operate", action))
        assert "was cancelled" in form["against"]
        refused = act(client, open_run, action)
        assert refused.status_code == 409 and "was cancelled" in refused.json()["error"]
    assert states(db, open_run) == {"done": 1, "cancelled": 1}


@pytest.mark.exhaustive
def test_a_process_apart_writes_what_a_cancelled_run_found(acting: Acting, db: Database) -> None:
    run_id = biased_run(db, leave=1)
    client = acting()
    assert "is cancelled" in act(client, run_id, "cancel").json()["done"]
    wait_for(lambda: browsing.result_rows(db, "run_result", run_id), "the rows", 60)
    (row,) = browsing.result_rows(db, "run_result", run_id)
    assert row["verdict"]
    for thread in threading.enumerate():
        if thread.name == "results":
            thread.join(60)


@pytest.mark.exhaustive
@pytest.mark.postgres
def test_in_postgresql_by_a_role_that_writes(postgres_url: str) -> None:
    role = f"reader_{os.getpid()}"
    with open_database(postgres_url, upgrade=True) as owner:
        run_id = biased_run(owner, leave=2)
        with owner.begin() as connection:
            connection.execute(text(f"CREATE ROLE {role} LOGIN"))
        try:
            grant_read(owner, role, texts=True)
            url = postgres_url.replace("//postgres@", f"//{role}@")
            with Database(url, read_only=True) as reading, Database(url) as writing:
                for handle, status in ((writing, 503), (owner, 200)):
                    operator = FleetOperator(db=handle, settings=Settings(), has_broker=False)
                    with acting_client(reading, operator=operator) as client:
                        for action in ("resume", "cancel"):
                            assert act(client, run_id, action).status_code == status
            assert runs.get(owner, run_id).state == "cancelled"
        finally:
            with owner.begin() as connection:
                connection.execute(text(f"DROP OWNED BY {role}"))
                connection.execute(text(f"DROP ROLE {role}"))


@pytest.mark.redis
def test_workers_are_told_by_the_broker(
    acting: Acting, db: Database, open_run: str, redis_url: str, queue_name: str
) -> None:
    from orchestrator.dispatch import queue
    from workers.queue_names import queue_of

    settings = Settings(broker_url=redis_url, queue=queue_name)
    done = act(acting(settings=settings, has_broker=True), open_run, "resume").json()
    assert done["hints_sent"] == 1 and "Workers got messages about 1 shard" in done["done"]
    name = queue_of(settings, runs.get(db, open_run).plan)
    assert queue.depth(settings, name) == 1


def test_a_broker_that_is_away_is_said(acting: Acting, db: Database, open_run: str) -> None:
    give_up(db, open_run)
    settings = Settings(broker_url="redis://:secret@127.0.0.1:1/0")
    done = act(acting(settings=settings, has_broker=True), open_run, "resume").json()
    assert "broker does not answer" in done["done"] and done["hints_sent"] is None
    assert "secret" not in json.dumps(done) and states(db, open_run) == {"queued": 1, "done": 1}


def refused(answer: Any, status: int = 403) -> None:
    assert answer.status_code == status, answer.text


def test_only_its_own_form_s_token_counts(
    acting: Acting, db: Database, open_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = acting()
    other = biased_run(db)
    address = link("runs", open_run, "operate", "cancel")
    form = form_of(client, address)["form_token"]
    wrong = {
        "none": "",
        "no token": "x",
        "of another action": form_of(client, link("runs", open_run, "operate", "resume"))[
            "form_token"
        ],
        "of another run": form_of(client, link("runs", other, "operate", "cancel"))["form_token"],
        "longer": f"{int(form.partition('.')[0]) + 9}.{form.partition('.')[2]}",
        "without proof": form.partition(".")[0],
        "other digits": f"\u0661.{form}",
        "of another server": form_of(acting(), address)["form_token"],
        "a surrogate": f"{form.partition('.')[0]}.\ufffd",
    }
    for name, token in wrong.items():
        answer = client.post(address, data={"form_token": token}, headers={**OWN, **JSON})
        assert answer.status_code == 403, name
        assert "form" in answer.json()["error"], name
    refused(acting().post(address, data={"form_token": form}, headers=OWN))  # another browser
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2 * 3600 + 1)
    refused(client.post(address, data={"form_token": form}, headers=OWN))
    monkeypatch.undo()
    assert runs.get(db, open_run).state == "running"
    assert client.post(address, data={"form_token": form}, headers=OWN).status_code == 200


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ({}, True),  # a program
        (OWN, True),
        ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "http://LOCALHOST"}, True),
        ({"Origin": "https://audits.example.org", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "null"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://localhost:9999"}, False),
        ({"Origin": "http://localhost.evil.example"}, False),
        ({"Origin": "file://localhost"}, False),
        ({"Origin": "http://["}, False),
        ({"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
    ],
)
def test_a_request_begins_on_a_page_of_this_server(
    acting: Acting, db: Database, open_run: str, form: str, headers: dict[str, str], passes: bool
) -> None:
    client = acting(rules=AccessRules(hosts=frozenset(["audits.example.org"])))
    token = form_of(client, form)["form_token"]
    answer = client.post(form, data={"form_token": token}, headers={**JSON, **headers})
    assert answer.status_code == (200 if passes else 403)
    assert runs.get(db, open_run).state == ("cancelled" if passes else "running")


@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_form_is_good_at_another_replica_and_at_no_other_store(
    acting: Acting, db: Database, open_run: str, token: str | None
) -> None:
    rules = AccessRules(token=token)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    first, second = acting(rules=rules), acting(rules=rules)
    address = link("runs", open_run, "operate", "cancel")
    form = form_of(first, address, **headers)
    second.cookies = first.cookies
    sent = {"data": {"form_token": form["form_token"]}, "headers": {**OWN, **JSON, **headers}}
    assert second.post(address, **sent).status_code == 200
    if token is None:
        with db.begin() as connection:
            connection.execute(update(form_key).values(key=b"another store's"))
        elsewhere = acting(rules=rules)
        elsewhere.cookies = first.cookies
        refused(elsewhere.post(address, **sent))


def test_who_may_read_may_act_and_nobody_else(
    acting: Acting, db: Database, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = acting(rules=AccessRules(token=TOKEN))
    refused(client.post(form, data={}, headers={**JSON, **OWN}), 401)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    token = form_of(client, form, **bearer)["form_token"]
    client.cookies.clear()  # a program that keeps no cookies
    wrong = {"Authorization": f"Bearer {TOKEN}x"}
    refused(client.post(form, data={"form_token": token}, headers={**JSON, **wrong}), 401)
    with caplog.at_level(logging.WARNING):
        done = client.post(form, data={"form_token": token}, headers={**JSON, **bearer})
    assert done.status_code == 200 and "by 'token'" in caplog.text


def test_a_login_s_form_ends_with_the_login(
    acting: Acting, db: Database, open_run: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = acting(rules=AccessRules(token=TOKEN))
    html = {"Accept": "text/html"}
    assert client.get(form, headers=html).headers["location"].startswith("/login")
    assert client.post(link("login", to=form), data={"token": TOKEN}).status_code == 303
    token = form_of(client, form)["form_token"]
    later = time.time() + 5  # a session is named by its second
    monkeypatch.setattr("orchestrator.serve.access.time.time", lambda: later)
    assert client.post(link("login", to=form), data={"token": TOKEN}).status_code == 303
    refused(client.post(form, data={"form_token": token}, headers=OWN))
    assert act(client, open_run, "cancel").status_code == 200


def test_the_log_has_the_user_s_name_and_no_line_of_theirs(
    acting: Acting, db: Database, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    rules = AccessRules(user_header="x-user", proxies=(ip_network("10.0.0.0/24"),))
    client = acting(rules=rules, client=("10.0.0.7", 1))
    refused(client.post(form, data={}, headers={**JSON, **OWN}))
    token = form_of(client, form, **{"X-User": "bob"})["form_token"]
    body = {"form_token": token}
    refused(client.post(form, data=body, headers={**JSON, "X-User": "ann"}))
    odd: dict[str, Any] = {"X-User": b"ann\x85 run 1 by bob"}
    token = form_of(client, form, **odd)["form_token"]
    with caplog.at_level(logging.WARNING):
        done = client.post(form, data={"form_token": token}, headers={**JSON, **odd})
    assert done.status_code == 200 and "\\x85 run 1 by bob': The run" in caplog.text


def test_a_store_that_may_not_be_written_is_left_alone(
    acting: Acting, db: Database, open_run: str
) -> None:
    with Database(f"sqlite:///{db.path}", read_only=True) as reading:
        operator = FleetOperator(db=reading, settings=Settings(), has_broker=False)
        answer = act(acting(operator=operator), open_run, "cancel")
    assert answer.status_code == 503 and "must be allowed to write" in answer.json()["error"]
    assert runs.get(db, open_run).state == "running"


@pytest.mark.parametrize(
    ("run", "action"), [("none", "cancel"), (None, "delete"), ("~zz", "retry")]
)
def test_what_is_not_there_says_so(
    acting: Acting, open_run: str, run: str | None, action: str
) -> None:
    address = f"/runs/{run or open_run}/operate/{action}"
    assert acting().get(address).status_code == 404
    assert acting().post(address, data={}, headers=OWN).status_code in (403, 404)


def offered(client: TestClient, address: str) -> list[str]:
    page = Visible(client.get(address, headers={"Accept": "text/html"}).text)
    links = [one.get("href") or "" for tag, one in page.tags if tag == "a"]
    return [found[1] for one in links if (found := re.search(r"/operate/([a-z]+)$", one))]


def test_buttons_are_where_they_make_sense(
    acting: Acting, db: Database, run_id: str, open_run: str
) -> None:
    client = acting()
    both = (link("runs", open_run), link("runs", open_run, "failures"))
    for address in both:
        assert offered(client, address) == ["cancel", "resume"]
    assert "Read-only." not in client.get(both[0]).text
    give_up(db, open_run)
    for address in both:
        assert offered(client, address) == ["retry", "resume"]
    assert offered(client, link("runs", run_id)) == []  # what failed would again
    act(client, open_run, "resume")
    act(client, open_run, "cancel")
    for address in both:
        assert offered(client, address) == []


def test_the_openapi_document_has_the_forms(acting: Acting, client: TestClient) -> None:
    paths = acting().get("/openapi.json").json()["paths"]
    found = paths["/runs/{run}/operate/{action}.json"]
    assert found.keys() == {"get", "post"}
    (action,) = [one for one in found["post"]["parameters"] if one["name"] == "action"]
    assert action["schema"]["enum"] == list(ACTIONS)
    assert not [path for path in client.get("/openapi.json").json()["paths"] if "operate" in path]


def test_the_verb_opens_a_second_handle(
    call: Call, db: Database, open_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "orchestrator.serve.application.serve_pages",
        lambda store, rules, **given: seen.append({"store": store, **given}),
    )
    url = f"sqlite:///{db.path}"
    code, printed = call("serve", "--db", url)
    assert code == 0 and "(read-only)" in printed and seen[0]["operator"] is None
    monkeypatch.setenv("TRANSEXPLAIN_BROKER_URL", "redis://broker:6379/0")
    code, printed = call("serve", "--db", url, "--operate")
    assert code == 0 and "(operate)" in printed
    operator = seen[1]["operator"]
    assert operator.has_broker and operator.db is not seen[1]["store"]
    assert runs.cancel(operator.db, open_run)


@pytest.mark.exhaustive
def test_in_a_browser(browser: Any, db: Database, open_run: str) -> None:
    """By mouse and by keyboard, without a fault of accessibility."""
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    url = f"sqlite:///{db.path}"
    with ExitStack() as opened:
        writing = opened.enter_context(Database(url))
        operator = FleetOperator(db=writing, settings=Settings(), has_broker=False)
        here = opened.enter_context(listening(url, operator=operator))
        for scheme in ("light", "dark"):
            narrow = {"width": 400, "height": 900}
            run = link("runs", open_run)
            page, _ = looked_at(browser, here, run, color_scheme=scheme, viewport=narrow)
            page.get_by_role("link", name="Cancel").click()
            assert "1 shard" in page.inner_text("main") and faults(page) == []
            page.context.close()
        page, complaints = looked_at(browser, here, link("runs", open_run, "operate", "cancel"))
        page.get_by_role("button", name="Cancel this run").focus()
        page.keyboard.press("Enter")
        page.get_by_text("The run is cancelled").wait_for()
        assert faults(page) == complaints == []
        page.context.close()
    assert runs.get(db, open_run).state == "cancelled"
