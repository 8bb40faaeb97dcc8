"""Finished audits for all tests: each made once in a test session, read by whoever asks.

Fixtures for every test, without an import:

    def test_it(db: Database) -> None: ...               # an empty SQLite store
    def test_it(any_db: Database) -> None: ...           # of both kinds; PostgreSQL is exhaustive
    def test_it(db: Database, run_id: str) -> None: ...  # a copy of `biased`, which may change
    def test_it(finished: Audit) -> None: ...            # the same copy with its folder

    @pytest.mark.parametrize("finished", ["compared"], indirect=True)  # the same of another audit
    def test_it(db: Database, finished: Audit) -> None: ...

    def test_it(gallery: Gallery, tmp_path: Path) -> None:
        audit = gallery["biased"]              # made at the first use, never changed by a test
        with audit.open() as db: ...           # read-only
        summary = gallery.summary("biased")    # made once in a process; page and document as well
        prepared = gallery.prepared("texts")   # plan, shards and loaded model of one that is run
        own = audit.copy(tmp_path)             # a store and files that a test may change
        url = audit.copy_store(tmp_path / "x.db")
        checks = audit.checks()                # what `verify` says, by the name of the check

`AUDITS` lists the names and what is in each. Those that are stored need no model and take
milliseconds; those that are run take a second or two. Under xdist one worker makes an audit and
the others wait for it at a file lock. A copy has its own store and files; its plan names the
places of the original. `run_audit` runs any other specification in this process, where a test
needs settings, models or data of its own.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock


@dataclass(frozen=True)
class Audit:
    """A store with finished runs, and the folder of everything that belongs to them."""

    folder: Path
    runs: tuple[str, ...]  #: in the order in which they were made
    elsewhere: str = ""  #: URL of the store, where it is not in the folder

    @property
    def id(self) -> str:
        """The last run."""
        return self.runs[-1]

    @property
    def url(self) -> str:
        return self.elsewhere or f"sqlite:///{self.folder / 'store.db'}"

    def open(self, *, read_only: bool = True) -> Any:
        from transexplain.store.database import Database

        return Database(self.url, read_only=read_only)

    def copy(self, to: Path) -> "Audit":
        """The same in a folder of the caller's, to be changed."""
        readers = shutil.ignore_patterns("*.db-*")  # come and go
        shutil.copytree(self.folder, to, dirs_exist_ok=True, ignore=readers)
        return replace(self, folder=to)

    def copy_store(self, to: Path) -> str:
        """URL of a copy of the (SQLite) store, to be tampered with."""
        with (
            closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as store,
            closing(sqlite3.connect(to)) as copy,
        ):
            store.backup(copy)
        return f"sqlite:///{to}"

    def checks(self, url: str | None = None, **requested: Any) -> dict[str, Any]:
        """What `verify` says of the last run, by the name of the check."""
        from transexplain.provenance.verification import VerifyRequest
        from transexplain.provenance.verify import verify
        from transexplain.store.revisions import open_database

        with open_database(url or self.url) as db:
            checks = list(verify(db, self.id, VerifyRequest(**({"items": 4} | requested))))
        by_name = {check.name: check for check in checks}
        assert len(by_name) == len(checks)
        return by_name


def prepare(spec: Path | Mapping[str, Any], folder: Path, *, task: str = "audit") -> Any:
    """The audit of a specification's file or keys prepared, its snapshot below `folder`."""
    from orchestrator.plan import prepare_audit
    from orchestrator.spec import AuditSpec, load_spec
    from transexplain.settings import Settings

    loaded = load_spec(spec) if isinstance(spec, Path) else AuditSpec.model_validate(spec)
    return prepare_audit(loaded, Settings(snapshot_dir=folder / "snapshots"), task)


def run_audit(
    spec: Path | Mapping[str, Any],
    folder: Path,
    *,
    url: str = "",
    processes: int = 1,
    times: int = 1,
    task: str = "audit",
) -> Audit:
    """Run a specification's file or keys here; store and snapshot lie below `folder`."""
    from orchestrator.dispatch.local import run_here, run_processes
    from transexplain.settings import Settings
    from transexplain.store import runs
    from transexplain.store.revisions import open_database

    url = url or f"sqlite:///{folder / 'store.db'}"
    prepared = prepare(spec, folder, task=task)
    settings = Settings(database_url=url, snapshot_dir=folder / "snapshots")
    with open_database(url, upgrade=True) as db:
        ids = tuple(runs.create(db, prepared.plan, prepared.shards) for _ in range(times))
        for run_id in ids:
            if processes > 1:
                run_processes(db, run_id, settings, processes)
            else:
                run_here(db, run_id, settings, model=prepared.model)
    return Audit(folder, ids, url)


