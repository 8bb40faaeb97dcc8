"""What readers bring is explained as `te.explain` does, within limits, and is kept nowhere."""

import io
import json
import logging
import multiprocessing
import os
import shutil
import signal
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import transformers
from browser_pages import ATTACKS
from chaos_groups import lives, wait_for
from fresh_stores import fresh_store
from PIL import Image
from report_samples import Visible
from served_pages import WIDER, faults, listening, looked_at
from serving import JSON, OWN, acting_client, form_of
from starlette.testclient import TestClient

import transexplain as te
from orchestrator.serve import live_desk
from orchestrator.serve.links import link
from orchestrator.serve.live_desk import Buckets, LiveDesk, LiveRequest, LiveSettings, RequestError
from orchestrator.serve.own_forms import TOKEN
from transexplain.models.load import load_model
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.types.plans import AuditPlan, Classification, DatasetRef, Shard
from transexplain.types.scores import MethodSpec

Live = Callable[..., TestClient]
Call = Callable[..., tuple[int, str]]
TEXT = "a nice film, unbelievably good"
PATIENCE = 300  #: seconds a browser waits: a process that imports torch is slow on a busy machine


class DeskHere(LiveDesk):
    """A desk whose worker is a thread here: quick to begin, and dead when its pipe is."""

    def _begun(self, target: Callable[..., None], *args: Any) -> Any:
        self._child = _Thread(*args)  # type: ignore[assignment]
        return self._child


class _Thread:
    """As much of a child process as a desk asks for; it ends when its pipe does."""

    pid = os.getpid()

    def __init__(self, device: str, idle_seconds: float) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        bench = live_desk._Bench(theirs, device)

        def work() -> None:
            with theirs, suppress(EOFError, OSError):
                while True:
                    bench.say(**bench.answer(theirs.recv()))

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def kill(self) -> None:
        """What it computes is for nobody."""

    def end(self) -> None:
        self.pipe.close()


class House:
    """A store with a run of each kind of model, and a client that all tests share."""

    def __init__(self, folder: Path, db: Database, client: TestClient) -> None:
        self.db, self.client = db, client
        self.bert, self.vit = folder / "bert", folder / "vit"
        tiny_models.bert(id2label={0: "bad", 1: "so-so", 2: "good"}).save_pretrained(self.bert)
        tiny_models.wordpiece().save_pretrained(self.bert)
        tiny_models.vit().save_pretrained(self.vit)
        size = {"height": 24, "width": 24}
        transformers.ViTImageProcessor(size=size).save_pretrained(self.vit)
        self.text_model, self.picture_model = load_model(str(self.bert)), load_model(str(self.vit))
        self.texts = stored(db, self.text_model)
        self.pictures = stored(db, self.picture_model)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("live")
    with (
        fresh_store(folder / "store.db") as db,
        Database(f"sqlite:///{db.path}", read_only=True) as reading,
        acting_client(reading, desk=DeskHere(LiveSettings(rate=100_000))) as client,
    ):
        yield House(folder, db, client)


@pytest.fixture
def live(house: House, serve: Live) -> Live:
    """Makes clients of other servers over the same store."""
    return lambda desk: serve(url=f"sqlite:///{house.db.path}", desk=desk)


def desk_here(house: House, **limits: Any) -> DeskHere:
    """A desk that need not try which methods the models allow."""
    desk = DeskHere(LiveSettings(**{"rate": 1_000, **limits}))
    for model in (house.text_model, house.picture_model):
        desk._refused[model.ref.digest] = {}
    return desk


def stored(db: Database, model: Any, **keys: Any) -> str:
    """A run of a plan with this model; nothing of it is worked on."""
    modality = model.ref.modality
    dataset = DatasetRef(
        source="x", modality=modality, snapshot="s.parquet", fingerprint="f" * 64, rows=1
    )
    plan = AuditPlan(**{"name": "live", "model": model.ref, "dataset": dataset, **keys})
    return runs.create(db, plan, [Shard(index=0, start=0, stop=1)])


