"""Pages of `transexplain serve` in a real browser over a real socket, and what it complains of."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from orchestrator.serve.access import AccessRules
from orchestrator.serve.application import application, bounded_server
from orchestrator.serve.links import link
from transexplain.store.database import Database

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: how far a page reaches beyond its window
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@contextmanager
def listening(
    url: str, rules: AccessRules | None = None, buffer: int | None = None, **features: Any
) -> Iterator[str]:
    """The address of a real server over the store at `url`; `buffer`: bytes that the system sends.

    What is beyond them waits in the server for its client. `features`: an operator or a desk.
    """
    rules = rules or AccessRules()
    with Database(url, read_only=True) as store, socket.socket() as port:
        if buffer is not None:
            port.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        port.bind(("127.0.0.1", 0))
        running = bounded_server(application(store, rules, **features), rules)
        running.capture_signals = nullcontext  # a thread gets none
        thread = threading.Thread(target=running.run, kwargs={"sockets": [port]})
        thread.start()
        try:
            while not running.started:
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port.getsockname()[1]}"
        finally:
            running.should_exit = True
            thread.join()


def looked_at(browser: "Browser", server: str, address: str, **settings: Any) -> tuple[Any, list]:
    """An open page, and what the browser complains about."""
    complaints: list[str] = []
    page = browser.new_context(**settings).new_page()
    page.set_default_timeout(10_000)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda one: complaints.append(one.text) if one.type in ("error", "warning") else None,
    )
    page.on(
        "request",
        lambda one: (
            None
            if one.url.startswith((server, "data:"))
            else complaints.append(f"asked for {one.url}")
        ),
    )
    answer = page.goto(server + address)
    slow = address.split("?", maxsplit=1)[0].endswith(("/report", "/clusters"))
    if slow and answer.ok:  # the page is there at once, its part when it is computed
        page.wait_for_selector(".part:not([hx-trigger^=load])", timeout=120_000)
    return page, complaints


def faults(page: Any) -> list[tuple[str, str]]:
    """What axe-core finds, of any weight."""
    from axe_playwright_python.sync_playwright import Axe

    return [
        (one["id"], node["html"][:200])
        for one in Axe().run(page).response["violations"]
        for node in one["nodes"]
    ]


def addresses(run_id: str) -> dict[str, str]:
    """Name of each page -> an address of it in the sample run."""
    return {
        "runs": "/runs",
        "run": link("runs", run_id),
        "group": link("runs", run_id, "groups", "anns"),
        "entity": link("runs", run_id, "groups", "anns", "entities", "Ann"),
        "live_report": link("runs", run_id, "report"),
        "class": link("runs", run_id, "classes", "positive"),
        "clusters": link("runs", run_id, "classes", "positive", "clusters"),
        "items": link("runs", run_id, "items"),
        "item": link("runs", run_id, "items", "row-0"),
        "failures": link("runs", run_id, "failures"),
        "audit": link("audits", "sample audit"),
        "compare": "/compare",
        "fleet": "/fleet",
        "schedules": "/schedules",
    }


def every_page(run_id: str, **names: str) -> list[str]:
    """An address of every page of a run, and of some that were asked for something."""
    of = {"group": "anns", "entity": "Ann", "class": "positive", "item": "row-0", **names}
    audit = names.get("audit", "sample audit")
    return [
        *("/", "/fleet", "/schedules", "/compare", "/none"),
        link("compare", a=run_id, b=run_id),
        link("audits", audit),
        link("runs", run_id),
        link("runs", run_id, "items"),
        link("runs", run_id, "items", sort="strong"),
        link("runs", run_id, "items", word="good", sort="word-raises"),
        link("runs", run_id, "items", text="nowhere to be found"),
        link("runs", run_id, "items", of["item"]),
        link("runs", run_id, "items", of["item"], palette="green-red"),
        link("runs", run_id, "failures"),
        link("runs", run_id, "groups", of["group"]),
        link("runs", run_id, "groups", of["group"], "entities", of["entity"]),
        link("runs", run_id, "classes", of["class"]),
        link("runs", run_id, "report"),
        link("runs", run_id, "report", section="groups"),
        link("runs", run_id, "classes", of["class"], "clusters"),
    ]
