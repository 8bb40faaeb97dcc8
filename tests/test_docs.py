"""The documents are true: links, code, commands, keys and what is generated; the first pages run.

Run are the README, the tutorials and the page on notebooks. YAML is written to the file that its
`title` names, Python goes on where the block before ended, and a command ends with code 0, or with
the one that a remark behind it gives (`# exit code 1`). What is not run is in `NOT_RUN`, with the
reason.
"""

import ast
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml
from broker_keys import queue_name_of_test
from everyday import only

import transexplain as te
from orchestrator.cli.command_line import app
from orchestrator.cli.verb_table import GROUPS, VERBS
from orchestrator.gate.policy import Policy
from orchestrator.monitoring.fleet_metrics import METRICS as FLEET_METRICS
from orchestrator.spec.audit_spec import SECTIONS, AuditSpec
from transexplain.evaluating.metrics import METRICS
from transexplain.extras.demo.image_model import make_image_demo
from transexplain.extras.demo.text_model import make_text_demo
from transexplain.extras.training.train_command import TrainingSpec
from transexplain.methods import METHODS
from transexplain.reports.run_metrics import METRICS as RUN_METRICS
from transexplain.store.schema import RESULT_TABLES, metadata
from transexplain.store.views import VIEWS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TUTORIALS = DOCS / "tutorials"
NOTEBOOKS = DOCS / "how-to" / "notebooks.md"
FOLDERS = (".", "examples", "benchmarks", "fuzz")
PAGES = sorted({*DOCS.rglob("*.md"), *(p for name in FOLDERS for p in (ROOT / name).glob("*.md"))})
#: what only the built site has
BUILT = {DOCS / "sample" / "report.html", DOCS / "sample" / "redacted.html"}
#: how a command begins that no test here runs: what installs, serves, or trains for a minute
NOT_RUN = (
    *("uv venv", "uv tool install", "pipx install", "python3 -m venv", "python -m pip install"),
    *("python -m http.server", "transexplain demo"),
)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

Call = Callable[..., tuple[int, str]]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """What a link may name after `#`: headings in lower case with hyphens, or their own ids."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ids = {match[1] for line in headings if (match := re.search(r"\{ #([\w-]+) \}$", line))}
    return ids | {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings}


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [
        Block(language, "".join(re.findall(r'title="([^"]*)"', options)), text)
        for language, options, text in _BLOCK.findall(page.read_text(encoding="utf-8"))
    ]


def ended(text: str) -> Iterator[tuple[str, int]]:
    """The commands of a block, each in one line without remarks, and the promised exit codes."""
    for line in text.replace("\\\n", " ").splitlines():
        command = " ".join(re.sub(r"(^|\s)#.*", "", line).split())
        if command:
            promised = re.search(r"# exit code (\d+)$", line)
            yield command, int(promised[1]) if promised else 0


def commands_of(page: Path) -> list[str]:
    texts = [block.text for block in blocks(page) if block.language == "sh"]
    return [command for text in texts for command, _ in ended(text)]


# ---- every page is read ----------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_commands_of_a_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^()\s]+)\)", _CODE.sub("", text)):
        if not link.startswith(("http:", "https:")):
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            assert target.exists() or target.resolve() in BUILT, link
            assert not anchor or anchor in anchors(target), link
    for command in commands_of(page):
        for words in calls(command):
            if words[0].startswith("--"):  # of the program itself
                continue
            options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            assert options <= options_of(words) | {"--help"}, command


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_and_yaml_of_a_page(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python" and not block.text.lstrip().startswith(('"', "#")):
            compile(block.text, str(page), "exec")  # others are entries of a table
        if block.language == "yaml":  # a fragment is put into a small whole of its kind
            document = yaml.safe_load(block.text)
            if set(document) <= set(Policy.model_fields):
                Policy.model_validate(document)
            elif {"optimisation", "explainer"} & set(document):
                TrainingSpec.model_validate(document)
            else:
                AuditSpec.model_validate({"model": "./my-bert", "data": "reviews.csv", **document})


def calls(command: str) -> Iterator[list[str]]:
    """The words of each call of `transexplain` in a line of a shell."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;"):
            words = [one for one in words if not re.match(r"\w+=", one)]
            if words[:1] == ["transexplain"]:
                yield words[1:]
            words = []
        else:
            words.append(word)


