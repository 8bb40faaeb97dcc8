"""Every page as HTML and as JSON, on SQLite, with names that mean harm."""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fresh_stores import fresh_store
from noted_transactions import noted_transactions
from report_samples import (
    ANNS,
    BOBS,
    CLASSES,
    Visible,
    biased_run,
    explained_text,
    image_attribution,
    stored_run,
    write_picture,
)
from served_pages import addresses
from serving import told
from sqlalchemy import delete, update
from starlette.testclient import TestClient

from orchestrator.schedule.fire_times import latest
from orchestrator.serve.links import link, name_of, segment
from orchestrator.serve.page_table import PAGES
from transexplain.analysis.groups.counterfactuals import Observation
from transexplain.analysis.groups.shard_aggregate import ControlResults
from transexplain.reports.sql_results import write
from transexplain.store import browsing_items, queueing, runs, schedules, shards
from transexplain.store.browsing_items import ItemSearch
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.store.schedules import Receiver
from transexplain.store.schema import item
from transexplain.store.schema import schedule as schedule_table
from transexplain.types.items import EntityGroup, ItemFailure
from transexplain.types.plans import DatasetRef, Shard

if TYPE_CHECKING:
    pass

Serve = Callable[..., TestClient]
HOSTILE = (
    "<script>hacked()</script>",
    "\"'><img src=x onerror=hacked()>",
    "nul\0in it",
    "\u202eright to left",
    "a/b/../c",
    "..",
    "x.json",
    "~tilde",
    "100 %? #a&b=c+d",
    "lone \ud800",
    "w" * 300,
)


def shown(client: TestClient, address: str, status: int = 200) -> Visible:
    answer = client.get(address, headers={"Accept": "text/html"})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return Visible(answer.text)


def test_every_page_has_html_and_the_same_as_json(client: TestClient, run_id: str) -> None:
    known = addresses(run_id)
    assert known.keys() == {page.name for page in PAGES}
    for address in known.values():
        assert shown(client, address).text.strip()
        beside, by_header = client.get(f"{address}.json").json(), told(client, address)
        moving = {"now", "progress", "devices", "at", "waiting", "sections"}
        assert {k: v for k, v in beside.items() if k not in moving} == {
            k: v for k, v in by_header.items() if k not in moving
        }


@pytest.mark.parametrize(
    "database", ["db", pytest.param("postgres_url", marks=pytest.mark.postgres)]
)
def test_every_json_page_while_a_fleet_works(
    serve: Serve, database: str, request: pytest.FixtureRequest
) -> None:
    """A worker holds a shard, another one waits, and sums of PostgreSQL are not of Python's."""
    given = request.getfixturevalue(database)
    url = given if isinstance(given, str) else f"sqlite:///{given.path}"
    with open_database(url, upgrade=True) as store:
        over, at_work = biased_run(store), biased_run(store, leave=2)
        assert write(store, over)
        assert shards.claim(store, at_work, "worker-1", 60.0)
        client = serve(url=url)
        for run_id in (over, at_work):
            for name, address in addresses(run_id).items():
                if (run_id, name) != (at_work, "group"):  # found when the run is over
                    told(client, address)
        told(client, link("compare", a=over, b=at_work))
        fleet = told(client, "/fleet")
        assert [one["name"] for one in fleet["workers"]] == ["worker-1"]
        assert fleet["shards"]["running"] == 1 and fleet["queued"] == 1
        row = next(one for one in fleet["running"] if one["id"] == at_work)
        numbers = [row[name] for name in ("shards", "queued", "in_work", "items", "items_done")]
        assert [type(one) for one in numbers] == [int] * 5
        assert (row["queued"], row["in_work"]) == (1, 1) and 0 < row["items_done"] < row["items"]
        assert client.get("/metrics").status_code == 200


@pytest.mark.exhaustive
def test_every_link_of_every_page_leads_to_a_page(client: TestClient, run_id: str) -> None:
    todo, seen = list(addresses(run_id).values()), set()
    while todo:
        address = todo.pop()
        if address in seen:
            continue
        seen.add(address)
        answer = client.get(address, headers={"Accept": "text/html"})
        assert answer.status_code == 200, address
        if "html" in answer.headers["content-type"]:
            tags = Visible(answer.text).tags
            todo += [attrs["href"] for tag, attrs in tags if tag == "a" and attrs.get("href")]
            assert not [tag for tag, attrs in tags if tag == "script" and "src" not in attrs]
    assert len(seen) > 40