class Gallery:
    """The audits below a folder that all processes of a test session share."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.summary, self.page, self.document, self.prepared = map(
            cache, (self._summary, self._page, self._document, self._prepared)
        )

    def __getitem__(self, name: str) -> Audit:
        folder = self._root / name
        made = folder / "runs.json"
        if not made.exists():
            self._root.mkdir(parents=True, exist_ok=True)
            with FileLock(self._root / f"{name}.lock"):
                if not made.exists():
                    shutil.rmtree(folder, ignore_errors=True)
                    folder.mkdir()
                    made.write_text(json.dumps(AUDITS[name](folder)))
        return Audit(folder, tuple(json.loads(made.read_text())))

    def _summary(self, name: str) -> Any:
        from transexplain.reports.summary import summarise

        audit = self[name]
        with audit.open() as db:
            return summarise(db, audit.id)

    def _page(self, name: str) -> str:
        from transexplain.reports.report_formats import render_html

        return render_html(self.summary(name))

    def _document(self, name: str) -> Any:
        from transexplain.reports.report_formats import render_json

        return json.loads(render_json(self.summary(name)))

    def _prepared(self, name: str) -> Any:
        folder = self[name].folder
        return prepare(folder / "audit.yaml", folder)


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """The finished audits of this test session."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-gw") else base
    return Gallery(shared / "gallery")


@pytest.fixture
def finished(request: pytest.FixtureRequest, gallery: Gallery, tmp_path: Path) -> Audit:
    """A copy of `biased`, or of the audit that the test names."""
    return gallery[getattr(request, "param", "biased")].copy(tmp_path)


@pytest.fixture
def run_id(finished: Audit) -> str:
    """The run of `finished`, which `db` holds then."""
    return finished.id


@pytest.fixture
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """An empty SQLite store; the store of `finished` where a test uses that or its `run_id`."""
    if "finished" in request.fixturenames:
        store = request.getfixturevalue("finished").open(read_only=False)
    else:
        from fresh_stores import fresh_store

        store = fresh_store(tmp_path / "store.db")
    with store:
        yield store


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.exhaustive]),
    ]
)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database of either kind, without tables."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def any_db(store_url: str) -> Iterator[Any]:
    """An empty store of either kind."""
    from fresh_stores import fresh_store

    from transexplain.store.revisions import open_database

    with (
        fresh_store(Path(store_url.removeprefix("sqlite:///")))
        if store_url.startswith("sqlite")
        else open_database(store_url, upgrade=True)
    ) as store:
        yield store


# ---- runs that are stored: their truth is known, and no model is needed -------------------------


def _stored(make: Callable[[Any], str], folder: Path) -> list[str]:
    from fresh_stores import fresh_store

    with fresh_store(folder / "store.db") as db:
        return [make(db)]


def _biased(folder: Path) -> list[str]:
    from fresh_stores import fresh_store
    from report_samples import biased_run

    from transexplain.reports.sql_results import write

    with fresh_store(folder / "store.db") as db:
        run_id = biased_run(db)
        assert write(db, run_id)
        return [run_id]


def _unfinished(folder: Path) -> list[str]:
    from report_samples import biased_run

    return _stored(lambda db: biased_run(db, leave=2), folder)


def _compared(folder: Path) -> list[str]:
    from fresh_stores import fresh_store
    from report_samples import ANNS, BOBS, CLASSES, WORTH, biased_run

    from transexplain.types.plans import ModelRef

    other = ModelRef(source="models/other", classes=CLASSES, digest="e" * 64)
    with fresh_store(folder / "store.db") as db:
        with pytest.MonkeyPatch.context() as patch:
            worth = {**dict.fromkeys(ANNS, 0.0), **dict.fromkeys(BOBS, 0.9), "bad": 1.0}
            for word, value in worth.items():
                patch.setitem(WORTH, word, value)
            before = biased_run(db, model=other)
        return [before, biased_run(db, previous=before)]


def _pictures(folder: Path) -> list[str]:
    from report_samples import image_run, write_picture

    for index in range(6):
        write_picture(folder, f"cat/{index}.png")
    return _stored(lambda db: image_run(db, folder), folder)


