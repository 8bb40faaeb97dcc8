"""Commands and blocks of the pages: those that a reader types first are run, all others are read.

Run are the README, the tutorials and the page on notebooks.

A block of a page that is run belongs to a language below. YAML is written to the file that its
`title` names, Python goes on where the block before ended, and a command ends with code 0, or with
the one that a remark behind it gives (`# exit code 1`). What is not run is in `NOT_RUN`, with the
reason.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from broker_keys import queue_name_of_test
from everyday import only

import transexplain as te
from orchestrator.cli.command_line import app
from orchestrator.demo.image_model import make_image_demo
from orchestrator.demo.text_model import make_text_demo
from orchestrator.gate.policy import Policy
from orchestrator.spec import AuditSpec
from orchestrator.training_spec import TrainingSpec

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
NOTEBOOKS = ROOT / "docs" / "how-to" / "notebooks.md"
RUN = (ROOT / "README.md", *sorted(TUTORIALS.glob("*.md")), NOTEBOOKS)
READ = sorted(
    {*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").glob("*.md")}
)
#: how a command begins that no test here runs -> why
NOT_RUN = {
    "uv venv": "installs; test_install_lines_name_what_exists reads it",
    "uv tool install": "installs; test_install_lines_name_what_exists reads it",
    "pipx install": "installs; test_install_lines_name_what_exists reads it",
    "python3 -m venv": "installs; .ci/run begins with the same in a fresh environment",
    "python -m pip install": "installs; .ci/run does it, and then runs tests and builds the docs",
    "python -m http.server": "serves the built site until it is stopped",
    "transexplain demo": "trains for a minute: the exhaustive test runs it before the tutorials",
}
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

Call = Callable[..., tuple[int, str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    options: dict[str, str]
    text: str


def blocks(page: Path) -> list[Block]:
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [
        Block(language=language, options=dict(re.findall(r'(\w+)="([^"]*)"', rest)), text=text)
        for language, rest, text in found
    ]


def ended(text: str) -> Iterator[tuple[str, int]]:
    """The commands of a block, each in one line without remarks, and the promised exit codes."""
    for line in text.replace("\\\n", " ").splitlines():
        command = " ".join(re.sub(r"(^|\s)#.*", "", line).split())
        if command:
            promised = re.search(r"# exit code (\d+)$", line)
            yield command, int(promised[1]) if promised else 0


def commands(text: str) -> list[str]:
    return [command for command, _ in ended(text)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


# ---- README and tutorials are run -----------------------------------------------------------


@pytest.fixture(scope="module")
def quick_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `transexplain demo` leaves, trained for some seconds only."""
    folder = tmp_path_factory.mktemp("quick") / "transexplain-demo"
    make_text_demo(folder / "text", 0, training_letters=40, audit_letters=24)
    make_image_demo(folder / "image", 0, held_out=1700, epochs=1)
    return folder


def lay_out(folder: Path, demo: Path) -> None:
    """The files that the pages take as given: those of the demo, and a reader's own."""
    (folder / "transexplain-demo").symlink_to(demo)
    (folder / "my-bert").symlink_to(demo / "text/training/model")
    (folder / "my-vit").symlink_to(demo / "image/training/model")
    for digit in "37":
        target = folder / "pictures" / digit
        target.mkdir(parents=True)
        for picture in sorted((demo / "image/pictures" / digit).iterdir())[:8]:
            shutil.copy(picture, target)
    people = ("She", "He", "Maria", "Thomas", "My mother", "My brother")
    rows = [
        f"{person} found the {thing} {word}.,{stars}"
        for person in people
        for thing in ("lamp", "radio", "kettle", "basket")
        for word, stars in (("lovely", 5), ("awful", 1))
    ]
    (folder / "reviews.csv").write_text("\n".join(["text,stars", *rows, ""]), encoding="utf-8")