def test_every_page_reads_in_one_transaction(serve: Serve, db: Database, run_id: str) -> None:
    """Each transaction costs three ways to the server beside that of its statement."""
    client = serve()
    made_elsewhere = ("live_report", "clusters")
    pages = {name: at for name, at in addresses(run_id).items() if name not in made_elsewhere}
    for name, address in pages.items():
        with noted_transactions() as begun:
            assert client.get(address).status_code == 200
        assert len(begun) == 1, name


def test_a_run_says_its_verdict_first_and_all_three_kinds_of_evidence(
    client: TestClient, run_id: str
) -> None:
    page = client.get(link("runs", run_id)).text
    found = told(client, link("runs", run_id))
    verdict = found["result"]["verdict"]
    assert page.index('class="verdict verdict-flagged"') < page.index('id="progress"')
    assert verdict in Visible(page).text
    (anns,) = [one for one in found["group_verdicts"] if one["group_name"] == "anns"]
    assert (anns["state"], anns["mention"]) == ("flagged", "changes")
    assert anns["probability"] > 0.05
    assert found["progress"]["items_done"] == 36 and found["failures"] == {
        "empty-text": 1,
        "null": 1,
    }
    group = told(client, link("runs", run_id, "groups", "anns"))
    assert {row["state"] for row in group["measures"]["mention"]} & {"outside"}
    assert group["measures"]["outcome"]
    assert all(group[kind] for kind in ("counterfactuals", "outcomes", "relevance", "entities"))


def test_an_entity_is_shown_in_its_context(client: TestClient, run_id: str) -> None:
    found = told(client, link("runs", run_id, "groups", "anns", "entities", "Ann"))
    assert [one["item_id"] for one in found["items"]] == ["row-0", "row-12", "row-24"]
    (place,) = found["items"][0]["places"]
    assert (place["before"], place["surface"], place["after"]) == ("", "Ann", " was bad today")
    assert place["relevance"][0]["value"] == pytest.approx(0.5)
    assert (
        "Ann was bad today"
        in shown(client, link("runs", run_id, "groups", "anns", "entities", "Ann")).text
    )


def test_a_class_has_its_words_and_confusions(client: TestClient, run_id: str) -> None:
    found = told(client, link("runs", run_id, "classes", "positive"))
    (raising,) = [one for one in found["words"] if one["list"] == "raising_by_total"]
    assert "good" in [word["word"] for word in raising["words"]]
    assert found["counted_all"] and found["counted_shards"] == 6
    (places,) = found["positions"]
    assert len(places["parts"]) == 20 and sum(one["positions"] for one in places["parts"]) == 144
    labelled = {one["predicted"]: one["items"] for one in found["labelled"]}
    assert sum(labelled.values()) == 24  # every third text is labelled negative
    asked = link("runs", run_id, "items", label="positive", predicted="positive")
    assert len(told(client, asked)["items"]) == labelled["positive"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"text": "BEN WAS"}, ["row-7", "row-19", "row-31"]),
        ({"entity": "Ben"}, ["row-7", "row-19", "row-31"]),
        ({"entity": "Ben", "group": "anns"}, []),
        ({"group": "anns", "label": "negative", "text": "Ava"}, []),
        ({"text": "amy", "start": 3}, ["row-14", "row-26"]),
    ],
)
def test_items_are_found(
    client: TestClient, run_id: str, query: dict[str, object], wanted: list[str]
) -> None:
    found = told(client, link("runs", run_id, "items", **query))
    assert [one["item_id"] for one in found["items"]] == wanted
    assert found["next"] is None


def test_a_search_stops_when_its_time_is_up_and_goes_on(db: Database, run_id: str) -> None:
    ids, start, steps = [], 0, 0
    while start is not None:
        found = browsing_items.search(
            db, run_id, ItemSearch(text="was"), start=start, limit=100, seconds=-1.0
        )
        ids += [one.item_id for one in found.found]
        start, steps = found.next_row, steps + 1
    assert ids == [f"row-{number}" for number in range(36)]
    assert steps > 1


