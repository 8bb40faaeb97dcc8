"""A page in a real browser, with all its requests and errors."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = "TRANSEXPLAIN_TEST_CHROMIUM"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
ATTACKS = (
    '<img src=x onerror="window.hacked=1">',
    "\"'><script>window.hacked=1</script>",
    "</script><script>window.hacked=1</script>",
    "javascript:window.hacked=1",
    "' autofocus onfocus='window.hacked=1",
)


def chromium() -> str | None:
    """Where the browser is; None: nowhere."""
    named = os.environ.get(CHROMIUM)
    return named or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium, once for all tests of a module."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = chromium()
    if path is None:
        pytest.skip(f"no Chromium: install it, or say where it is with {CHROMIUM}")
    with sync_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()


@dataclass
class LoadedPage:
    """A page, with all its requests and errors."""

    page: "Page"
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def shown(self) -> list[str]:
        """Ids of the examples that can be seen."""
        return self.page.locator("article:visible .mono").all_text_contents()

    @property
    def count(self) -> str:
        return self.page.locator(".count").inner_text()

    def column(self, table: str, place: int) -> list[str]:
        return self.page.locator(f"{table} tbody tr td:nth-child({place})").all_inner_texts()


LoadPage = Callable[..., LoadedPage]
