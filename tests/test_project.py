"""What the repository promises about itself: commands, compose file, packaging."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from typer.main import get_command

import transexplain
from orchestrator.cli.command_line import app
from orchestrator.monitoring.probes import READY_PATH

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
VERBS = set(get_command(app).commands)  # type: ignore[attr-defined]
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
WANTED = [Requirement(one) for one in chain(PROJECT["project"]["dependencies"], *EXTRAS.values())]
CLASSIFIERS = "\n".join(PROJECT["project"]["classifiers"])
PYTHONS = re.findall(r"Python :: (3\.\d+)$", CLASSIFIERS, re.MULTILINE)


def commands(text: str) -> list[str]:
    return [
        line
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]


def test_ci_runs_the_test_command_of_the_readme_and_builds_the_documentation() -> None:
    (command,) = [line for line in commands(README) if "pytest" in line]
    assert command.replace("python -m pytest", "") in CI
    assert "python -m mkdocs build --strict" in CI
    assert {*EXTRAS["docs"]} <= {*EXTRAS["dev"]}


def test_the_everyday_tests_reach_every_layer(everyday: dict[Path, bool]) -> None:
    """What `exhaustive` leaves out is more of the same, and never all tests of a folder."""
    files = set((ROOT / "tests").rglob("test_*.py"))
    if files - everyday.keys():
        pytest.skip("only some of the test files were collected")
    reached = {file.parent for file, one in everyday.items() if one}
    assert {file.parent for file in files} == reached


def lower_bound(wanted: Requirement) -> Version:
    (bound,) = [one for one in wanted.specifier if one.operator == ">="]
    return Version(bound.version)


def pinned() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    parts = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in parts}


def test_ci_tries_the_lowest_versions_on_the_oldest_python_and_the_newest_python() -> None:
    oldest, newest = PYTHONS[0], PYTHONS[-1]
    assert PROJECT["project"]["requires-python"] == f">={oldest}"
    everything = f"'.[{','.join(EXTRAS)}]'"
    assert f"prepare lowest {oldest} --resolution lowest-direct {everything}" in CI
    assert f"prepare newest {newest} -c constraints.txt" in CI


@pytest.mark.parametrize("wanted", WANTED, ids=lambda one: one.name)
def test_versions_are_within_the_bounds_and_those_that_the_step_of_ci_is_for(
    wanted: Requirement,
) -> None:
    """The step says in `VERSIONS` which they are: `lowest` or `newest`; else any will do."""
    if wanted.marker and not wanted.marker.evaluate():
        pytest.skip(f"not for this Python: {wanted.marker}")
    try:
        installed = Version(metadata.version(wanted.name))
    except metadata.PackageNotFoundError:
        assert wanted not in map(Requirement, PROJECT["project"]["dependencies"])
        pytest.skip("an extra that is not installed")
    step = os.environ.get("VERSIONS")
    assert lower_bound(wanted) <= installed
    if step == "lowest":
        assert installed == lower_bound(wanted), "pyproject names a bound that cannot be had"
    if step == "newest":
        assert f"{sys.version_info.major}.{sys.version_info.minor}" == PYTHONS[-1]
        assert installed == pinned()[canonicalize_name(wanted.name)]


def test_the_short_tests_are_there_and_reach_every_layer() -> None:
    lines = (ROOT / ".ci" / "short").read_text(encoding="utf-8").splitlines()
    assert {*(ROOT / ".ci" / "short-python").read_text(encoding="utf-8").split()} <= {*lines}
    for path, _, name in (line.partition("::") for line in lines):
        assert (ROOT / path).exists(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), name
    for layer in (
        *("analysis/groups", "analysis/strategies", "auditing", "data", "engine", "evaluating"),
        *("evaluating/metrics", "methods", "models", "orchestrator", "provenance", "reports"),
        *("reports/exports", "store", "extras/training", "workers"),
    ):
        assert any(line.startswith(f"tests/{layer}") for line in lines), layer


def test_constraints_are_names_and_versions_of_everything_needed() -> None:
    exact = pinned()
    for needed in map(Requirement, (*PROJECT["project"]["dependencies"], *EXTRAS["dev"])):
        assert lower_bound(needed) <= exact[canonicalize_name(needed.name)]


def test_the_threat_model_names_files_that_exist() -> None:
    named = re.findall(r"`((?:\w+/)+[\w.-]+\.\w+)`", SECURITY)
    assert {name for name in named if not (ROOT / name).is_file()} == set()
    assert any(name.startswith("tests/") for name in named)


@pytest.mark.exhaustive
def test_the_bill_of_materials_is_valid_and_names_what_is_installed(tmp_path: Path) -> None:
    (command,) = [line for line in commands(SECURITY) if "cyclonedx-py" in line]
    words = [*shlex.split(command)[:-3], "--validate", sys.prefix]
    words += ["-o", str(tmp_path / "sbom.json")]
    subprocess.run(words, cwd=ROOT, check=True, timeout=300)
    document = json.loads((tmp_path / "sbom.json").read_text(encoding="utf-8"))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["name"] == "transexplain"
    found = {canonicalize_name(one["name"]): one for one in document["components"]}
    for wanted in map(Requirement, PROJECT["project"]["dependencies"]):
        component = found[canonicalize_name(wanted.name)]
        assert component["version"] == metadata.version(wanted.name)
        assert component["purl"].startswith("pkg:pypi/")


def test_the_wheel_holds_the_four_packages() -> None:
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == ["transexplain", "workers", "orchestrator", "migrations"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", transexplain.__version__)
    assert f"## {transexplain.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_compose_publishes_only_views_to_this_host_and_pins_every_image() -> None:
    services = COMPOSE["services"]
    needed = {"postgres", "redis", "migrate", "worker", "worker-gpu", "beat", "submit"}
    assert needed | {"serve", "metrics", "flower"} <= set(services)
    for name, service in services.items():
        published = service.get("ports", [])
        assert all(port.startswith("127.0.0.1:") for port in published), name
        assert not published or service["profiles"] == [name], f"{name} publishes unasked"
        assert re.search(r":\d+\.\d+", service["image"]), name
    for name in ("postgres", "redis", "worker", "serve", "metrics"):
        assert "healthcheck" in services[name]
    for name, port in (("serve", 8321), ("metrics", 9464)):
        assert services[name]["ports"] == [f"127.0.0.1:{port}:{port}"]
        assert f":{port}{READY_PATH}" in services[name]["healthcheck"]["test"][-1]
    assert services["worker-gpu"]["profiles"] == ["gpu"]
    assert services["submit"]["profiles"] == ["submit"]


def test_compose_takes_passwords_from_files() -> None:
    files = {name: entry["file"] for name, entry in COMPOSE["secrets"].items()}
    for name, service in COMPOSE["services"].items():
        given = [*service.get("environment", {}).values(), *map(str, service.get("command", ()))]
        for value in given:
            assert "://" not in value, f"{name}: {value}"
            if value.startswith("/run/secrets/"):
                assert value.removeprefix("/run/secrets/") in service["secrets"]
        assert set(service.get("secrets", ())) <= set(files)
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert all(f"> {file.removeprefix('./')}" in text for file in files.values()), (
        "the file says how to make it"
    )


def test_compose_starts_verbs_that_exist() -> None:
    for name in ("migrate", "worker", "worker-gpu", "submit", "serve", "metrics"):
        service = COMPOSE["services"][name]
        words = [*service.get("entrypoint", ["transexplain"]), *service["command"]]
        assert words[0] == "transexplain"
        assert words[1] in VERBS