def test_runs_are_found_and_paged_by_key(client: TestClient, db: Database) -> None:
    words = [explained_text(0, "good tea", "positive")]
    ids = [stored_run(db, words, name=f"audit {number % 2}") for number in range(53)]
    first = told(client, "/runs")
    assert [one["id"] for one in first["runs"]] == ids[:2:-1]
    second = told(client, first["next"])
    assert [one["id"] for one in second["runs"]] == ids[2::-1] and second["next"] is None
    named = told(client, "/runs?name=AUDIT+1&model=els/M&state=done")
    assert [one["id"] for one in named["runs"]] == ids[51::-2]
    assert told(client, "/runs?name=nothing")["runs"] == []
    assert told(client, "/runs?model=100%25")["runs"] == []


def test_two_runs_side_by_side_and_the_trend(client: TestClient, db: Database, run_id: str) -> None:
    later = biased_run(db, checked=None, previous=run_id)
    assert write(db, later)
    found = told(client, link("compare", a=run_id, b=later))
    (anns,) = [pair for pair in found["group_verdicts"] if pair["after"]["group_name"] == "anns"]
    assert (anns["before"]["mention"], anns["after"]["mention"]) == ("changes", "open")
    assert {one["question"] for one in found["changed"]} == {"mention"}
    trend = told(client, link("audits", "sample audit"))
    assert [row["id"] for row in trend["groups"]["anns"]] == [later, run_id]
    assert link("compare", a=run_id, b=later) in {
        attrs.get("href") for _, attrs in shown(client, link("runs", later)).tags
    }


def test_progress_needs_no_script(client: TestClient, db: Database) -> None:
    run_id = biased_run(db, leave=2)
    page = client.get(link("runs", run_id)).text
    assert re.search(r'<noscript><meta http-equiv="refresh" content="\d+"></noscript>', page)
    assert 'hx-trigger="every 3s"' in page and "/static/htmx.js?v=" in page
    assert told(client, link("runs", run_id))["progress"]["states"]["queued"] == 2
    claim = shards.claim(db, run_id, "worker <b>", 60.0)
    assert claim is not None
    fleet = told(client, "/fleet")
    assert [one["name"] for one in fleet["workers"]] == ["worker <b>"] and fleet["queued"] == 1
    assert "worker <b>" in shown(client, "/fleet").text
    done = stored_run(db, [explained_text(0, "good tea", "positive")])
    assert "every 3s" not in client.get(link("runs", done)).text


def test_schedules_show_no_secret(client: TestClient, db: Database) -> None:
    schedules.add(
        db,
        schedules.Planned(
            name="night <i>",
            cron="0 3 * * *",
            time_zone="Europe/Berlin",
            spec={"secret": "hush-1"},
            receivers=(Receiver(kind="json", address="https://example.org/hush-2"),),
        ),
    )
    page = client.get("/schedules").text
    (found,) = told(client, "/schedules")["schedules"]
    assert found["next"] > found["created"] - 1 and found["fires"] == []
    assert "hush" not in page + json.dumps(found)
    (to,) = found["receivers"]
    assert (to["number"], to["kind"], to["state"]) == (1, "json", None) and "none yet" in page
    assert "night <i>" in Visible(page).text


def test_a_schedule_that_missed_its_time_is_told_from_one_whose_run_is_paused(
    client: TestClient, db: Database, run_id: str
) -> None:
    yearly = {"cron": "0 3 1 1 *", "time_zone": "UTC", "spec": {}}
    for name in ("late", "waits"):
        schedules.add(db, schedules.Planned(name=name, **yearly))
    with db.begin() as connection:
        a_year_ago = schedule_table.c.since - 366 * 86400
        connection.execute(update(schedule_table).values(since=a_year_ago))
    due, plan = schedules.get(db, "waits"), runs.get(db, run_id).plan
    at = latest(due.cron, due.time_zone, time.time())
    waiting = schedules.fire(db, due, at, (plan, [Shard(index=0, start=0, stop=1)]), None)
    assert waiting and queueing.pause(db, waiting)
    found = {one["name"]: one for one in told(client, "/schedules")["schedules"]}
    assert found["late"]["overdue"] > 900 and found["waits"]["overdue"] == 0
    late, waits = client.get("/schedules").text.split("<section")[1:]
    assert "missed" in late and "missed" not in waits
    assert '<span class="tag">paused</span>' in waits