def options_of(words: list[str]) -> set[str]:
    """The options of the verb that `words` begin with."""
    group: Any = typer.main.get_command(app)
    assert words[0] in group.commands, f"no verb {words[0]!r}"
    verb = group.commands[words[0]]
    command = verb.make_context(words[0], words[1:2], resilient_parsing=True).command
    if inner := getattr(command, "commands", {}):
        assert words[1] in inner, f"no verb {' '.join(words[:2])!r}"
        command = inner[words[1]]
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def test_the_readme_is_one_page_and_the_citation_names_this_version() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (te.__version__, "Apache-2.0")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_every_variable_of_the_environment_is_listed() -> None:
    """Names are written out in the code, or given to the readers of settings."""
    page = (DOCS / "reference" / "environment.md").read_text(encoding="utf-8")
    folders = (ROOT / name for name in ("transexplain", "workers", "orchestrator"))
    files = [path for folder in folders for path in folder.rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    named = set(re.findall(r'(?:secret|_env|_seconds)\("([A-Z_]+)"', text))
    named |= {one.removesuffix("_FILE") for one in re.findall(r"TRANSEXPLAIN_([A-Z_]+)", text)}
    assert named - {""} <= set(re.findall(r"`TRANSEXPLAIN_([A-Z_]+)`", page))


def test_install_lines_name_what_exists() -> None:
    from test_project import EXTRAS

    commands = [command for page in PAGES for command in commands_of(page)]
    lines = [command for command in commands if re.search(r"\binstall\b", command)]
    for line in lines:
        for extras in re.findall(r"\.\[([\w,]+)\]", line):
            assert set(extras.split(",")) <= set(EXTRAS), line
        for file in re.findall(r"-c (\S+?)'?(?:\s|$)", line):
            assert (ROOT / file).is_file(), line
    assert any("--torch-backend cpu" in line for line in lines)
    words = ["uv", "pip", "install", "--help"]
    assert "--torch-backend" in subprocess.check_output(words, text=True)
    page = (DOCS / "how-to" / "install.md").read_text(encoding="utf-8")
    assert all(f"`{extra}`" in page for extra in EXTRAS)


# ---- the papers, row by row -------------------------------------------------------------------

PAPERS = (DOCS / "papers.md").read_text(encoding="utf-8")
#: title, section of the paper, mark
_CAPABILITY = re.compile(r"^(\S.*) · \*(.+)\* · \*\*(\w+)\*\*\{ \.mark \.(\w+) \}$", re.MULTILINE)
_MARKS = ("yes", "differs", "no")


def capabilities() -> Iterator[tuple[str, str, str, str]]:
    """Of every row its paper's anchor, title, mark and text."""
    for section in re.split(r"^## ", PAPERS, flags=re.MULTILINE)[1:]:
        paper = re.findall(r"\{ #(\w+) \}$", section.partition("\n")[0])
        ends = [*_CAPABILITY.finditer(section)]
        stops = [*(match.start() for match in ends[1:]), len(section)]
        for match, stop in zip(ends, stops, strict=False):
            assert match[3] == match[4] and match[3] in _MARKS, match[1]
            yield paper[0], match[1], match[3], section[match.end() : stop]


def named_tests(text: str) -> set[str]:
    """Such as `tests/test_docs.py::test_marks_of_the_papers_are_counted`."""
    return set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", text))


def test_every_path_and_test_of_the_page_on_the_papers_exists() -> None:
    folders = "transexplain|orchestrator|workers|benchmarks|examples|tests"
    paths = re.findall(rf"`((?:{folders})/[\w/.]+)", PAPERS)
    assert len(paths) > 100
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    assert len(named_tests(PAPERS)) > 60
    for name in named_tests(PAPERS):
        file, _, function = name.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert function in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}, name


def test_what_is_marked_as_shown_names_what_shows_it() -> None:
    """A test, or a command with what it printed."""
    rows = [*capabilities()]
    assert len({(paper, title) for paper, title, _, _ in rows}) == len(rows) > 78
    for _, title, mark, text in rows:
        command = re.search(r"`(transexplain|python -m) ", text) and re.search(r"\d", text)
        assert mark == "no" or named_tests(text) or command, title


def test_marks_of_the_papers_are_counted() -> None:
    counts = Counter((paper, mark) for paper, _, mark, _ in capabilities())
    row = r"^\| \[.+\]\(#(\w+)\) \| (\d+) \| (\d+) \| (\d+) \|$"
    table = re.findall(row, PAPERS, re.MULTILINE)
    assert {paper for paper, *_ in table} == {paper for paper, _ in counts}
    for paper, *numbers in table:
        assert numbers == [str(counts[paper, mark]) for mark in _MARKS], paper
    sums = [str(sum(counts[paper, mark] for paper, *_ in table)) for mark in _MARKS]
    assert f"| all | {' | '.join(sums)} |" in PAPERS


