"""The pages of the documentation: links, headings, navigation, and what is generated for them."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

import transexplain
from orchestrator.cli.verb_table import GROUPS, VERBS
from orchestrator.monitoring.fleet_metrics import METRICS as FLEET_METRICS
from orchestrator.spec.audit_spec import SECTIONS, AuditSpec
from transexplain.evaluating.metrics import METRICS
from transexplain.methods import METHODS
from transexplain.reports.run_metrics import METRICS as RUN_METRICS
from transexplain.store.schema import RESULT_TABLES, metadata

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FOLDERS = (".", "examples", "benchmarks", "fuzz")
PAGES = sorted(
    {*DOCS.rglob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))}
)
#: what only the built site has
BUILT = {DOCS / "sample" / "report.html", DOCS / "sample" / "redacted.html"}
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_MARKER = re.compile(r"<!-- generated: ([\w-]+) -->")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """What a link may name after `#`: headings in lower case with hyphens, or their own ids."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    own = {found[1] for line in headings if (found := re.search(r"\{ #([\w-]+) \}$", line))}
    return own | {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith(("http:", "https:")):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists() or target.resolve() in BUILT, link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_in_the_docs_is_python(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        if not block.lstrip().startswith(('"', "#")):  # entries of a table
            compile(block, str(page), "exec")


def test_the_readme_is_one_page() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150


def test_citation_names_this_version_and_licence() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == transexplain.__version__
    assert citation["license"] == "Apache-2.0"
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_every_variable_of_the_environment_is_listed() -> None:
    """Names are written out in the code, or given to the readers of settings."""
    page = (DOCS / "reference" / "environment.md").read_text(encoding="utf-8")
    files = [path for folder in ("transexplain", "workers", "orchestrator")
             for path in (ROOT / folder).rglob("*.py")]  # fmt: skip
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    named = set(re.findall(r'(?:secret|_env|_seconds)\("([A-Z_]+)"', text))
    named |= {one.removesuffix("_FILE") for one in re.findall(r"TRANSEXPLAIN_([A-Z_]+)", text)}
    assert named - {""} <= set(re.findall(r"`TRANSEXPLAIN_([A-Z_]+)`", page))


# ---- the papers, row by row -------------------------------------------------------------------

PAPERS = DOCS / "papers.md"
#: title, section of the paper, mark
_CAPABILITY = re.compile(r"^(\S.*) · \*(.+)\* · \*\*(\w+)\*\*\{ \.mark \.(\w+) \}$", re.MULTILINE)
_MARKS = ("yes", "differs", "no")


def capabilities() -> Iterator[tuple[str, str, str, str]]:
    """Of every row its paper's anchor, title, mark and text."""
    for section in re.split(r"^## ", PAPERS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        paper = re.findall(r"\{ #(\w+) \}$", section.partition("\n")[0])
        ends = [*_CAPABILITY.finditer(section)]
        stops = [*(found.start() for found in ends[1:]), len(section)]
        for found, stop in zip(ends, stops, strict=False):
            assert found[3] == found[4] and found[3] in _MARKS, found[1]
            yield paper[0], found[1], found[3], section[found.end() : stop]


def named_tests(text: str) -> set[str]:
    """Such as `tests/test_docs.py::test_links_lead_somewhere`."""
    return set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", text))


def test_every_path_of_the_page_on_the_papers_exists() -> None:
    text = PAPERS.read_text(encoding="utf-8")
    folders = "|".join(
        ("transexplain", "orchestrator", "workers", "benchmarks", "examples", "tests")
    )
    paths = re.findall(rf"`((?:{folders})/[\w/.]+)", text)
    assert len(paths) > 100
    assert [path for path in paths if not (ROOT / path).is_file()] == []


@pytest.mark.exhaustive
def test_every_test_of_the_page_on_the_papers_is_there() -> None:
    named = named_tests(PAPERS.read_text(encoding="utf-8"))
    assert len(named) > 60
    for name in sorted(named):
        file, _, function = name.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert function in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}, name


@pytest.mark.exhaustive
def test_every_test_of_the_page_on_the_papers_can_be_collected() -> None:
    import subprocess

    named = named_tests(PAPERS.read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "", "--collect-only"]
    command += sorted(named)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    collected = {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}
    assert named <= collected


def test_what_is_marked_as_shown_names_what_shows_it() -> None:
    """A test, or a command with what it printed."""
    rows = [*capabilities()]
    assert len({(paper, title) for paper, title, _, _ in rows}) == len(rows) > 78
    for _, title, mark, text in rows:
        command = re.search(r"`(transexplain|python -m) ", text) and re.search(r"\d", text)
        assert mark == "no" or named_tests(text) or command, title


def test_marks_of_the_papers_are_counted() -> None:
    counts = Counter((paper, mark) for paper, _, mark, _ in capabilities())
    table = re.findall(r"^\| \[.+\]\(#(\w+)\) \| (\d+) \| (\d+) \| (\d+) \|$",
                       PAPERS.read_text(encoding="utf-8"), re.MULTILINE)  # fmt: skip
    assert {paper for paper, *_ in table} == {paper for paper, _ in counts}
    for paper, *numbers in table:
        assert numbers == [str(counts[paper, mark]) for mark in _MARKS], paper
    everything = " | ".join(str(sum(counts[p, m] for p, *_ in table)) for m in _MARKS)
    assert f"| all | {everything} |" in PAPERS.read_text(encoding="utf-8")


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


def test_pages_include_existing_parts_only_and_every_part(hooks: Any) -> None:
    pages = DOCS.rglob("*.md")
    named = {name for page in pages for name in _MARKER.findall(page.read_text(encoding="utf-8"))}
    assert named == set(hooks.PARTS)


def test_generated_parts_list_what_exists(hooks: Any) -> None:
    wanted = {
        "methods": [f"| `{name}` |" for name in METHODS],
        "metrics": [f"| `{name}` |" for name in METRICS],
        "command-line": [f"`transexplain {name}`" for name in (*VERBS, *GROUPS)],
        "audit-keys": [f"`{name}`" for name in (*AuditSpec.model_fields, *SECTIONS)],
        "sql-results": [f"### `{one.name}`\n\n{one.info['about']}\n" for one in RESULT_TABLES],
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
    assert wanted.keys() == hooks.PARTS.keys()
    for name, lines in wanted.items():
        part = f"{hooks.PARTS[name]()}\n"
        for line in lines:
            assert line in part, f"{name} lacks {line}"


def test_every_column_of_the_results_is_described_with_its_type(hooks: Any) -> None:
    from markdown_text import cell

    sections = hooks.PARTS["sql-results"]().split("### ")[1:]
    assert len(sections) == len(RESULT_TABLES)
    for one, section in zip(RESULT_TABLES, sections, strict=True):
        rows = [line for line in section.splitlines() if line.startswith("| `")]
        assert len(rows) == len(one.c)
        for column, row in zip(one.c, rows, strict=True):
            kind = str(column.type).lower()
            null = " or NULL" if column.nullable else ""
            about = cell(column.info["about"])
            assert row == f"| `{column.name}` | `{SHOWN.get(kind, kind)}`{null} | {about} |"
            assert len(about) > 5


#: type of a column -> as PostgreSQL writes it, where that differs
SHOWN = {"double": "double precision"}


def test_every_option_of_a_verb_is_in_its_section(hooks: Any) -> None:
    from test_docs_commands import options_of

    text = hooks.PARTS["command-line"]()
    for name in VERBS:
        section = text.partition(f"{{ #transexplain-{name} }}")[2].partition("\n## ")[0]
        for option in options_of([name]) - {"--help"}:
            assert option.lstrip("-") in section, f"{name} {option}"


def test_links_of_the_repository_become_links_of_the_site(hooks: Any) -> None:
    text = "[a](../../SECURITY.md#x) [`b`](../../workers/app.py) [c](x.md) ![d](../images/e.png)"
    assert hooks.with_site_links(text, "how-to/fleet.md") == (
        "[a](../contribute/security.md#x) `b` [c](x.md) ![d](../images/e.png)"
    )
    mounted = hooks.with_site_links("[f](docs/how-to/fleet.md)", "contribute/security.md")
    assert mounted == "[f](../how-to/fleet.md)"
    code = "```sh\n[a](../../workers/app.py)\n```"
    assert hooks.with_site_links(code, "how-to/fleet.md") == code


@pytest.mark.exhaustive
def test_the_sample_report_is_of_the_demo_and_can_be_redacted(hooks: Any) -> None:
    whole, redacted = (hooks.rendered(redacted=one) for one in (False, True))
    assert "demo-letters" in whole and "demo-letters" in redacted
    assert "village/harbour" in whole
    assert "letter-00" in whole and "letter-00" not in redacted


class _Loaded(HTMLParser):
    """Addresses that a page loads by itself: scripts, styles, pictures, frames."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        loads = tag == "link" and given.get("rel") != "canonical"
        self.found += [given["src"] or ""] if "src" in given else []
        self.found += [given.get("href") or ""] if loads else []


@pytest.mark.exhaustive
def test_the_site_builds_and_its_pages_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    import subprocess

    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, check=True, timeout=300)
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        parser = _Loaded()
        parser.feed(page.read_text(encoding="utf-8"))
        for address in parser.found:
            local = not re.match(r"(\w+:)?//", address)
            assert local, f"{page.name} loads {address}"
        assert "fonts." not in page.read_text(encoding="utf-8")