def test_a_picture_is_drawn_with_every_target(
    client: TestClient, db: Database, tmp_path: Path
) -> None:
    write_picture(tmp_path, "pictures/a.png")
    outcome, _ = explained_text(0, "x", "positive", source="a.png", item_id="a.png")
    grid = np.arange(6).reshape(2, 3) - 2.5
    made = image_attribution(grid, item_id="a.png", target="class:positive")
    data = DatasetRef(
        source="p",
        modality="image",
        snapshot="",
        fingerprint="f",
        rows=1,
        root=str(tmp_path / "pictures"),
    )
    run_id = stored_run(db, [(replace(outcome, text=None), made)], dataset=data)
    address = link("runs", run_id, "items", "a.png")
    pictures = [attrs for tag, attrs in shown(client, address).tags if tag == "img"]
    assert len(pictures) == 2
    assert all(one["src"].startswith("data:image/") and one["alt"] for one in pictures)
    assert told(client, address)["explanations"][0]["grid"] == pytest.approx(grid, abs=1e-3)
    (tmp_path / "pictures" / "a.png").unlink()
    assert "a.png" in shown(client, address).text  # the heatmap stands alone


def test_pages_say_that_a_run_is_not_whole(client: TestClient, db: Database, run_id: str) -> None:
    inside = (item.c.run_id == run_id) & (item.c.shard == 1)
    with db.begin() as connection:
        connection.execute(update(item).where(inside).values(label="another"))
    for address in (link("runs", run_id, "items"), link("runs", run_id, "items", "row-7")):
        answer = client.get(address)
        assert answer.status_code == 500 and f"transexplain resume {run_id}" in answer.text
    assert client.get(link("runs", run_id, "items", "row-0")).status_code == 200
    with db.begin() as connection:
        connection.execute(delete(item).where(inside))
    for name in ("run", "group", "class", "items"):
        address = addresses(run_id)[name]
        assert told(client, address)["damaged_shards"] == [1]
        assert f"transexplain resume {run_id}" in shown(client, address).text


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_one_segment_and_comes_back(name: str) -> None:
    written = segment(name)
    assert re.fullmatch(r"[\w.~%-]+", written, re.ASCII) and not written.endswith(".json")
    assert written.strip(".") and name_of(written) == name


def test_hostile_names_and_texts_run_nothing(client: TestClient, db: Database) -> None:
    explained = []
    for number, name in enumerate(HOSTILE):
        outcome, made = explained_text(number, f"Ann {name} today", CLASSES[1])
        explained.append(
            (
                replace(outcome, item_id=name, raw_label=name, meta={name: name}),
                replace(made, item_id=name, notes=(name,)),
            )
        )
    failed = ItemFailure(item_id="bad <b>", index=len(HOSTILE), kind="null", message=HOSTILE[0])
    group = EntityGroup(name="<i>/..", terms=("Ann",))
    run_id = stored_run(db, explained, [failed], groups=[group], name=HOSTILE[1])
    assert write(db, run_id)
    todo = [link("runs", run_id), link("runs", run_id, "items"), link("runs", run_id, "failures")]
    todo += [link("runs", run_id, "items", name) for name in (*HOSTILE, "bad <b>")]
    todo += [link("runs", run_id, "groups", "<i>/.."), link("audits", HOSTILE[1]), "/"]
    todo += [link("runs", run_id, "groups", "<i>/..", "entities", "Ann")]
    for address in todo:
        page = shown(client, address)
        assert not {"img", "i", "b"} & {tag for tag, attrs in page.tags if "style" not in attrs}, (
            address
        )
        scripts = [attrs for tag, attrs in page.tags if tag == "script"]
        assert all(one["src"].startswith("/static/") for one in scripts)
        assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on")]
        told(client, address if address != "/" else "/runs")
    for name in HOSTILE:
        assert told(client, link("runs", run_id, "items", name))["item"]["item_id"] == name
    found = told(client, link("runs", run_id, "items", text="a/b/../c"))["items"]
    assert [one["item_id"] for one in found] == ["a/b/../c"]


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/nothing", 404),
        ("/runs/none", 404),
        ("/runs/none/items/x", 404),
        ("/audits/none", 404),
        ("/compare?a=x&b=y", 404),
        ("/runs?before=soon", 422),
        ("/runs?state=odd", 422),
        (f"/runs?name={'x' * 501}", 422),
        ("/runs/%ff", 404),
        ("/runs/~zz", 404),
    ],
)
def test_what_is_not_there_leads_on(
    client: TestClient, run_id: str, address: str, status: int
) -> None:
    page = shown(client, address, status)
    assert ("a", "/") in [(tag, attrs.get("href")) for tag, attrs in page.tags]
    found = client.get(address, headers={"Accept": "application/json"})
    assert found.status_code == status and found.json()["error"]