# ---- README, tutorials and notebooks are run ---------------------------------------------------


@pytest.fixture(scope="module")
def quick_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `transexplain demo` leaves, trained for some seconds only."""
    folder = tmp_path_factory.mktemp("quick") / "transexplain-demo"
    make_text_demo(folder / "text", 0, training_letters=40, audit_letters=24)
    make_image_demo(folder / "image", 0, held_out=1700, epochs=1)
    return folder


@pytest.fixture
def laid_out(tmp_path: Path, quick_demo: Path) -> Path:
    """A folder with what the pages take as given: files of the demo, and a reader's own."""
    (tmp_path / "transexplain-demo").symlink_to(quick_demo)
    (tmp_path / "my-bert").symlink_to(quick_demo / "text/training/model")
    (tmp_path / "my-vit").symlink_to(quick_demo / "image/training/model")
    for digit in "37":
        target = tmp_path / "pictures" / digit
        target.mkdir(parents=True)
        for picture in sorted((quick_demo / "image/pictures" / digit).iterdir())[:8]:
            shutil.copy(picture, target)
    people = ("She", "He", "Maria", "Thomas", "My mother", "My brother")
    rows = [
        f"{person} found the {thing} {word}.,{stars}"
        for person in people
        for thing in ("lamp", "radio", "kettle", "basket")
        for word, stars in (("lovely", 5), ("awful", 1))
    ]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,stars", *rows, ""]), encoding="utf-8")
    return tmp_path


def run_page(page: Path, folder: Path, call: Call, exact: bool = True) -> dict[str, Any]:
    """Run a page's blocks in order; `exact`: exit codes are those that the page promises.

    Returns what the Python blocks define.
    """
    names: dict[str, Any] = {}
    for block in blocks(page):
        if block.language == "yaml":
            (folder / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, name_of(page), "exec"), names)
        else:
            assert block.language == "sh", f"{name_of(page)} has a block of {block.language}"
            for command, promised in ended(block.text):
                if not command.startswith(NOT_RUN):
                    assert command.startswith("transexplain "), command
                    code, printed = call(*shlex.split(command)[1:])
                    assert code == promised or not (exact or code), f"{command}\n{printed}"
    return names


OTHERS = [page for page in sorted(TUTORIALS.glob("*.md")) if page.name != "fleet.md"]
RUN = ("README.md", name_of(NOTEBOOKS), *map(name_of, OTHERS))


@pytest.mark.filterwarnings("default::UserWarning")  # what is to be known before an audit
@pytest.mark.parametrize("page", only("README.md", of=RUN))
def test_every_block_of_a_page_runs(page: str, laid_out: Path, call: Call) -> None:
    """With models that learnt little, so a gate may also be kept."""
    exact = page not in ("README.md", "docs/tutorials/text-audit.md")
    run_page(ROOT / page, laid_out, call, exact)
    written = {path.suffix for path in laid_out.rglob("*.html")}
    assert written or not blocks(ROOT / page)


@pytest.mark.exhaustive
def test_the_first_tutorial_keeps_its_promises_with_the_models_of_the_demo(
    tmp_path: Path, call: Call
) -> None:
    page = TUTORIALS / "text-audit.md"
    (demo,) = [line for line in commands_of(page) if line.startswith("transexplain demo")]
    assert call(*shlex.split(demo)[1:])[0] == 0
    for name in re.findall(r"^\| `(text/[^`]+)` \|", page.read_text(encoding="utf-8"), re.M):
        assert (tmp_path / "transexplain-demo" / name).exists(), name
    names = run_page(page, tmp_path, call)
    assert '"mention": "changes"' in call("report", "latest", "--json")[1]
    first, second = te.explain(names["model"], names["texts"])
    assert (first.class_name, second.class_name) == ("positive", "negative")


