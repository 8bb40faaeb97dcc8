"""The table of verbs says what the verbs say, and a verb is loaded only when it is used."""

import os
import re
import subprocess
import sys
from inspect import cleandoc
from pathlib import Path

import pytest
from everyday import only
from typer.main import get_command

from orchestrator.cli.command_line import app
from orchestrator.cli.verb_table import GROUPS, VERBS
from transexplain.registry import load

ROOT = Path(__file__).resolve().parents[2]
CHECK = """
import sys
from orchestrator.cli.command_line import app
try:
    app(["--help"])
finally:
    heavy = {"torch", "transformers", "timm", "numpy", "pydantic", "sqlalchemy", "celery"}
    assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


#: what verbs import before they know whether a model is needed at all
EARLY = (
    *(
        "orchestrator.plan.audit_plan",
        "orchestrator.plan.import_plan",
        "orchestrator.training_spec",
    ),
    *("orchestrator.dispatch.finish", "orchestrator.gate.policy_verdict"),
    *("transexplain.store.revisions", "transexplain.reports.summary"),
    "transexplain.reports.exports.export_run",
)


@pytest.mark.exhaustive
def test_a_wrong_request_does_not_wait_for_torch() -> None:
    modules = (
        *EARLY,
        *(one.place.partition(":")[0] for one in (*VERBS.values(), *GROUPS.values())),
    )
    check = f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
    assert "torch" not in sys.modules, name
"""
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", VERBS)
def test_the_help_of_a_verb_is_the_first_paragraph_of_its_docstring(name: str) -> None:
    text = cleandoc(load(VERBS[name].place).__doc__)
    assert VERBS[name].help == " ".join(text.split("\n\n")[0].split())


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_has_verbs_of_its_own(name: str) -> None:
    assert len(get_command(load(GROUPS[name].place)()).commands) > 1  # type: ignore[attr-defined]


def test_every_verb_is_listed() -> None:
    assert list(get_command(app).commands) == [*VERBS, *GROUPS]  # type: ignore[attr-defined]
    panels = [one.panel for one in (*VERBS.values(), *GROUPS.values())]
    assert list(dict.fromkeys(panels)) == ["Start", "Audit", "Look", "Operate", "Store"]


def test_the_list_of_verbs_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in (*VERBS, *GROUPS))


WRONG_REQUESTS = {
    "run": "model: is missing",
    "run nothere.yaml": "cannot read the audit specification",
    "run --model ./nothere --data x.csv": "there is no model directory",
    "run --model m --data nothere.csv": "no file matches 'nothere.csv'",
    "run --model m --data x.csv --text txt": "no column 'txt'; did you mean 'text'?",
    "run --model m --data x.csv --method lrpp": "did you mean 'lrp'?",
    "run --model m --data x.csv --set data.limt=1": "did you mean 'limit'?",
    "run --model m --data x.csv --lexicon builtin:gendr": "did you mean 'gender'?",
    "report latest": "holds no runs yet",
}


#: of a missing key, a missing file and a slip in a name
EVERYDAY = ("run", "run nothere.yaml", "run --model m --data x.csv --method lrpp")


@pytest.mark.exhaustive
@pytest.mark.parametrize("request_", only(*EVERYDAY, of=WRONG_REQUESTS))
def test_a_wrong_request_is_answered_before_anything_slow_is_loaded(
    request_: str, tmp_path: Path
) -> None:
    """The model comes last, so an empty folder stands for it."""
    (tmp_path / "m").mkdir()
    (tmp_path / "x.csv").write_text("text,label\nfine,1\n", encoding="utf-8")
    code = (
        "import sys\nfrom orchestrator.cli import main\n"
        "try:\n    main()\nfinally:\n"
        "    print(sorted({'torch', 'scipy', 'datasketch', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *request_.split()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 2, done.stderr
    assert WRONG_REQUESTS[request_] in done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_verb_that_a_text_of_the_code_names_is_there() -> None:
    known = {*VERBS, *GROUPS}
    named: dict[str, str] = {}
    for package in ("transexplain", "workers", "orchestrator"):
        for path in (ROOT / package).rglob("*"):
            if path.suffix in (".py", ".j2"):
                text = path.read_text(encoding="utf-8")
                named |= dict.fromkeys(
                    re.findall(r"[`>]transexplain ([a-z][\w-]*)", text), str(path)
                )
    assert len(named) > 10
    assert not {verb: place for verb, place in named.items() if verb not in known}