def _evaluation(folder: Path) -> list[str]:
    from evaluation_samples import plan_of, scores, stored

    from transexplain.types.scores import MetricSpec

    values = {"lrp": [0.1, 0.2, 0.15, 0.12, 0.18, 0.11], "random": [0.7, 0.6, 0.8, 0.7, 0.6, 0.7]}
    plan = plan_of(list(values), MetricSpec(name="hiding"))
    return _stored(lambda db: stored(db, plan, scores("hiding", values), 6), folder)


def _filing(folder: Path) -> list[str]:
    from report_samples import APPLICATIONS, applicants, stored_run

    from transexplain.types.plans import Scenario

    scenario = Scenario(harm="Women are refused.", threshold="below 0.8", owner="Hiring")
    settings = {"impact": APPLICATIONS, "scenario": (scenario,)}
    return _stored(lambda db: stored_run(db, applicants(), **settings), folder)


# ---- audits that are run, by tiny models of random weights --------------------------------------


def _run(folder: Path, spec: Path, times: int = 1) -> tuple[str, ...]:
    return run_audit(spec, folder, times=times).runs


def _texts(folder: Path) -> Sequence[str]:
    from tiny_audit import make_audit

    spec = make_audit(folder, items=20, evaluation={"items": 0})
    return _run(folder, spec)


def _failures(folder: Path) -> Sequence[str]:
    from tiny_audit import make_audit

    keys = {"items": 20, "evaluation": {"items": 0}, "tolerance": 0.1}
    spec = make_audit(folder, **keys)
    lines = (folder / "texts.jsonl").read_text().splitlines()
    lines[9] = json.dumps({"text": "", "label": "bad"})
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n")
    return _run(folder, spec, times=2)


def _of_kind(kind: str) -> Callable[[Path], Sequence[str]]:
    def make(folder: Path) -> Sequence[str]:
        from kinds_of_audits import audit_of

        groups = {"lexicon": str(folder / "groups.json")}
        return _run(folder, audit_of(kind, folder, evaluation={"items": 0}, groups=groups))

    return make


def _regression(folder: Path) -> Sequence[str]:
    from tiny_audit import make_audit, texts
    from tiny_models import bert

    spec = make_audit(folder, items=20, targets=["predicted"], evaluation={"items": 0})
    bert(num_labels=1, problem_type="regression").save_pretrained(folder / "model")
    rows = (json.dumps({"text": text, "label": i / 20}) for i, text in enumerate(texts(20)))
    (folder / "texts.jsonl").write_text("".join(f"{row}\n" for row in rows))
    return _run(folder, spec)


def _mixed(folder: Path) -> Sequence[str]:
    """80 texts of words of two groups; a cheap method explains all, an exact one a sample."""
    from tiny_audit import make_audit

    explain = {"method": "gradient-x-input", "exact_sample": 0.6}
    spec = make_audit(folder, items=80, evaluation={"items": 0}, shard_size=16, explain=explain)
    things, praise = (
        ["film", "goods", "x", "unbelievably", "a"],
        ["nice", "good", "e", "bad", "so"],
    )
    (folder / "groups.json").write_text(json.dumps({"things": things, "praise": praise}))
    rows = (
        {"text": " ".join((things, praise)[j % 2][(i * 3 + j) % 5] for j in range(2 + i % 5))}
        for i in range(80)
    )
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return _run(folder, spec)


#: name -> what makes it in an empty folder; it returns the ids of its runs
AUDITS: dict[str, Callable[[Path], Sequence[str]]] = {
    "biased": _biased,  # 36 texts: Anns raise `positive`, Bobs do not; 2 failures, rows for SQL
    "unfinished": _unfinished,  # the same with 2 shards of 6 to do
    "compared": _compared,  # another model's run before, and one that names it as the previous
    "pictures": _pictures,  # 6 pictures of 2 classes with their files
    "evaluation": _evaluation,  # one metric of LRP and random relevance on 6 texts
    "filing": _filing,  # impact ratios by sex and ethnicity, and a bias scenario
    "texts": _texts,  # run: 20 labelled texts of 3 classes, 2 targets, a lexicon, 3 shards
    "failures": _failures,  # run twice: the same with an empty text
    "regression": _regression,  # run: a model of one number
    "labels": _of_kind("labels"),  # run: several labels a text
    "tokens": _of_kind("tokens"),  # run: labels of tokens
    "answers": _of_kind("answers"),  # run: questions, and answers in their contexts
    "mixed": _mixed,  # run: a cheap method, and an exact one on a sample
}