def run_page(page: Path, folder: Path, call: Call, exact: bool = True) -> dict[str, object]:
    """Run a page's blocks in order; `exact`: exit codes are those that the page promises.

    Returns what the Python blocks define.
    """
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.language == "yaml":
            (folder / block.options["title"]).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, name_of(page), "exec"), names)
        else:
            assert block.language == "sh", f"{name_of(page)} has a block of {block.language}"
            for command, promised in ended(block.text):
                if not command.startswith(tuple(NOT_RUN)):
                    assert command.startswith("transexplain "), command
                    code, printed = call(*shlex.split(command)[1:])
                    assert code == promised or not (exact or code), f"{command}\n{printed}"
    return names


PAGES = ("README.md", "docs/tutorials/text-audit.md")


@pytest.mark.parametrize("page", only("README.md", of=PAGES))
def test_every_block_of_the_readme_and_the_first_tutorial_runs(
    page: str, quick_demo: Path, tmp_path: Path, call: Call
) -> None:
    """With models that learnt little, so a gate may also be kept."""
    lay_out(tmp_path, quick_demo)
    run_page(ROOT / page, tmp_path, call, exact=False)
    assert list((tmp_path / "audits").glob("*.html"))


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("default::UserWarning")  # what is to be known before an audit
def test_every_block_of_the_page_on_notebooks_runs(
    quick_demo: Path, tmp_path: Path, call: Call
) -> None:
    lay_out(tmp_path, quick_demo)
    run_page(NOTEBOOKS, tmp_path, call)
    assert "gorgeous" in (tmp_path / "explained.html").read_text(encoding="utf-8")


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", ["picture-audit.md", "scheduled-audit.md"])
def test_every_block_of_the_other_tutorials_runs(
    page: str, quick_demo: Path, tmp_path: Path, call: Call
) -> None:
    lay_out(tmp_path, quick_demo)
    run_page(TUTORIALS / page, tmp_path, call)
    assert list((tmp_path / "audits").glob("*.html"))


@pytest.mark.exhaustive
def test_the_first_tutorial_keeps_its_promises_with_the_models_of_the_demo(
    tmp_path: Path, call: Call
) -> None:
    page = TUTORIALS / "text-audit.md"
    (demo,) = [one for one in commands_of(page) if one.startswith("transexplain demo")]
    assert call(*shlex.split(demo)[1:])[0] == 0
    for name in re.findall(r"^\| `(text/[^`]+)` \|", page.read_text(encoding="utf-8"), re.M):
        assert (tmp_path / "transexplain-demo" / name).exists(), name
    names: dict[str, Any] = run_page(page, tmp_path, call)
    report = call("report", "latest", "--json")[1]
    assert '"mention": "changes"' in report
    first, second = te.explain(names["model"], names["texts"])
    assert (first.class_name, second.class_name) == ("positive", "negative")


@pytest.mark.exhaustive
@pytest.mark.redis
@pytest.mark.postgres
def test_every_block_of_the_fleet_tutorial_runs(
    quick_demo: Path, tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    """As processes; workers stay beside what follows and end with SIGTERM."""
    lay_out(tmp_path, quick_demo)
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TRANSEXPLAIN_QUEUE": queue_name_of_test(),
    }
    given = {"DATABASE_URL": postgres_url, "BROKER_URL": redis_url}
    with ExitStack() as workers:
        for block in blocks(TUTORIALS / "fleet.md"):
            if block.language == "yaml":
                (tmp_path / block.options["title"]).write_text(block.text, encoding="utf-8")
                continue
            assert block.language == "sh"
            for command in commands(block.text):
                if found := re.fullmatch(r"export TRANSEXPLAIN_(\w+)=(\S+)", command):
                    value = given.get(found[1], found[2].replace("$PWD", str(tmp_path)))
                    env[f"TRANSEXPLAIN_{found[1]}"] = value
                elif command.startswith("transexplain worker"):
                    workers.enter_context(beside(command, tmp_path, env))
                else:
                    done = subprocess.run(
                        here(command), cwd=tmp_path, env=env, check=False, timeout=300,
                        capture_output=True, text=True,
                    )  # fmt: skip
                    assert done.returncode == 0, done.stdout + done.stderr
        assert list((tmp_path / "audits").glob("letters-*.html"))


