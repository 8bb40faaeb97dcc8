"""What names a run: every byte that decides its numbers, and nothing else."""

import hashlib
import json
import math
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gallery import Audit, run_audit
from hypothesis import given
from hypothesis import strategies as st
from store_samples import make_plan, make_result, make_shards, saved, start
from tiny_audit import make_audit
from verified_runs import audited, flipped, tampered

from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.environment import git_state, planned_here
from transexplain.errors import ConfigurationError
from transexplain.methods.explainer_files import (
    explainers_in,
    explainers_of,
    portable,
    without_folders,
)
from transexplain.provenance.manifest import (
    Manifest,
    canonical,
    inputs_of,
    manifest_of,
    places_of,
    seeds,
    sha256_of,
)
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.types.plans import AuditPlan, EntityGroup, RecogniserPlan, SourceFile
from transexplain.types.scores import EvaluatedMethod, EvaluationPlan, MethodSpec, MetricSpec


def manifest(run: Audit) -> Manifest:
    with open_database(run.url) as db:
        return manifest_of(db, run.id)


def planned(folder: Path, **keys: Any) -> Manifest:
    """The manifest of an audit below `folder` that is planned and not run."""
    settings = Settings(
        database_url=f"sqlite:///{folder / 'p.db'}", snapshot_dir=folder / "snapshots"
    )
    path = folder / "audit.yaml"
    prepared = prepare_audit(load_spec(path, overrides=keys), settings)
    with open_database(settings.database_url, upgrade=True) as db:
        return manifest_of(db, runs.create(db, prepared.plan, prepared.shards))


@pytest.mark.exhaustive
def test_two_runs_over_the_same_bytes_have_one_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = audited(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "three")  # for its own files
    again = manifest(run_audit(tmp_path / "one" / "audit.yaml", tmp_path / "one"))
    one, moved = manifest(first), planned_copy(tmp_path / "three")
    assert one.inputs == again.inputs == moved.inputs
    assert one.name == again.name == moved.name
    assert one.sha256 != again.sha256, "executions differ"
    assert one.execution["places"] != moved.execution["places"]
    kept = [shard["digest"] for shard in one.execution["shards"]]
    assert all(kept)
    assert kept == [shard["digest"] for shard in again.execution["shards"]], "the same numbers"


def planned_copy(folder: Path) -> Manifest:
    """Planned from the files of a copied folder."""
    return planned(
        folder,
        **{
            "model.source": str(folder / "model"),
            "data.source": str(folder / "texts.jsonl"),
            "groups.lexicon": str(folder / "groups.json"),
        },
    )


def test_every_byte_of_every_input_changes_the_name(tmp_path: Path) -> None:
    make_audit(tmp_path, items=12, evaluation={"items": 0})
    before = planned(tmp_path)
    seen = {before.name}
    of_model = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
    for name in (*(f"model/{file}" for file in of_model), "texts.jsonl", "groups.json"):
        path = tmp_path / name
        whole = path.read_bytes()
        with tampered(path, flipped(whole) if name.endswith("safetensors") else whole + b"\n"):
            changed = planned(tmp_path)
        assert changed.name not in seen, name
        seen.add(changed.name)
        kept, moved = (
            {file["path"]: file["sha256"] for file in found.inputs["model"]["files"]}
            for found in (before, changed)
        )
        differing = {file for file in kept if kept[file] != moved[file]}
        assert differing == ({path.name} if name.startswith("model/") else set())
        assert not differing or kept[path.name] == hashlib.sha256(whole).hexdigest()
    assert planned(tmp_path).name == before.name


NAMES = EntityGroup(name="names", terms=("Ann", "Zoe"), source="here")
CHANGES: dict[str, Any] = {
    **{"practical": 0.3, "targets": ("predicted",), "batch_tokens": 7, "labels": {}},
    **{"shard_size": 5, "groups": (NAMES,)},
}


def test_every_part_of_the_plan_changes_the_name(db: Database) -> None:
    plans = [make_plan(), *(make_plan(**{key: value}) for key, value in CHANGES.items())]
    names = {manifest_of(db, runs.create(db, plan, make_shards())).name for plan in plans}
    assert len(names) == len(plans)


