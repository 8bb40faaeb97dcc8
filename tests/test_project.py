"""What the repository promises about itself: commands, compose file, packaging."""

import re
import tomllib
from pathlib import Path

import yaml
from typer.main import get_command

import transexplain
from orchestrator.cli.main import app
from transexplain.methods import METHODS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
VERBS = set(get_command(app).commands)  # type: ignore[attr-defined]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def commands(text: str) -> list[str]:
    return [
        line
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]


def test_ci_runs_the_test_command_of_the_readme() -> None:
    (command,) = [line for line in commands(README) if "pytest" in line]
    assert command.replace("python -m pytest", "") in (ROOT / ".ci" / "run").read_text()


def test_readme_lists_what_exists() -> None:
    for name in METHODS:
        assert f"`{name}`" in README
    used = re.findall(r"transexplain ([a-z]+)", "\n".join(commands(README)))
    assert {"demo", "run", "explain", "submit", "worker"} <= set(used)
    assert set(used) <= VERBS


def test_constraints_are_names_and_versions_of_everything_needed() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line) for line in pinned)
    names = {line.partition("==")[0].lower().replace("_", "-") for line in pinned}
    extras = PROJECT["project"]["optional-dependencies"]["dev"]
    for wanted in (*PROJECT["project"]["dependencies"], *extras):
        name = re.split(r"[\[>=<]", wanted)[0].lower()
        assert name in names, f"{name} has no exact version"
        assert ">=" in wanted, f"{name} has no lower bound"


def test_the_wheel_holds_the_four_packages() -> None:
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == ["transexplain", "workers", "orchestrator", "migrations"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", transexplain.__version__)
    assert f"## {transexplain.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_compose_publishes_no_port_and_pins_every_image() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"postgres", "redis", "migrate", "worker", "worker-gpu", "submit"}
    for name, service in services.items():
        assert "ports" not in service, name
        assert re.search(r":\d+\.\d+", service["image"]), name
    for name in ("postgres", "redis", "worker"):
        assert "healthcheck" in services[name]
    assert services["worker-gpu"]["profiles"] == ["gpu"]
    assert services["submit"]["profiles"] == ["submit"]
    password = services["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert password.startswith("${POSTGRES_PASSWORD:?")


def test_compose_starts_verbs_that_exist() -> None:
    for name in ("migrate", "worker", "worker-gpu", "submit"):
        service = COMPOSE["services"][name]
        words = [*service.get("entrypoint", ["transexplain"]), *service["command"]]
        assert words[0] == "transexplain"
        assert words[1] in VERBS
