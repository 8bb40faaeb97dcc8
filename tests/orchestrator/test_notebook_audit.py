"""A whole audit by one call from Python: the same path, results in hand, errors by name."""

import json
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from everyday import only
from PIL import Image
from tiny_audit import make_audit, texts
from tiny_models import bert, wordpiece
from typer.testing import CliRunner

import transexplain as te
from orchestrator.cli import app
from transexplain.settings import Settings
from transexplain.store import runs, shards
from transexplain.store.revisions import open_database
from workers.claim_to_commit import Workbench

GROUPS = {"things": ["film", "goods", "x"], "praise": {"nice", "good"}}
LABELS = ("bad", "so-so", "good")
QUICK: dict[str, Any] = {"progress": False, "evaluation": {"items": 0}, "shard_size": 8}
ROWS = [(text, LABELS[place % 3]) for place, text in enumerate(texts(40))]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DATABASE_URL", "SNAPSHOT_DIR"):
        monkeypatch.delenv(f"TRANSEXPLAIN_{name}", raising=False)


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return bert(id2label=dict(enumerate(LABELS))), wordpiece()


@pytest.fixture(scope="module")
def model(pair: tuple[Any, Any]) -> Any:
    return te.load_model(*pair)


def audited(model: Any, data: Any, **keys: Any) -> te.AuditResult:
    """An audit whose warnings the test does not care about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return te.audit(model, data, **{**QUICK, **keys})


@pytest.mark.exhaustive
def test_te_audit_finds_what_the_command_line_finds(tmp_path: Path, call: Any) -> None:
    spec = make_audit(tmp_path, items=16)
    assert call("run", str(spec))[0] == 0
    document = json.loads(spec.read_text(encoding="utf-8"))
    path, data = document.pop("model"), document.pop("data")
    found = audited(path, data, **{**document, "evaluation": {}})
    with open_database(Settings().database_url) as db:
        first, second = (runs.get(db, one) for one in (found.run_id, "latest"))
        before = [one for one in runs.list_runs(db) if one.id != found.run_id]
    assert first.id == second.id
    assert [one.plan.digest for one in before] == [first.plan.digest]
    printed = call("report", found.run_id, "--json")[1]
    assert printed.strip() == found.report("out.json").read_text(encoding="utf-8").strip()


def test_the_result_holds_verdict_groups_and_report(pair: tuple[Any, Any], tmp_path: Path) -> None:
    found = audited(pair, ROWS, groups=GROUPS, targets="good", name="letters")
    assert found.in_memory
    assert found.verdict == found.summary.verdict.text
    assert found.verdict.kind == found.summary.verdict.kind == "unknown"
    assert repr(found) == (
        f"<AuditResult letters run {found.run_id}: 40 of 40 items; "
        "see .verdict, .groups, .report(path)>"
    )
    table = found.groups
    assert list(table["group"]) == ["things", "praise"]
    assert set(table["state"]) == {"open"}
    assert set(table["mention"]) | set(table["outcome"]) <= {"open", "does not change"}
    assert list(table["items"]) == [
        sum(any(word in text.split() for word in GROUPS[group]) for text, _ in ROWS)
        for group in GROUPS
    ]
    shown = found._repr_html_()
    assert found.verdict in shown and "<td" in shown and found.run_id in shown
    page = found.report()
    assert page == Path("audits") / f"letters-{found.run_id}.html"
    assert sorted(one.suffix for one in Path("audits").iterdir()) == [".html", ".json", ".json"]
    assert found.report(tmp_path / "one.html").read_bytes() == page.read_bytes()


def columns() -> dict[str, Any]:
    frame = pandas.DataFrame(ROWS, columns=["body", "mood"], index=range(40, 80))
    return {
        "pairs": (ROWS, {}),
        "dictionaries": ([{"text": text, "label": label} for text, label in ROWS], {}),
        "frame": (frame, {"text": "body", "label": "mood"}),
        "categories": (frame.astype({"mood": "category"}), {"text": "body", "label": "mood"}),
        "section": ({"source": frame, "text": "body", "label": "mood"}, {}),
    }


KINDS = ("pairs", "dictionaries", "frame", "categories", "section")


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", only("frame", of=KINDS))
def test_data_in_memory_are_the_same_items(model: Any, kind: str) -> None:
    data, keys = columns()[kind]
    found = audited(model, data, **keys)
    counts = found.summary.counts
    assert (counts.total, counts.done, counts.labelled) == (40, 40, 40)
    with open_database(Settings().database_url) as db:
        plan = runs.get(db, found.run_id).plan
    assert Path(plan.dataset.source).parent.name == "from-memory"
    assert audited(model, data, **keys).summary.audited.fingerprint == plan.dataset.fingerprint


def test_a_table_is_kept_without_the_columns_that_nothing_reads(model: Any) -> None:
    frame = pandas.DataFrame(ROWS, columns=["body", "mood"]).assign(author="Ada", income=3)
    data = {"source": frame, "text": "body", "meta": ["author"]}
    found = audited(model, data, label="mood")
    (kept,) = (Settings().snapshot_dir.resolve() / "from-memory").glob("*.parquet")
    assert pandas.read_parquet(kept).columns.tolist() == ["body", "mood", "author"]
    printed = CliRunner().invoke(app, ["db", "delete-run", found.run_id, "--yes"])
    assert f"deleted the data {kept}" in printed.output, printed.output
    assert not kept.exists()


def pictures(count: int) -> list[Image.Image]:
    drawn = np.random.default_rng(0).integers(0, 255, (count, 30, 40, 3), dtype=np.uint8)
    return [Image.fromarray(one) for one in drawn]


@pytest.mark.exhaustive
def test_another_store_and_lexicons_of_every_form(model: Any, tmp_path: Path) -> None:
    data = ["she is a nice film", "he is a good film"] * 4
    for groups in (
        "builtin:gender",
        ["builtin:gender"],
        {"lexicon": "builtin:gender"},
        {"lexicon": {"a": ["she"], "b": ["he"]}, "reference": "a"},
        {"second": ["she"], "first": ["he"]},
    ):
        found = audited(model, data, groups=groups, database=tmp_path / "own.db")
        assert found.summary.groups is not None
    assert not Path("transexplain.db").exists()
    assert found.report("again").is_file()


@pytest.mark.parametrize("in_memory", only(True, of=[True, False]))
def test_an_interrupted_audit_says_whether_it_goes_on(
    model: Any, bert_dir: Path, monkeypatch: pytest.MonkeyPatch, call: Any, in_memory: bool
) -> None:
    work, pressed = Workbench.work, []

    def press(bench: Workbench, run_id: str) -> Any:
        ended = work(bench, run_id)
        if not pressed:  # after the first shard; a second one would end at once
            pressed.append(run_id)
            signal.raise_signal(signal.SIGINT)
        return ended

    monkeypatch.setattr(Workbench, "work", press)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        audited(model if in_memory else bert_dir, texts(20))
    assert signal.getsignal(signal.SIGINT) is before
    (note,) = caught.value.__notes__
    monkeypatch.setattr(Workbench, "work", work)
    if in_memory:
        assert "no other process can go on" in note
        code, printed = call("resume", "latest")
        assert code == 3 and "a module that was in memory only" in " ".join(printed.split())
        with open_database(Settings().database_url) as db:
            states = [shard.state for shard in shards.list_shards(db, runs.get(db, "latest").id)]
        # the shard that was read ahead may end before the signal is seen
        assert set(states) == {"done", "dead"} and len(states) == 3
        return
    assert "`transexplain resume" in note
    elsewhere = bert_dir.rename(bert_dir.with_name("elsewhere"))
    code, printed = call("resume", "latest")
    assert code == 2 and "is not there" in printed
    elsewhere.rename(bert_dir)
    planned = (bert_dir / "config.json").read_bytes()
    (bert_dir / "config.json").write_bytes(planned + b" ")
    code, printed = call("resume", "latest")
    assert code == 2 and f"config.json of {bert_dir} has changed" in " ".join(printed.split())
    with open_database(Settings().database_url) as db:
        dead = shards.list_shards(db, runs.get(db, "latest").id, states=["dead"])
    assert not dead, "no attempt was spent"
    (bert_dir / "config.json").write_bytes(planned)
    assert call("resume", "latest")[0] == 0


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


def broken() -> Iterator[str]:
    """Two texts, and then an error of the caller's own."""
    yield from texts(2)
    raise KeyError("lost")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"model": 123}, r"cannot load 123 \(int\); it takes a directory"),
    "no directory": ({"model": "no/such/place/here"}, "no model directory 'no/such/place/here'"),
    "no tokenizer": ({"model": bert}, r"cannot load <function bert"),
    "pair turned": ({"model": (5, 6)}, r"cannot load 5 \(int\)"),
    "no data": ({"data": "absent.csv"}, r"absent\.csv"),
    "a number": ({"data": 5}, r"data cannot be 5 \(int\); give a path, a DataFrame, a list"),
    "nothing": ({"data": []}, "data is an empty list; give at least one item"),
    "numbers": ({"data": [5]}, r"item 0 of data cannot be 5 \(int\); a list holds texts"),
    "triples": ({"data": ["a", ("a", "b", "c")]}, r"item 1 of data cannot be \('a', 'b', 'c'\)"),
    "objects": ({"data": [{"text": object()}]}, r"\(object\) cannot be written to a file of data"),
    "one picture": ({"data": pictures(1)[0]}, "data is one picture; give a list of pictures"),
    "pictures and texts": ({"data": [*pictures(1), "a"]}, r"item 1 of data cannot be 'a' \(str\)"),
    "no file": ({"data": [Path("a.png")]}, r"item 0 of data: cannot read a\.png"),
    "no pixels": ({"data": [np.zeros((2, 2, 7))]}, "item 0 of data: a picture must be an array"),
    "pictures for texts": ({"data": pictures(1)}, r"reads text but dataset .* holds image"),
    "no source": ({"data": {"text": "a"}}, "data is a mapping without `source`"),
    "pictures": ({"data": {"source": [{"p": "a.png"}], "image": "p"}}, "a csv file in their fo"),
    "mixed": ({"data": pandas.DataFrame({"text": ["a", 5]})}, "the DataFrame cannot be written"),
    "endless": ({"data": pandas.DataFrame({"text": ["a"], "label": [ENDLESS]})}, "row 0 of.*label"),
    "endless item": ({"data": ["a", ("a", ENDLESS)]}, "item 1 of data is nested"),
    "large": ({"data": pandas.DataFrame({"text": "a", "label": [1, 2**70]})}, "row 1 of.*'label'"),
    "broken": ({"data": broken()}, "item 2 of data: KeyError: 'lost'"),
    "target": ({"targets": "goood"}, "unknown target 'goood'; did you mean 'good'"),
    "target type": ({"targets": 1.5}, "targets"),
    "groups": ({"groups": 5}, "groups cannot be 5; it is a lexicon such as 'builtin:gender'"),
    "empty": ({"groups": {}}, "groups cannot be {}; it is a lexicon"),
    "one name": ({"groups": {"a": "Anna"}}, "group 'a' cannot be 'Anna'; it is a list of names"),
    "lexikon": ({"groups": {"lexikon": "x"}}, "group 'lexikon' cannot be 'x'.* lexicon, pairs"),
    "group key": ({"groups": {"lexicon": "builtin:gender", "x": 1}}, "groups.x: unknown key"),
    "lexicon": (
        {"groups": "builtin:gendre"},
        "there is no lexicon builtin:gendre; did you mean 'gender'",
    ),
    "database": ({"database": "nosql://x"}, "nosql"),
}


def test_an_error_of_a_generator_is_the_cause_of_ours(model: Any) -> None:
    with pytest.raises(te.TransExplainError) as caught:
        audited(model=model, data=broken())
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_named_with_the_remedy(model: Any, case: str) -> None:
    change, words = WRONG[case]
    with pytest.raises(te.TransExplainError, match=words):
        audited(**{"model": model, "data": texts(3), **change})
