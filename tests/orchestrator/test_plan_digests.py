"""Specifications whose plans and schema must not change: a changed digest splits runs from theirs.

The digests are over the plan's document with folders and digests of bytes blanked: those of model
files follow the installed torch.
"""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from learned_audits import explainer_for, learned, mixed
from tiny_audit import make_audit, texts

from orchestrator.plan import prepare_audit
from orchestrator.spec import AuditSpec, load_spec
from transexplain.settings import Settings
from transexplain.types.plans import AuditPlan, Task

KNOWN = json.loads((Path(__file__).parent / "plan_digests.json").read_text(encoding="utf-8"))

Keys = dict[str, Any]


def plain(folder: Path) -> Keys:
    return {}


def names(folder: Path) -> Keys:
    """Groups with every key that has a form of its own in the plan."""
    rows = (
        {"text": text, "author": ("woman", "man")[i % 2], "village": f"v{i % 7}", "label": "good"}
        for i, text in enumerate(texts(40))
    )
    data = folder / "authors.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    lexicon = folder / "people.yaml"
    lexicon.write_text("kind/a: [film, x]\nkind/b: [goods, good]\n", encoding="utf-8")
    return {
        "data": {"source": str(data), "meta": ["author", "village"], "cluster": "village"},
        "groups": {
            "lexicon": [str(lexicon), "builtin:gender"],
            "pairs": [["film", "goods"]],
            "second": str(lexicon),
            "column": "author",
            "include": ["kind", "author"],
            "reference": {"kind": "kind/a"},
            "practical": 0.2,
            "correction": "holm",
            "slice": "author",
            "check": 5,
            "planted": 0.5,
            "draws": 2,
        },
    }


def long_texts(folder: Path) -> Keys:
    return {
        "long_text": "window",
        "window": 8,
        "stride": 3,
        "long_text_join": "sum",
        "batch_tokens": 512,
        "payload": "float16",
        "tolerance": 0.25,
        "max_attempts": 5,
    }


def classes_of_ones_own(folder: Path) -> Keys:
    return {
        "classifications": [{"name": "fine", "classes": ["so-so", "good"]}],
        "targets": ["fine", {"contrast": ["good", "bad"]}, "top:2"],
        "labels": {"good": "so-so"},
        "method": {"name": "lrp", "params": {"epsilon": 0.1}},
        "data": {"source": str(folder / "texts.jsonl"), "sample": 9, "seed": 3},
    }


def private(folder: Path) -> Keys:
    return {"store_text": "none", "name": "nobody"}


def a_learned_explainer(folder: Path) -> Keys:
    return {"explain": mixed(explainer_for(folder), exact_params={"epsilon": 0.2})}


def two_methods(folder: Path) -> Keys:
    return {
        "explain": {
            "method": "gradient-x-input",
            "exact": "attnlrp",
            "exact_sample": 0.25,
            "seed": 7,
        },
        "evaluation": {"items": 4, "metrics": ["pruning"], "over": "words", "baseline": "mask"},
    }


def measured(folder: Path) -> Keys:
    methods = [learned(explainer_for(folder)), {"name": "gradient-x-input", "label": "ours"}]
    metrics = [{"name": "pruning", "items": 3}, "activation"]
    evaluation = {"methods": methods, "metrics": metrics, "seed": 2, "confidence": 0.9}
    return {"evaluation": evaluation, "targets": "predicted"}


CASES: dict[str, tuple[Callable[[Path], Keys], Task]] = {
    "plain": (plain, "audit"),
    "names": (names, "audit"),
    "long_texts": (long_texts, "audit"),
    "classes_of_ones_own": (classes_of_ones_own, "audit"),
    "private": (private, "audit"),
    "a_learned_explainer": (a_learned_explainer, "audit"),
    "two_methods": (two_methods, "audit"),
    "measured": (measured, "evaluation"),
}


def planned(folder: Path, case: str) -> AuditPlan:
    keys, task = CASES[case]
    make_audit(folder)
    spec = load_spec(make_audit(folder, **keys(folder)))
    settings = Settings(
        database_url=f"sqlite:///{folder / 's.db'}", snapshot_dir=folder / "snapshots"
    )
    return prepare_audit(spec, settings, task).plan


def digest_of(plan: AuditPlan, folder: Path) -> str:
    text = json.dumps(plan.document(), sort_keys=True).replace(str(folder), "FOLDER")
    return hashlib.sha256(re.sub(r"[0-9a-f]{64}", "DIGEST", text).encode()).hexdigest()


@pytest.mark.parametrize("case", CASES)
def test_the_plan_of_a_specification_is_what_it_was(tmp_path: Path, case: str) -> None:
    assert digest_of(planned(tmp_path, case), tmp_path) == KNOWN["plans"][case]


def test_the_schema_of_the_specification_is_what_it_was() -> None:
    assert AuditSpec.model_json_schema() == KNOWN["schema"]
