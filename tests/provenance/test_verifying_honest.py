"""Honest runs verify: another batch size, several processes, moved files, other kinds of runs."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from attribution_rows import rows_of_run, write_rows
from gallery import Audit
from PIL import Image
from report_samples import explained_text
from rewritten_parts import rewrite, with_attributions
from tiny_audit import make_audit
from verified_runs import SMALL, audited, execute, failed, rows

from orchestrator.dispatch.local import run_here
from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.engine import steps
from transexplain.errors import ConfigurationError
from transexplain.explaining import Explained
from transexplain.provenance.explained_again import Largest, differences
from transexplain.provenance.manifest import manifest_of
from transexplain.provenance.verification import VerifiedLine, VerifyRequest
from transexplain.provenance.verify import drawn, input_checks
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.revisions import open_database
from transexplain.types.plans import AuditPlan, ShardResult, SourceFile
from workers.claim_to_commit import Workbench

ALL = {
    "plan",
    "stored results",
    "stored relevance",
    "aggregates",
    "model files",
    "dataset snapshot",
    "dataset files",
    "lexicons",
    "software",
    "model",
    "explained again",
}

Call = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return audited(tmp_path_factory.mktemp("honest"))


@pytest.mark.parametrize(
    "requested", [{}, {"batch_tokens": 1}, {"batch_tokens": 10_000, "seed": 7}]
)
def test_verification_holds_for_every_batch_size(run: Audit, requested: dict[str, Any]) -> None:
    found = run.checks(items=20, **requested)
    assert set(found) == ALL
    assert {one.status for one in found.values()} == {"PASS"}
    assert "20 items" in found["explained again"].text
    assert "40 attributions" in found["explained again"].text, "two targets each"


@pytest.mark.exhaustive
def test_a_run_that_a_replaying_worker_gives_up_and_an_eager_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It verifies; of compiled steps, see test_engine_steps."""
    monkeypatch.setattr(steps, "_EARNED", {"cpu": 1e-9})
    url = f"sqlite:///{tmp_path / 'store.db'}"
    settings = Settings(database_url=url, snapshot_dir=tmp_path / "snapshots")
    spec = load_spec(make_audit(tmp_path, **(SMALL | {"batch_tokens": 1})))
    prepared = prepare_audit(spec, settings)
    with open_database(url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        bench = Workbench(db=db, settings=settings)
        bench.models.put(prepared.plan.model, prepared.model)
        assert bench.work(run_id) == "done"
        monkeypatch.setenv("TRANSEXPLAIN_STEPS", "eager")
        run_here(db, run_id, settings)
        execution = manifest_of(db, run_id).execution
    first, *others = (execution["computed"][shard["computed"]] for shard in execution["shards"])
    assert "replayed" in first["steps"]
    assert len(others) == 2 and not any("steps" in one for one in others), "left out: all eager"
    checks = Audit(tmp_path, (run_id,)).checks(items=20)
    assert {check.status for check in checks.values()} == {"PASS"}, checks


@pytest.mark.postgres
@pytest.mark.exhaustive
def test_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    run = audited(tmp_path, postgres_url)
    assert {one.status for one in run.checks(items=20).values()} == {"PASS"}
    assert execute(postgres_url, "UPDATE attribution SET logit = 2 * logit WHERE shard = 1") > 1
    check = run.checks(items=20)["stored results"]
    assert check.status == "FAIL" and "shard 1 (rows 8 to 15)" in check.text


def test_stored_relevance_is_allowed_its_rounding(run: Audit) -> None:
    assert run.checks(items=20, tolerance=1e-5)["explained again"].status == "PASS"


def test_the_sample_is_drawn_by_hash() -> None:
    rows = [(row, f"id-{row}") for row in range(1000)]
    some = drawn(rows, 20, seed=0)
    assert some == sorted(some)
    assert len(set(some)) == 20
    assert drawn(rows[::-1], 20, seed=0) == some, "whatever the order"
    assert drawn(rows, 20, seed=1) != some
    assert set(drawn(rows, 10, seed=0)) <= set(some)
    assert drawn(rows[:3], 20, seed=0) == rows[:3]


@pytest.mark.parametrize(
    "wrong", [{"items": -1}, {"tolerance": -0.1}, {"tolerance": float("nan")}, {"batch_tokens": 0}]
)
def test_invalid_requests_are_refused_with_their_reason(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        VerifyRequest(**wrong)


def test_moved_files_are_named_and_can_be_given(run: Audit, tmp_path: Path) -> None:
    places = ("model", "texts.jsonl", "groups.json", "snapshots")
    before, after = run.folder, tmp_path / "moved"
    after.mkdir()
    for name in places:
        shutil.move(before / name, after / name)
    try:
        lost = run.checks()
        found = run.checks(
            model=str(after / "model"), data_root=after, snapshot_dir=after / "snapshots"
        )
    finally:
        for name in places:
            shutil.move(after / name, before / name)
    of_data = {"dataset snapshot", "dataset files", "lexicons"}
    assert set(failed(lost)) == {"model files", "model"} | of_data
    for check, name, option in (
        ("model files", "model", "--model PATH"),
        ("dataset files", "texts.jsonl", "--data-root"),
    ):
        assert str(before / name) in lost[check].text and option in lost[check].text
    assert not failed(found), found
    absent = run.checks(device="cuda:99")
    assert failed(absent) == ["model"] and "--device" in absent["model"].text


def test_files_of_one_name_are_distinguished_by_their_folders(run: Audit, tmp_path: Path) -> None:
    plan, root = stored_plan(run), tmp_path / "root"
    one, two = (
        SourceFile(path=f"/data/{name}/x.csv", sha256=sha256(name.encode()).hexdigest())
        for name in ("train", "dev")
    )
    both = replace(plan, dataset=replace(plan.dataset, files=(one, two)))
    for name in ("train", "dev"):
        (root / name).mkdir(parents=True)
        (root / name / "x.csv").write_text(name)

    def dataset_files(place: Path) -> VerifiedLine:
        requested = VerifyRequest(data_root=place)
        (found,) = [c for c in input_checks(both, requested) if c.name == "dataset files"]
        return found

    assert dataset_files(root).status == "PASS"
    (root / "x.csv").write_text("neither")
    assert dataset_files(root).status == "PASS", "the most folders decide"
    (root / "data").mkdir()
    shutil.move(root / "train", root / "data" / "train")
    assert dataset_files(root).status == "PASS", "from the root of its path on"
    (root / "dev" / "x.csv").write_text("other")
    assert "dev/x.csv has changed" in dataset_files(root).text
    flat = tmp_path / "flat"
    flat.mkdir()
    (flat / "x.csv").write_text("train")
    reported = dataset_files(flat)
    assert reported.status == "FAIL" and "/data/train/x.csv and /data/dev/x.csv" in reported.text
    (tmp_path / "x.csv").write_text("outside")  # folders before a step up are no places
    assert VerifyRequest(data_root=root).file_of("/data/../../x.csv") == root / "x.csv"


def test_a_tie_may_be_explained_for_the_other_class() -> None:
    outcome, stored = explained_text(0, "good", None)
    outcome = replace(outcome, logits=(1.0, 1.001), predicted="positive")
    stored = replace(stored, target="predicted", class_index=1, class_name="positive", logit=1.001)
    again = Explained(
        item=None,
        outcome=replace(outcome, predicted="negative"),
        attributions=(replace(stored, class_index=0, class_name="negative", logit=1.0),),
    )
    assert not list(differences(outcome, [stored], again, 1e-2, Largest()))
    assert list(differences(outcome, [stored], again, 1e-4, Largest()))
    fixed = replace(stored, target="class:positive")
    other = replace(again, attributions=(replace(again.attributions[0], target=fixed.target),))
    assert list(differences(outcome, [fixed], other, 1e-2, Largest())), "no logit chose that class"


def stored_plan(run: Audit) -> AuditPlan:
    with open_database(run.url) as db:
        return runs.get(db, run.id).plan


@pytest.mark.exhaustive
def test_the_verbs(call: Call, tmp_path: Path) -> None:
    spec = str(make_audit(tmp_path, **SMALL))
    assert call("run", spec)[0] == 0
    code, printed = call("verify", "--items", "3")
    assert code == 0, printed
    assert len(re.findall("^PASS  ", printed, re.MULTILINE)) == len(ALL)
    assert printed.endswith("verified\n")
    code, printed = call("manifest", "-o", "kept.json")
    assert code == 0
    name, whole = re.fullmatch(r"inputs (\w{64})\nmanifest (\w{64})\n", printed).groups()
    (beside,) = (tmp_path / "audits").glob("manifest-tiny-*.json")
    assert beside.read_bytes() == (tmp_path / "kept.json").read_bytes()
    document = json.loads(beside.read_bytes())
    assert document["name"] == name
    assert call("manifest") == (0, beside.read_text(encoding="utf-8"))
    (page,) = (tmp_path / "audits").glob("tiny-*.html")
    assert name in page.read_text(encoding="utf-8")
    assert whole in page.read_text(encoding="utf-8")
    assert call("verify", "--items", "0", "--manifest", "kept.json")[0] == 0
    turned = "UPDATE item SET predicted = CASE predicted WHEN 'bad' THEN 'good' ELSE 'bad' END"
    assert execute("sqlite:///transexplain.db", turned) == 20
    code, printed = call("verify", "--items", "20", "--json")
    found = json.loads(printed)
    assert (code, found["failed"]) == (1, 3)
    names = {one["name"] for one in found["checks"] if one["status"] == "FAIL"}
    assert names == {"stored results", "aggregates", "explained again"}
    (tmp_path / "kept.json").write_text("{}")
    code, printed = call("verify", "--manifest", "kept.json", "--items", "0")
    assert code == 1 and "FAIL  manifest: " in printed


def scaled(result: ShardResult) -> ShardResult:
    """Relevance of half as much again."""
    return with_attributions(result, lambda one: replace(one, relevance=1.5 * one.relevance), 3)


def test_invalid_requests_are_refused(
    call: Call, run: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", run.url)
    (tmp_path / "a file").touch()
    for words, code, named in (
        (("verify", "nosuchrun"), 2, "nosuchrun"),
        (("manifest", "nosuchrun"), 2, "nosuchrun"),
        (("verify", "--items", "-1"), 2, "items"),
        (("manifest", "-o", "a file/m.json"), 2, "a file/m.json"),
        (("verify", "--items", "0", "--manifest", "absent.json"), 1, "absent.json"),
    ):
        ended, printed = call(*words)
        assert ended == code and named in printed, words


@pytest.mark.exhaustive
def test_attributions_made_elsewhere_are_read_again(call: Call, tmp_path: Path) -> None:
    assert call("run", str(make_audit(tmp_path, **SMALL)))[0] == 0
    path = write_rows(tmp_path / "rows.jsonl", rows_of_run("sqlite:///transexplain.db"))
    options = ("--lexicon", "groups.json", "--classes", "bad,so-so,good")
    assert call("import", path, *options)[0] == 0
    code, printed = call("verify", "--items", "20")
    assert code == 0, printed
    for line in (
        "NOTE  model files: none",
        "PASS  explained again: 20 items",
        "PASS  dataset files",
    ):
        assert line in printed
    for (run,) in rows("sqlite:///transexplain.db", "SELECT id FROM run"):
        rewrite("sqlite:///transexplain.db", run, 0, scaled)
    code, printed = call("verify", "--items", "20")
    assert code == 1
    assert "FAIL  explained again: item '3'" in printed


@pytest.mark.exhaustive
def test_an_evaluation_is_verified_by_its_logits(call: Call, tmp_path: Path) -> None:
    spec = str(make_audit(tmp_path, items=12))
    words = ("--method", "gradient-x-input", "--metric", "sparsity", "--items", "0")
    code, printed = call("evaluate", spec, "-t", "predicted", *words)
    assert code == 0, printed
    code, printed = call("verify", "--items", "5")
    assert code == 0, printed
    assert "PASS  explained again: 5 items (seed 0), 0 attributions" in printed
    (found,) = (tmp_path / "evaluations").glob("manifest-*.json")
    assert json.loads(found.read_bytes())["inputs"]["plan"]["task"] == "evaluation"
    assert execute("sqlite:///transexplain.db", "UPDATE score SET value = value + 1") > 1
    code, printed = call("verify", "--items", "0")
    assert code == 1
    assert "FAIL  stored results: shard 0" in printed


@pytest.mark.exhaustive
def test_pictures_are_hashed_again(call: Call, tmp_path: Path, vit_dir: Path) -> None:
    folder = tmp_path / "pictures"
    for name, colour in (("a/one.png", 40), ("a/two.png", 90), ("b/three.png", 200)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (24, 24), (colour, 255 - colour, 7)).save(path)
    words = ("--set", "evaluation.items=0", "--name", "pictures")
    code, printed = call("run", "-m", str(vit_dir), "-d", f"imagefolder:{folder}", *words)
    assert code == 0, printed
    code, printed = call("verify")
    assert code == 0 and "PASS  pictures" in printed, printed
    Image.new("RGB", (24, 24), (1, 2, 3)).save(folder / "a/two.png")
    code, printed = call("verify")
    assert code == 1 and "FAIL  pictures: a/two.png" in printed


def test_a_run_that_is_not_over(run: Audit, tmp_path: Path) -> None:
    url = run.copy_store(tmp_path / "half.db")
    execute(url, "UPDATE run SET state = 'running', finished = NULL")
    execute(url, "UPDATE shard SET state = 'queued' WHERE \"index\" = 2")
    found = run.checks(url)
    assert "1 of 3 shards have no result" in found["state"].text
    assert not failed(found)


def test_other_software_is_reported_and_no_fault(run: Audit, tmp_path: Path) -> None:
    url = run.copy_store(tmp_path / "software.db")
    older = 'UPDATE run SET surroundings = replace(surroundings, \'"torch":"\', \'"torch":"0.\')'
    assert execute(url, older) == 1
    found = run.checks(url, items=1)
    assert found["software"].status == "NOTE"
    assert re.search(r"torch 0\.\S+ then, \S+ now", found["software"].text)
    assert not failed(found)