def test_versions_change_the_name_and_the_machine_does_not(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = manifest_of(db, start(db))
    packages = {"transexplain", "torch", "transformers", "timm", "tokenizers", "numpy"}
    assert packages <= set(here.inputs["software"])
    real = planned_here()
    newer = {**real, "software": {**real["software"], "torch": "99.0"}}
    monkeypatch.setattr("transexplain.store.runs.planned_here", lambda: newer)
    assert manifest_of(db, start(db)).name != here.name
    elsewhere = {**real, "hardware": {"cpu": "another"}, "git": {"commit": "c", "dirty": True}}
    monkeypatch.setattr("transexplain.store.runs.planned_here", lambda: elsewhere)
    assert manifest_of(db, start(db)).name == here.name


def test_what_is_recorded_of_an_execution(db: Database) -> None:
    failing = {1: frozenset({5})}
    run_id = saved(
        db,
        *(make_result(one, failing=failing.get(one.index, frozenset())) for one in make_shards()),
    )
    made = manifest_of(db, run_id)
    found = made.execution
    assert found["failures"] == {"empty-text": 1}
    assert (found["workers"], found["attempts"], found["seconds"]) == (1, 3, 1.5)
    assert [one["explained"] for one in found["shards"]] == [4, 3, 4]
    assert len({one["digest"] for one in found["shards"]}) == 3
    assert len(found["computed"]) == 1
    assert {one["computed"] for one in found["shards"]} == {0}
    assert found["planned"]["hardware"]["cores"] >= 1
    assert hashlib.sha256(made.text).hexdigest() == made.sha256
    assert json.loads(made.text) == json.loads(json.dumps(made.document))
    assert manifest_of(db, run_id).text == made.text, "nothing of it moves"
    with pytest.raises(ConfigurationError, match="no run"):
        manifest_of(db, "20260101-00000000")


def test_seeds_are_found_wherever_they_are() -> None:
    plan = {
        "swap": {"seed": 3},
        "evaluation": {"seed": 0, "methods": [{"params": {"seed": 9}}, {"params": {}}]},
        "seedling": 1,
    }
    expected = {"swap.seed": 3, "evaluation.seed": 0, "evaluation.methods.0.params.seed": 9}
    assert dict(seeds(plan)) == expected


def test_the_state_of_a_repository_which_runs_no_program_of_its_own(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        named = ("-c", "user.name=T", "-c", "user.email=t@example.org")
        subprocess.run(["git", *named, *words], cwd=tmp_path, check=True, capture_output=True)

    assert git_state(tmp_path) is None
    git("init", "-q")
    assert git_state(tmp_path) is None, "no commit yet"
    (tmp_path / "a.txt").write_text("a")
    git("add", "a.txt")
    git("commit", "-q", "-m", "first")
    clean = git_state(tmp_path)
    assert (len(clean["commit"]), clean["dirty"]) == (40, False)
    (tmp_path / "a.txt").write_text("b")
    assert git_state(tmp_path) == {**clean, "dirty": True}
    assert git_state(tmp_path / "absent") is None
    git("config", "core.fsmonitor", f"touch {tmp_path / 'ran'}; false")
    assert git_state(tmp_path) is not None
    assert not (tmp_path / "ran").exists()


def test_a_recogniser_and_a_reference_corpus_are_named_without_their_folders() -> None:
    def inputs(folder: str) -> dict[str, Any]:
        metric = MetricSpec(
            name="token-overlap",
            params={"reference": f"{folder}/everyday.tsv#text", "reference_version": "a" * 64},
        )
        usual = MetricSpec(name="sparsity")
        plan = replace(
            make_plan(),
            recogniser=RecogniserPlan(
                source=f"spacy:{folder}/pipeline", name="spaCy 3", digest="d"
            ),
            evaluation=EvaluationPlan(methods=(), metrics=(usual, metric)),
        )
        return inputs_of(json.loads(json.dumps(plan.document())), {})

    one = inputs("/srv/a")
    assert one == inputs("/home/b")
    assert one["plan"]["recogniser"]["source"] == "spacy:pipeline"
    params = one["plan"]["evaluation"]["metrics"][1]["params"]
    assert params == {"reference": "everyday.tsv#text", "reference_version": "a" * 64}


# ---- what names a run by an explainer -----------------------------------------------------------


def learned(path: str, sha256: str = "a" * 64, **params: Any) -> MethodSpec:
    return MethodSpec(name="learned", params={"explainer": path, "sha256": sha256, **params})


def planned_by(method: MethodSpec) -> AuditPlan:
    """By the method, which is measured, too."""
    rows = (EvaluatedMethod(label="own", method=method), EvaluatedMethod(label="b", method=B))
    return make_plan(method=method, evaluation=EvaluationPlan(methods=rows, metrics=()))


B = MethodSpec(name="lrp", params={"gamma": 0.25})
HERE, THERE = learned("/here/e.safetensors"), learned("/there/x/e.safetensors")


def name(plan: AuditPlan) -> str:
    return sha256_of(inputs_of(plan.document(), {}))


def test_the_folder_moves_nothing_and_the_bytes_do() -> None:
    here, there = planned_by(HERE), planned_by(THERE)
    assert here.digest != there.digest
    assert name(here) == name(there)
    inputs = inputs_of(here.document(), {})
    assert inputs["explainers"] == [{"name": "e.safetensors", "sha256": "a" * 64}]
    assert name(planned_by(learned("/here/e.safetensors", "b" * 64))) != name(here)
    assert name(planned_by(learned("/here/e.safetensors", extra=1))) != name(here)
    assert places_of(here.document())["explainers"] == ["/here/e.safetensors"]


def test_other_runs_have_the_name_they_had() -> None:
    document = make_plan().document()
    assert "explainers" not in {*inputs_of(document, {}), *places_of(document)}
    assert without_folders(document["method"]) == document["method"]


def test_the_explainers_of_a_plan_each_once_and_the_same_by_their_bytes() -> None:
    plan = planned_by(HERE)
    file = SourceFile(path="/here/e.safetensors", sha256="a" * 64)
    assert explainers_of(plan) == (file,)
    assert list(explainers_in(plan.document())) == [file, file]
    unnamed = MethodSpec(name="learned", params={"explainer": "/here/e.safetensors"})
    assert explainers_of(replace(plan, method=unnamed, evaluation=None)) == ()
    assert portable(HERE) == portable(THERE) != HERE
    assert portable(learned("/here/e.safetensors", "b" * 64)) != portable(HERE)
    assert portable(B) == B and portable(unnamed) == unnamed, "its path is all that is known of it"


# ---- the canonical form -------------------------------------------------------------------------


KEYS = st.text(st.characters(), max_size=6)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


def shuffled(value: Any, draw: random.Random) -> Any:
    """The same value, its keys in another order and its lists as tuples."""
    if isinstance(value, dict):
        entries = [(key, shuffled(entry, draw)) for key, entry in value.items()]
        draw.shuffle(entries)
        return dict(entries)
    if isinstance(value, list):
        return tuple(shuffled(entry, draw) for entry in value)
    return value


@given(VALUES, st.randoms(use_true_random=False))
def test_order_of_keys_changes_nothing(value: Any, draw: random.Random) -> None:
    assert canonical(shuffled(value, draw)) == canonical(value)


@given(VALUES)
def test_it_is_utf8_json_that_reads_back(value: Any) -> None:
    text = canonical(value).decode("utf-8")
    assert json.loads(text) == value
    assert canonical(json.loads(text)) == canonical(value)


@given(VALUES, VALUES)
def test_two_values_have_one_hash_only_where_they_are_one(one: Any, other: Any) -> None:
    assert (sha256_of(one) == sha256_of(other)) == (typed(one) == typed(other))


def typed(value: Any) -> Any:
    """A value with its type, so that 1, 1.0 and True differ, and 0.0 and -0.0."""
    if isinstance(value, dict):
        return {key: typed(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [typed(entry) for entry in value]
    return type(value).__name__, math.copysign(1.0, value) if value == 0 else None, value


def test_the_form_by_example() -> None:
    value = {"z": [1.0, 1e-7, 1], "é": "Zoë\n\ud800", "a": {"b": None, "B": True}}
    expected = '{"a":{"B":true,"b":null},"z":[1.0,1e-07,1],"é":"Zoë\\n\\ud800"}'.encode()
    assert canonical(value) == expected
    assert sha256_of(value) == hashlib.sha256(expected).hexdigest()


@pytest.mark.parametrize(
    ("value", "error"),
    [
        *(({"a": [number]}, ValueError) for number in (math.nan, math.inf, -math.inf)),
        *((value, TypeError) for value in ({1: "a"}, {"a": [{None: 1}]}, {"a": {2.0: 1}})),
        ({"a": b"bytes"}, TypeError),
    ],
)
def test_what_json_has_no_form_for_is_refused(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        canonical(value)
