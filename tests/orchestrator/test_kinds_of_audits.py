"""One audit of each kind: pairs, several labels, labels of tokens, answers, two towers.

Here and on a queue, from plan to gate. All models have random weights.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chaos_groups import command, environment
from command_line_here import run_here
from kinds_of_audits import KINDS, audit_of, question_rows

from transexplain.store.revisions import open_database
from transexplain.types.answer_spans import agreement

Call = Callable[..., tuple[int, str]]
Report = dict[str, Any]
#: what a report says of a run, whoever ran it
SAID = ("headline", "counts", "confusion", "classes", "groups", "gallery", "notes", "untested")
EXPORTS = ("csv", "jsonl", "parquet", "markdown", "model-card", "annex-iv")


@pytest.mark.parametrize(
    ("answer", "given", "exact", "f1"),
    [
        ("The Film!", ["a film"], True, 1.0),
        ("the nice film", ["film"], False, 2 / 3),
        ("x", ["good film", "X."], True, 1.0),
        ("good", ["bad"], False, 0.0),
        ("", ["the"], True, 1.0),
        ("", ["film"], False, 0.0),
    ],
)
def test_answers_agree_as_squad_measures_them(
    answer: str, given: list[str], exact: bool, f1: float
) -> None:
    found = agreement(answer, given)
    assert (found.exact, found.f1) == (exact, pytest.approx(f1))
    assert found.name == ("exact" if exact else "partly" if f1 else "other")


def test_answers_of_groups_are_counted_with_their_f1(call: Call, tmp_path: Path) -> None:
    path = audit_of("answers", tmp_path, groups={"lexicon": str(tmp_path / "groups.json")})
    code, printed = call("run", str(path))
    assert code == 0 and "exact match 0.333" in printed, printed
    report = json.loads(call("report", "latest", "--json")[1])
    outcomes = {one["group"]: one for one in report["groups"]["outcomes"]}
    rows = [row for row in question_rows() if row["label"] is not None]
    things = [
        place
        for place, row in enumerate(rows)
        if {"film", "goods", "x"} & {*f"{row['question']} {row['context']}".split()}
    ]
    own = outcomes["things"]["own"]
    assert own["selected"]["total"] == len(things) > 20
    exact = sum(isinstance(rows[place]["label"], dict) for place in things)
    assert own["selected"]["count"] == exact > 5
    assert exact / len(things) < own["probability"]["value"] < 1, "the mean F1"
    assert outcomes["things"]["counted"] == "answers"
    assert "The model marks answers to questions" in json.dumps(report["notes"])
    untested = {one["what"]: one["remedy"] for one in report["untested"]}
    assert not any("evaluat" in one or "check" in one for one in untested.values()), untested
    (page,) = Path("audits").glob("answers-*.html")
    assert "Mean F1" in page.read_text(encoding="utf-8")


@pytest.mark.exhaustive
def test_audits_of_answers_refuse_by_name(call: Call, tmp_path: Path) -> None:
    alone = {"source": str(tmp_path / "texts.jsonl"), "text": "context"}
    for keys, message in (
        ({"labels": {"x": "start"}}, "labels is for models that answer an item, and this model m"),
        ({"targets": ["all"]}, "for question answering the type is answer"),
        ({"long_text": "window"}, "no long texts in windows"),
        ({"data": alone}, "data.text: [question, context]"),
        ({"method": "gae"}, "explains one answer of an item"),
    ):
        code, printed = call("run", str(audit_of("answers", tmp_path, **keys)))
        assert code == 2 and message in " ".join(printed.split()), printed


def on_queue(env: dict[str, str], folder: Path, path: Path) -> None:
    """Submit an audit, and start a worker by hand that ends when nothing waits."""
    run_here(env, folder, "submit", str(path))
    worker = command("worker", "--device", "cpu", "--until-idle", "--linger", "5")
    done = subprocess.run(
        worker, env=env, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.exhaustive
@pytest.mark.timeout(480)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_audit_here_and_on_a_queue(
    kind: str, tmp_path: Path, redis_url: str, postgres_url: str, queue_name: str
) -> None:
    path = audit_of(kind, tmp_path)
    env = environment(tmp_path, TRANSEXPLAIN_DATABASE_URL=f"sqlite:///{tmp_path / 'here.db'}")
    run_here(env, tmp_path, "run", str(path))
    here = json.loads(run_here(env, tmp_path, "report", "latest", "--json"))
    fleet = {
        **env,
        "TRANSEXPLAIN_DATABASE_URL": postgres_url,
        "TRANSEXPLAIN_BROKER_URL": redis_url,
        "TRANSEXPLAIN_QUEUE": queue_name,
    }
    open_database(postgres_url, upgrade=True).close()
    on_queue(fleet, tmp_path, path)
    there = json.loads(run_here(fleet, tmp_path, "report", "latest", "--json"))
    assert there["counts"]["done"] == there["counts"]["total"] == 40
    for part in SAID:
        assert there[part] == here[part], part
    finished(kind, fleet, tmp_path)


def finished(kind: str, env: dict[str, str], folder: Path) -> None:
    """Export, verify, compare with another model, and gate, each of which works."""
    for form in EXPORTS:
        run_here(env, folder, "export", "--format", form, "-o", f"exported-{form}")
        assert (folder / f"exported-{form}").exists()
    assert "verified" in run_here(env, folder, "verify", "latest", "--items", "5")
    found = json.loads(run_here(env, folder, "report", "latest", "--json"))
    first = found["audited"]["run_id"]
    run_here(env, folder, "run", str(audit_of(kind, folder, seed=1)))
    compared = json.loads(run_here(env, folder, "compare", first, "latest", "--json"))
    flips = compared["predictions"]["changed"]
    assert flips > 0
    changes = compared["predictions"]["found"]
    assert bool(changes) == (kind in ("tokens", "answers"))
    for one in changes:
        assert 0 <= one["same"] + one["renamed"] <= min(one["before"], one["after"])
    policy = f"drift: {{against: {first}, max_changed_predictions: 0.0001, force: true}}\n"
    (folder / "policy.yaml").write_text(policy)
    printed = run_here(env, folder, "gate", "latest", "--policy", "policy.yaml", code=1)
    assert f"{flips / 40:.3g} of 40 common items" in " ".join(printed.split()), printed
    if kind in ("labels", "tokens", "answers"):
        refused = run_here(env, folder, "evaluate", str(folder / "audit.yaml"), code=2)
        assert "are not evaluated" in refused