def picture(side: int = 40, kind: str = "PNG") -> bytes:
    made = np.random.default_rng(1).integers(0, 256, (side, side + 8, 3)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(made).save(buffer, kind)
    return buffer.getvalue()


def explain(client: TestClient, run_id: str, **given: Any) -> Any:
    """Send the form as a browser does, a picture with a name; the answer as JSON."""
    address = link("runs", run_id, "explain")
    headers = {**OWN, **given.pop("headers", JSON)}
    token = given.pop("token", None) or form_of(client, address)[TOKEN]
    given_picture = given.pop("picture", None)
    file = ("", b"") if given_picture is None else ("secret-name.png", given_picture)
    parts = {name: (None, value) for name, value in {TOKEN: token, **given}.items()}
    return client.post(address, files={**parts, "picture": file}, headers=headers)


def same(found: Any, wanted: Any) -> None:
    """One explanation of an answer against an attribution of `te.explain`."""
    assert (found["class_name"], found["unit"], found["at"]) == (
        wanted.class_name,
        wanted.unit,
        wanted.at,
    )
    scale = float(np.abs(wanted.relevance).max())
    np.testing.assert_allclose(found["relevance"], wanted.relevance, rtol=0, atol=2e-6 * scale)
    assert found["logit"] == pytest.approx(wanted.logit, abs=1e-5)
    if wanted.ledger is None:
        assert found["ledger"] is None
        return
    assert found["ledger"]["inputs"] == pytest.approx(wanted.ledger.inputs, abs=1e-5)
    assert found["ledger"]["relative_gap"] < 5e-6


def test_without_live_nothing_is_explained(client: TestClient, run_id: str) -> None:
    address = link("runs", run_id, "explain")
    assert client.get(address).status_code == 403
    assert "--live" in client.get(address, headers=JSON).json()["error"]
    assert client.post(address, data={"text": "x"}, headers=OWN).status_code == 405
    assert address not in client.get(link("runs", run_id)).text
    assert "explain" not in "".join(client.get("/openapi.json").json()["paths"])


@pytest.mark.exhaustive
def test_a_text_by_two_methods_is_what_te_explain_says(house: House) -> None:
    model = house.text_model
    given = {"method": "lrp", "beside": "rollout", "target": "class:good"}
    answer = explain(house.client, house.texts, text=TEXT, **given)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert [one["method"] for one in found["methods"]] == ["lrp", "rollout"]
    for one in found["methods"]:
        wanted = te.explain(model, TEXT, one["method"], "class:good")
        assert len(one["explanations"]) == len(wanted) == 1
        same(one["explanations"][0], wanted[0])
        words = [TEXT[a:b] for a, b, _ in one["explanations"][0]["words"]]
        assert words == [word.text for word in wanted[0].words()]
    (first,) = te.explain(model, TEXT)
    assert found["predicted"] == first.class_name
    assert found["logits"][first.class_name] == pytest.approx(first.logit, abs=1e-5)
    assert set(found["logits"]) == {"bad", "so-so", "good"}


def test_a_picture_by_two_methods_is_what_te_explain_says(house: House, tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    file.write_bytes(picture())
    given = {"method": "lrp", "beside": "gae", "target": "all"}
    found = explain(house.client, house.pictures, picture=picture(), **given)
    assert found.status_code == 200, found.text
    for one in found.json()["methods"]:
        wanted = te.explain(house.picture_model, file, one["method"], "all")
        for each, other in zip(one["explanations"], wanted, strict=True):
            same(each, other)
            assert each["tokens"] == [] and len(each["relevance"]) == other.features.rows
        assert "drawn" not in one


def test_the_plan_s_own_parameters_and_classes_are_used(house: House) -> None:
    model = house.text_model
    method = MethodSpec(name="lrp-gamma", params={"gamma": 0.5})
    mixed = Classification(name="mixed", classes=("bad", "good"))
    long = {"long_text": "window", "window": 8, "long_text_join": "sum"}
    run_id = stored(house.db, model, method=method, classifications=(mixed,), **long)
    client, text = house.client, " ".join([TEXT] * 6)
    form = form_of(client, link("runs", run_id, "explain"))
    assert form["methods"][0]["name"] == "lrp-gamma" and "mixed" in form["targets"]
    found = explain(client, run_id, text=text, target="mixed").json()
    (one,) = found["methods"]
    wanted = te.explain(
        model,
        text,
        method,
        "mixed",
        classifications=[{"name": "mixed", "classes": ["bad", "good"]}],
        **long,
    )
    same(one["explanations"][0], wanted[0])
    assert not found["truncated"]


def test_the_page_has_words_in_colour_and_works_without_scripts(house: House) -> None:
    client, texts = house.client, house.texts
    before = Visible(client.get(link("runs", texts, "explain")).text)
    form = next(one for tag, one in before.tags if tag == "form")
    assert form["method"] == "post" and form["enctype"] == "multipart/form-data"
    assert link("runs", texts, "explain") in client.get(link("runs", texts)).text
    html = {"Accept": "text/html"}
    page = explain(client, texts, text=TEXT, method="lrp", beside="attention-last", headers=html)
    assert page.status_code == 200 and page.text.count('<span class="tx"') == 2
    assert page.text.count('class="ledger-table"') == 1 and "It keeps no ledger" in page.text
    assert TEXT in Visible(page.text).text and "Predicted" in page.text
    assert "selected>attention-last" in page.text


def test_methods_that_do_not_fit_are_no_choice(house: House) -> None:
    client, texts = house.client, house.texts
    for run_id, kind in ((texts, "text"), (house.pictures, "image")):
        form = form_of(client, link("runs", run_id, "explain"))
        names = [one["name"] for one in form["methods"]]
        assert form["modality"] == kind and names[0] == "lrp"
        assert {"learned", "decoded-gradcam"}.isdisjoint(names) and "gae" in names
    for name in ("learned", "strategies", "decoded-gradcam", "\u202e<b>"):
        refused = explain(client, texts, text=TEXT, method=name)
        assert refused.status_code == 422 and "Choose one of lrp" in refused.json()["error"]


@pytest.mark.exhaustive
def test_a_method_that_the_model_refuses_goes_from_the_choice(
    live: Live, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, method: str) -> None:
        raise te.errors.ConfigurationError(f"{method} is not for this model")

    monkeypatch.setattr("transexplain.methods.global_maps.explain_rollout", refuse)
    client, texts = live(DeskHere(LiveSettings())), house.texts
    found = explain(client, texts, text=TEXT, method="lrp", beside="rollout").json()
    assert found["methods"][0]["error"] is None
    assert "not for this model" in found["methods"][1]["error"]
    names = [one["name"] for one in form_of(client, link("runs", texts, "explain"))["methods"]]
    assert "rollout" not in names and "gae" in names
    again = explain(client, texts, text=TEXT, method="rollout")
    assert again.status_code == 422 and "not for this model" in again.json()["error"]


HOSTILE = {
    "nothing": ("", 422, "first"),
    "blanks": (" \n\t", 422, "first"),
    "NUL": ("good \0 film \0", 200, ""),
    "markup": (f"good {ATTACKS[0]} {ATTACKS[1]}", 200, ""),
    "directions": ("\u202eright to left\u2066 good", 200, ""),
    "one long word": ("x" * 60_000, 200, ""),
    "many words": ("good " * 12_000, 200, ""),
    "too large": ("x" * 70_000, 413, "at most 65,536 bytes"),
    "a megabyte of one word": ("y" * 1_000_000, 413, "at most 65,536 bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_shown_or_refused(house: House, name: str) -> None:
    text, status, says = HOSTILE[name]
    client, texts = house.client, house.texts
    answer = explain(client, texts, text=text)
    assert answer.status_code == status, answer.text
    assert says in answer.json().get("error", "")
    page = explain(client, texts, text=text, headers={"Accept": "text/html"})
    assert page.status_code == status and "<img src=x" not in page.text
    assert not [one for tag, one in Visible(page.text).tags if "onerror" in one]


def bomb(width: int = 30_000, height: int = 30_000) -> bytes:
    """A PNG of few bytes that says it has very many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        tail = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + tail

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x00\x00\x00\x00"
    data = zlib.compress(b"\0" * 100_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="window.hacked=1"><script>1</script></svg>'
BAD_PICTURES = {
    "no bytes": (b"", 422, "no bytes"),
    "SVG": (SVG, 422, "is not a picture"),
    "a bomb": (bomb(), 413, "pixels"),
    "more than the limit": (bomb(5_000, 5_000), 413, "16,000,000 pixels"),
    "cut off": (picture(200)[:900], 422, "damaged"),
    "noise": (os.urandom(5_000), 422, "is not a picture"),
    "a zip": (zlib.compress(b"x" * 999), 422, "is not a picture"),
    "PDF": (b"%PDF-1.7\n", 422, "is not a picture"),
    "TIFF": (picture(kind="TIFF"), 422, "is not a picture"),
    "NUL": (b"\0" * 4_096, 422, "is not a picture"),
    "too many bytes": (b"\xff" * 10_485_761, 413, "10,485,760 bytes"),
    "far too many bytes": (b"\xff" * 12_000_000, 413, "10,485,760 bytes"),
}


@pytest.mark.parametrize("name", BAD_PICTURES)
def test_hostile_pictures_are_refused_plainly(house: House, name: str) -> None:
    data, status, says = BAD_PICTURES[name]
    answer = explain(house.client, house.pictures, picture=data)
    assert answer.status_code == status, answer.text
    assert says in answer.json()["error"] and "secret-name" not in answer.text


@pytest.mark.parametrize("target", ["none", "top:99", "class:", "label", "\u202e", "all:x"])
def test_a_target_that_is_not_there_is_said(house: House, target: str) -> None:
    answer = explain(house.client, house.texts, text=TEXT, target=target)
    assert answer.status_code == 422 and answer.json()["error"]


def test_nothing_that_is_given_is_stored_or_logged(
    house: House,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "tempfile.TemporaryFile", lambda *_, **__: pytest.fail("a file was written")
    )
    client, texts = house.client, house.texts
    with caplog.at_level(logging.DEBUG):
        assert explain(client, texts, text="good sesame film").status_code == 200
        assert explain(client, texts, text="sesame " * 20_000).status_code == 413
        assert explain(client, texts, text="sesame film", target="none").status_code == 422
        big = picture(900, "BMP")
        assert len(big) > 2**20
        assert explain(client, house.pictures, picture=big).status_code == 200
    printed = capfd.readouterr()
    for where in (caplog.text, printed.out, printed.err):
        assert "sesame" not in where and "secret-name" not in where
    for file in house.db.path.parent.rglob("store.db*"):
        assert b"sesame" not in file.read_bytes()


def test_a_failure_of_the_model_is_told_without_what_was_given(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_model: Any, item: Any, _request: Any) -> None:
        raise RuntimeError(f"cannot read {item.content}")

    monkeypatch.setattr("orchestrator.serve.live_desk._one", fail)
    answer = explain(house.client, house.texts, text="good sesame")
    assert answer.status_code == 500 and "RuntimeError" in answer.json()["error"]
    assert "sesame" not in answer.text and "sesame" not in caplog.text


def test_the_form_needs_its_token_and_this_origin(house: House) -> None:
    client, texts = house.client, house.texts
    own = form_of(client, link("runs", texts, "explain"))[TOKEN]
    other = form_of(client, link("runs", house.pictures, "explain"))[TOKEN]
    evil = {**JSON, "Origin": "http://evil.example"}
    for token, headers in ((other, JSON), (own, evil)):
        refused = explain(client, texts, text=TEXT, token=token, headers=headers)
        assert refused.status_code == 403
    client.cookies.clear()
    assert explain(client, texts, text=TEXT, token=own).status_code == 403


def test_requests_of_a_client_are_counted(live: Live, house: House) -> None:
    client, texts = live(desk_here(house, rate=2)), house.texts
    for _ in range(2):
        assert explain(client, texts, text=TEXT).status_code == 200
    refused = explain(client, texts, text=TEXT)
    assert refused.status_code == 429 and refused.headers["retry-after"]
    assert "At most 2 requests a minute" in refused.json()["error"]


def test_a_bucket_fills_with_time() -> None:
    buckets = Buckets(rate=6)
    assert [buckets.take("ann", now=0.0) for _ in range(6)] == [0.0] * 6
    assert buckets.take("ann", now=0.0) == 10.0
    assert buckets.take("bob", now=0.0) == 0.0
    assert buckets.take("ann", now=9.0) == pytest.approx(1.0)
    assert buckets.take("ann", now=10.1) == 0.0
    assert buckets.take("ann", now=10.2) > 9.0
    assert [buckets.take("ann", now=1e6) for _ in range(7)][:6] == [0.0] * 6
    for number in range(20_000):
        buckets.take(f"client {number}", now=1e6)
    assert len(buckets._left) == 10_000


def asked(house: House, **changes: Any) -> LiveRequest:
    plan = live_desk.without_groups(runs.get(house.db, house.texts).plan)
    given: dict[str, Any] = {
        "plan": plan,
        "methods": (MethodSpec(),),
        "target": "predicted",
        "text": TEXT,
        "picture": None,
        "pixels": 1_000,
        "offered": (),
    }
    return LiveRequest(**{**given, **changes})


def test_only_so_many_wait(live: Live, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    release, begun = threading.Event(), threading.Event()
    plain = live_desk._explained

    def slow(*given: Any) -> Any:
        begun.set()
        assert release.wait(60)
        return plain(*given)

    monkeypatch.setattr("orchestrator.serve.live_desk._explained", slow)
    desk = desk_here(house, waiting=2)
    client, texts = live(desk), house.texts
    first = desk.ask(asked(house))
    assert begun.wait(60)
    waiting = [desk.ask(asked(house)) for _ in range(2)]
    full = explain(client, texts, text=TEXT)
    assert full.status_code == 503 and "wait for the model" in full.json()["error"]
    state = form_of(client, link("runs", texts, "explain"))["desk"]
    assert state == {"phase": "explaining", "waiting": 2}
    release.set()
    for future in (first, *waiting):
        assert future.result(60)["predicted"]
    assert explain(client, texts, text=TEXT).status_code == 200


@pytest.mark.exhaustive
def test_a_model_that_changed_or_is_gone_is_refused(house: House, tmp_path: Path) -> None:
    bert_dir, client = Path(shutil.copytree(house.bert, tmp_path / "copy")), house.client
    texts = stored(house.db, load_model(str(bert_dir)))
    away = bert_dir.rename(tmp_path / "away")
    assert explain(client, house.pictures, picture=picture()).status_code == 200  # another model
    gone = explain(client, texts, text=TEXT)
    assert gone.status_code == 409 and str(bert_dir) in gone.json()["error"]
    away.rename(bert_dir)
    config = json.loads((bert_dir / "config.json").read_text())
    config["id2label"] = {"0": "other", "1": "so-so", "2": "good"}
    (bert_dir / "config.json").write_text(json.dumps(config))
    changed = explain(client, texts, text=TEXT)
    assert changed.status_code == 409 and "has changed since" in changed.json()["error"]
    assert client.get(link("runs", texts)).status_code == 200


def test_runs_that_have_no_such_model_say_so(house: House) -> None:
    client, db, model = house.client, house.db, house.text_model
    imported = stored(db, model, task="imported")
    nodes = replace(model.ref, modality="nodes")
    graphs = runs.create(
        db,
        replace(runs.get(db, imported).plan, task="audit", model=nodes),
        [Shard(index=0, start=0, stop=1)],
    )
    unknown = runs.create(
        db,
        replace(runs.get(db, graphs).plan, model=replace(model.ref, digest="")),
        [Shard(index=0, start=0, stop=1)],
    )
    for run_id, says in ((imported, "made elsewhere"), (graphs, "Graphs"), (unknown, "bytes")):
        address = link("runs", run_id, "explain")
        answer = client.get(address, headers=JSON)
        assert answer.status_code == 409 and says in answer.json()["error"]
        assert client.post(address, data={}, headers={**OWN, **JSON}).status_code == 409
    assert client.get("/runs/none/explain").status_code == 404
    assert client.get("/runs/~zz/explain").status_code == 404


def test_the_verb_takes_the_limits(
    call: Call, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        "orchestrator.serve.application.serve_pages", lambda *_, desk, **__: seen.append(desk)
    )
    words = ("serve", "--db", f"sqlite:///{db.path}")
    assert call(*words)[0] == 0 and seen == [None]
    code, printed = call(*words, "--live", "--live-seconds", "5", "--live-text-bytes", "100")
    assert code == 0 and "(live)" in printed
    assert seen[1].settings == LiveSettings(seconds=5.0, text_bytes=100)


@pytest.mark.exhaustive
def test_a_process_that_is_killed_or_too_slow_is_replaced(
    live: Live, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    desk = LiveDesk(LiveSettings(rate=100))
    client, texts = live(desk), house.texts
    assert desk.pid is None
    assert explain(client, texts, text=TEXT).status_code == 200
    first = desk.pid
    assert first is not None and first != os.getpid()
    os.kill(first, signal.SIGKILL)
    assert explain(client, texts, text=TEXT).status_code == 200
    second = desk.pid
    assert second not in (None, first)
    # killed while it works
    os.kill(second, signal.SIGSTOP)
    future = desk.ask(asked(house))
    os.kill(second, signal.SIGKILL)
    assert future.result(120)["predicted"]  # it had not begun
    third = desk.pid
    desk.settings = replace(desk.settings, seconds=0.001)
    slow = explain(client, texts, text=TEXT)
    assert slow.status_code == 504 and "within 0.001 s" in slow.json()["error"]
    assert desk.pid is None and not lives(third)
    desk.settings = replace(desk.settings, seconds=60.0, load_seconds=0.001)
    slow = explain(client, texts, text=TEXT)
    assert slow.status_code == 503 and slow.headers["retry-after"]
    desk.settings = replace(desk.settings, load_seconds=120.0, idle_seconds=0.5)
    assert explain(client, texts, text=TEXT).status_code == 200
    wait_for(lambda: desk.pid is None, "the end of an idle process", 60)
    assert desk.state["phase"] == "asleep"
    assert explain(client, texts, text=TEXT).status_code == 200
    last = desk.pid
    desk.close()
    assert not lives(last)
    with pytest.raises(RequestError, match="wait"):
        desk.ask(asked(house))
    assert TEXT not in caplog.text


@pytest.mark.exhaustive
@pytest.mark.parametrize("script", [True, False], ids=["with scripts", "without"])
def test_a_text_and_a_picture_in_a_browser(
    browser: Any, house: House, tmp_path: Path, script: bool
) -> None:
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    complaints: list[list[str]] = []  #: of each page

    def opened(run_id: str, **settings: Any) -> Any:
        address = link("runs", run_id, "explain")
        page, heard = looked_at(browser, here, address, java_script_enabled=script, **settings)
        page.set_default_timeout(1_000 * PATIENCE)
        complaints.append(heard)
        return page

    def check(page: Any) -> None:
        """No fault of accessibility, nothing beside the page, nothing run, no complaint."""
        # that an answer was refused is what is tried
        assert all("status of 4" in line for heard in complaints for line in heard)
        if script:
            assert faults(page) == [] and page.evaluate(WIDER) <= 0
            assert page.evaluate("window.hacked") is None

    patient = LiveSettings(rate=100, seconds=PATIENCE, load_seconds=PATIENCE)
    with listening(f"sqlite:///{house.db.path}", desk=LiveDesk(patient)) as here:
        page = opened(house.texts, viewport={"width": 400, "height": 900}, color_scheme="dark")
        check(page)
        page.get_by_label("Text").fill(f"{TEXT} {' '.join(ATTACKS)}")
        page.get_by_label("Explained").select_option("class:good")
        page.get_by_role("button", name="Explain").focus()
        page.keyboard.press("Enter")
        page.locator("#answer .tx").first.wait_for()
        assert page.locator("#answer .tx").count() == 2
        assert page.get_by_label("Text").input_value().startswith(TEXT)
        assert page.get_by_label("Explained").input_value() == "class:good"
        check(page)
        page.get_by_label("Text").fill("y" * 300_000)
        page.get_by_role("button", name="Explain").click()
        page.get_by_text("at most 65,536 bytes. This").wait_for()
        check(page)
        page.context.close()
        page = opened(house.pictures)
        (tmp_path / "picture.png").write_bytes(picture())
        page.get_by_label("Picture").set_input_files(tmp_path / "picture.png")
        page.get_by_role("button", name="Explain").click()
        page.locator("#answer figure img").first.wait_for()
        assert page.locator("#answer img").count() == 3
        check(page)
        page.context.close()
