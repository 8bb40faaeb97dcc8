"""A browser for the tests of the reports."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_pages import LoadedPage, LoadPage, browser

__all__ = ["browser"]  # a fixture


@pytest.fixture
def load_page(browser: Any, tmp_path: Path) -> Iterator[LoadPage]:
    """Loads a document from a file; it may request nothing but that file."""
    contexts = []

    def open_page(document: str, **settings: object) -> LoadedPage:
        path = tmp_path / "report.html"
        path.write_text(document, encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": 1200, "height": 900}, **settings))
        loaded = LoadedPage(contexts[-1].new_page())
        page, complaints = loaded.page, loaded.complaints

        def note(message: Any) -> None:
            complaints.extend([message.text] * (message.type in ("error", "warning")))

        page.set_default_timeout(5_000)
        page.on("request", lambda request: loaded.requests.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", note)
        page.goto(path.as_uri())
        assert loaded.requests == [path.as_uri()]
        return loaded

    yield open_page
    for context in contexts:
        context.close()