@pytest.mark.parametrize(
    "words",
    [
        ("groups", "none"),
        ("classes", "none"),
        ("classes", "none", "clusters"),
        ("classes", "no <b>such", "clusters"),
        ("items", "none"),
        ("groups", "a", "entities", "b"),
        ("groups", "anns", "entities", "b"),
        ("groups", "a", "entities", "Ann"),
    ],
)
def test_what_a_run_has_not_leads_back_to_the_run(
    client: TestClient, run_id: str, words: tuple[str, ...]
) -> None:
    page = shown(client, link("runs", run_id, *words), 404)
    assert link("runs", run_id) in [attrs.get("href") for _, attrs in page.tags]
    assert "no <b>such" not in client.get(link("runs", run_id, *words)).text
    assert client.get(link("runs", run_id, *words, start=7)).status_code == 404
    assert client.get(link("runs", run_id, "items", start="x")).status_code == 422


def test_a_class_of_items_alone_is_known(client: TestClient, db: Database) -> None:
    """Results may not be written yet, and an item may have a class that the plan does not name."""
    explained = [explained_text(0, "good tea", "positive"), explained_text(1, "bad tea", "odd")]
    of_run = stored_run(db, explained)
    for name, status in (("odd", 200), ("odder", 404)):
        for below in ((), ("clusters",)):
            address = link("runs", of_run, "classes", name, *below)
            assert client.get(address).status_code == status, address


def test_the_openapi_document_names_every_page(client: TestClient) -> None:
    found = client.get("/openapi.json").json()
    assert found["paths"].keys() == {f"{page.path}.json" for page in PAGES}
    for page in PAGES:
        named = found["paths"][f"{page.path}.json"]["get"]["parameters"]
        paths = [one["name"] for one in named if one["in"] == "path"]
        assert [f"{{{name}}}" for name in paths] == re.findall(r"\{\w+\}", page.path)
        assert page.summary


def test_an_empty_store_says_so(serve: Serve, tmp_path: Path) -> None:
    with fresh_store(tmp_path / "empty.db") as empty:
        client = serve(url=f"sqlite:///{empty.path}")
        assert "no runs yet" in shown(client, "/").text
        for address in ("/fleet", "/schedules", "/compare"):
            shown(client, address)


# ---- texts of counterfactuals -------------------------------------------------------------------


def from_templates() -> list[Observation]:
    """An Ann and a Bob in each of 30 templates, as items that came with these names."""
    return [
        Observation(
            document=f"template {number} <b>",
            group=group,
            entity=names[number % 6],
            template=True,
            own=True,
            positions=6,
            predicted=("negative", "positive")[worth > 0],
            log_odds=(worth + 0.01 * number,),
        )
        for number in range(30)
        for group, names, worth in (("anns", ANNS, 1.0), ("bobs", BOBS, 0.0))
    ]


def links(client: TestClient, address: str) -> Iterator[str]:
    """Where the links of a page lead, its own places left out."""
    answer = client.get(address)
    assert answer.status_code == 200, f"{address}: {answer.status_code}"
    for tag, attrs in Visible(answer.text).tags:
        if tag == "a" and not (attrs.get("href") or "#").startswith("#"):
            yield attrs["href"]


def test_a_text_with_swapped_names_leads_to_its_item_unless_a_template_made_it(
    client: TestClient, db: Database
) -> None:
    templates = biased_run(db, checked=ControlResults(observations=from_templates()))
    assert write(db, templates)
    address = link("runs", templates, "groups", "anns", "entities", ANNS[0])
    widest = client.get(f"{address}.json").json()["swaps"]["widest"]
    assert widest and not any(one["is_item"] for one in widest)
    assert "template 0 &lt;b&gt;" in client.get(address).text
    assert not [one for one in links(client, address) if "template" in one]
    own = biased_run(db)
    assert write(db, own)
    address = link("runs", own, "groups", "anns", "entities", ANNS[0])
    found = list(links(client, address))
    for one in client.get(f"{address}.json").json()["swaps"]["widest"]:
        assert one["is_item"] and link("runs", own, "items", one["document"]) in found


# ---- eight questions that a stranger asks the pages of a store whose answers are know -----------
