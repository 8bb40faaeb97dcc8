"""A page in a real browser, with all its requests and errors."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

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
