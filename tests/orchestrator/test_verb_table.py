"""The table of verbs says what the verbs say, and a verb is loaded only when it is used."""

import subprocess
import sys
from inspect import cleandoc

import pytest
from typer.main import get_command

from orchestrator.cli.command_line import app
from orchestrator.cli.verb_table import GROUPS, VERBS
from transexplain.registry import load

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