def here(command: str) -> list[str]:
    """A command of the pages as a process of this Python."""
    words = shlex.split(command)
    assert words[0] == "transexplain", command
    return [sys.executable, "-m", "orchestrator.cli", *words[1:]]


@contextmanager
def beside(command: str, folder: Path, env: dict[str, str]) -> Iterator[None]:
    """Run a command until the end of the page; SIGTERM ends it, and it ends well."""
    with subprocess.Popen(here(command), cwd=folder, env=env) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=120) == 0


def commands_of(page: Path) -> list[str]:
    return [one for block in blocks(page) if block.language == "sh" for one in commands(block.text)]


def test_what_is_not_run_is_there_and_has_a_reason() -> None:
    every = [command for page in RUN for command in commands_of(page)]
    for begins, reason in NOT_RUN.items():
        assert reason
        assert any(command.startswith(begins) for command in every), f"no page has {begins!r}"


def test_every_page_that_is_to_be_run_is_run() -> None:
    """A tutorial that no test above names would be skipped in silence."""
    source = Path(__file__).read_text(encoding="utf-8")
    for page in RUN:
        named = page.name in source or page == NOTEBOOKS
        assert named or not blocks(page), f"{name_of(page)} is not run"


# ---- install lines are read -----------------------------------------------------------------


def test_install_lines_name_what_exists() -> None:
    from test_project import EXTRAS

    lines = [one for page in READ for one in commands_of(page) if re.search(r"\binstall\b", one)]
    assert lines
    for line in lines:
        for extras in re.findall(r"\.\[([\w,]+)\]", line):
            assert set(extras.split(",")) <= set(EXTRAS), line
        for file in re.findall(r"-c (\S+?)'?(?:\s|$)", line):
            assert (ROOT / file).is_file(), line
    assert any("--torch-backend cpu" in line for line in lines)
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    assert all(f"`{extra}`" in page for extra in EXTRAS)


def test_uv_has_the_option_that_takes_the_build_for_the_cpu() -> None:
    for verb in (("pip", "install"), ("tool", "install")):
        help_ = subprocess.run(
            ["uv", *verb, "--help"], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        assert "--torch-backend" in help_


# ---- all other pages are read ---------------------------------------------------------------


def calls(command: str) -> Iterator[list[str]]:
    """The words of each call of `transexplain` in a line of a shell."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;"):
            own = [one for one in words if not re.match(r"\w+=", one)]
            if own[:1] == ["transexplain"]:
                yield own[1:]
            words = []
        else:
            words.append(word)


def options_of(words: list[str]) -> set[str]:
    """The options of the verb that `words` begin with."""
    group = typer.main.get_command(app)
    assert words[0] in group.commands, f"no verb {words[0]!r}"  # type: ignore[attr-defined]
    command = (
        group.commands[words[0]]
        .make_context(  # type: ignore[attr-defined]
            words[0], words[1:2], resilient_parsing=True
        )
        .command
    )
    inner = getattr(command, "commands", {})
    if inner:
        assert words[1] in inner, f"no verb {' '.join(words[:2])!r}"
        command = inner[words[1]]
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


@pytest.mark.parametrize("page", READ, ids=name_of)
def test_commands_in_the_docs_are_commands(page: Path) -> None:
    for command in commands_of(page):
        for words in calls(command):
            if words[0].startswith("--"):  # of the program itself
                continue
            known = options_of(words) | {"--help"}
            given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            assert given <= known, f"{command}: {', '.join(sorted(given - known))}"


@pytest.mark.parametrize("page", READ, ids=name_of)
def test_yaml_in_the_docs_is_valid(page: Path) -> None:
    """A fragment is put into a small whole of its kind."""
    for block in blocks(page):
        if block.language == "yaml":
            document = yaml.safe_load(block.text)
            if set(document) <= set(Policy.model_fields):
                Policy.model_validate(document)
            elif {"optimisation", "explainer"} & set(document):
                TrainingSpec.model_validate(document)
            else:
                whole = {"model": "./my-bert", "data": "reviews.csv", **document}
                AuditSpec.model_validate(whole)
