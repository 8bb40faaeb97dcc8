"""Links between the pages: each leads to a file that is there, and to a heading that it has."""

import re
from pathlib import Path

import pytest
import yaml

from orchestrator.spec import AuditSpec

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (".", "docs", "docs/extending", "examples", "benchmarks", "fuzz")
PAGES = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")


def anchors(page: Path) -> set[str]:
    """What a link may name after `#`: headings in lower case, with hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith(("http:", "https:")):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_of_docs_is_linked_from_the_readme() -> None:
    linked = set(_LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    linked |= {link.partition("#")[0] for link in linked}
    for page in (ROOT / "docs").glob("*.md"):
        assert f"docs/{page.name}" in linked, page.name


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("name", ["README.md", "docs/specification.md"])
def test_specifications_in_the_docs_are_valid(name: str) -> None:
    (document,) = (yaml.safe_load(block) for block in blocks(ROOT / name, "yaml"))
    assert AuditSpec.model_validate(document).name == "reviews"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_in_the_docs_is_python(page: Path) -> None:
    for block in blocks(page, "python"):
        if not block.lstrip().startswith(('"', "#")):  # entries of a table
            compile(block, str(page), "exec")


def test_the_readme_is_one_page() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 160