@pytest.mark.exhaustive
@pytest.mark.redis
@pytest.mark.postgres
def test_every_block_of_the_fleet_tutorial_runs(
    laid_out: Path, postgres_url: str, redis_url: str
) -> None:
    """As processes; workers stay beside what follows and end with SIGTERM."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TRANSEXPLAIN_QUEUE": queue_name_of_test()}
    servers = {"DATABASE_URL": postgres_url, "BROKER_URL": redis_url}
    with ExitStack() as workers:
        for block in blocks(TUTORIALS / "fleet.md"):
            if block.language == "yaml":
                (laid_out / block.title).write_text(block.text, encoding="utf-8")
                continue
            assert block.language == "sh"
            for command, _ in ended(block.text):
                if match := re.fullmatch(r"export TRANSEXPLAIN_(\w+)=(\S+)", command):
                    value = servers.get(match[1], match[2].replace("$PWD", str(laid_out)))
                    env[f"TRANSEXPLAIN_{match[1]}"] = value
                    continue
                assert command.startswith("transexplain "), command
                words = [sys.executable, "-m", "orchestrator.cli", *shlex.split(command)[1:]]
                if words[3] == "worker":
                    workers.enter_context(beside(words, laid_out, env))
                else:
                    subprocess.run(words, cwd=laid_out, env=env, check=True, timeout=300)
        assert list((laid_out / "audits").glob("letters-*.html"))


@contextmanager
def beside(words: list[str], folder: Path, env: dict[str, str]) -> Iterator[None]:
    """Run a command until the end of the page; SIGTERM ends it, and it ends well."""
    with subprocess.Popen(words, cwd=folder, env=env) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=120) == 0


# ---- the site -------------------------------------------------------------------------------


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module that mkdocs calls while it builds the site."""
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(str(DOCS / "hooks"))
    import site_hook

    yield site_hook
    for path in (DOCS / "hooks").glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_generated_parts_are_included_and_list_what_exists(hooks: Any) -> None:
    rows = {
        "methods": [f"| `{name}` |" for name in METHODS],
        "metrics": [f"| `{name}` |" for name in METRICS],
        "command-line": [f"`transexplain {name}`" for name in (*VERBS, *GROUPS)],
        "audit-keys": [f"`{name}`" for name in (*AuditSpec.model_fields, *SECTIONS)],
        "sql-results": [f"### `{one.name}`\n\n{one.comment}\n" for one in RESULT_TABLES],
        "sql-views": [f"### `{name}`\n\n{view.about}\n" for name, view in VIEWS.items()],
        "sql-metrics": [f"| `{name}` | {unit} |" for name, (unit, _) in RUN_METRICS.items()],
        "sql-tables": [f"## `{name}`" for name in metadata.tables],
        "python-names": [
            f"::: transexplain.{name}\n" for name in ("explain", "load_model", "render.overlay")
        ],
        "fleet-metrics": [f"| `{one.shown}` |" for one in FLEET_METRICS],
        "error-classes": ["`ConfigurationError` | 2 |", "`BrokerError` | 4 |"],
        "training-keys": ["`layers_per_interval`"],
        "policy-keys": ["`max_changed_predictions`"],
        "architectures": ["| ALBERT | transformers | encoders |"],
    }
    text = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    included = set(re.findall(r"<!-- generated: ([\w-]+) -->", text))
    assert rows.keys() == hooks.PARTS.keys() == included
    for name, lines in rows.items():
        part = f"{hooks.PARTS[name]()}\n"
        assert [line for line in lines if line not in part] == [], name


def test_every_option_of_a_verb_is_in_its_section(hooks: Any) -> None:
    text = hooks.PARTS["command-line"]()
    for name in VERBS:
        section = text.partition(f"{{ #transexplain-{name} }}")[2].partition("\n## ")[0]
        for option in options_of([name]) - {"--help"}:
            assert option.lstrip("-") in section, f"{name} {option}"


@pytest.mark.exhaustive
def test_the_sample_report_is_of_the_demo_and_can_be_redacted(hooks: Any) -> None:
    whole, redacted = (hooks.rendered(redacted=one) for one in (False, True))
    assert "demo-letters" in whole and "demo-letters" in redacted
    assert "letter-00" in whole and "letter-00" not in redacted


@pytest.mark.exhaustive
def test_the_site_builds_and_its_pages_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, check=True, timeout=300)
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 40
    loaded: list[str] = []

    class Loading(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            values = {name: value or "" for name, value in attrs}
            loaded.append(values.get("src", ""))
            if tag == "link" and values.get("rel") != "canonical":
                loaded.append(values.get("href", ""))

    for page in pages:
        text = page.read_text(encoding="utf-8")
        Loading().feed(text)
        assert "fonts." not in text
    assert [address for address in loaded if re.match(r"(\w+:)?//", address)] == []
