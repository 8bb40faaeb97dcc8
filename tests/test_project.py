"""What the repository promises about itself: commands, compose file, packaging."""

import re
import tomllib
from pathlib import Path

import yaml
from typer.main import get_command

import transexplain
from orchestrator.cli.main import app
from transexplain.methods import METHODS
from transexplain.metrics import METRICS

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
    for name in (*METHODS, *METRICS):
        assert f"`{name}`" in README
    used = re.findall(r"transexplain ([a-z]+(?:-[a-z]+)*)", "\n".join(commands(README)))
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


def test_compose_publishes_only_views_to_this_host_and_pins_every_image() -> None:
    services = COMPOSE["services"]
    needed = {"postgres", "redis", "migrate", "worker", "worker-gpu", "beat", "submit"}
    assert needed | {"metrics", "flower"} <= set(services)
    for name, service in services.items():
        published = service.get("ports", [])
        assert all(port.startswith("127.0.0.1:") for port in published), name
        assert not published or service["profiles"] == [name], f"{name} publishes unasked"
        assert re.search(r":\d+\.\d+", service["image"]), name
    for name in ("postgres", "redis", "worker"):
        assert "healthcheck" in services[name]
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
    assert all(f"> {file.removeprefix('./')}" in text for file in files.values()), "said how"


def test_compose_starts_verbs_that_exist() -> None:
    for name in ("migrate", "worker", "worker-gpu", "submit", "metrics"):
        service = COMPOSE["services"][name]
        words = [*service.get("entrypoint", ["transexplain"]), *service["command"]]
        assert words[0] == "transexplain"
        assert words[1] in VERBS
