"""What names a run by an explainer: the bytes of its file, and not the folder."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from store_samples import make_plan

from transexplain.methods.learned_facts import (
    explainers_in,
    explainers_of,
    portable,
    without_folders,
)
from transexplain.provenance.manifest import inputs_of, places_of, sha256_of
from transexplain.types.plans import AuditPlan, SourceFile
from transexplain.types.scores import EvaluatedMethod, EvaluationPlan, MethodSpec


def learned(path: str, sha256: str = "a" * 64, **params: Any) -> MethodSpec:
    return MethodSpec(name="learned", params={"explainer": path, "sha256": sha256, **params})


def planned(method: MethodSpec) -> AuditPlan:
    """By the method, which is measured, too."""
    rows = (EvaluatedMethod(label="own", method=method), EvaluatedMethod(label="b", method=B))
    return make_plan(method=method, evaluation=EvaluationPlan(methods=rows, metrics=()))


B = MethodSpec(name="lrp", params={"gamma": 0.25})
HERE, THERE = learned("/here/e.safetensors"), learned("/there/x/e.safetensors")


def name(plan: AuditPlan) -> str:
    return sha256_of(inputs_of(plan.document(), None))


def test_the_folder_moves_nothing_and_the_bytes_do() -> None:
    here, there = planned(HERE), planned(THERE)
    assert here.digest != there.digest
    assert name(here) == name(there)
    inputs = inputs_of(here.document(), None)
    assert inputs["explainers"] == [{"name": "e.safetensors", "sha256": "a" * 64}]
    assert name(planned(learned("/here/e.safetensors", "b" * 64))) != name(here)
    assert name(planned(learned("/here/e.safetensors", extra=1))) != name(here)
    assert places_of(here.document())["explainers"] == ["/here/e.safetensors"]


def test_other_runs_have_the_name_they_had() -> None:
    document = make_plan().document()
    assert "explainers" not in inputs_of(document, None)
    assert "explainers" not in places_of(document)
    assert without_folders(document["method"]) == document["method"]


def test_the_explainers_of_a_plan_each_once() -> None:
    plan = planned(HERE)
    file = SourceFile(path="/here/e.safetensors", sha256="a" * 64)
    assert explainers_of(plan) == (file,)
    assert list(explainers_in(plan.document())) == [file, file]
    unnamed = MethodSpec(name="learned", params={"explainer": "/here/e.safetensors"})
    assert explainers_of(replace(plan, method=unnamed, evaluation=None)) == ()


def test_methods_are_the_same_by_their_bytes() -> None:
    assert portable(HERE) == portable(THERE) != HERE
    assert portable(learned("/here/e.safetensors", "b" * 64)) != portable(HERE)
    assert portable(B) == B
    unnamed = MethodSpec(name="learned", params={"explainer": "/here/e.safetensors"})
    assert portable(unnamed) == unnamed, "its path is all that is known of it"


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    from transexplain.methods.learned_facts import as_parameters

    path = tmp_path / "e.safetensors"
    path.write_bytes(b"bytes")
    spec = MethodSpec(name="learned", params=as_parameters(path))
    (found,) = explainers_of(make_plan(method=spec))
    assert found == SourceFile(path=str(path), sha256=hashlib.sha256(b"bytes").hexdigest())
